"""How a command ends: its exit code, what is said of a failure, and what a signal or a reader that left may not cost."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

import cyclopts
from cyclopts import App

from pinchpoint.errors import PinchpointError

__all__ = ["guarded"]

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS}
_KEPT = "What was measured is kept in its run folder: pinchpoint analyse reads it, run --resume goes on"


def guarded(app: App, arguments: list[str] | None) -> NoReturn:
    """Run ``app`` and exit with its code: whatever comes of it, what a person sees is a message, and not a trace."""
    try:
        _hear_signals()
        code = app(
            sys.argv[1:] if arguments is None else arguments,
            exit_on_error=False,
            print_error=False,
            result_action="return_value",
        )
    except cyclopts.CycloptsError as fault:
        _fail(f"{fault}\nTry: {_help_for(app, sys.argv[1:] if arguments is None else arguments)}")
    except PinchpointError as fault:
        _ends(arguments)
        _fail(str(fault))
    except KeyboardInterrupt:
        _ends(arguments)
        _fail("stopped; nothing more was sent")
    except BrokenPipeError:
        _reader_left()
    except OSError as fault:
        if fault.errno not in _FULL:
            _fail(_own_fault(fault))
        _discard_output()
        room = "" if fault.errno == errno.EROFS else "free space, or "
        _fail(
            f"{fault.strerror or fault}: {fault.filename or 'output'}; {room}send the output elsewhere. {_KEPT}"
        )
    except Exception as fault:  # noqa: BLE001 - by the rules of pinchpoint.errors a fault of ours, said and kept
        _fail(_own_fault(fault))
    try:
        if sys.stdout is not None:  # closed by the caller
            sys.stdout.flush()
    except BrokenPipeError:
        _reader_left()
    except (OSError, ValueError) as fault:
        _discard_output()
        _fail(f"standard output cannot be written: {fault}")
    sys.exit(code if isinstance(code, int) else 0)


def _help_for(app: App, arguments: list[str]) -> str:
    """The help that lists the flags of the command that was meant."""
    within, named = app, ["pinchpoint"]
    for word in arguments:
        if word.startswith("-") or word not in within:
            break
        within = within[word]
        named.append(word)
    return " ".join([*named, "--help"])


def _hear_signals() -> None:
    """SIGTERM, and a terminal that is gone, end a command as Ctrl-C does; a run in flight hears them itself."""
    with contextlib.suppress(
        ValueError
    ):  # a thread of somebody's program: signals are that program's to hear
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # not ignored, as under nohup
            signal.signal(signal.SIGHUP, signal.default_int_handler)
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _ends(arguments: list[str] | None) -> None:
    """From here a further Ctrl-C changes no exit code any more; only where the process is ours to end."""
    if arguments is None:
        with contextlib.suppress(ValueError):
            signal.signal(signal.SIGINT, signal.SIG_IGN)


def _reader_left() -> NoReturn:
    _discard_output()
    sys.exit(1)


def _discard_output() -> None:
    """Say nothing more, not even what is buffered when the interpreter ends."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _own_fault(fault: Exception) -> str:
    """What to say of an exception that nobody expected; where it came from goes into a file, for a report."""
    import tempfile
    import traceback

    last = traceback.extract_tb(fault.__traceback__)[-1]
    said = f"a fault of pinchpoint itself: {type(fault).__name__}: {fault} ({Path(last.filename).name}:{last.lineno})"
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="pinchpoint-fault-", suffix=".txt", delete=False
        ) as file:
            traceback.print_exception(fault, file=file)
    except OSError:
        return f"{said}. {_KEPT}"
    return f"{said}. {_KEPT}. Please report it with {file.name}"


def _fail(message: str) -> NoReturn:
    shown = "".join(sign if sign.isprintable() or sign == "\n" else "�" for sign in message)
    with contextlib.suppress(OSError, ValueError, AttributeError):  # standard error closed or full
        colour = sys.stderr.isatty() and "NO_COLOR" not in os.environ
        red, plain = ("\033[31m", "\033[0m") if colour else ("", "")
        print(f"{red}pinchpoint: {plain}{shown}", file=sys.stderr, flush=True)
    sys.exit(2)
