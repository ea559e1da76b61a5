"""What an installation weighs, and what it holds."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
HEAVY = ("numpy", "duckdb", "bokeh", "uvloop", "httptools", "jinja2", "yaml")


def requirements(name: str) -> set[str]:
    """Distributions that ``name`` brings without extras, itself included."""
    found, left = set(), [name]
    while left:
        current = left.pop().lower().replace("_", "-")
        if current in found:
            continue
        found.add(current)
        for text in metadata.requires(current) or ():
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                left.append(requirement.name)
    return found


def test_the_core_weighs_less_than_300_mb():
    sizes = {}
    for name in requirements("pinchpoint"):
        files = metadata.distribution(name).files or ()
        paths = {Path(file.locate()).resolve() for file in files}
        sizes[name] = sum(path.stat().st_size for path in paths if path.is_file())
    assert {"numpy", "duckdb", "bokeh"} <= sizes.keys()
    assert not {"xllamacpp", "gguf", "pyarrow", "pandas", "torch"} & sizes.keys()
    assert sum(sizes.values()) < 300e6, sizes


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["--version"]])
def test_help_imports_nothing_heavy(arguments):
    program = (
        "import sys\nfrom pinchpoint.cli import main\n"
        "try:\n main(sys.argv[1:])\nexcept SystemExit as end:\n code = end.code\n"
        f"print('HEAVY', [name for name in {HEAVY} if name in sys.modules], code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "HEAVY [] 0"


def test_a_wheel_holds_the_product_and_its_files(tmp_path):
    """Built from a copy, as ``pip install .`` builds it, without the network."""
    needed = Requirement(tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"][0])
    if not needed.specifier.contains(metadata.version("setuptools")):
        pytest.skip(f"this environment's setuptools is not {needed.specifier}; that of `make test` is")
    copy = tmp_path / "copy"
    left_out = shutil.ignore_patterns(".*", "*.egg-info", "__pycache__", "build", "runs", "tests", "bench")
    shutil.copytree(ROOT, copy, ignore=left_out)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--no-deps",
            "--no-build-isolation",
            "--no-index",
            "-w",
            tmp_path,
            copy,
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("pinchpoint-*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    source = ROOT / "src"
    wanted = [
        path
        for path in (source / "pinchpoint").rglob("*")
        if path.is_file() and not set(path.parts) & {"__pycache__", ".mypy_cache"}
    ]
    missing = [str(path.relative_to(source)) for path in wanted if str(path.relative_to(source)) not in names]
    assert missing == []
    assert not [name for name in names if name.startswith(("tests", "bench"))]
