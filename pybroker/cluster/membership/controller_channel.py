"""The way to the active controller, wherever it is, for the parts of a broker that need one.

Owns: where the active controller is (``holder``), also for what clients ask of it (``handlers/forwarding``). Owns the
shapes of the broker's own requests, too. Its own handlers serve those while its controller is active, and the handlers
of the active one's broker otherwise. Does not own connections (``peers``) nor trying again: the caller knows how long
it needs the answer.

Invariants: ``done`` runs on the loop, later than the call, exactly once. A request without an answer comes back as
NOT_CONTROLLER where it surely was not done, and as REQUEST_TIMED_OUT where it may have been. It comes back as
UNKNOWN_SERVER_ERROR where it could not be made: its message's module cannot be read while no descriptor is free.

Counterpart in Kafka: ``NodeToControllerRequestThread`` and its users.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pybroker.cluster.decisions.operations import (
    Heartbeat,
    InSyncChange,
    InSyncResult,
    InSyncResults,
    InSyncState,
    NewTopic,
    ProducerIdBlock,
    Registration,
    TopicCreation,
)
from pybroker.cluster.membership.peers import CONTROL, HEARTBEATS
from pybroker.cluster_limits import STORE_RETRY_MS
from pybroker_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from pybroker.cluster.controller.controller import Controller
    from pybroker.cluster.decisions.operations import FoundReplicas
    from pybroker.cluster.image.cluster_image import BrokerRegistration
    from pybroker.cluster.image.link_states import MirrorReport
    from pybroker.cluster.membership.peers import PeerError, Peers
    from pybroker.cluster.store.metadata_follower import MetadataFollower
    from pybroker.env import Env
    from pybroker_protocol.messages.alter_partition import AlterPartitionRequestPartitionData
    from pybroker_protocol.schema import Request

# Versions that every broker of a cluster speaks.  CreateTopics 4 describes no configs, which nothing here reads.
_CORDONING_HEARTBEAT = 2
_REGISTRATION, _HEARTBEAT, _ALTER_PARTITION, _PRODUCER_IDS, _CREATE_TOPICS, _ASSIGNMENT = 4, 1, 3, 0, 4, 0
_TIMEOUT_MS: Final = 10_000
# How long a broker waits until its own image has a topic that the controller says it has created.
_IMAGE_WAIT_MS: Final = 10_000

Answer = Callable[[Any | None, int], None]

log = logging.getLogger(__name__)


class ControllerChannel:
    """The way from the broker ``broker_id``.  ``broker_epoch()`` is this process's own, also where another has its id.

    ``serve(request, version, done)`` has this broker's own handlers answer a request, None where they fail; it is set
    behind the load.
    """

    serve: Callable[[Request, int, Callable[[Any], None]], None]

    def __init__(
        self,
        env: Env,
        broker_id: int,
        broker_epoch: Callable[[], int],
        controller: Controller,
        follower: MetadataFollower,
        peers: Peers | None,
    ) -> None:
        self._env = env
        self._broker_epoch = broker_epoch
        self._broker_id = broker_id
        self._controller = controller
        self._follower = follower
        self._peers = peers

    def holder(self) -> int | None:
        """The broker whose controller is active: this one while its own is; None while no known broker can be asked."""
        if self._controller.is_active:
            return self._broker_id
        image = self._follower.image
        can_be_asked = image.controller_id != self._broker_id and image.controller_id in image.brokers
        return image.controller_id if can_be_asked and self._peers is not None else None

    def _ask(
        self,
        make: Callable[[], Request],
        version: int,
        answer: Answer,
        *,
        channel: str = CONTROL,
        timeout_ms: int = _TIMEOUT_MS,
    ) -> None:
        """Ask the active controller's broker: ``answer(response, 0)``, or ``answer(None, error_code)``."""
        failed = ErrorCode.UNKNOWN_SERVER_ERROR
        try:
            request = make()
        except (OSError, ImportError):
            log.exception("a request to the controller could not be made")
            self._env.timers.call_soon(answer, None, failed)
            return
        holder = self.holder()
        if holder == self._broker_id:
            self.serve(request, version, lambda response: answer(response, failed if response is None else 0))
            return
        if holder is None or self._peers is None:
            self._env.timers.call_soon(answer, None, ErrorCode.NOT_CONTROLLER)
            return

        def done(response: Any | None, error: PeerError | None) -> None:
            if error is None:
                answer(response, 0)
            else:
                answer(None, ErrorCode.REQUEST_TIMED_OUT if error.may_be_done else ErrorCode.NOT_CONTROLLER)

        self._peers.ask(holder, request, version, done, timeout_ms=timeout_ms, channel=channel)

    # --- this broker -------------------------------------------------------------------------------------------------

    def register(
        self,
        registration: BrokerRegistration,
        cluster_id: str,
        previous_broker_epoch: int,
        done: Callable[[Registration], None],
    ) -> None:
        """Register this broker; see ``Controller.register_broker``."""

        def request() -> Request:
            from pybroker_protocol.messages.broker_registration import BrokerRegistrationRequest, Listener

            return BrokerRegistrationRequest(
                broker_id=registration.broker_id,
                cluster_id=cluster_id,
                incarnation_id=registration.incarnation_id,
                listeners=[
                    Listener(
                        name=name, host=endpoint.host, port=endpoint.port, security_protocol=endpoint.security_protocol
                    )
                    for name, endpoint in registration.endpoints.items()
                ],
                features=[],
                rack=registration.rack,
                is_migrating_zk_broker=False,
                log_dirs=list(registration.log_dirs),
                previous_broker_epoch=previous_broker_epoch,
            )

        def answer(response: Any | None, error_code: int) -> None:
            done(
                Registration(error_code)
                if response is None
                else Registration(response.error_code, response.broker_epoch)
            )

        # By the channel of heartbeats: one of them breaks its connection where the answers do not come through, so that
        # a broker that the controller cannot reach is not registered by a request that reaches the controller.
        self._ask(request, _REGISTRATION, answer, channel=HEARTBEATS)

    def beat(self, done: Callable[[int], None], *, timeout_ms: int) -> None:
        """A heartbeat that tells nothing but that this broker lives; ``done(error code)``."""

        def answer(response: Any | None, error_code: int) -> None:
            done(error_code if response is None else response.error_code)

        self._ask(self._heartbeat, _HEARTBEAT, answer, channel=HEARTBEATS, timeout_ms=timeout_ms)

    def heartbeat(
        self,
        done: Callable[[Heartbeat], None],
        *,
        offline_directories: Sequence[bytes] = (),
        full_directories: Sequence[bytes] | None = None,
        cordoned_directories: Sequence[bytes] | None = None,
        wants_shutdown: bool = False,
    ) -> None:
        """Tell of log dirs that failed, are full or cordoned, or that it stops; see ``Controller.heartbeat``."""
        request = partial(
            self._heartbeat,
            want_shut_down=wants_shutdown,
            offline_log_dirs=list(offline_directories),
            full_log_dirs=None if full_directories is None else list(full_directories),
            cordoned_log_dirs=None if cordoned_directories is None else list(cordoned_directories),
        )

        def answer(response: Any | None, error_code: int) -> None:
            if response is None:
                done(Heartbeat(error_code))
            else:
                done(Heartbeat(response.error_code, response.is_fenced, response.should_shut_down))

        # Of an older version's controller nothing else is asked than what it knows.
        self._ask(request, _HEARTBEAT if cordoned_directories is None else _CORDONING_HEARTBEAT, answer)

    def report_mirrors(self, reports: Sequence[MirrorReport], done: Callable[[int], None]) -> None:
        """Tell what was found in mirrored partitions that this broker leads; ``done(error code)``."""

        def request() -> Request:
            from pybroker_protocol.messages.broker_heartbeat import MirrorReportData

            return self._heartbeat(
                mirror_reports=[
                    MirrorReportData(
                        topic_id=each.topic_id,
                        partition_index=each.partition,
                        leader_epoch=each.leader_epoch,
                        kind=each.kind,
                        reason=each.reason,
                    )
                    for each in reports
                ]
            )

        def answer(response: Any | None, error_code: int) -> None:
            done(error_code if response is None else response.error_code)

        self._ask(request, _HEARTBEAT, answer)

    def _heartbeat(self, **said: Any) -> Request:
        from pybroker_protocol.messages.broker_heartbeat import BrokerHeartbeatRequest

        return BrokerHeartbeatRequest(
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch(),
            current_metadata_offset=self._follower.revision,
            want_fence=False,
            **{"want_shut_down": False, "offline_log_dirs": [], **said},
        )

    def assign_replicas(self, found: FoundReplicas, done: Callable[[int], None]) -> None:
        """Tell in which log dirs this broker found replicas; ``done(error code)``, see ``Controller.assign_replicas``.

        Replicas that are not this broker's any more are no error.
        """

        def request() -> Request:
            from pybroker_protocol.messages.assign_replicas_to_dirs import (
                AssignReplicasToDirsRequest,
                AssignReplicasToDirsRequestDirectoryData,
                AssignReplicasToDirsRequestPartitionData,
                AssignReplicasToDirsRequestTopicData,
            )

            directories: dict[bytes, dict[bytes, list[AssignReplicasToDirsRequestPartitionData]]] = {}
            for (topic_id, index), directory in found.items():
                partition = AssignReplicasToDirsRequestPartitionData(partition_index=index)
                directories.setdefault(directory, {}).setdefault(topic_id, []).append(partition)
            return AssignReplicasToDirsRequest(
                broker_id=self._broker_id,
                broker_epoch=self._broker_epoch(),
                directories=[
                    AssignReplicasToDirsRequestDirectoryData(
                        id=directory,
                        topics=[
                            AssignReplicasToDirsRequestTopicData(topic_id=topic_id, partitions=partitions)
                            for topic_id, partitions in topics.items()
                        ],
                    )
                    for directory, topics in directories.items()
                ],
            )

        def answer(response: Any | None, error_code: int) -> None:
            done(error_code if response is None else response.error_code)

        self._ask(request, _ASSIGNMENT, answer)

    def take_directory_offline(self, directory: bytes) -> None:
        """A log dir of this broker failed; sent until the controller knows, also of a broker that registers anew."""

        def done(heartbeat: Heartbeat) -> None:
            if heartbeat.error_code:
                self._env.timers.call_later(STORE_RETRY_MS, self.take_directory_offline, directory)

        self.heartbeat(done, offline_directories=(directory,))

    # --- partitions --------------------------------------------------------------------------------------------------

    def alter_partitions(self, changes: Sequence[InSyncChange], done: Callable[[InSyncResults], None]) -> None:
        """Ask for other in-sync replicas of partitions that this broker leads; see ``Controller.alter_partitions``.

        One answer each, in the order asked, or none where all are refused.
        """
        # Request and response have the partitions of a topic together; the changes are in another order.
        places_by_topic: dict[bytes, list[int]] = {}
        for place, change in enumerate(changes):
            places_by_topic.setdefault(change.topic_id, []).append(place)
        asked_order = [place for places in places_by_topic.values() for place in places]

        def request() -> Request:
            from pybroker_protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionRequestTopicData

            return AlterPartitionRequest(
                broker_id=self._broker_id,
                broker_epoch=self._broker_epoch(),
                topics=[
                    AlterPartitionRequestTopicData(
                        topic_id=topic_id, partitions=[_asked(changes[place]) for place in places]
                    )
                    for topic_id, places in places_by_topic.items()
                ],
            )

        def answer(response: Any | None, error_code: int) -> None:
            if response is None:
                done(InSyncResults([], error_code))
                return
            by_place = dict(zip(asked_order, _results_of(response), strict=False))
            done(InSyncResults([by_place[place] for place in sorted(by_place)], response.error_code))

        self._ask(request, _ALTER_PARTITION, answer)

    # --- topics and producer ids -------------------------------------------------------------------------------------

    def create_topics(self, topics: Sequence[NewTopic], done: Callable[[list[TopicCreation]], None]) -> None:
        """Create topics that this broker needs; ``done`` runs when its own image has those that were created."""

        def request() -> Request:
            from pybroker_protocol.messages.create_topics import (
                CreatableReplicaAssignment,
                CreatableTopic,
                CreatableTopicConfig,
                CreateTopicsRequest,
            )

            return CreateTopicsRequest(
                topics=[
                    CreatableTopic(
                        name=topic.name,
                        num_partitions=topic.num_partitions,
                        replication_factor=topic.replication_factor,
                        assignments=[
                            CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
                            for index, replicas in topic.assignments
                        ],
                        configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs],
                    )
                    for topic in topics
                ],
                timeout_ms=_TIMEOUT_MS,
                validate_only=False,
            )

        def answer(response: Any | None, error_code: int) -> None:
            if response is None:
                done([TopicCreation(topic.name, error_code) for topic in topics])
                return
            results = [
                TopicCreation(result.name, result.error_code, result.error_message) for result in response.topics
            ]
            exists = ErrorCode.TOPIC_ALREADY_EXISTS
            names = [result.name for result in results if result.error_code in (0, exists)]
            self._when_known(names, lambda: done(results))

        self._ask(request, _CREATE_TOPICS, answer)

    def _when_known(self, names: Sequence[str], then: Callable[[], None]) -> None:
        """Once the image has the topics, or it has not for so long that the caller may as well look for itself."""

        def look() -> None:
            if all(name in self._follower.image.topics_by_name for name in names):
                finish()

        def finish() -> None:
            self._follower.listeners.remove(look)
            timer.cancel()
            then()

        self._follower.listeners.append(look)
        timer = self._env.timers.call_later(_IMAGE_WAIT_MS, finish)
        look()

    def allocate_producer_ids(self, done: Callable[[ProducerIdBlock | None], None]) -> None:
        """The next block of producer ids for this broker; None when there is none to be had now."""

        def request() -> Request:
            from pybroker_protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest

            return AllocateProducerIdsRequest(broker_id=self._broker_id, broker_epoch=self._broker_epoch())

        def answer(response: Any | None, error_code: int) -> None:
            if response is None or response.error_code:
                done(None)
            else:
                done(ProducerIdBlock(response.producer_id_start, response.producer_id_len))

        self._ask(request, _PRODUCER_IDS, answer)


def _asked(change: InSyncChange) -> AlterPartitionRequestPartitionData:
    from pybroker_protocol.messages.alter_partition import AlterPartitionRequestPartitionData, BrokerState

    return AlterPartitionRequestPartitionData(
        partition_index=change.partition_index,
        leader_epoch=change.leader_epoch,
        new_isr_with_epochs=[BrokerState(broker_id=broker, broker_epoch=epoch) for broker, epoch in change.in_sync],
        leader_recovery_state=change.leader_recovery_state,
        partition_epoch=change.partition_epoch,
    )


def _results_of(response: Any) -> list[InSyncResult]:
    return [
        InSyncResult(
            topic.topic_id,
            partition.partition_index,
            partition.error_code,
            InSyncState(
                partition.leader_id,
                partition.leader_epoch,
                tuple(partition.isr),
                partition.partition_epoch,
                partition.leader_recovery_state,
            ),
        )
        for topic in response.topics
        for partition in topic.partitions
    ]
