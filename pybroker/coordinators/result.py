"""What an operation of a coordinator gives back.

Owns: ``Result``, ``Waiter`` and ``TimerChange``, the whole vocabulary between a pure state and the runtime that
drives it.  Knows no log, no clock and no loop.

An operation changes nothing that a reload would have to bring back: it returns the records that will, and only
``replay`` applies those.  What a reload forgets anyway (parked requests, sessions, members of a rebalance that has
no assignment yet) the operation changes itself.

A wish for something outside (markers, aborts) is an operation's reply to a ``Waiter`` of its own in ``Result.then``. It
comes true after the commit, and only if the append succeeded. ``then`` runs whether or not there are records. Timers
change whatever becomes of the records, except those ``when_written``: a consumer group cancels a member's timers only
once its going is in the log.

Counterpart in Kafka: ``CoordinatorResult`` and ``CoordinatorTimer``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from pybroker.storage.results import TransactionMarker

# (key, value): the bytes of one record; a value of None is a tombstone.
Record = tuple[bytes, bytes | None]
# (kind, group id, member id): names one timer of a shard; setting it again replaces it.
TimerKey = tuple[str, str, str]
# operation(now_ms) -> Result: a continuation that the runtime runs on the same shard.
Continuation = Callable[[int], "Result"]


class Waiter(NamedTuple):
    """What waits for a response: exactly one is delivered, by ``done``.

    ``error(code)`` makes the response that carries one of Kafka's error codes, as the log or the runtime reports it.
    """

    done: Callable[[Any], None]
    error: Callable[[int], Any]


class TimerChange(NamedTuple):
    """Set the timer ``key`` to expire in ``delay_ms``, or cancel it when ``delay_ms`` is None.

    ``when_written``: not if the records of the same result found no space.
    """

    key: TimerKey
    delay_ms: int | None
    when_written: bool = False


class ProducerOfRecords(NamedTuple):
    """The producer in whose transaction records are written."""

    producer_id: int
    producer_epoch: int


class Result:
    """The outcome of one operation.

    ``records``: to be appended as one batch, then replayed. ``producer``: whose transaction the records are part of;
    None for most. ``marker``: in place of records, the end of a transaction to be appended, then replayed.
    ``response``: the answer to the request that caused the operation; None while that request stays parked. ``replies``
    and ``timers``: answers to requests that were parked before, and changes of timers, in order. They belong to what
    the operation has changed itself, so they are carried out whatever becomes of the records, but for changes
    ``when_written``. ``then``: runs after the records, if there are any, are replayed, before any other operation of
    the shard. ``on_failure``: runs in place of ``then`` when the append failed, as (now_ms, code), with the error code
    of the log mapped to what clients of the coordinator understand. Where it has no response to the causing request, or
    is not there, that request is answered with the error. ``in_later_turn``: there are so many records that they are
    written in a turn of the loop of their own (``round_robin_work``); the other operations of the shard wait. Nothing
    of a result with records reaches a client before those records are committed.
    """

    __slots__ = (
        "in_later_turn",
        "marker",
        "on_failure",
        "producer",
        "records",
        "replies",
        "response",
        "then",
        "timers",
    )

    def __init__(self, response: Any = None, records: list[Record] | None = None) -> None:
        self.response = response
        self.records: list[Record] = [] if records is None else records
        self.producer: ProducerOfRecords | None = None
        self.marker: TransactionMarker | None = None
        self.replies: list[tuple[Waiter, Any]] = []
        self.timers: list[TimerChange] = []
        self.then: Continuation | None = None
        self.in_later_turn = False
        self.on_failure: Callable[[int, int], Result] | None = None

    def reply(self, waiter: Waiter | None, response: Any) -> None:
        """Answer a parked request (None: no request waits)."""
        if waiter is not None:
            self.replies.append((waiter, response))

    def schedule(self, key: TimerKey, delay_ms: int) -> None:
        self.timers.append(TimerChange(key, delay_ms))

    def cancel(self, key: TimerKey, *, when_written: bool = False) -> None:
        self.timers.append(TimerChange(key, None, when_written))
