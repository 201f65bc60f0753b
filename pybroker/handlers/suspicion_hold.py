"""Holds an answer that names leaders while a broker is suspected to be dead.

Owns: the ``Parked`` of such a request.  Does not own the doubt (``cluster/failure_detection/suspected_brokers``).
"""

from __future__ import annotations

from pybroker.handlers.context import Parked, RequestContext


def suspicion_hold(ctx: RequestContext) -> Parked | None:
    """What completes once it is known who lives; None where that is not in doubt."""
    suspected_brokers = ctx.services.suspected_brokers
    if suspected_brokers is None or not suspected_brokers.is_any:
        return None
    parked = Parked()
    parked.on_abandon = suspected_brokers.wait(lambda: parked.complete(None))
    return parked
