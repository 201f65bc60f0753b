"""How far groups are behind: of each the lag in all, and the partition with most of it.

Owns: the figures, of many groups by few requests, and how they are shown once or over and over (``--watch``).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any, Final

from pybroker.cli.connection.admin_client import AdminClient
from pybroker.cli.connection.retries import retried
from pybroker.cli.requests import group_requests, log_requests
from pybroker.cli.requests.partition_leaders import Partition, asked_of_leaders
from pybroker.cli.terminal.error_names import fail_for, refused, show
from pybroker.cli.terminal.failure import CommandFailed
from pybroker.cli.terminal.output import Output, Row, remark, show_time
from pybroker_protocol.errors import ErrorCode

# Groups whose offsets OffsetFetch does not tell.
_OTHER_OFFSETS: Final = frozenset({"share"})
_CLEAR: Final = b"\x1b[H\x1b[2J"
_COLUMNS: Final = ("GROUP", "TYPE", "STATE", "COMMITTED", "LAG", "MAX-LAG", "MOST-BEHIND")


def lags(client: AdminClient, names: Sequence[str]) -> tuple[list[dict[str, Any]], list[CommandFailed]]:
    """The lag of each group, all or those named, the largest first; and why there is none of the others."""
    groups = {each.group: each for each in retried(lambda: group_requests.listed(client))}
    failures = [refused(f"group {name}", ErrorCode.GROUP_ID_NOT_FOUND) for name in names if name not in groups]
    chosen = [group for group in groups.values() if not names or group.group in names]
    asked = [group.group for group in chosen if group.kind not in _OTHER_OFFSETS]
    answers = retried(lambda: group_requests.committed(client, asked)) if asked else {}
    failures += [refused(f"group {name}", answer) for name, answer in answers.items() if isinstance(answer, int)]
    offsets = {name: answer for name, answer in answers.items() if not isinstance(answer, int)}
    ends = _ends(client, {partition for answer in offsets.values() for partition in answer})
    documents = [
        {"group": group.group, "type": group.kind, "state": group.state, **_lag_of(offsets.get(group.group), ends)}
        for group in chosen
        if group.group in offsets or group.kind in _OTHER_OFFSETS
    ]
    return sorted(documents, key=lambda each: (-(each["lag"] or 0), each["group"])), failures


def _ends(client: AdminClient, partitions: Iterable[Partition]) -> dict[Partition, int]:
    """Where the logs end, as far as that is known: offsets may outlive a topic."""
    answers = asked_of_leaders(
        client, partitions, lambda leaders: log_requests.offsets_at(client, leaders, log_requests.LATEST)
    )
    return {partition: offset for partition, (code, offset) in answers.items() if not code}


def _lag_of(offsets: dict[Partition, int] | None, ends: dict[Partition, int]) -> dict[str, Any]:
    if offsets is None:
        return {"committed_partitions": None, "lag": None, "max_lag": None, "most_behind": None}
    behind = {each: max(0, ends[each] - offset) for each, offset in offsets.items() if each in ends}
    worst = max(behind, key=lambda each: behind[each], default=None)
    return {
        "committed_partitions": len(offsets),
        "lag": sum(behind.values())
        if behind
        else None,  # a group that has committed nothing may have read all, or nothing
        "max_lag": None if worst is None else behind[worst],
        "most_behind": str(worst) if worst is not None and behind[worst] else None,
    }


def show_once(client: AdminClient, output: Output, names: Sequence[str]) -> None:
    """One table, or document."""
    documents, failures = lags(client, names)
    show(output, documents, _COLUMNS, [list(each.values()) for each in documents], failures)


def watch(client: AdminClient, output: Output, names: Sequence[str], interval_s: float) -> None:
    """A table in place of the last one, with what has changed since; in a pipe rows with their time; until Ctrl-C.

    Why there is none of a group is said once; ``CommandFailed`` where there is none of all that are named.
    """
    before: dict[str, int] = {}
    said: set[str] = set()
    is_first = True
    while True:
        now_ms = int(time.time() * 1000)
        now = show_time(now_ms)
        documents, failures = lags(client, names)
        if names and not documents:
            fail_for(failures, output)
        for each in documents:
            each["change"] = None if each["lag"] is None else each["lag"] - before.get(each["group"], each["lag"])
        before = {each["group"]: each["lag"] for each in documents if each["lag"] is not None}
        rows: list[Row] = [list(each.values()) for each in documents]
        columns = (*_COLUMNS, "CHANGE")
        if output.as_json:
            output.json({"time_ms": now_ms, "groups": documents})
        elif output.is_terminal:
            output.write(_CLEAR)
            output.line(f"{now}, every {interval_s:g} s; Ctrl-C ends it")
            output.table(columns, rows)
        else:
            output.rows([*([("TIME", *columns)] if is_first else []), *((now, *row) for row in rows)])
        output.flush()
        for text in dict.fromkeys(str(each) for each in failures):
            if text not in said:
                remark(f"pybroker: {text}")
                said.add(text)
        is_first = False
        time.sleep(interval_s)
