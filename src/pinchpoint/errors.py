"""What can go wrong, by whose doing it is.

PinchpointError            exit code 2; the text says what, where, and what to do
├── PlanError              the user's: a flag, a plan file, a trace that cannot be read
├── EndpointError          the endpoint's: not there, refuses, answers what is no answer
├── RecordError            the run folder's: not writable, not a run folder, another schema
├── TableError             a table handed in (calibrate, judge, compare) does not hold together
└── SourceError            a watched source (engine metrics, switch, NIC) cannot be read

A request that fails during a run is a row in the record, never one of these.
Any other exception is a fault of pinchpoint itself.
"""

from __future__ import annotations


class PinchpointError(Exception):
    """Pinchpoint could not do what was asked; the text says what to do about it."""


class PlanError(PinchpointError):
    """A flag, plan file, override or trace cannot be used as it stands."""


class EndpointError(PinchpointError):
    """The endpoint cannot be driven: unreachable, refusing, or no OpenAI-compatible server."""


class RecordError(PinchpointError):
    """A run folder cannot be written or read."""


class TableError(PinchpointError):
    """A table of measurements is unreadable or contradicts itself."""


class SourceError(PinchpointError):
    """A watched source cannot be read."""
