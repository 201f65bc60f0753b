"""Offsets of connectors, told and changed as KIP-875 has it: those of a sink are its group's, in topics.

Owns the form of the documents, and the requests to the group.  A change or a reset has the connector begin a new
checkpoint, at what the group says.  Offsets of sources are in the topic of offsets (`StateTopics`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from confluent_kafka import TopicPartition

from pybroker.config.schema import INT_MAX, LONG_MAX
from pybroker.connectors.declared.connector_kind import SourcePartition
from pybroker.pipeline.topics.admin_logins import admin_client
from pybroker.pipeline.topics.client_calls import (
    REQUEST_TIMEOUT_S,
    commit_by,
    committing_consumer,
    connection,
    offsets_of,
)
from pybroker.pipeline.topics.librdkafka_settings import client_settings
from pybroker.pipeline.topics.source_options import EARLIEST_OFFSET, LATEST_OFFSET

_TOPIC, _PARTITION, _OFFSET = "kafka_topic", "kafka_partition", "kafka_offset"
_EDGES: Final = {"earliest": EARLIEST_OFFSET, "latest": LATEST_OFFSET}
_WHOLE_NUMBER: Final = re.compile(r"[0-9]{1,19}")


# A partition and its offset, null where it is to be forgotten.
Pair = tuple[Mapping[str, Any], Mapping[str, Any] | None]


class OffsetsRefused(ValueError):
    """A document of offsets says what cannot be."""


class SinkOffsets(NamedTuple):
    """What a request says of a sink: offsets to be set, and partitions whose offset is to be forgotten."""

    altered: Sequence[TopicPartition]
    forgotten: Collection[tuple[str, int]]


class GroupOffsets:
    """The offsets of sinks' groups, by a client of its own for each request."""

    def __init__(self, client: Mapping[str, str]) -> None:
        self._client = client_settings(client)

    def documents(self, group: str) -> list[dict[str, Any]]:
        """Each offset that the group has, as Connect tells it; raises KafkaException."""
        return [
            {"partition": {_PARTITION: at.partition, _TOPIC: at.topic}, "offset": {_OFFSET: at.offset}}
            for at in self._all_of(group)
        ]

    def alter(self, group: str, wanted: SinkOffsets) -> None:
        """Commit and forget; raises OffsetsRefused for partitions that are not there, KafkaException.

        librdkafka's Python has no OffsetDelete.  So where something is forgotten the group is, and the rest of its
        offsets are committed again.
        """
        there = {(at.topic, at.partition) for at in self._partitions()}
        for at in wanted.altered:
            if (at.topic, at.partition) not in there:
                raise OffsetsRefused(f"there is no partition {at.topic}-{at.partition}")
        committed = list(wanted.altered)
        if wanted.forgotten:
            changed = {*wanted.forgotten, *((at.topic, at.partition) for at in committed)}
            committed += [at for at in self._all_of(group) if (at.topic, at.partition) not in changed]
            self.reset(group)
        if not committed:
            return
        consumer = committing_consumer(self._client, group, REQUEST_TIMEOUT_S)
        try:
            commit_by(consumer, committed, REQUEST_TIMEOUT_S)
        finally:
            consumer.close()

    def reset(self, group: str) -> None:
        """Forget the group; raises KafkaException."""
        from confluent_kafka import KafkaError, KafkaException

        admin = admin_client(connection(self._client), REQUEST_TIMEOUT_S)
        for future in admin.delete_consumer_groups([group]).values():
            try:
                future.result(REQUEST_TIMEOUT_S)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
                    raise

    def starting_offsets(self, group: str, topics: Sequence[str], otherwise: str) -> str:
        """Where a new checkpoint begins: at the group's offsets, or ``otherwise`` where a partition has none.

        Raises KafkaException, and ValueError for a topic that is not there.
        """
        there = self._partitions(topics)
        if missing := sorted({*topics} - {at.topic for at in there}):
            raise ValueError(f"no such topic: {', '.join(missing)}")
        found = offsets_of(connection(self._client), group, there)
        if not found:
            return otherwise
        offsets: dict[str, dict[str, int]] = {}
        edges = [TopicPartition(at.topic, at.partition, _EDGES[otherwise]) for at in there]
        for at in (*edges, *found):
            offsets.setdefault(at.topic, {})[str(at.partition)] = at.offset
        return json.dumps(offsets)

    def _all_of(self, group: str) -> list[TopicPartition]:
        """A group may have offsets of topics that its connector does not name any more, or by a pattern."""
        return offsets_of(connection(self._client), group, self._partitions())

    def _partitions(self, topics: Iterable[str] | None = None) -> list[TopicPartition]:
        admin = admin_client(connection(self._client), REQUEST_TIMEOUT_S)
        there = admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics
        wanted = there if topics is None else (topic for topic in topics if topic in there)
        return [TopicPartition(topic, each) for topic in wanted for each in there[topic].partitions]


