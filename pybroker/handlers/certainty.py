"""Waiting with an answer that names leaders while a broker's death is in doubt.

Owns: the ``Parked`` of such a request.  Does not own the doubt (``cluster/failure_detection/doubts``).
"""

from __future__ import annotations

from pybroker.handlers.context import Parked, RequestContext


def certainty(ctx: RequestContext) -> Parked | None:
    """What completes once it is known who lives; None where that is not in doubt."""
    doubts = ctx.services.doubts
    if doubts is None or not doubts.is_any:
        return None
    parked = Parked()
    parked.on_abandon = doubts.wait(lambda: parked.complete(None))
    return parked
