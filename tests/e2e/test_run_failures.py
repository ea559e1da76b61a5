"""What goes wrong around a run: each is a clear message or a row, the exit code of the contract, nothing lost."""

from __future__ import annotations

import contextlib
import http.server
import json
import socket
import threading

import pytest
from product import rungs

from pinchpoint.engines.scripted import Reply, Script

QUICK = (
    "--profile",
    "p=16/4",
    "--concurrency",
    "2",
    "--requests-per-slot",
    "2",
    "--workers",
    "1",
    "-o",
    "out",
)
FAST = Reply(ttft_ms=5, gap_ms=2)
SECRET = "sk-a-very-secret-key-7f3a"


@contextlib.contextmanager
def answering(server: str, model: str):
    """An endpoint that says so of itself; answers are streamed, as long as asked, and end with their connection."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def version_string(self) -> str:
            return server

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            known = self.path == "/v1/models"
            body = json.dumps({"data": [{"id": model}]} if known else {}).encode()
            self.send_response(200 if known else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            n, prompt = asked.get("max_tokens", 4), asked.get("prompt", [])
            usage = {"prompt_tokens": len(prompt), "completion_tokens": n, "total_tokens": len(prompt) + n}
            events = [{"choices": [{"index": 0, "text": " a", "finish_reason": None}]} for _ in range(n)]
            events[-1]["choices"][0]["finish_reason"] = "length"
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            for event in [*events, {"choices": [], "usage": usage}]:
                self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")
            self.wfile.write(b"data: [DONE]\n\n")

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{served.server_port}"
        finally:
            served.shutdown()


def closed_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


REFUSED = [
    # script, more flags, words the message must have
    (Script(prefix="/elsewhere"), (), ("404",)),  # the wrong path: the test leaves the prefix out
    (Script(), ("-m", "other"), ("other", "scripted", "--model")),
    (Script(api_key="k"), (), ("401", "--api-key")),
    (Script(replies=(Reply(body="<html><body>hello</body></html>", content_type="text/html"),)), (), ("html",)),
    (Script(replies=(Reply(status=500, body='{"error": {"message": "out of memory"}}'),)), (), ("500", "out of memory")),
    (Script(replies=(Reply(error_after=0, error_message="engine is dead"),)), (), ("engine is dead",)),
]  # fmt: skip


@pytest.mark.parametrize(("script", "flags", "words"), REFUSED)
def test_an_endpoint_that_refuses_ends_the_run_before_it_begins(scripted, pinchpoint, script, flags, words):
    url = scripted(script).url.removesuffix("/elsewhere")
    done = pinchpoint("run", "-u", url, *flags, *QUICK)
    assert done.code == 2, done.said
    assert all(word.lower() in done.said.lower() for word in words), done.said
    assert "Traceback" not in done.said
    assert not (pinchpoint.home / "out").exists()


def test_no_server(pinchpoint):
    done = pinchpoint("run", "-u", f"http://127.0.0.1:{closed_port()}", *QUICK)
    assert done.code == 2
    assert "refused" in done.said.lower()
    assert "Traceback" not in done.said


def test_a_demo_of_an_unknown_engine(pinchpoint):
    done = pinchpoint("demo", "--engine", "warp")
    assert done.code == 2
    assert "twin, llamacpp" in done.said


def test_no_http_server(pinchpoint):
    """Something listens that speaks no HTTP (here: it says a banner and hangs up)."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def banner() -> None:
            for _ in range(20):
                try:
                    link, _ = listening.accept()
                except OSError:
                    return
                link.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
                link.close()

        threading.Thread(target=banner, daemon=True).start()
        done = pinchpoint("run", "-u", f"http://127.0.0.1:{listening.getsockname()[1]}", *QUICK)
        listening.shutdown(socket.SHUT_RDWR)
    assert done.code == 2, done.said
    assert "http" in done.said.lower()
    assert "Traceback" not in done.said


def test_a_self_signed_certificate_is_refused_until_it_is_trusted(scripted, pinchpoint, self_signed):
    url = scripted(Script(replies=(FAST,), certificate=self_signed)).url
    refused = pinchpoint("run", "-u", url, *QUICK)
    assert refused.code == 2
    assert "certificate" in refused.said.lower()
    assert "--insecure" in refused.said
    assert "--ca-file" in refused.said
    for number, flags in enumerate((("--ca-file", self_signed), ("--insecure",))):
        done = pinchpoint("run", "-u", url, *flags, *QUICK[:-1], f"out{number}")
        assert done.whole, done.said