def sink_offsets(document: Sequence[Pair]) -> SinkOffsets:
    """The offsets that a request names for a sink, of which null forgets one; OffsetsRefused."""
    altered, forgotten = [], []
    for partition, offset in document:
        if any(partition.get(key) is None for key in (_TOPIC, _PARTITION)):
            raise OffsetsRefused(
                f"The partition for a sink connector offset must contain the keys '{_TOPIC}' and '{_PARTITION}'"
            )
        topic, number = str(partition[_TOPIC]), _number(partition[_PARTITION], "partition", INT_MAX)
        if offset is None:
            forgotten.append((topic, number))
            continue
        if _OFFSET not in offset:
            raise OffsetsRefused(
                f"The offset for a sink connector should either be null or contain the key '{_OFFSET}'"
            )
        altered.append(TopicPartition(topic, number, _number(offset[_OFFSET], "offset", LONG_MAX)))
    return SinkOffsets(altered, forgotten)


def source_offsets(reads: SourcePartition | None, pairs: Sequence[Pair]) -> Sequence[Pair]:
    """The offsets that a request names for a source; OffsetsRefused where one would have no effect.

    Null forgets one, of whatever partition: a former configuration may have left it.
    """
    if reads is None:
        return pairs
    for partition, offset in pairs:
        if offset is None:
            continue
        if partition != reads.partition:
            raise OffsetsRefused(
                f"The partition {json.dumps(partition)} is none of this connector: it reads "
                f"{json.dumps(dict(reads.partition))}"
            )
        if reads.offset and not isinstance(offset.get(reads.offset), (int, float, str)):
            raise OffsetsRefused(
                f"Offset objects should either be null or contain the key '{reads.offset}', a number or a text"
            )
    return pairs


def offset_pairs(body: Any) -> list[Pair]:
    """The pairs of a request's body; OffsetsRefused."""
    listed = body.get("offsets") if isinstance(body, dict) else None
    if not isinstance(listed, list) or not listed:
        raise OffsetsRefused("Partitions / offsets need to be provided for an alter offsets request")
    pairs: list[Pair] = []
    for each in listed:
        partition = each.get("partition") if isinstance(each, dict) else None
        offset = each.get("offset") if isinstance(each, dict) else None
        if not isinstance(partition, dict) or not (offset is None or isinstance(offset, dict)):
            raise OffsetsRefused("each offset must have a partition and an offset, both objects")
        pairs.append((partition, offset))
    return pairs


def _number(value: Any, what: str, most: int) -> int:
    """Of a number or a text of one; OffsetsRefused."""
    text = str(value)
    if not _WHOLE_NUMBER.fullmatch(text) or (number := int(text)) > most:
        raise OffsetsRefused(
            f"Failed to parse the following Kafka {what} value in the provided offsets: '{text}'. {what.capitalize()} "
            "values for sink connectors need to be integers, and not below 0."
        )
    return number
