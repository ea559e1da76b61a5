"""The templates are well-formed, and their command lines are ones; a run under them goes on where it was stopped."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from pinchpoint.cli import app
from pinchpoint.engines.scripted import Reply, Script, ScriptedThread

DEPLOY = Path(__file__).parent.parent / "deploy"


def kubernetes() -> str:
    job, claim = yaml.safe_load_all((DEPLOY / "kubernetes-job.yaml").read_text())
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert job["kind"] == "Job"
    assert pod["restartPolicy"] == "Never"  # what podFailurePolicy asks for
    assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert container["volumeMounts"][0]["name"] == pod["volumes"][0]["name"]
    assert container["resources"]["requests"] == container["resources"]["limits"]
    assert container["command"] == ["/bin/sh", "-ec"]
    return container["args"][0]


def slurm() -> str:
    return (DEPLOY / "slurm.sh").read_text()


@pytest.mark.parametrize("template", [kubernetes, slurm])
def test_commands_are_ones(template):
    text = template()
    subprocess.run(["bash", "-n", "-c", text], check=True)
    told = text.replace("$ENGINE_URL", "http://h:8000 http://i:8000").replace("$RESULTS", "/results/run")
    lines = re.findall(r"^\s*exec .*?(pinchpoint run .*)$", told, re.M)
    assert len(lines) == 2
    for line in lines:
        app.parse_args(shlex.split(line)[1:], exit_on_error=False, print_error=False)
    assert sum("--resume" in line for line in lines) == 1


@pytest.mark.parametrize("template", [kubernetes, slurm])
def test_a_second_try_goes_on_with_the_first(template, tmp_path):
    """The shell is the template's own; load and folder are small, and ``srun`` runs its command."""
    bin = tmp_path / "bin"
    bin.mkdir()
    (bin / "pinchpoint").write_text(f'#!/bin/sh\nexec {sys.executable} -m pinchpoint "$@"\n')
    (bin / "srun").write_text('#!/bin/sh\nshift\nexec "$@"\n')
    for each in bin.iterdir():
        each.chmod(0o755)
    load = "--profile p=16/4 --requests-per-slot 2 --workers 1 --no-self-check --watch none"
    text = template().replace("/results/run", str(tmp_path / "run")).replace("--profile mixed", load)
    text = text.replace("--concurrency 8,16,32", "--concurrency 1,2")
    with ScriptedThread(Script(replies=(Reply(ttft_ms=5, gap_ms=1),))) as endpoint:
        environment = {
            **os.environ, "PATH": f"{bin}:{os.environ['PATH']}", "ENGINE_URL": endpoint.url,
            "RESULTS": str(tmp_path / "run"),
        }  # fmt: skip
        for _ in range(2):
            done = subprocess.run(
                ["bash", "-ec", text],
                env=environment,
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=90,
            )
            assert done.returncode in (0, 1), done.stderr
            assert (tmp_path / "run" / "report.html").exists()
        assert "holds a run already" not in done.stderr
