"""The checker: a history in, the anomalies in it out.  Pure, and linear in the history but for a sort by time.

What nobody knows the outcome of may be there or not.  A transaction whose end is unknown has taken effect if a reader
of committed data was given any of it; then all of it has to be there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from histories.anomalies import Report
from histories.completeness import check_completeness
from histories.cycles import check_cycles
from histories.group_checks import check_groups
from histories.history import CLIENT_FAULTS, Event, HistoryError, operations
from histories.index import Index
from histories.log_checks import check_log
from histories.poll_checks import check_polls
from histories.session_checks import check_sessions


def check(events: Iterable[Event], whole: bool = True) -> Report:
    """Judge a history, or, if it is not whole, what there is of it; raises ``HistoryError`` for what is none."""
    index = Index(operations(events))
    if whole and not index.history:
        raise HistoryError("it is empty")
    report = Report(statistics=_statistics(index))
    check_log(index, report)
    check_polls(index, report)
    check_groups(index, report)
    check_cycles(index, report)
    check_sessions(index, report, whole)
    for operation in index.history:
        if operation.kind in {"end", "final", "committed"} and operation.outcome == "fail":
            report.add("stuck", f"{operation}: {operation.value}")
    if whole:
        check_completeness(index, report)
    return report


def _statistics(index: Index) -> dict[str, int]:
    kinds = Counter(operation.kind for operation in index.history)
    outcomes = Counter(transaction.operation.outcome for transaction in index.transactions)
    return {
        "operations": len(index.history),
        "clients": len(index.clients),
        "writes": len(index.writes),
        "writes acknowledged": sum(write.is_acknowledged for write in index.writes.values()),
        "writes indeterminate": sum(
            write.operation.outcome == "info" and not write.is_acknowledged for write in index.writes.values()
        ),
        "records read": sum(len(records) for poll in index.polls() for _, records in poll.value),
        "transactions committed": outcomes["ok"],
        "transactions aborted": outcomes["fail"],
        "transactions indeterminate": outcomes["info"],
        "rebalances": kinds["assigned"],
        "commits": kinds["commit"],
        "crashes of clients": kinds["crash"],
        "clients killed or sent away": sum(
            operation.kind == "crash" and operation.process == CLIENT_FAULTS for operation in index.history
        ),
        "kills of the broker": kinds["kill"],
        "pauses of the broker": kinds["pause"],
        "faults of the cluster": len(index.faults),
        **{f"faults: {kind}": number for kind, number in sorted(_faults(index).items())},
        "records read to the end": len(index.final_committed.values | index.final_uncommitted.values),
    }


def _faults(index: Index) -> Counter[str]:
    return Counter(fault.value["kind"] for fault in index.faults)
