"""What is asked again, because it passes by itself: for how long, and how often.

Owns: the one loop of all commands, the two errors of the commands' own client that it asks again after, and which
answers of brokers pass.  Which errors of librdkafka pass is ``data_clients``', and what the repeat of a change means
``changes``'.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from pybroker.cli.terminal.failure import CommandFailed
from pybroker_protocol.errors import ErrorCode

T = TypeVar("T")

# How long a retriable answer (a coordinator that still loads, a leader not yet elected) is asked for again.
RETRY_TIMEOUT_S: Final = 20.0
RETRY_BACKOFF_S: Final = 0.1

# A coordinator that loads or moves, a leader or controller that moves or has just become it, a transaction that is
# being ended.
PASSING_ERRORS: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    }
)


class Passing(CommandFailed):
    """A broker's answer that may be another in a moment, or one that did not come."""


class UnknownBroker(CommandFailed):
    """No broker of this id is in the cluster, or none that runs."""


def is_passing(error: Exception) -> bool:
    """Whether what was asked of a broker that must be there may be answered in a moment."""
    return isinstance(error, Passing)


def is_passing_with_brokers(error: Exception) -> bool:
    """The same for a call that finds out which brokers run and asks those: one may be gone when it is asked."""
    return isinstance(error, (Passing, UnknownBroker))


def retried(
    call: Callable[[], T], timeout_s: float = RETRY_TIMEOUT_S, passes: Callable[[Exception], bool] = is_passing
) -> T:
    """``call()``, again while it raises what ``passes`` by itself, until ``timeout_s`` is over; its last error then."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            return call()
        except Exception as error:
            if not passes(error) or time.monotonic() >= deadline_s:
                raise
            time.sleep(RETRY_BACKOFF_S)
