"""Checks of the history as a whole: did anything happen, and was everything looked at in the end?

Where nothing was done there is nothing to find fault with, and what nobody has read to its end may have been lost: the
other checks would call both of them clean.
"""

from __future__ import annotations

from histories.anomalies import Report
from histories.history import Client, Operation
from histories.index import Index


def check_completeness(index: Index, report: Report) -> None:
    _check_roles(index, report)
    # One that has failed is reported as that.
    failed = {found.kind for found in index.history if found.outcome == "fail"}
    if "final" not in failed:
        _check_final_readings(index, report)
    if "committed" not in failed:
        groups = {client.group for client in index.clients.values() if client.group is not None}
        for group in sorted(groups - {found.value["group"] for found in index.history if found.kind == "committed"}):
            report.add("stuck", f"nobody has asked for the offsets of {group} in the end")


def _check_final_readings(index: Index, report: Report) -> None:
    written = {write.key for write in index.writes.values()}
    for name, final in (("committed data", index.final_committed), ("everything", index.final_uncommitted)):
        if not final.ends:
            report.add("stuck", f"no reader of {name} has read to the end")
        elif unread := sorted(written - final.ends.keys()):
            report.add("stuck", f"no reader of {name} has read {', '.join(unread)} to the end")


def _check_roles(index: Index, report: Report) -> None:
    final = {operation.process for operation in index.history if operation.kind == "final"}
    roles = {process: _role(client) for process, client in index.clients.items() if process not in final}
    busy = {roles[found.process] for found in index.history if found.process in roles and _is_done(index, found)}
    for role in sorted(filter(None, set(roles.values()) - busy)):
        report.add("nothing-done", role)


def _role(client: Client) -> str:
    """Members of a group have theirs together: one that is given no partition has nothing to do."""
    if client.group is not None:
        return f"group {client.group}"
    if client.login is not None:
        return f"asking client that logs in {client.login}"
    if client.producer is not None:
        return f"{client.producer} producer of {client.library}"
    return f"{client.isolation} reader of {client.library}" if client.isolation is not None else ""


def _is_done(index: Index, operation: Operation) -> bool:
    """Whether it is of the kind that its role is there for, and took effect."""
    kind, is_ok = operation.kind, operation.outcome == "ok"
    if kind == "send":
        return any(index.writes[value].is_acknowledged for _, value, _ in operation.value)
    if kind == "poll":
        return bool(operation.value) and index.client(operation.process).group is None
    return is_ok and kind in {"txn", "commit", "ask"}
