"""A server that does nothing but keep time: what a load generator is measured against.

It computes nothing, so what a client reports beyond what this server logged is the client's own doing.
"""

from pinchpoint.engines.null.pace import Mode, Pace
from pinchpoint.engines.null.start import NullProcess, Told

__all__ = ["Mode", "NullProcess", "Pace", "Told"]
