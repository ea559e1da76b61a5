"""The twin's alarm clock."""

import asyncio

import pytest

from pinchpoint.twin import alarm as module
from pinchpoint.twin.alarm import Alarm
from pinchpoint.units import MILLISECOND, now_ns


@pytest.fixture(params=["a timer that is a file", "the loop's own"])
def kind(request, monkeypatch):
    if request.param == "the loop's own":
        monkeypatch.setattr(module, "_open_timer", lambda: (None, -1))


@pytest.mark.usefixtures("kind")
def test_it_rings_once_not_before_its_time_and_as_set_last():
    rung: list[int] = []

    async def play() -> int:
        alarm = Alarm(asyncio.get_running_loop(), lambda: rung.append(now_ns()))
        start = now_ns()
        alarm.set(start + 5 * MILLISECOND)
        alarm.set(start + 20 * MILLISECOND)
        await asyncio.sleep(0.1)
        alarm.set(start)  # past: at once
        await asyncio.sleep(0.05)
        alarm.set(now_ns() + 10 * MILLISECOND)
        alarm.set(None)
        await asyncio.sleep(0.05)
        alarm.set(now_ns() + 10 * MILLISECOND)
        alarm.close()
        await asyncio.sleep(0.05)
        return start

    start = asyncio.run(play())
    assert len(rung) == 2
    assert rung[0] >= start + 19 * MILLISECOND  # the loop's own clock is coarse by a millisecond
