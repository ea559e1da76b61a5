"""A small load generator with AIPerf's command line and result file: it keeps so many requests in flight.

Told by ``STAND_IN``: ``fail`` ends at once and says its command line, ``slow`` lets slots stand idle 200 ms.
"""

from __future__ import annotations

import http.client
import itertools
import json
import os
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit


def options(arguments: list[str]) -> dict[str, str]:
    return {name: value for name, value in itertools.pairwise(arguments) if name.startswith("--")}


def ask(url: str, model: str, prompt: str, osl: int) -> tuple[float, list[float]]:
    where = urlsplit(url)
    connection = http.client.HTTPConnection(where.hostname, where.port, timeout=30)
    body = {"model": model, "prompt": prompt, "max_tokens": osl, "stream": True}
    headers = {"Content-Type": "application/json"}
    if "OPENAI_API_KEY" in os.environ:
        headers["Authorization"] = f"Bearer {os.environ['OPENAI_API_KEY']}"
    sent = time.perf_counter()
    connection.request("POST", "/v1/completions", json.dumps(body), headers)
    answer = connection.getresponse()
    assert answer.status == 200, answer.status
    times = []
    for line in answer:
        told = json.loads(line[6:]) if line.startswith(b"data: {") else {}
        if any(choice.get("text") for choice in told.get("choices") or ()):
            times.append(time.perf_counter())
    connection.close()
    return sent, times


def main() -> None:
    given = options(sys.argv[1:])
    mode = os.environ.get("STAND_IN", "")
    print("called with", *sys.argv[1:], flush=True)
    if not Path(
        given["--tokenizer"]
    ).is_dir():  # it is looked for from here, in the folder the tool is run in
        sys.exit(f"no tokenizer at {given['tokenizer']}")
    if mode == "fail":
        sys.exit(f"cannot: {os.environ.get('OPENAI_API_KEY')}")
    rows = [json.loads(line) for line in Path(given["--input-file"]).read_text().splitlines()]
    seen, lock = [], threading.Lock()
    waiting = iter(rows[: int(given["--request-count"])])

    def slot() -> None:
        while True:
            with lock:
                row = next(waiting, None)
            if row is None:
                return
            found = ask(given["--url"], given["--model"], row["text_input"], row["output_length"])
            with lock:
                seen.append(found)
            time.sleep(0.2 if mode == "slow" else 0)

    slots = [threading.Thread(target=slot) for _ in range(int(given["--concurrency"]))]
    for thread in slots:
        thread.start()
    for thread in slots:
        thread.join()
    write(seen, given)


def write(seen: list[tuple[float, list[float]]], given: dict[str, str]) -> None:
    def stats(values: list[float], unit: str = "ms") -> dict[str, object]:
        ordered = sorted(values)
        return {"unit": unit, "avg": sum(values) / len(values), "p50": ordered[len(ordered) // 2],
                "max": ordered[-1], "count": len(values), "sum": sum(values)}  # fmt: skip

    n, isl = len(seen), [len(json.loads(line)["text_input"].split()) for line in
                         Path(given["--input-file"]).read_text().splitlines()]  # fmt: skip
    seconds = max(times[-1] for _, times in seen) - min(sent for sent, _ in seen)
    result = {
        "schema_version": "1.4", "aiperf_version": "0.13.0",
        "request_count": {"unit": "requests", "avg": n},
        "time_to_first_token": stats([1000 * (t[0] - sent) for sent, t in seen]),
        "inter_token_latency": stats([1000 * (t[-1] - t[0]) / (len(t) - 1) for _, t in seen]),
        "inter_chunk_latency": stats([1000 * (b - a) for _, t in seen for a, b in itertools.pairwise(t)]),
        "request_latency": stats([1000 * (t[-1] - sent) for sent, t in seen]),
        "output_sequence_length": stats([len(t) for _, t in seen], "tokens"),
        "input_sequence_length": stats(isl[:n], "tokens"),
        "benchmark_duration": {"unit": "sec", "avg": seconds},
        "input_config": {"phases": [{"kind": "profiling", "concurrency": int(given["--concurrency"])}],
                         "endpoint": {"type": "completions"}},
        "run_info": {"cli_command": f"key {os.environ.get('OPENAI_API_KEY')}"},
        "was_cancelled": False, "is_complete": True,
    }  # fmt: skip
    Path(given["--output-artifact-dir"], "profile_export_aiperf.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
