"""The way in, as ``pinchpoint`` and as ``python -m pinchpoint``."""

from __future__ import annotations

import signal


def main() -> None:
    """Run the command line. Until it can answer for itself, Ctrl-C simply ends the process, without a trace."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not ignored, as in a background job
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from pinchpoint.cli import main as command_line

    command_line()


if __name__ == "__main__":
    main()
