"""Which partitions ``consume`` reads, and where in them a position is.

Owns: the questions to brokers about topics and offsets, and what is said of what does not exist or may not be read.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from functools import partial
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaError, KafkaException, TopicPartition

from pybroker.cli.connection.data_clients import is_passing_error, passes
from pybroker.cli.connection.retries import retried
from pybroker.cli.requests.offsets import Origin, Start
from pybroker.cli.terminal.error_names import refused
from pybroker.cli.terminal.failure import CommandFailed, describe_kafka_error
from pybroker.cli.terminal.output import remark

REQUEST_TIMEOUT_S = 20.0

TOPICS_SOUGHT_EVERY_S = 5.0

DENIED = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED}

# How names of internal topics begin.
INTERNAL = "__"


def find_partitions(client: Any, topics: list[str], wanted: list[int]) -> list[TopicPartition]:
    """The partitions to read by hand; raises ``CommandFailed`` for what does not exist, or may not be described."""
    return [
        TopicPartition(topic, partition)
        for topic in topics
        for partition in _partitions_of(topic, _described(client, topic), wanted)
    ]


def _described(client: Any, topic: str) -> Any:
    """The metadata of a topic, or the error in it that does not pass."""

    def ask() -> Any:
        found = client.list_topics(topic, timeout=REQUEST_TIMEOUT_S).topics[topic]
        if found.error is not None and passes(found.error):
            raise KafkaException(found.error)
        return found

    return retried(ask, passes=is_passing_error)


def _partitions_of(topic: str, described: Any, wanted: list[int]) -> list[int]:
    if described.error is not None:
        raise refusal(f"topic {topic}", described.error, "DESCRIBE")
    if missing := set(wanted) - described.partitions.keys():
        raise refused(f"{topic}-{min(missing)}", KafkaError.UNKNOWN_TOPIC_OR_PART)
    return sorted(wanted or described.partitions)


def refusal(what: str, error: KafkaError, operation: str) -> CommandFailed:
    """What a broker says of a topic or a group, with the permission that is missing where it is one."""
    if error.code() <= 0:
        return CommandFailed(f"{what}: {describe_kafka_error(error)}")
    return refused(what, error.code(), f"the user lacks the permission {operation}" if error.code() in DENIED else None)


def offsets_at(client: Any, partitions: Iterable[TopicPartition], at: int) -> dict[TopicPartition, int]:
    """The offset of a moment in each partition; ``OFFSET_BEGINNING`` and ``OFFSET_END`` are such moments, too.

    The end of a reader of committed records is the last stable offset.
    """
    asked = [TopicPartition(each.topic, each.partition, at) for each in partitions]
    if not asked:
        return {}

    def ask() -> list[TopicPartition]:
        found: list[TopicPartition] = client.offsets_for_times(asked, timeout=REQUEST_TIMEOUT_S)
        for each in found:
            if each.error is not None:
                raise KafkaException(each.error)
        return found

    return {TopicPartition(each.topic, each.partition): each.offset for each in retried(ask, passes=is_passing_error)}


def starting_at(client: Any, partitions: list[TopicPartition], start: Start) -> list[TopicPartition]:
    """The partitions with the offset that each is read from."""
    if start.origin is Origin.STORED:
        return partitions
    found = dict.fromkeys(partitions, OFFSET_BEGINNING)
    if start.origin is Origin.END:
        found = dict.fromkeys(partitions, OFFSET_END)
    elif start.origin is Origin.ABSOLUTE:
        found = _within(client, partitions, start.value)
    elif start.origin is Origin.BEFORE_END:
        firsts, ends = (offsets_at(client, partitions, at) for at in (OFFSET_BEGINNING, OFFSET_END))
        found = {each: max(firsts[each], ends[each] - start.value) for each in partitions}
    elif start.origin is Origin.TIMESTAMP:
        # Where no record is that young reading starts with the next one to come: such an offset is OFFSET_END.
        found = offsets_at(client, partitions, start.value)
    return [TopicPartition(each.topic, each.partition, offset) for each, offset in found.items()]


def _within(client: Any, partitions: list[TopicPartition], offset: int) -> dict[TopicPartition, int]:
    """``offset``, or the nearest end of what there is, with a remark: a policy cannot tell the two ends apart."""
    firsts, ends = (offsets_at(client, partitions, at) for at in (OFFSET_BEGINNING, OFFSET_END))
    found = {}
    for partition in partitions:
        nearest = max(firsts[partition], min(offset, ends[partition]))
        if nearest != offset:
            what = "the first record left" if nearest > offset else "the end"
            remark(f"pybroker: {partition.topic} {partition.partition}: reading from {what}, offset {nearest}")
        found[partition] = nearest
    return found


def matching_topics(client: Any, pattern: re.Pattern[str]) -> list[str]:
    """The topics whose whole name matches; internal ones only where the pattern names them."""
    names = client.list_topics(timeout=REQUEST_TIMEOUT_S).topics
    with_internal = pattern.pattern.startswith(INTERNAL)
    return [
        name for name in sorted(names) if pattern.fullmatch(name) and (with_internal or not name.startswith(INTERNAL))
    ]


class PatternTopics:
    """The topics that a pattern stands for, sought anew now and then.

    librdkafka's own patterns are POSIX's, and match nothing, in silence, where they are written as Python's.
    """

    def __init__(self, client: Any, pattern: re.Pattern[str]) -> None:
        """Raises ``CommandFailed`` where none matches."""
        self._client = client
        self._pattern = pattern
        self.names = retried(partial(matching_topics, client, pattern), passes=is_passing_error)
        self._sought_at_s = time.monotonic()
        if not self.names:
            raise CommandFailed(f"no topic that the user may see matches {pattern.pattern}")

    def have_changed(self) -> bool:
        """Whether other topics match than before; no answer, and no topic at all, are no change."""
        if time.monotonic() - self._sought_at_s < TOPICS_SOUGHT_EVERY_S:
            return False
        self._sought_at_s = time.monotonic()
        try:
            found = matching_topics(self._client, self._pattern)
        except KafkaException:
            return False
        if not found or found == self.names:
            return False
        self.names = found
        return True
