"""Offsets of connectors, told and changed as KIP-875 has it: those of a sink are its group's, in topics.

Owns the form of the documents, and the requests to the group.  A change or a reset has the connector begin a new
checkpoint, at what the group says.  Offsets of sources are in the topic of offsets (`StateTopics`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import TopicPartition

from pybroker.pipeline.topics.admin_logins import admin_client
from pybroker.pipeline.topics.client_calls import (
    REQUEST_TIMEOUT_S,
    commit_by,
    committing_consumer,
    connection,
    offsets_of,
)
from pybroker.pipeline.topics.librdkafka_settings import client_settings

_TOPIC, _PARTITION, _OFFSET = "kafka_topic", "kafka_partition", "kafka_offset"


class OffsetsRefused(ValueError):
    """A document of offsets says what cannot be."""


class GroupOffsets:
    """The offsets of sinks' groups, by a client of its own for each request."""

    def __init__(self, client: Mapping[str, str]) -> None:
        self._client = client_settings(client)

    def documents(self, group: str, topics: Iterable[str]) -> list[dict[str, Any]]:
        """Each partition's offset, as Connect tells it; raises KafkaException."""
        found = offsets_of(connection(self._client), group, self._partitions(topics))
        return [
            {"partition": {_PARTITION: at.partition, _TOPIC: at.topic}, "offset": {_OFFSET: at.offset}} for at in found
        ]

    def alter(self, group: str, wanted: Sequence[TopicPartition]) -> None:
        """Commit them; raises OffsetsRefused for partitions that are not there, KafkaException."""
        there = {(at.topic, at.partition) for at in self._partitions({at.topic for at in wanted})}
        for at in wanted:
            if (at.topic, at.partition) not in there:
                raise OffsetsRefused(f"there is no partition {at.topic}-{at.partition}")
        consumer = committing_consumer(self._client, group, REQUEST_TIMEOUT_S)
        try:
            commit_by(consumer, list(wanted), REQUEST_TIMEOUT_S)
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
        """Where a new checkpoint begins: at the group's offsets, or ``otherwise`` where it has none."""
        from pybroker.pipeline.progress import group_offsets

        if not topics or not offsets_of(connection(self._client), group, self._partitions(topics)):
            return otherwise
        return group_offsets(group, topics, self._client)

    def _partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        admin = admin_client(connection(self._client), REQUEST_TIMEOUT_S)
        there = admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics
        return [TopicPartition(topic, each) for topic in topics if topic in there for each in there[topic].partitions]


def sink_offsets(document: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]]) -> list[TopicPartition]:
    """The offsets that a request names for a sink; OffsetsRefused."""
    found = []
    for partition, offset in document:
        topic, number = partition.get(_TOPIC), _number(partition.get(_PARTITION))
        if not isinstance(topic, str) or number is None:
            raise OffsetsRefused(
                f"The partition for a sink connector offset must contain the keys '{_TOPIC}' and '{_PARTITION}'"
            )
        if offset is None:
            raise OffsetsRefused(f"the offset of {topic}-{number} is null: DELETE resets all offsets of a connector")
        at = _number(offset.get(_OFFSET))
        if at is None or at < 0:
            raise OffsetsRefused(f"The offset for a sink connector should contain the key '{_OFFSET}', a number")
        found.append(TopicPartition(topic, number, at))
    return found


def offset_pairs(body: Any) -> list[tuple[dict[str, Any], dict[str, Any] | None]]:
    """The pairs of a request's body; OffsetsRefused."""
    listed = body.get("offsets") if isinstance(body, dict) else None
    if not isinstance(listed, list) or not listed:
        raise OffsetsRefused("Partitions / offsets need to be provided for an alter offsets request")
    pairs = []
    for each in listed:
        partition = each.get("partition") if isinstance(each, dict) else None
        offset = each.get("offset") if isinstance(each, dict) else None
        if not isinstance(partition, dict) or not (offset is None or isinstance(offset, dict)):
            raise OffsetsRefused("each offset must have a partition and an offset, both objects")
        pairs.append((partition, offset))
    return pairs


def _number(value: Any) -> int | None:
    try:
        return None if isinstance(value, bool) else int(value)
    except (TypeError, ValueError):
        return None
