"""Kill a run again and again, at random instants, and see that nothing measured is lost.

``python bench/kill_loop.py ROUNDS [SEED] [SIGNAL]``. Each round drives a short ladder against a scripted endpoint, sends
one signal to one of its processes at a random instant, and then asks: are closed rungs as they were, is no process left,
does the folder open and show just what was closed, does it say that it is not finished, does ``--resume`` complete it, is
there no traceback, is the exit code one of the contract's? With ``SIGNAL`` (``SIGKILL``) it is only that one. Prints one
line per round and a table at the end; exit code 1 if a rule was broken.
"""

from __future__ import annotations

import collections
import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb
import psutil

from pinchpoint.engines.scripted import Reply, Script, ScriptedProcess

COMMAND = [sys.executable, "-m", "pinchpoint"]
LADDER = ("--profile", "a=16/4", "--profile", "b=64/24", "--concurrency", "1,2", "--requests-per-slot", "3")
ORDER = ("run", *LADDER, "--workers", "2", "--no-self-check", "-o", "out", "-u")  # and then where
RUNGS = 4
MARK = "PINCHPOINT_KILL_LOOP"
LEFT_S = 20.0
LONGEST_S = 900  # of one command, on a host with other work
LIVES = {
    "parent": 1.0,
    "worker": 0.5,
    "sampler": 0.5,
}  # share of an undisturbed run that each is there, about
# Who is hit, and how.
FAULTS = (
    ("parent", signal.SIGKILL),
    ("worker", signal.SIGKILL),
    ("sampler", signal.SIGKILL),
    ("parent", signal.SIGTERM),
    ("parent", signal.SIGINT),
    ("worker", signal.SIGTERM),
    ("worker", signal.SIGSTOP),
)  # fmt: skip


