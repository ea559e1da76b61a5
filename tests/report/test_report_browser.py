"""The report in a real browser: headless Chromium, with no network to ask."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
import zlib
from pathlib import Path

import pytest

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="NO BROWSER: install chromium, the report is not looked at"
)

LIGHT, DARK = [], ["--blink-settings=preferredColorScheme=0"]
BLUE = {"light": (0x2A, 0x66, 0xB0), "dark": (0x6E, 0xA8, 0xF0)}
PAPER = {"light": (0xFF, 0xFF, 0xFF), "dark": (0x12, 0x16, 0x1D)}


def browse(path: Path, profile: Path, *flags: str) -> tuple[str, str]:
    """What Chromium prints on standard output and standard error for a page."""
    done = subprocess.run(
        [
            BROWSER,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-sync",
            "--disable-background-networking",
            "--disable-component-update",
            f"--user-data-dir={profile}",
            # Whatever is asked for by name is not found: the page has to do without.
            "--host-resolver-rules=MAP * ~NOTFOUND",
            "--enable-logging=stderr",
            "--virtual-time-budget=20000",
            *flags,
            path.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    return done.stdout, done.stderr


def pixels(path: Path) -> bytes:
    """The pixels of an 8-bit PNG without interlace, as RGB triples row by row."""
    data = path.read_bytes()
    width, height, depth, kind = struct.unpack(">IIBB", data[16:26])
    assert depth == 8
    size = {2: 3, 6: 4}[kind]
    packed, at = b"", 8
    while at < len(data):
        length, name = struct.unpack(">I4s", data[at : at + 8])
        packed += data[at + 8 : at + 8 + length] if name == b"IDAT" else b""
        at += 12 + length
    raw, stride, before, out = zlib.decompress(packed), width * size, bytearray(width * size), bytearray()
    for y in range(height):
        start = y * (stride + 1)
        line = bytearray(raw[start + 1 : start + 1 + stride])
        unfilter(raw[start], line, before, size)
        out += line if size == 3 else bytes(b for i, b in enumerate(line) if i % 4 != 3)
        before = line
    return bytes(out)


def unfilter(kind: int, line: bytearray, before: bytearray, size: int) -> None:
    for i in range(len(line)):
        left = line[i - size] if i >= size else 0
        corner = before[i - size] if i >= size else 0
        up = before[i]
        if kind == 1:
            line[i] = (line[i] + left) & 255
        elif kind == 2:
            line[i] = (line[i] + up) & 255
        elif kind == 3:
            line[i] = (line[i] + (left + up) // 2) & 255
        elif kind == 4:
            guess = left + up - corner
            near = min(
                (abs(guess - left), 0, left), (abs(guess - up), 1, up), (abs(guess - corner), 2, corner)
            )
            line[i] = (line[i] + near[2]) & 255


@pytest.fixture(scope="module")
def written(page, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page)
    return path


def test_every_picture_is_drawn_without_a_word_on_the_console(written, tmp_path):
    dom, errors = browse(written, tmp_path, "--dump-dom")
    plots = re.findall(r'<div class="plot" id="([^"]+)"([^>]*)>', dom)
    assert len(plots) == 12
    assert [name for name, attributes in plots if 'data-drawn="yes"' not in attributes] == []
    said = [line for line in errors.splitlines() if "CONSOLE" in line and "[bokeh" not in line]
    assert said == []


@pytest.mark.parametrize(("scheme", "flags"), [("light", LIGHT), ("dark", DARK)])
def test_pictures_take_the_colours_of_the_scheme(written, tmp_path, scheme, flags):
    shot = tmp_path / "shot.png"
    browse(written, tmp_path / "profile", f"--screenshot={shot}", "--window-size=600,1100", *flags)
    found = pixels(shot)
    counted = {name: 0 for name in ("paper", "blue")}
    for at in range(0, len(found), 3):
        pixel = tuple(found[at : at + 3])
        counted["paper"] += pixel == PAPER[scheme]
        counted["blue"] += pixel == BLUE[scheme]
    assert counted["paper"] > 0.5 * len(found) / 3
    assert counted["blue"] > 300  # links and the ladder's line and marks


def test_it_prints(written, tmp_path):
    path = tmp_path / "report.pdf"
    browse(written, tmp_path / "profile", f"--print-to-pdf={path}")
    printed = path.read_bytes()
    assert printed.startswith(b"%PDF")
    assert printed.count(b"/Subtype /Image") >= 9  # the pictures are on the paper
