"""The requests of one worker and rung, built when they are sent: a prompt is a slice of a text rendered before."""

from __future__ import annotations

from collections.abc import Sequence

from pinchpoint.drive.orders import Assignment, Prepare
from pinchpoint.drive.pool import Ask
from pinchpoint.plan.prompts import Prompts
from pinchpoint.plan.spread import spread_osl
from pinchpoint.wire.address import read_address
from pinchpoint.wire.dialect import BodyFrame
from pinchpoint.wire.http1 import RequestHead

__all__ = ["Asks"]


class Asks:
    """Request after request, each with a prompt of its own.

    ``request_id`` = rung << 40 | worker << 28 | ordinal; the prompt's ordinal is worker << 28 | ordinal, so that no two
    workers of a rung send the same.
    """

    def __init__(self, assignment: Assignment, order: Prepare, longest: int | None = None) -> None:
        """``longest``: most prompt tokens that will be asked for, if not the profile's.

        Raises:
            PlanError: prompts of this length cannot be had, or a header or body field cannot be sent.
        """
        plan, rung = assignment.plan, order.rung
        endpoint, dialect = plan.endpoint, assignment.dialect
        # A run that goes on after an interruption must not send again what a server's cache may still hold.
        seed = (plan.seed or 0) + assignment.salt * 0x9E3779B97F4A7C15
        self._profile = rung.profile
        self._spread = plan.load.osl_spread
        self._prompts = Prompts(dialect, seed, rung, longest)
        self._frame = BodyFrame(dialect, endpoint.model or "", endpoint.extra_body)
        self._heads = []
        for url in endpoint.urls:
            address = read_address(url)
            self._heads.append(RequestHead("POST", address, address.path(dialect.api), assignment.headers))
        self._rung_base = rung.index << 40
        self._next = assignment.worker << 28

    def next(
        self,
        endpoint: int,
        due_ns: int,
        isl: int | None = None,
        osl: int | None = None,
        hash_ids: Sequence[int] | None = None,
    ) -> Ask:
        """The next request, to ``endpoint``; lengths are the profile's unless given."""
        isl = self._profile.isl if isl is None else isl
        ordinal = self._next
        if osl is None:
            osl = spread_osl(self._profile.osl, self._spread, ordinal) if self._spread else self._profile.osl
        self._next += 1
        prompt = self._prompts.prompt(ordinal, isl, hash_ids)
        request = self._heads[endpoint].bytes(self._frame.body(prompt, osl))
        return Ask(self._rung_base | ordinal, endpoint, due_ns, isl, osl, request)
