"""Calls of the client library that a write needs beside its producers' own: bounded in time, and without guessing.

Owns the patience with librdkafka, one admin client per cluster and process, and the reading of a group's offsets, whose
errors are errors: an offset that could not be read is not an offset that is not there.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
)
from confluent_kafka import TopicPartition as ClientTopicPartition
from confluent_kafka.admin import AdminClient

from pybroker.pipeline.topics.logins import admin_client

# Half of what a look for new records has (`directory`): Spark repeats a task that fails, but no look that does.
REQUEST_TIMEOUT_S = 30.0
NO_ANSWER_S = REQUEST_TIMEOUT_S + 10
# librdkafka does not look at the timeout that it is given for a transaction's offsets (its issue 5456): where the
# group's coordinator dies meanwhile it may wait for ever.  With a broker it takes milliseconds; a task that is given up
# is retried.
OFFSETS_SENT_WITHIN_S = 20.0

T = TypeVar("T")

_ASKED_AT_ONCE = 16
_PAUSE_S = 0.05
# A group's coordinator is about to be another broker, or has just become it.
_ELSEWHERE = frozenset(
    {KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS}
)


class NoAnswer(RuntimeError):
    """The client library did not come back; the task is to be run again in another process."""


class Committed(NamedTuple):
    """An offset of a group and its metadata."""

    offset: int
    metadata: str


def answered(call: Callable[..., None], *arguments: Any, within_s: float = NO_ANSWER_S) -> None:
    """Make a call of the client library's on a thread of its own; raises `NoAnswer` when it does not come back."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            call(*arguments)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name=call.__name__, daemon=True)
    thread.start()
    thread.join(within_s)
    if thread.is_alive():
        raise NoAnswer(f"{call.__name__} did not come back within {within_s:.0f} s")
    if errors:
        try:
            raise errors[0]
        finally:
            # The error has this call in its traceback: together they would keep the client that was called.
            errors.clear()


def send_offset(producer: Producer, group: object, topic: str, at: Committed) -> None:
    """Have an offset of a group, whose metadata ``group`` is, be part of the producer's transaction."""
    offset = ClientTopicPartition(topic, 0, at.offset, metadata=at.metadata)
    arguments = ([offset], group, REQUEST_TIMEOUT_S)
    answered(producer.send_offsets_to_transaction, *arguments, within_s=OFFSETS_SENT_WITHIN_S)


def admin(client: Mapping[str, str]) -> AdminClient:
    """This process's admin client of a cluster; raises `LoginRefused`."""
    key = tuple(sorted(client.items()))
    if key not in _admins:
        _admins.clear()  # a process writes to one cluster, if to any
        _admins[key] = admin_client(connection(client), REQUEST_TIMEOUT_S)
    return _admins[key]


def close_idle() -> None:
    """Let go of this process's admin client, which would look for its cluster for ever."""
    _admins.clear()


def committed(
    client: Mapping[str, str], groups: Iterable[str], within_s: float = REQUEST_TIMEOUT_S, *, is_stable: bool = True
) -> list[list[Committed]]:
    """Each group's offsets in first partitions; ``is_stable``: none of them one that a transaction may still change.

    Raises `KafkaException` for what could not be read: _TIMED_OUT where such a transaction does not end.
    """
    first = [ClientTopicPartition(topic, 0) for topic in admin(client).list_topics(timeout=REQUEST_TIMEOUT_S).topics]
    settings = {**connection(client), "isolation.level": "read_committed" if is_stable else "read_uncommitted"}
    with ThreadPoolExecutor(_ASKED_AT_ONCE) as pool:
        read = list(pool.map(lambda group: offsets_of(settings, group, first, within_s), groups))
    return [[Committed(at.offset, at.metadata or "") for at in each] for each in read]


