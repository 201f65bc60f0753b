"""Topics of connectors at the brokers: those that a pattern finds, and the one of dead letters, which is made.

Owns the requests, and that a topic may be made by another client meanwhile.  Counterpart in Kafka:
``DeadLetterQueueReporter.createAndSetup``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from pybroker.pipeline.topics.admin_logins import admin_client
from pybroker.pipeline.topics.client_calls import REQUEST_TIMEOUT_S
from pybroker.pipeline.topics.directory import Directory
from pybroker.pipeline.topics.librdkafka_settings import CLIENT_PREFIX, client_settings
from pybroker.pipeline.topics.source_options import read_source_options

_LETTERS_PARTITIONS: Final = 1  # Connect's


def whole(pattern: str) -> str:
    """A pattern of ``topics.regex``, which fits whole names, as one that is found in a name."""
    return f"^(?:{pattern})$"


def topics_found(client: Mapping[str, str], pattern: str) -> list[str]:
    """The topics that a pattern fits now, as the source of a sink finds them; ValueError, KafkaException."""
    options = {f"{CLIENT_PREFIX}{name}": text for name, text in client.items()}
    read = read_source_options({**options, "subscribePattern": whole(pattern)}, streaming=True)
    return sorted({at.topic for at in Directory(read).partitions()})


def create_dead_letters(client: Mapping[str, str], topic: str, replication_factor: int) -> None:
    """Make the topic of dead letters, unless it is there; raises `LoginRefused`, KafkaException."""
    admin = admin_client(client_settings(client), REQUEST_TIMEOUT_S)
    if topic in admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics:
        return
    make_topics(admin, [NewTopic(topic, _LETTERS_PARTITIONS, replication_factor)])


def make_topics(admin: AdminClient, topics: Sequence[NewTopic]) -> None:
    """Make them; one that another client has made meanwhile is there.  Raises KafkaException."""
    for future in admin.create_topics(list(topics)).values() if topics else ():
        try:
            future.result(REQUEST_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
