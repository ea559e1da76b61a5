"""Fixtures shared by all rooms: endpoints on loopback."""

from __future__ import annotations

import contextlib
import shutil
import subprocess

import pytest
from hypothesis import settings

from pinchpoint.engines.scripted import Script, ScriptedProcess, ScriptedThread

# No test watches how long an example takes: a shared machine may stand still for a while.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


@pytest.fixture
def scripted():
    """``scripted(Script(...))`` starts an endpoint of known timing; ``.url``, ``.truth()``.

    In a thread by default; ``own_process=True`` where its times must not share the test's interpreter.
    """
    with contextlib.ExitStack() as running:

        def start(script: Script = Script(), own_process: bool = False) -> ScriptedThread | ScriptedProcess:  # noqa: B008
            return running.enter_context(ScriptedProcess(script) if own_process else ScriptedThread(script))

        yield start


@pytest.fixture(scope="session")
def self_signed(tmp_path_factory) -> str:
    """A PEM file with a self-signed certificate for 127.0.0.1 and its key."""
    openssl = shutil.which("openssl")
    assert openssl, "the tests need the openssl command"
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=pinchpoint-test",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", folder / "key.pem", "-out", folder / "cert.pem"],
        check=True,
        capture_output=True,
    )  # fmt: skip
    both = folder / "both.pem"
    both.write_bytes((folder / "key.pem").read_bytes() + (folder / "cert.pem").read_bytes())
    return str(both)
