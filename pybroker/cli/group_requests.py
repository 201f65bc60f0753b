"""Requests about groups that their coordinators answer one by one: deletion, and members that leave.

Owns: the requests, and which coordinator is asked.  What is known of groups is ``group_descriptions``'.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pybroker.cli.connection import retried
from pybroker.cli.wire_requests import PASSING_ERRORS, CoordinatorType, ask, find_coordinators, raise_passing


def delete(client: Any, groups: Sequence[str]) -> dict[str, int]:
    """DeleteGroups: the error code of each group, 0 where it is deleted."""
    from pybroker_protocol.messages.delete_groups import DeleteGroupsRequest

    codes: dict[str, int] = {}

    def delete_rest() -> None:
        rest = [group for group in groups if group not in codes or codes[group] in PASSING_ERRORS]
        for node_id, names in find_coordinators(client, rest, CoordinatorType.GROUP).items():
            results = ask(client, DeleteGroupsRequest(groups_names=names), node_id).results
            codes.update((result.group_id, int(result.error_code)) for result in results)
        raise_passing(codes.values())

    retried(delete_rest)
    return codes