def test_failed_requests_are_rows_and_make_the_exit_code_1(scripted, pinchpoint):
    """Every fourth answer is a 429: a quarter fails, more than 5 %."""
    script = Script(replies=(FAST, FAST, FAST, Reply(osl=None, ttft_ms=5, status=429, body="slow down")))
    done = pinchpoint(
        "run", "-u", scripted(script).url, "--profile", "p=16/4", "--concurrency", "2", "--requests-per-slot", "16",
        "-o", "out", "--workers", "1",
    )  # fmt: skip
    assert done.code == 1, done.said
    rung = rungs(pinchpoint.home / "out")["p", 2]
    assert rung["requests"] == 32
    assert rung["failed"] in (7, 8, 9)
    assert rung["errors"] == {"rate_limited": rung["failed"]}
    assert not rung["valid"]
    assert any("of the requests failed, more than 5" in reason for reason in rung["invalid_reasons"])


def test_keys_appear_in_no_file_and_no_message(scripted, pinchpoint):
    (pinchpoint.home / "key").write_text(SECRET + "\n")
    script = Script(replies=(FAST,), api_key=SECRET)
    ways = [
        ((), {"OPENAI_API_KEY": SECRET}),
        (("--api-key", "env:MY_KEY"), {"MY_KEY": SECRET}),
        (("--api-key", f"file:{pinchpoint.home / 'key'}"), {}),
        (("-H", "Authorization: env:MY_HEADER"), {"MY_HEADER": f"Bearer {SECRET}"}),
        # Written out, which nobody should, and beside it a body that holds one.
        (("-H", f"Authorization: Bearer {SECRET}", "--extra-body", f'{{"api_key": "{SECRET}"}}'), {}),
    ]
    for number, (flags, environment) in enumerate(ways):
        done = pinchpoint(
            "run", "-u", scripted(script).url, *flags, *QUICK[:-1], f"out{number}", **environment
        )
        assert done.whole, done.said
        assert SECRET not in done.out + done.err
        pinchpoint("report", f"out{number}", "--format", "markdown")
        files = [path for path in (pinchpoint.home / f"out{number}").rglob("*") if path.is_file()]
        assert len(files) > 5
        assert (pinchpoint.home / f"out{number}" / "report.html") in files
        assert [path for path in files if SECRET.encode() in path.read_bytes()] == []


def test_a_server_that_says_the_key_of_itself_does_not_bring_it_into_the_record(pinchpoint):
    """In its Server header it is hidden; a model of that name would stand in every file, and is refused."""
    with answering(server=SECRET, model="m") as url:
        done = pinchpoint("run", "-u", url, *QUICK[:-1], "out", OPENAI_API_KEY=SECRET)
    assert SECRET not in done.said
    for path in (pinchpoint.home / "out").rglob("*"):
        assert path.is_dir() or SECRET.encode() not in path.read_bytes(), path
    with answering(server="plain", model=f"model-{SECRET}") as url:
        refused = pinchpoint("run", "-u", url, *QUICK[:-1], "out2", OPENAI_API_KEY=SECRET)
    assert refused.code == 2
    assert "its model's name repeats the key" in refused.said
    assert SECRET not in refused.said
    assert not (pinchpoint.home / "out2").exists()


def test_a_home_folder_is_one_and_not_two(scripted, pinchpoint):
    """``~`` is the home folder for all that is written; the home of nobody is refused."""
    home = pinchpoint.home / "at-home"
    home.mkdir()
    done = pinchpoint(
        "run", "-u", scripted(Script(replies=(FAST,))).url, *QUICK[:-1], "~/runs/one", HOME=str(home)
    )
    assert done.whole, done.said
    assert (home / "runs" / "one" / "plan.json").exists()
    assert not (pinchpoint.home / "~").exists()
    nobody = pinchpoint("run", "-u", "http://127.0.0.1:9", *QUICK[:-1], "~nobody-at-all/one")
    assert nobody.code == 2
    assert "write the whole path" in nobody.said


def test_a_server_that_repeats_the_key_does_not_bring_it_into_the_record(scripted, pinchpoint):
    echo = Reply(osl=4, ttft_ms=5, status=403, body=f"key {SECRET} is not allowed, {'x' * 50}")
    script = Script(replies=(*[FAST] * 12, echo))
    done = pinchpoint(
        "run", "-u", scripted(script).url, "--profile", "p=16/4", "--concurrency", "1", "--requests-per-slot", "5",
        "-o", "out", "--workers", "1", OPENAI_API_KEY=SECRET,
    )  # fmt: skip
    assert done.code in (0, 1, 2)
    assert SECRET not in done.out + done.err
    for path in (pinchpoint.home / "out").rglob("*"):
        assert path.is_dir() or SECRET.encode() not in path.read_bytes(), path
    refused = pinchpoint(
        "run", "-u", scripted(Script(replies=(Reply(status=403, body=f"bad key {SECRET}"),))).url, *QUICK[:-1], "out2",
        OPENAI_API_KEY=SECRET,
    )  # fmt: skip
    assert refused.code == 2
    assert SECRET not in refused.said