def offsets_of(
    settings: Mapping[str, str | int | float | bool],
    group: str,
    partitions: Sequence[ClientTopicPartition],
    within_s: float = REQUEST_TIMEOUT_S,
) -> list[ClientTopicPartition]:
    """The partitions of which a group has an offset, with it; raises `KafkaException`.

    A consumer reads them: an admin client of librdkafka ends the whole process by SIGSEGV where it is told that a
    group's coordinator is elsewhere (its issue 5315).  A consumer tells that, and looks for the coordinator anew.
    """
    if not partitions:
        return []
    consumer = Consumer({**settings, "group.id": group})
    try:
        found = _once_coordinated(lambda left_s: consumer.committed(list(partitions), left_s), within_s)
    finally:
        consumer.close()
    for at in found:
        if at.error is not None:
            raise KafkaException(at.error)
    return [at for at in found if at.offset >= 0]


def commit_offset(client: Mapping[str, str], group: str, topic: str, at: Committed) -> None:
    """Commit an offset of a group, outside of any transaction; raises `NoAnswer` and `KafkaException`."""
    offset = ClientTopicPartition(topic, 0, at.offset, metadata=at.metadata)
    consumer = committing_consumer(client, group, REQUEST_TIMEOUT_S)
    try:
        _once_coordinated(lambda left_s: commit_by(consumer, [offset], left_s), REQUEST_TIMEOUT_S)
    finally:
        consumer.close()


def committing_consumer(client: Mapping[str, str], group: str, within_s: float) -> Consumer:
    """Who commits offsets of a group by `commit_by`, as `offsets_of` reads them, and reads nothing.

    An admin client of librdkafka ends the whole process by an assertion when a broker comes back after such a request
    has timed out (its issues 3663 and 4605).
    """
    # A commit, and the consumer's end behind it, wait as long as a session's time for the group's coordinator.
    bounded = {"group.protocol": "classic", "session.timeout.ms": str(int(within_s * 1_000))}
    return Consumer({**connection(client), "group.id": group, "enable.auto.commit": "false", **bounded})


def commit_by(consumer: Consumer, offsets: list[ClientTopicPartition], within_s: float) -> None:
    """Commit offsets of the consumer's group; raises `NoAnswer` and, where one is refused, `KafkaException`."""
    done: list[ClientTopicPartition] = []

    def commit() -> None:
        done[:] = consumer.commit(offsets=offsets, asynchronous=False)

    answered(commit, within_s=within_s)
    for each in done:
        if each.error is not None:
            raise KafkaException(each.error)


def _once_coordinated(call: Callable[[float], T], within_s: float) -> T:
    """What the call, which is told how many seconds are left, returns when the group's coordinator is found."""
    deadline = time.monotonic() + within_s
    while True:
        try:
            return call(max(deadline - time.monotonic(), _PAUSE_S))
        except KafkaException as error:
            if error.args[0].code() not in _ELSEWHERE or time.monotonic() > deadline:
                raise
        time.sleep(_PAUSE_S)


def group_metadata(client: Mapping[str, str], group: str) -> Any:
    """What a producer needs to commit offsets of a group that nobody has joined."""
    consumer = Consumer({**connection(client), "group.id": group})
    found = consumer.consumer_group_metadata()
    consumer.close()
    return found


_PRODUCERS_ALONE = frozenset(
    {
        "acks",
        "batch.num.messages",
        "batch.size",
        "compression.type",
        "compression.codec",
        "delivery.timeout.ms",
        "linger.ms",
        "max.in.flight.requests.per.connection",
        "message.timeout.ms",
        "partitioner",
        "queue.buffering.max.kbytes",
        "queue.buffering.max.messages",
        "queue.buffering.max.ms",
        "request.timeout.ms",
        "retries",
        "transaction.timeout.ms",
    }
)


def connection(client: Mapping[str, str]) -> dict[str, str | int | float | bool]:
    """The settings without those that clients which produce nothing would warn of."""
    return {name: value for name, value in client.items() if name not in _PRODUCERS_ALONE}


_admins: dict[object, AdminClient] = {}
