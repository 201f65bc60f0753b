"""Which of several supervisors of one name works: the one whose member of a group has the topic of configurations.

The topic has one partition, so that one member of the group has it.  A supervisor that dies is missed
after the session's timeout, and the next one gets the partition.  Assignment is cooperative and sticky: who joins takes
nothing from who works.  Why a group: brokers watch the members already, and any tool of Kafka's shows who they are.
That a supervisor which was thought dead writes nothing is another matter, which transactions see to (`state_topics`).

Owns the member and its thread.  What the partition holds is not read here.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeAlias

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from pybroker.connectors.state.worker_settings import WorkerSettings
from pybroker.pipeline.topics.client_log import with_client_log
from pybroker.pipeline.topics.librdkafka_settings import client_settings

SESSION_MS: Final = 6_000
_HEARTBEAT_MS: Final = 1_500
_POLL_S: Final = 0.2
# What the library tries again, and what a wait alone does not change.
_REFUSALS: Final = frozenset(
    {
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_MAX_SIZE_REACHED,
        KafkaError.INCONSISTENT_GROUP_PROTOCOL,
        KafkaError.INVALID_GROUP_ID,
        KafkaError.INVALID_SESSION_TIMEOUT,
    }
)

_log = logging.getLogger(__name__)


class Waits(Enum):
    """Why a supervisor does not work, in the words of its refusal."""

    NONE_WORKS_YET = "no supervisor of this name works yet"
    ANOTHER_WORKS = "this supervisor waits: another one of its name works"


@dataclass(frozen=True, slots=True)
class GroupRefused:
    """Why a supervisor is no member of its group, where the brokers refuse it, in the words of its refusal."""

    reason: str

    @property
    def value(self) -> str:
        """As `Waits` has it."""
        return f"this supervisor cannot join the group of its name: {self.reason}"


# Why a supervisor does not work.
Idle: TypeAlias = Waits | GroupRefused


class Membership:
    """A member of the supervisors' group, on a thread of its own until `close`.

    ``on_change`` is called on that thread. It gets None when this supervisor begins to be the one that works.  It gets
    the reason when it ceases to, when another one works, or when the brokers refuse it.
    """

    def __init__(self, settings: WorkerSettings, on_change: Callable[[Idle | None], None]) -> None:
        self._on_change = on_change
        self._waits: Idle | None = Waits.NONE_WORKS_YET
        self._said = ""
        self._topic = settings.config_topic
        self._consumer = Consumer(
            with_client_log(
                {
                    **client_settings(settings.client),
                    "group.id": settings.group,
                    "group.protocol": "classic",
                    "partition.assignment.strategy": "cooperative-sticky",
                    "session.timeout.ms": SESSION_MS,
                    "heartbeat.interval.ms": _HEARTBEAT_MS,
                    "enable.auto.commit": False,
                    "client.id": "pybroker-connect",
                }
            )
        )
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="membership", daemon=True)

    def start(self) -> None:
        """Join."""
        self._consumer.subscribe([self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)
        self._thread.start()

    def close(self) -> None:
        """Leave the group, so that another supervisor need not wait for the session's end."""
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._ends.is_set():
                message = self._consumer.poll(_POLL_S)
                if message is not None and (error := message.error()) is not None:
                    self._note_error(error)
        except KafkaException as error:
            _log.error("the group of supervisors: %s", error.args[0].str())
            self._change(GroupRefused(error.args[0].str()))
        finally:
            self._consumer.close()

    def _note_error(self, error: KafkaError) -> None:
        """What the library tries again, such as a group that an ACL does not allow: it is said once."""
        said = error.str()
        if said != self._said:
            _log.warning("the group of supervisors: %s", said)
            self._said = said
        if self._waits is not None and error.code() in _REFUSALS:
            self._change(GroupRefused(said))

    def _assigned(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        consumer.incremental_assign(partitions)
        if partitions:
            consumer.pause(partitions)  # what it holds `state_topics` reads
            self._change(None)
        elif self._waits is not None:
            self._change(Waits.ANOTHER_WORKS)

    def _revoked(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        if partitions:
            self._change(Waits.ANOTHER_WORKS)

    def _lost(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        if partitions:
            self._change(Waits.NONE_WORKS_YET)

    def _change(self, waits: Idle | None) -> None:
        if waits != self._waits:
            self._waits = waits
            self._on_change(waits)
