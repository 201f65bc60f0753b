"""The topics of a supervisor: made where they are missing, read whole, and written by one supervisor at a time.

Owns the clients.  All writes are transactions of one transactional id per group, so that a supervisor which has been
replaced is fenced: its writes fail with `Replaced`, and it stops its connectors.  That is what Connect's leader does
where sources are exactly-once (KIP-618).

Invariants: what is remembered in memory has been committed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from pybroker.connectors.state.connector_topics import make_topics
from pybroker.connectors.state.state_records import Known, Record, offset_record
from pybroker.connectors.state.worker_settings import WorkerSettings
from pybroker.pipeline.topics.admin_logins import admin_client
from pybroker.pipeline.topics.client_calls import REQUEST_TIMEOUT_S
from pybroker.pipeline.topics.client_log import with_client_log
from pybroker.pipeline.topics.librdkafka_settings import client_settings

# Connect's: one partition of configurations keeps their order.
_OFFSET_PARTITIONS: Final = 25
_STATUS_PARTITIONS: Final = 5
_POLICY: Final = "cleanup.policy"
_COMPACT: Final = "compact"
_NOT_ALLOWED: Final = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED})
_POLL_S: Final = 0.5
_FETCH_MS: Final = 10
_RECORDS_AT_A_TIME: Final = 1_000
_FENCED: Final = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})

_log = logging.getLogger(__name__)


class Replaced(RuntimeError):
    """Another supervisor of this name works now."""


def create_topics(settings: WorkerSettings) -> None:
    """Create the topics that are missing, compacted; ValueError for one that would lose what it has.

    Raises `LoginRefused` and KafkaException, and `Replaced` never.
    """
    admin = admin_client(client_settings(settings.client), REQUEST_TIMEOUT_S)
    wanted = {
        settings.config_topic: 1,
        settings.offset_topic: _OFFSET_PARTITIONS,
        settings.status_topic: _STATUS_PARTITIONS,
    }
    there = admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics
    missing = [
        NewTopic(name, count, settings.replication_factor, config={_POLICY: _COMPACT})
        for name, count in wanted.items()
        if name not in there
    ]
    make_topics(admin, missing)
    _check_policies(admin, [name for name in wanted if name in there])
    found = admin.list_topics(settings.config_topic, timeout=REQUEST_TIMEOUT_S).topics[settings.config_topic]
    if len(found.partitions) > 1:
        raise ValueError(f"{settings.config_topic} must have one partition, and has {len(found.partitions)}")


def _check_policies(admin: AdminClient, topics: Sequence[str]) -> None:
    """Refuse topics that forget by time or size, as Connect does, where their settings may be seen."""
    asked = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
    for topic, future in admin.describe_configs(asked).items() if asked else ():
        try:
            policy = future.result(REQUEST_TIMEOUT_S)[_POLICY].value
        except KafkaException as error:
            if error.args[0].code() not in _NOT_ALLOWED:
                raise
            _log.warning(
                "whether %s has %s=%s is not known, and it must: %s",
                topic.name,
                _POLICY,
                _COMPACT,
                error.args[0].str(),
            )
            continue
        if policy != _COMPACT:
            raise ValueError(
                f"{topic.name} must have {_POLICY}={_COMPACT}, and has {_POLICY}={policy}: it would lose what the "
                "supervisor has to remember"
            )


class StateTopics:
    """What the topics say, and the way to change it.  May be used by several threads."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._client = client_settings(settings.client)
        self._lock = threading.RLock()
        self.known = Known()
        self._producer: Producer | None = None

    def take_over(self) -> None:
        """Fence the writer before, and read all that was written; raises KafkaException."""
        with self._lock:
            self._producer = Producer(
                with_client_log({**self._client, "transactional.id": f"connect-cluster-{self._settings.group}"})
            )
            self._producer.init_transactions(REQUEST_TIMEOUT_S)
            known = Known()
            settings = self._settings
            for topic, take in (
                (settings.config_topic, known.take_config),
                (settings.status_topic, known.take_status),
                (settings.offset_topic, known.take_offset),
            ):
                for key, value in self._records(topic):
                    take(key, value)
            self.known = known

    def read_offsets(self, name: str) -> dict[str, dict[str, Any]]:
        """The offsets of a source as the topic has them now, which the source writes itself; raises KafkaException."""
        found = Known()
        for key, value in self._records(self._settings.offset_topic):
            found.take_offset(key, value)
        with self._lock:
            self.known.offsets[name] = found.offsets.get(name, {})
            return dict(self.known.offsets[name])

    def remember_offsets(self, records: Sequence[Record]) -> None:
        """A source has committed these."""
        with self._lock:
            for key, value in records:
                self.known.take_offset(key, value)

    def close(self) -> None:
        """Write nothing more."""
        with self._lock:
            self._producer = None

    def write_configs(self, records: Sequence[Record]) -> None:
        """Write to the topic of configurations and remember; raises `Replaced`, KafkaException."""
        self._write(self._settings.config_topic, records, self.known.take_config)

    def write_statuses(self, records: Sequence[Record]) -> None:
        """Write to the topic of statuses and remember."""
        self._write(self._settings.status_topic, records, self.known.take_status)

    def write_offsets(self, records: Sequence[Record]) -> None:
        """Write to the topic of offsets and remember."""
        self._write(self._settings.offset_topic, records, self.known.take_offset)

    def _write(self, topic: str, records: Sequence[Record], take: Callable[[bytes | None, bytes | None], None]) -> None:
        if not records:
            return
        with self._lock:
            if self._producer is None:
                raise Replaced("this supervisor does not work")
            try:
                self._producer.begin_transaction()
                for key, value in records:
                    self._producer.produce(topic, value, key)
                self._producer.commit_transaction(REQUEST_TIMEOUT_S)
            except KafkaException as error:
                self._give_up(error)
            for key, value in records:
                take(key, value)

    def _give_up(self, error: KafkaException) -> None:
        """Raises `Replaced` where the supervisor was fenced, and the error where not."""
        failed: KafkaError = error.args[0]
        if failed.code() in _FENCED or failed.fatal():
            self._producer = None
            raise Replaced("another supervisor of this name works now") from error
        if failed.txn_requires_abort() and self._producer is not None:
            self._producer.abort_transaction(REQUEST_TIMEOUT_S)
        raise error

    def _records(self, topic: str) -> Iterator[tuple[bytes | None, bytes | None]]:
        """All committed records, up to where the topic ended at the beginning."""
        consumer = Consumer(
            with_client_log(
                {
                    **self._client,
                    "group.id": f"connect-{self._settings.group}-reader",
                    "enable.auto.commit": False,
                    "isolation.level": "read_committed",
                    "enable.partition.eof": True,
                    # Nothing new is waited for: an empty answer is how a partition's end is known.
                    "fetch.wait.max.ms": _FETCH_MS,
                }
            )
        )
        try:
            yield from _read_whole(consumer, topic)
        finally:
            consumer.close()


