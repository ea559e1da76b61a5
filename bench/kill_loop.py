"""Kill a run again and again, at random instants, and see that nothing measured is lost.

``python bench/kill_loop.py ROUNDS [SEED]``. Each round drives a short ladder against a scripted endpoint, sends one signal
to one of its processes at a random instant, and then asks: are closed rungs as they were, is no process left, does the
folder open, does ``--resume`` complete it, is there no traceback, is the exit code one of the contract's? Prints one line
per round and a table at the end; exit code 1 if a rule was broken.
"""

from __future__ import annotations

import collections
import contextlib
import hashlib
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
RUNGS = 4
MARK = "PINCHPOINT_KILL_LOOP"
LEFT_S = 20.0
LONGEST_S = {"parent": 12.0, "worker": 5.0, "sampler": 5.0}  # about as long as each lives
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
    part = {"worker": "pinchpoint.drive.worker", "sampler": "pinchpoint.watch.sampler"}.get(who)
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
        [*COMMAND, *arguments], cwd=folder, capture_output=True, text=True, timeout=180,
        env={**os.environ, MARK: tag}, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def one_round(
    url: str, who: str, number: signal.Signals, after_s: float, tag: str, home: Path
) -> tuple[str, list[str]]:
    folder, broken = home / "out", []
    run = subprocess.Popen(
        [*COMMAND, "run", "-u", url, *LADDER, "--workers", "2", "--no-self-check", "-o", "out"],
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
    said = run.communicate(timeout=180)[0]
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
        broken += _read_and_resume(folder, before, tag)
    return (
        f"hit {'nobody' if hit is None else who}, code {code}, {len({n[-14:-8] for n in before})} rungs kept",
        broken,
    )


def _read_and_resume(folder: Path, before: dict[str, str], tag: str) -> list[str]:
    broken = []
    code, said = call(folder.parent, "analyse", "out", tag=tag)
    if code not in (0, 1) or "Traceback" in said:
        broken.append(f"analyse: {code} {said.strip()[-200:]}")
    code, said = call(folder.parent, "run", "--resume", "out", tag=tag)
    if code != 0 or "Traceback" in said:
        broken.append(f"resume: {code} {said.strip()[-300:]}")
    after = closed_files(folder)
    broken += [f"changed or lost: {name}" for name, text in before.items() if after.get(name) != text]
    marks = duckdb.sql(
        f"select count(distinct rung) from '{folder}/marks.parquet' where stage = 'rung'"
    ).fetchall()
    if marks[0][0] < RUNGS:  # a fall is measured again
        broken.append(f"resume: {marks} rungs of {RUNGS}")
    odd = [path.name for path in folder.rglob("*") if path.name.endswith(".unfinished")]
    return broken + [f"left over: {name}" for name in odd]


def main(rounds: int, seed: int) -> int:
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a shell's background job ignores it, and so its children
    chance = random.Random(seed)
    tries: collections.Counter[str] = collections.Counter()
    faults: collections.Counter[str] = collections.Counter()
    with ScriptedProcess(Script(replies=(Reply(ttft_ms=20, gap_ms=10),))) as endpoint:
        for count in range(rounds):
            who, number = FAULTS[count % len(FAULTS)]
            after_s, tag = chance.uniform(0.0, LONGEST_S[who]), f"{os.getpid()}-{count}"
            home = Path(tempfile.mkdtemp(prefix="kill-loop-"))
            try:
                what, broken = one_round(endpoint.url, who, number, after_s, tag, home)
            finally:
                for process in processes(tag):
                    process.kill()
                shutil.rmtree(home, ignore_errors=True)
            name = f"{number.name} {who}"
            tries[name] += 1
            faults[name] += bool(broken)
            print(
                f"{count:3d} {name:16} after {after_s:4.1f} s: {what}", *broken, sep="\n      ! ", flush=True
            )
    for name in tries:
        print(f"{name:16} {tries[name]:3d} tries, {faults[name]} broke a rule")
    return 1 if sum(faults.values()) else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1))
