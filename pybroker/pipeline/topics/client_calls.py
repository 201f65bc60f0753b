"""Calls of the client library that a write needs beside its producers' own: bounded in time, and without guessing.

Owns the retries with librdkafka, one admin client per cluster and process, and the reading of a group's offsets. Its
errors are errors: an offset that could not be read is not an offset that is not there.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientTopicPartition
from confluent_kafka.admin import AdminClient

from pybroker.pipeline.topics.admin_logins import admin_client
from pybroker.pipeline.topics.client_log import with_client_log

# Half of what a look for new records has (`directory`): Spark repeats a task that fails, but no look that does.
REQUEST_TIMEOUT_S = 30.0
NO_ANSWER_S = REQUEST_TIMEOUT_S + 10

T = TypeVar("T")

_PAUSE_S = 0.05
# A group's coordinator is about to be another broker, or has just become it.
_ELSEWHERE = frozenset(
    {KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS}
)


_log = logging.getLogger(__name__)


class NoAnswer(RuntimeError):
    """The client library did not come back; the task is to be run again in another process."""


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


def without_calls(error: BaseException) -> None:
    """Take from an error the calls that it came by.  That a producer has failed for good librdkafka's Python keeps, and
    it would keep the producer, which is a local of those calls.
    """
    error.__context__ = error.__traceback__ = None


def admin(client: Mapping[str, str]) -> AdminClient:
    """This process's admin client of a cluster; raises `LoginRefused`."""
    key = tuple(sorted(client.items()))
    if key not in _admins:
        _admins.clear()  # a process writes to one cluster, if to any
        _admins[key] = admin_client(connection(client), REQUEST_TIMEOUT_S)
    return _admins[key]


def delete_groups(client: Mapping[str, str], names: Collection[str]) -> None:
    """Delete groups of marks that have done their work; one that stays is a warning."""
    for name, future in admin(client).delete_consumer_groups([*names]).items() if names else ():
        try:
            future.result(REQUEST_TIMEOUT_S)
        except (KafkaException, TimeoutError) as error:
            _log.warning("the marks of group %s stay until they expire: %s", name, error or "no answer")


def close_idle() -> None:
    """Let go of this process's admin client, which would look for its cluster for ever."""
    _admins.clear()


def offsets_of(
    settings: Mapping[str, str | int | float | bool],
    group: str,
    partitions: Sequence[ClientTopicPartition],
    within_s: float = REQUEST_TIMEOUT_S,
) -> list[ClientTopicPartition]:
    """The partitions of which a group has an offset, with it; raises `KafkaException`.

    A consumer reads them: an admin client of librdkafka ends the whole process by SIGSEGV where a reply says that a
    group's coordinator is elsewhere (its issue 5315).  A consumer tells that, and looks for the coordinator anew.
    """
    if not partitions:
        return []
    consumer = Consumer(with_client_log({**settings, "group.id": group}))
    try:
        found = once_coordinated(lambda left_s: consumer.committed(list(partitions), left_s), within_s)
    finally:
        consumer.close()
    for at in found:
        if at.error is not None:
            raise KafkaException(at.error)
    return [at for at in found if at.offset >= 0]


def committing_consumer(client: Mapping[str, str], group: str, within_s: float) -> Consumer:
    """Who commits offsets of a group by `commit_by`, as `offsets_of` reads them, and reads nothing.

    An admin client of librdkafka ends the whole process by an assertion when a broker comes back after such a request
    has timed out (its issues 3663 and 4605).
    """
    # A commit, and the consumer's end behind it, wait as long as a session's time for the group's coordinator.
    bounded = {"group.protocol": "classic", "session.timeout.ms": str(int(within_s * 1_000))}
    settings = {**connection(client), "group.id": group, "enable.auto.commit": "false", **bounded}
    return Consumer(with_client_log(settings))


def commit_by(consumer: Consumer, offsets: list[ClientTopicPartition], within_s: float) -> None:
    """Commit offsets of the consumer's group; raises `NoAnswer` and, where one is refused, `KafkaException`."""
    done: list[ClientTopicPartition] = []

    def commit() -> None:
        done[:] = consumer.commit(offsets=offsets, asynchronous=False)

    answered(commit, within_s=within_s)
    for each in done:
        if each.error is not None:
            raise KafkaException(each.error)


def once_coordinated(call: Callable[[float], T], within_s: float) -> T:
    """What the call, which gets the seconds that are left, returns when the group's coordinator is found."""
    deadline = time.monotonic() + within_s
    while True:
        try:
            return call(max(deadline - time.monotonic(), _PAUSE_S))
        except KafkaException as error:
            if error.args[0].code() not in _ELSEWHERE or time.monotonic() > deadline:
                raise
        time.sleep(_PAUSE_S)


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
