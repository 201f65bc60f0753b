"""Checks of logins that end: a connection is served no longer than its session lasts, unless it logs in anew.

A request that was on its way when the session ended may be answered, however late: what counts is when it was sent.
"""

from __future__ import annotations

from histories.anomalies import Report
from histories.history import HistoryError
from histories.index import Index

# The broker's session has begun before the client knows of it; this is for clocks that are not looked at all the time.
TOLERANCE_NS = 1_000_000_000


def check_sessions(index: Index, report: Report, whole: bool) -> None:
    """Raises ``HistoryError`` where clients were there to try it, and no session was renewed, or none outlived."""
    ends_ns: dict[int, tuple[int, int]] = {}  # by process, the earliest and the latest; not where there is no end
    logged_in: set[int] = set()
    renewed = outlived = 0
    for operation in index.history:
        process = operation.process
        if operation.kind == "login" and operation.outcome == "ok":
            renewed += process in logged_in
            logged_in.add(process)
            ends_ns.pop(process, None)
            if operation.value > 0:
                lasts_ns = operation.value * 1_000_000
                ends_ns[process] = (operation.invoked_ns + lasts_ns, operation.completed_ns + lasts_ns)
        elif operation.kind == "ask" and process in ends_ns:
            earliest_ns, latest_ns = ends_ns[process]
            outlived += operation.completed_ns > earliest_ns
            late_ns = operation.invoked_ns - latest_ns
            if late_ns > TOLERANCE_NS and operation.outcome == "ok":
                report.add("served-beyond-session", f"{operation}: {late_ns / 1e9:.3f} s after the session's end")
    if any(client.login is not None for client in index.clients.values()):
        report.statistics |= {"sessions renewed": renewed, "sessions tried after their end": outlived}
        if whole and not (renewed and outlived):
            raise HistoryError(f"{renewed} sessions were renewed, {outlived} requests came when one could be over")
