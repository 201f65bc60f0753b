"""Kills the broker with -9 at one point in the life of a transaction; Python imports this at start from PYTHONPATH.

``PYBROKER_CRASH_AT`` names the point: ``before append 3`` and ``after append 3`` count the appends to
``__transaction_state``, ``before marker 2`` and ``after marker 2`` the markers that are written to partitions.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import wraps
from typing import Any

from pybroker.cluster.image.coordinator_table import TRANSACTIONS
from pybroker.replication.coordinator_partitions import CoordinatorPartitions
from pybroker.replication.transaction_markers import TransactionMarkers

CRASH_AT = os.environ.get("PYBROKER_CRASH_AT", "")
_counts = {"append": 0, "marker": 0}


def _crash_around(kind: str, function: Callable[..., Any], counts: Callable[..., bool]) -> Callable[..., Any]:
    @wraps(function)
    def wrapped(*args: Any) -> Any:
        if not counts(*args):
            return function(*args)
        _counts[kind] += 1
        number = _counts[kind]
        if f"before {kind} {number}" == CRASH_AT:
            os.kill(os.getpid(), signal.SIGKILL)
        result = function(*args)
        if f"after {kind} {number}" == CRASH_AT:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    return wrapped


def _append(partitions: Any, topic: str, partition: int, batch: bytes, done: Callable[[int, int], None]) -> None:
    """The original, but what follows from the append waits until it has been counted."""
    outcomes: list[tuple[int, int]] = []
    _counted_append(partitions, topic, partition, batch, lambda *outcome: outcomes.append(outcome))
    (outcome,) = outcomes
    done(*outcome)


if CRASH_AT:
    _counted_append = _crash_around(
        "append", CoordinatorPartitions.append, lambda _self, topic, *_rest: topic == TRANSACTIONS.topic
    )
    CoordinatorPartitions.append = _append  # type: ignore[method-assign, assignment]
    TransactionMarkers._write_one = _crash_around(  # type: ignore[method-assign]
        "marker", TransactionMarkers._write_one, lambda *_args: True
    )
