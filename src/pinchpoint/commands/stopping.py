"""What ends a run before its plan does: a budget, a duration, a signal."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pinchpoint.commands.onlooker import Onlooker
from pinchpoint.drive.fleet import Fleet
from pinchpoint.drive.orders import Progress
from pinchpoint.plan.model import Plan
from pinchpoint.units import now_ns, to_s

__all__ = ["GOES_ON", "Deadline", "Interrupts", "interrupts_heard"]

BUDGET_SLACK = 1.1
GOES_ON = "; what was measured is kept, --resume goes on"


class Deadline:
    """Time left under ``--budget`` and ``--max-duration``; both also end a rung that overruns them."""

    def __init__(self, plan: Plan) -> None:
        self._start_ns = now_ns()
        limits = plan.limits
        given = [limit for limit in (limits.budget_s, limits.max_duration_s) if limit is not None]
        self._soft_s = min(given) if given else None
        # The first rung of a shape may be longer than anyone could know: a budget ends it a tenth late.
        hard = [("--max-duration", limits.max_duration_s)]
        hard.append(("--budget", limits.budget_s * BUDGET_SLACK if limits.budget_s is not None else None))
        self._hard = [(name, limit) for name, limit in hard if limit is not None]
        self.passed: str | None = None  # the flag whose time is over

    def left_s(self) -> float | None:
        """Until the first of them; None where there is none."""
        return None if self._soft_s is None else self._soft_s - to_s(now_ns() - self._start_ns)

    def watching(self, fleet: Fleet, tell: Callable[[Progress], None]) -> Callable[[Progress], None]:
        """``tell``, and an end to what ``fleet`` drives once the time is over."""

        def on_progress(progress: Progress) -> None:
            tell(progress)
            elapsed = to_s(now_ns() - self._start_ns)
            over = [name for name, limit in self._hard if elapsed > limit]
            if over and self.passed is None:
                self.passed = over[0]
                fleet.cancel()

        return on_progress


class Interrupts:
    """What Ctrl-C, SIGTERM and SIGHUP (a terminal that is gone) do: while rungs are driven the first drains and the second
    cuts off.

    Before and after, when nothing is in flight, a press ends the command; only the second of two is let pass, for it
    was meant for a rung that ended a moment before.
    """

    def __init__(self) -> None:
        self.fleet: Fleet | None = None  # while rungs are driven
        self.by: str | None = None  # what came first, as a person calls it
        self.presses = 0

    def press(self, number: int, frame: object) -> None:
        """A signal came."""
        self.presses += 1
        self.by = self.by or ("Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name)
        if self.fleet is not None:
            self.fleet.cancel()
        elif self.presses != 2:
            raise KeyboardInterrupt

    @property
    def stopped(self) -> str:
        """What ended the run, and what became of the requests in flight."""
        cut = ", twice: what was in flight was cut off" if self.presses > 1 else ""
        return f"stopped by {self.by}{cut}{GOES_ON}"

    def heard(self, onlooker: Onlooker) -> Callable[[Progress], None]:
        """``onlooker.progress``, and a word to a person who presses: it takes a while until what is in flight has ended."""
        answered = self.presses

        def progress(progress: Progress) -> None:
            nonlocal answered
            if answered < self.presses:
                answered = self.presses
                onlooker.note(
                    f"{self.by}: nothing more is sent, what is in flight ends; once more cuts it off"
                    if answered == 1
                    else f"{self.by} again: what is in flight is cut off"
                )
            onlooker.progress(progress)

        return progress


@contextmanager
def interrupts_heard() -> Iterator[Interrupts]:
    """Hear the signals, where they reach this thread at all."""
    state = Interrupts()
    try:
        heard = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup: the terminal may go
            heard.append(signal.SIGHUP)
        before = {number: signal.signal(number, state.press) for number in heard}
    except ValueError:  # not the main thread: a notebook's or a test's
        yield state
        return
    try:
        yield state
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
