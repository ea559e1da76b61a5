"""Prompts of exact length that no cache has seen: unique by request, rung and run.

A prompt is a head and a slice. The head is the number of the request, scrambled by a keyed permutation of 64 bits and
written in ids (or words): two requests of a run can never share it, two runs do so by an accident of 2^-64. The
slice comes out of a pool of random ids rendered once per rung, so a prompt of 16,000 tokens costs a copy of its bytes.
All ids (words) have one width, so places in the pool are places in its text. With 16 symbols or more the head is 16
ids at most: whatever the block size of an engine's prefix cache, not even the first block of 16 is shared.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from pinchpoint.errors import PlanError
from pinchpoint.plan.model import Rung
from pinchpoint.plan.words import WORDS
from pinchpoint.wire.dialect import Dialect

__all__ = ["HASH_BLOCK", "Prompts"]

HASH_BLOCK = 512  # tokens that one hash id of a Mooncake trace stands for
_SPREAD = 1 << 15  # places in the pool where a slice may begin
_MASK = (1 << 64) - 1


class Prompts:
    """The prompts of one rung, each a JSON value: a list of token ids, or a text."""

    def __init__(self, dialect: Dialect, seed: int, rung: Rung, longest: int | None = None) -> None:
        """``longest``: most prompt tokens that will be asked for (the profile's ISL when None).

        Raises:
            PlanError: the shape cannot be had: an ISL below what the server adds by itself, too few token ids.
        """
        self._ids = dialect.token_ids
        if dialect.token_ids:
            width = len(str(dialect.id_low))
            symbols = [b"%d" % token for token in range(dialect.id_low, dialect.id_high + 1)]
            if len(symbols) < 16 or len(symbols[-1]) != width:
                raise PlanError(
                    f"token ids {dialect.id_low} to {dialect.id_high}: prompts need 16 ids or more, of one decimal width"
                )
            self._overhead, self._per_unit = float(dialect.id_overhead), 1.0
            self._open, self._close, joint = b"[", b"]", b","
        else:
            symbols = WORDS
            self._overhead, self._per_unit = dialect.fit.overhead, dialect.fit.per_word
            self._open, self._close, joint = b'"', b'"', b" "
        self._symbols = symbols
        self._joint = joint
        self._step = len(symbols[0]) + 1
        self._head = _digits(len(symbols))
        self._key = _mix(seed)
        self._rung = rung.index << 48 | rung.repeat << 40
        if rung.index >> 16 or rung.repeat >> 8:
            raise PlanError(
                f"rung {rung.index}, repeat {rung.repeat}: more than prompts can be told apart for"
            )
        self._isl = rung.profile.isl
        self._drawn = _mix(self._key ^ self._rung)  # seeds the pool, and the blocks of a trace
        self._pool = memoryview(b"")
        self._grow(self.units(self._isl if longest is None else longest))

    def prompt(self, ordinal: int, isl: int | None = None, hash_ids: Sequence[int] | None = None) -> bytes:
        """Request ``ordinal`` of the rung (below 2^40), as a JSON value of ``isl`` tokens (the profile's when None).

        ``hash_ids`` (Mooncake traces) name blocks of 512 tokens: requests of a rung that share leading ids share
        that much prompt, as the trace has it; other rungs and runs do not. What they leave open is unique.

        Raises:
            PlanError: see :meth:`units`.
        """
        if not 0 <= ordinal < 1 << 40:
            raise PlanError(f"request {ordinal} of a rung: more than prompts can be told apart for")
        units = self.units(self._isl if isl is None else isl)
        parts: list[bytes | memoryview] = []
        for hash_id in hash_ids or ():
            take = min(units, max(1, round(HASH_BLOCK / self._per_unit)))
            if not take:
                break
            self._write(parts, _mix(self._drawn ^ _mix(hash_id)), take)
            units -= take
        if units:
            self._write(parts, _mix(self._key ^ (self._rung | ordinal)), units)
        return self._joined(parts)

    def words(self, ordinal: int, count: int) -> bytes:
        """The same by number of ids or words, whatever tokens they make: for finding that out."""
        parts: list[bytes | memoryview] = []
        self._write(parts, _mix(self._key ^ (self._rung | ordinal)), count)
        return self._joined(parts)

    def _joined(self, parts: list[bytes | memoryview]) -> bytes:
        # One copy of the text, however long.
        pieces: list[bytes | memoryview] = [self._open]
        for part in parts:
            pieces += (part, self._joint)
        pieces[-1] = self._close
        return b"".join(pieces)

    def _write(self, parts: list[bytes | memoryview], number: int, units: int) -> None:
        """Head and slice of ``units`` symbols for a scrambled 64-bit number."""
        symbols, base, rest = self._symbols, len(self._symbols), number
        head = min(self._head, units)
        for _ in range(head):
            rest, digit = divmod(rest, base)
            parts.append(symbols[digit])
        length = units - head
        if length:
            if length + _SPREAD > self._pool_units:
                self._grow(length)
            start = _mix(number + 1) % _SPREAD * self._step
            parts.append(self._pool[start : start + length * self._step - 1])

    def _grow(self, units: int) -> None:
        self._pool_units = units + _SPREAD
        drawn = random.Random(self._drawn).choices(self._symbols, k=self._pool_units)
        self._pool = memoryview(self._joint.join(drawn))

    def units(self, isl: int) -> int:
        """Ids or words for a prompt of ``isl`` tokens, the server's own additions taken off.

        Raises:
            PlanError: the server adds as many tokens by itself.
        """
        units = round((isl - self._overhead) / self._per_unit)
        if units < 1:
            raise PlanError(
                f"a prompt of {isl} tokens cannot be had: the server adds {self._overhead:g} by itself "
                "(chat template, BOS); ask for more, or use --endpoint-type completions"
            )
        return units


def _mix(number: int) -> int:
    """A permutation of 64-bit numbers that scatters neighbours (the finaliser of SplitMix64, Steele et al. 2014)."""
    z = (number + 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def _digits(base: int) -> int:
    """Digits that write any 64-bit number."""
    digits, reach = 0, 1
    while reach <= _MASK:
        digits, reach = digits + 1, reach * base
    return digits