class SourcePlace:
    """Where one source's offsets are kept.  Its transactional id is as Connect's sources have it (KIP-618)."""

    def __init__(self, state: StateTopics, settings: WorkerSettings, name: str) -> None:
        self._state, self._name = state, name
        self.topic = settings.offset_topic
        self.transactional_id = f"{settings.group}-{name}-0"

    def read(self) -> Mapping[str, Mapping[str, Any]]:
        """The offset of each partition, which is JSON text."""
        return self._state.read_offsets(self._name)

    def records(self, offsets: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> list[Record]:
        """The records that say so."""
        return [offset_record(self._name, *each) for each in offsets]

    def remember(self, records: Sequence[Record]) -> None:
        """They have been committed."""
        self._state.remember_offsets(records)


def _read_whole(consumer: Any, topic: str) -> Iterator[tuple[bytes | None, bytes | None]]:
    metadata = consumer.list_topics(topic, timeout=REQUEST_TIMEOUT_S).topics[topic]
    left = {TopicPartition(topic, each).partition for each in metadata.partitions}
    consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in left])
    while left:
        first = consumer.poll(_POLL_S)  # A wait for many records would last to its end where there are few.
        for message in [] if first is None else [first, *consumer.consume(_RECORDS_AT_A_TIME, 0)]:
            error = message.error()
            if error is None:
                yield message.key(), message.value()
            elif error.code() == KafkaError._PARTITION_EOF:
                left.discard(message.partition())
            elif error.fatal() or not error.retriable():
                raise KafkaException(error)
            else:
                _log.debug("reading %s: %s", topic, error)