def processes(tag: str) -> list[psutil.Process]:
    """All that the run started, by a mark in their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == tag and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def victim(run: subprocess.Popen[str], who: str) -> psutil.Process | None:
    """The process to hit, waited for until it is there; None once the run is over."""
    part = {
        "worker": "pinchpoint.drive.worker",
        "sampler": "pinchpoint.watch.sampler",
    }.get(who)
    while run.poll() is None:
        with contextlib.suppress(psutil.Error):
            parent = psutil.Process(run.pid)
            if part is None:
                return parent
            for child in parent.children():
                if part in child.cmdline():
                    return child
        time.sleep(0.05)
    return None


def closed_files(folder: Path) -> dict[str, str]:
    """Name → hash of every file that belongs to a closed rung."""
    if not (folder / "marks.parquet").exists():
        return {}
    marks = f"select rung, note from '{folder}/marks.parquet' where stage = 'rung'"
    closed = {
        f"r{rung:04d}-" for rung, note in duckdb.sql(marks).fetchall() if not note.startswith("cut short")
    }
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.glob("*/*.parquet"))
        if path.name[:6] in closed
    }


def call(folder: Path, *arguments: str, tag: str) -> tuple[int, str]:
    done = subprocess.run(
        [*COMMAND, *arguments], cwd=folder, capture_output=True, text=True, timeout=LONGEST_S,
        env={**os.environ, MARK: tag}, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def one_round(
    url: str, who: str, number: signal.Signals, after_s: float, tag: str, home: Path
) -> tuple[str, int, list[str]]:
    folder, broken = home / "out", []
    run = subprocess.Popen(
        [*COMMAND, *ORDER, url],
        cwd=home, env={**os.environ, MARK: tag},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    hit = victim(run, who)
    time.sleep(after_s)
    with contextlib.suppress(psutil.Error):
        if hit is not None and hit.is_running():
            hit.send_signal(number)
            if number == signal.SIGSTOP:
                time.sleep(5)
                hit.send_signal(signal.SIGCONT)
    said = run.communicate(timeout=LONGEST_S)[0]
    code = run.returncode
    allowed = {0, 1, 2} if not (who == "parent" and number == signal.SIGKILL) else {-9, 0}
    if who == "parent" and number == signal.SIGINT:
        allowed.add(-number)  # CPython's own way out, when Ctrl-C falls into an eval()
    if code not in allowed:
        broken.append(f"exit code {code}: {said.strip()[-300:]}")
    if "Traceback" in said:
        broken.append("traceback: " + said.strip().splitlines()[-1])
    end = time.monotonic() + LEFT_S
    while (left := processes(tag)) and time.monotonic() < end:
        time.sleep(0.2)
    broken += [f"left behind: {' '.join(process.cmdline()[-2:])}" for process in left]
    before = closed_files(folder)
    if (folder / "plan.json").exists():
        broken += _read_and_resume(folder, before, tag, killed=code == -signal.SIGKILL)
    kept = len({Path(name).name[:5] for name in before})
    return f"hit {'nobody' if hit is None else who}, code {code}, {kept} rungs kept", code, broken


def undisturbed(url: str) -> float:
    """Seconds that the run takes on this host now."""
    with tempfile.TemporaryDirectory(prefix="kill-loop-") as home:
        begun = time.monotonic()
        code, said = call(Path(home), *ORDER, url, tag="none")
        if code:
            raise SystemExit(f"the run that nobody disturbs ends with {code}: {said}")
        return time.monotonic() - begun


def _read_and_resume(folder: Path, before: dict[str, str], tag: str, *, killed: bool) -> list[str]:
    broken = []
    code, said = call(folder.parent, "analyse", "out", tag=tag)
    if code not in (0, 1) or "Traceback" in said:
        broken.append(f"analyse: {code} {said.strip()[-200:]}")
    elif killed and '"stopped"' not in (folder / "facts.json").read_text() and "is not finished" not in said:
        broken.append("analyse does not say that the run is not finished")
    elif (shown := _shown(folder)) != _marked(folder):
        broken.append(f"analyse shows rungs {shown}, closed are {_marked(folder)}")
    code, said = call(folder.parent, "run", "--resume", "out", tag=tag)
    if code != 0 or "Traceback" in said:
        broken.append(f"resume: {code} {said.strip()[-300:]}")
    after = closed_files(folder)
    broken += [f"changed or lost: {name}" for name, text in before.items() if after.get(name) != text]
    marked = _marked(folder)
    if len(marked) < RUNGS:  # a fall is measured again
        broken.append(f"resume: rungs {marked}, not {RUNGS}")
    odd = [path.name for path in folder.rglob("*") if path.name.endswith(".unfinished")]
    return broken + [f"left over: {name}" for name in odd]


def _marked(folder: Path) -> list[int]:
    marks = f"select distinct rung from '{folder}/marks.parquet' where stage = 'rung' order by rung"
    return [row[0] for row in duckdb.sql(marks).fetchall()]


def _shown(folder: Path) -> list[int]:
    return sorted(rung["rung"] for rung in json.loads((folder / "findings.json").read_text())["rungs"])


def main(rounds: int, seed: int, only: str | None = None) -> int:
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a shell's background job ignores it, and so its children
    chance = random.Random(seed)
    tries: collections.Counter[str] = collections.Counter()
    faults: collections.Counter[str] = collections.Counter()
    chosen = [fault for fault in FAULTS if only in (None, fault[1].name)]
    codes: dict[str, collections.Counter[int]] = collections.defaultdict(collections.Counter)
    with ScriptedProcess(Script(replies=(Reply(ttft_ms=20, gap_ms=10),))) as endpoint:
        whole_s = undisturbed(endpoint.url)
        print(f"an undisturbed run takes {whole_s:.1f} s", flush=True)
        for count in range(rounds):
            who, number = chosen[count % len(chosen)]
            after_s, tag = chance.uniform(0.0, LIVES[who] * whole_s), f"{os.getpid()}-{count}"
            home = Path(tempfile.mkdtemp(prefix="kill-loop-"))
            try:
                what, code, broken = one_round(endpoint.url, who, number, after_s, tag, home)
            finally:
                for process in processes(tag):
                    process.kill()
                shutil.rmtree(home, ignore_errors=True)
            name = f"{number.name} {who}"
            tries[name] += 1
            codes[name][code] += 1
            faults[name] += bool(broken)
            print(
                f"{count:3d} {name:16} after {after_s:4.1f} s: {what}", *broken, sep="\n      ! ", flush=True
            )
    for name in tries:
        seen = ", ".join(f"{code} × {times}" for code, times in sorted(codes[name].items()))
        print(f"{name:16} {tries[name]:3d} tries, {faults[name]} broke a rule; exit codes {seen}")
    return 1 if sum(faults.values()) else 0


if __name__ == "__main__":
    words = dict(enumerate(sys.argv))
    sys.exit(main(int(words[1]), int(words.get(2, 1)), words.get(3)))
