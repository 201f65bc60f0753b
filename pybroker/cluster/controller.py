"""The controller: decides every change of the cluster's metadata and commits it to the store.

Owns: the order of changes, the controller key, the pending operations and their deadlines.  Owns no rule
(``decisions/`` has them, pure) and no storage (``MetadataStore``).

Invariants: one transaction is in flight at a time, and operations that arrive meanwhile are decided one after
another on the image to be and commit together in the next one; every transaction checks the version of the
controller key, so a controller that was replaced changes nothing; ``done`` runs on the loop, after the image that
contains the change was applied, and exactly once; the loop never waits for the store.

Counterpart in Kafka: ``org.apache.kafka.controller.QuorumController``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pybroker.cluster.image import BrokerRegistration
from pybroker.cluster.operations import (
    ConfigChange,
    FeatureUpdate,
    MorePartitions,
    NamedResult,
    NewTopic,
    ProducerIdBlock,
    TopicCreation,
    TopicDeletion,
)

REQUEST_TIMEOUT_MS = 30_000  # Kafka's controller.quorum.request.timeout is 2 s, its clients' default 30 s


class Controller:
    """The operations on the cluster; each calls ``done`` later, never before it returns."""

    def start(self, registration: BrokerRegistration) -> None:
        """Load the store (synchronously), take the controller key, register this broker, publish the first image."""
        raise NotImplementedError

    def close(self) -> None:
        """Finish the transaction in flight and end the store's thread; operations still waiting are dropped."""
        raise NotImplementedError

    def create_topics(
        self,
        topics: Sequence[NewTopic],
        done: Callable[[list[TopicCreation]], None],
        *,
        validate_only: bool = False,
        timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> None:
        """Create the valid ones; one answer per topic, in the order asked."""
        raise NotImplementedError

    def delete_topics(
        self,
        topics: Sequence[str | bytes],
        done: Callable[[list[TopicDeletion]], None],
        *,
        timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> None:
        """Delete topics by name (str) or by id (bytes); one answer per topic, in the order asked."""
        raise NotImplementedError

    def create_partitions(
        self,
        topics: Sequence[MorePartitions],
        done: Callable[[list[NamedResult]], None],
        *,
        validate_only: bool = False,
        timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> None:
        """Grow topics; one answer per topic."""
        raise NotImplementedError

    def alter_configs(self, changes: Sequence[ConfigChange], done: Callable[[list[NamedResult]], None]) -> None:
        """Commit overrides; one answer per change, in the order asked (a topic may be gone meanwhile)."""
        raise NotImplementedError

    def update_features(
        self,
        updates: Sequence[FeatureUpdate],
        done: Callable[[list[NamedResult]], None],
        *,
        validate_only: bool = False,
        timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> None:
        """Finalize feature levels: all of them or, when one is refused, none."""
        raise NotImplementedError

    def allocate_producer_ids(self, done: Callable[[ProducerIdBlock | None], None]) -> None:
        """Give this broker the next block of producer ids; None when the store failed."""
        raise NotImplementedError

    def auto_create_topic(self, name: str, done: Callable[[int], None]) -> None:
        """Create a topic with the broker's defaults; ``done(error_code)`` runs when it exists and has a leader.

        Requests for one name that come while it is being created share its creation; a topic that exists is no error.
        """
        raise NotImplementedError

    def ensure_internal_topic(self, name: str, done: Callable[[int], None]) -> None:
        """Like ``auto_create_topic``, for Kafka's internal topics with their own partitions and configs."""
        raise NotImplementedError
