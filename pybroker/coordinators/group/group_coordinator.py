"""The group coordinator of a broker, as its handlers and the composition root see it.

Owns: checks that need no group's state, and turning requests into operations on shards.  Owns no group:
``GroupCoordinatorShard`` does.

Every method that takes ``done`` calls it exactly once with the response, inside the call or later on the loop.
Requests and responses are the message classes of ``pybroker_protocol``; a handler has already resolved topic ids to
names and refused topics that do not exist.

Counterpart in Kafka: ``GroupCoordinatorService``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pybroker.cluster.image.cluster_image import ClusterImage, ImageDelta
from pybroker.cluster.image.coordinator_table import GROUPS
from pybroker.cluster.image.supported_features import GROUP_VERSION
from pybroker.coordinators.coordinator_context import response_error
from pybroker.coordinators.coordinator_ports import TransactionalProducer
from pybroker.coordinators.gather import Gather
from pybroker.coordinators.group.classic.group_responses import (
    delete_error,
    described_group,
    described_group_error,
    heartbeat_error,
    join_error,
    leave_error,
    list_error,
    sync_error,
)
from pybroker.coordinators.group.classic.join_requests import Join
from pybroker.coordinators.group.consumer.consumer_group_manager import ConsumerGroupContext
from pybroker.coordinators.group.consumer.consumer_heartbeat import Heartbeat
from pybroker.coordinators.group.consumer.consumer_requests import check_heartbeat, describe_error
from pybroker.coordinators.group.consumer.consumer_requests import heartbeat_error as consumer_heartbeat_error
from pybroker.coordinators.group.consumer.consumer_settings import ConsumerSettings
from pybroker.coordinators.group.consumer.regexes import MayDescribe
from pybroker.coordinators.group.group_coordinator_settings import GroupSettings
from pybroker.coordinators.group.group_coordinator_shard import GroupCoordinatorShard
from pybroker.coordinators.group.group_topics import Topics
from pybroker.coordinators.group.offsets.offset_operations import (
    offset_commit_error,
    offset_delete_error,
    offset_fetch_error,
)
from pybroker.coordinators.group.offsets.transactional_offsets import txn_offset_commit_error
from pybroker.coordinators.partitioning import partitioner
from pybroker.coordinators.result import Result, Waiter
from pybroker.coordinators.runtime import CoordinatorRuntime
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.list_groups import ListedGroup, ListGroupsResponse
from pybroker_protocol.uuids import uuid_text

if TYPE_CHECKING:
    from pybroker.cluster.image.metadata_cache import MetadataCache
    from pybroker.config.broker import BrokerConfig
    from pybroker.coordinators.coordinator_context import CoordinatorOperation
    from pybroker.coordinators.coordinator_ports import PartitionReader, PartitionWriter
    from pybroker.coordinators.group.offsets.lowered_offsets import HeldOffset
    from pybroker.coordinators.group.offsets.repeated_commit import CommittedPositions, RepeatedCommit
    from pybroker.env import Env
    from pybroker.storage.results import TransactionMarker
    from pybroker_protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
    from pybroker_protocol.messages.heartbeat import HeartbeatRequest
    from pybroker_protocol.messages.join_group import JoinGroupRequest
    from pybroker_protocol.messages.leave_group import LeaveGroupRequest
    from pybroker_protocol.messages.list_groups import ListGroupsRequest
    from pybroker_protocol.messages.offset_commit import OffsetCommitRequest
    from pybroker_protocol.messages.offset_delete import OffsetDeleteRequest
    from pybroker_protocol.messages.offset_fetch import OffsetFetchRequestGroup
    from pybroker_protocol.messages.sync_group import SyncGroupRequest
    from pybroker_protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

Done = Callable[[Any], None]

_UUID_VERSION_4 = (4 << 76) | (2 << 62)
_UUID_RANDOM_BITS = ((1 << 128) - 1) & ~((0xF << 76) | (3 << 62))


class GroupCoordinator:
    """One per broker; wired by ``server.py``."""

    def __init__(
        self, env: Env, config: BrokerConfig, metadata: MetadataCache, writer: PartitionWriter, reader: PartitionReader
    ) -> None:
        settings = GroupSettings.of(config)
        self._env = env
        self._settings = settings
        self._writer = writer
        self._metadata = metadata
        self.partition_of = partitioner(GROUPS, config, metadata)
        self._topics = Topics(metadata.image)
        self._allows_consumer_groups = "consumer" in config.get_list("group.coordinator.rebalance.protocols")
        self._consumer_settings = ConsumerSettings(config, self._topics)
        shared = ConsumerGroupContext(
            self._consumer_settings, self._topics, self._new_uuid, self._env.clock.monotonic_ms
        )
        self._runtime: CoordinatorRuntime[GroupCoordinatorShard] = CoordinatorRuntime(
            env,
            GROUPS.topic,
            writer,
            reader,
            lambda _partition: GroupCoordinatorShard(settings, shared),
            settings.offsets_commit_timeout_ms,
        )
        self._unsubscribe = metadata.subscribe(self._on_image)

    # --- what the broker tells it ---------------------------------------------------------------------------------

    def on_leadership(self, gained: set[int], lost: set[int]) -> None:
        """Partitions of ``__consumer_offsets`` that this broker leads from now on, or does not lead any more."""
        self._runtime.on_leadership(gained, lost)

    def on_high_watermark(self, partition: int, high_watermark: int) -> None:
        """The high watermark of a led partition of ``__consumer_offsets`` advanced."""
        self._runtime.on_high_watermark(partition, high_watermark)

    def close(self) -> None:
        """Answer everybody who waits and cancel all timers."""
        self._unsubscribe()
        self._runtime.close()

    def _on_image(self, image: ClusterImage, delta: ImageDelta) -> None:
        self._topics.on_image(image, delta)
        deleted = [topic.name for topic in delta.topics_deleted]
        if deleted:
            self._runtime.submit_to_all(lambda shard, _now_ms: shard.forget_topics(deleted))

    # --- membership -----------------------------------------------------------------------------------------------

    def join_group(
        self, request: JoinGroupRequest, api_version: int, client_id: str, client_host: str, done: Done
    ) -> None:
        """JoinGroup; the response may take as long as the rebalance does."""
        member_id = request.member_id
        waiter = Waiter(done, lambda code: join_error("", code))
        if not request.group_id:
            done(join_error(member_id, ErrorCode.INVALID_GROUP_ID))
            return
        minimum_ms, maximum_ms = self._settings.min_session_timeout_ms, self._settings.max_session_timeout_ms
        if not minimum_ms <= request.session_timeout_ms <= maximum_ms:
            done(join_error(member_id, ErrorCode.INVALID_SESSION_TIMEOUT))
            return
        joining = Join(request, api_version, client_id, client_host, waiter, self._new_member_id)
        self._submit(request.group_id, lambda shard, now_ms: shard.join(joining, now_ms), waiter)

    def _new_member_id(self, prefix: str) -> str:
        """An unused id: the client's or instance's id, and a random UUID as Java prints it."""
        digits = f"{self._env.random.getrandbits(128) & _UUID_RANDOM_BITS | _UUID_VERSION_4:032x}"
        return f"{prefix}-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"

    def _new_uuid(self) -> str:
        """A member's id in a consumer group, as ``Uuid.randomUuid`` prints it: never with a dash in front."""
        while True:
            number = self._env.random.getrandbits(128) & _UUID_RANDOM_BITS | _UUID_VERSION_4
            text = uuid_text(number.to_bytes(16, "big"))
            if not text.startswith("-"):
                return text

    @property
    def serves_consumer_groups(self) -> bool:
        """Whether the cluster's version of groups and the broker's settings allow consumer groups."""
        return self._allows_consumer_groups and self._metadata.image.features.get(GROUP_VERSION, 0) >= 1

    def consumer_heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        api_version: int,
        client_id: str,
        client_host: str,
        may_describe: MayDescribe,
        done: Done,
    ) -> None:
        """ConsumerGroupHeartbeat; of the topics that a regular expression names the group gets those that the member
        ``may_describe``."""
        failure = check_heartbeat(request, api_version, self._consumer_settings.assignors.keys())
        if failure is not None:
            done(consumer_heartbeat_error(failure.code, failure.message))
            return
        beat = Heartbeat(request, client_id, client_host, may_describe)
        waiter = Waiter(done, consumer_heartbeat_error)
        self._submit(request.group_id, lambda shard, now_ms: shard.consumers.heartbeat(beat, now_ms), waiter)

    def sync_group(self, request: SyncGroupRequest, done: Done) -> None:
        """SyncGroup; the response waits for the leader's assignment."""
        waiter = Waiter(done, sync_error)
        if not request.group_id:
            done(sync_error(ErrorCode.INVALID_GROUP_ID))
            return
        self._submit(request.group_id, lambda shard, now_ms: shard.sync(request, waiter, now_ms), waiter)

    def heartbeat(self, request: HeartbeatRequest, done: Done) -> None:
        """Heartbeat."""
        if not request.group_id:
            done(heartbeat_error(ErrorCode.INVALID_GROUP_ID))
            return
        waiter = Waiter(done, heartbeat_error)
        self._submit(request.group_id, lambda shard, now_ms: shard.heartbeat(request, now_ms), waiter)

    def leave_group(self, request: LeaveGroupRequest, done: Done) -> None:
        """LeaveGroup, with ``members`` filled whatever the version of the request was."""
        if not request.group_id:
            done(leave_error(ErrorCode.INVALID_GROUP_ID))
            return
        waiter = Waiter(done, leave_error)
        self._submit(request.group_id, lambda shard, now_ms: shard.leave(request, now_ms), waiter)

    # --- offsets --------------------------------------------------------------------------------------------------

    def commit_offsets(self, request: OffsetCommitRequest, api_version: int, done: Done) -> None:
        """OffsetCommit of topics that exist, each with its name and its topic id.  The empty group id is allowed."""
        waiter = Waiter(done, lambda code: offset_commit_error(request, code))
        self._submit(request.group_id, lambda shard, now_ms: shard.commit_offsets(request, api_version, now_ms), waiter)

    def commit_offsets_again(
        self, commit: RepeatedCommit, requests: Sequence[CommittedPositions], done: Callable[[int], None]
    ) -> None:
        """OffsetCommits that repeat an earlier one with other offsets: ``done`` gets one error code for all of them."""
        self._submit(
            commit.request.group_id,
            lambda shard, now_ms: shard.commit_offsets_again(commit, requests, now_ms),
            Waiter(done, int),
        )

    def commit_transactional_offsets(self, request: TxnOffsetCommitRequest, api_version: int, done: Done) -> None:
        """TxnOffsetCommit of topics that exist; the offsets become current when the transaction is committed."""
        waiter = Waiter(done, partial(txn_offset_commit_error, request))
        if not request.group_id:
            done(txn_offset_commit_error(request, ErrorCode.INVALID_GROUP_ID))
            return
        partition = self.partition_of(request.group_id)

        def commit(shard: GroupCoordinatorShard, now_ms: int) -> Result:
            return shard.commit_transactional_offsets(request, api_version, now_ms)

        def verified(error_code: int) -> None:
            if error_code:
                done(txn_offset_commit_error(request, _unverified(error_code)))
            else:
                self._runtime.submit(partition, commit, waiter)

        producer = TransactionalProducer(request.transactional_id, request.producer_id, request.producer_epoch)
        self._writer.verify_transaction(GROUPS.topic, partition, producer, api_version, verified)

    def end_transaction(self, partition: int, marker: TransactionMarker, done: Callable[[int], None]) -> None:
        """Write the marker into a partition of ``__consumer_offsets``, and make the pending offsets current or forget
        them; ``done`` gets an error code."""
        self._runtime.submit(partition, lambda _shard, _now_ms: _end_transaction(marker), Waiter(done, int))

    def fetch_offsets(self, request: OffsetFetchRequestGroup, require_stable: bool, done: Done) -> None:
        """OffsetFetch of one group: ``done`` gets an OffsetFetchResponseGroup.  The empty group id is allowed."""
        waiter = Waiter(done, lambda code: offset_fetch_error(request.group_id, code))
        self._submit(
            request.group_id, lambda shard, _now_ms: Result(shard.fetch_offsets(request, require_stable)), waiter
        )

    def delete_offsets(self, request: OffsetDeleteRequest, done: Done) -> None:
        """OffsetDelete of topics that exist."""
        if not request.group_id:
            done(offset_delete_error(ErrorCode.INVALID_GROUP_ID))
            return
        waiter = Waiter(done, offset_delete_error)
        self._submit(request.group_id, lambda shard, _now_ms: shard.delete_offsets(request), waiter)

    @property
    def partitions(self) -> list[int]:
        """The partitions of ``__consumer_offsets`` that are here, or are being loaded; those that failed are not."""
        return self._runtime.partitions

    def list_offsets_in(self, topics: Collection[str], done: Callable[[list[HeldOffset] | int], None]) -> None:
        """What the groups that this broker coordinates have committed of these topics; an error code while some of
        them are loading."""
        self._runtime.list_all(lambda shard, _now_ms: Result(shard.offsets_in(topics)), done)

    def lower_offsets(
        self, group_id: str, lowered: Sequence[tuple[HeldOffset, int]], done: Callable[[int], None]
    ) -> None:
        """Commit lower offsets, whatever members the group has, where it has committed nothing since; ``done`` gets an
        error code."""
        self._submit(group_id, lambda shard, now_ms: shard.lower_offsets(lowered, now_ms), Waiter(done, int))

    # --- groups ---------------------------------------------------------------------------------------------------

    def list_groups(self, request: ListGroupsRequest, done: Done) -> None:
        """ListGroups: the groups of all partitions that this broker leads; fails while one of them is loading."""
        states = {state.strip().lower() for state in request.states_filter}
        types = {group_type.strip().lower() for group_type in request.types_filter}

        def listed(groups: list[ListedGroup] | int) -> None:
            if isinstance(groups, int):
                done(list_error(groups))
            else:
                done(ListGroupsResponse(throttle_time_ms=0, error_code=0, groups=groups))

        self._runtime.list_all(lambda shard, _now_ms: Result(shard.list_groups(states, types)), listed)

    def describe_groups(self, group_ids: Sequence[str], api_version: int, done: Done) -> None:
        """DescribeGroups: ``done`` gets a list of DescribedGroup in the order asked."""
        gather = Gather(len(group_ids), done)
        for position, group_id in enumerate(group_ids):
            waiter = Waiter(gather.slot(position), partial(described_group_error, group_id))
            self._submit(group_id, partial(_describe, group_id, api_version), waiter)

    def describe_consumer_groups(self, group_ids: Sequence[str], done: Done) -> None:
        """ConsumerGroupDescribe: ``done`` gets a list of DescribedGroup in the order asked."""
        gather = Gather(len(group_ids), done)
        for position, group_id in enumerate(group_ids):
            fill = gather.slot(position)
            if group_id:
                waiter = Waiter(fill, partial(describe_error, group_id))
                self._submit(group_id, partial(_describe_consumer_group, group_id), waiter)
            else:
                fill(describe_error(group_id, ErrorCode.INVALID_GROUP_ID))

    def delete_groups(self, group_ids: Sequence[str], done: Done) -> None:
        """DeleteGroups: ``done`` gets a list of DeletableGroupResult in the order asked."""
        gather = Gather(len(group_ids), done)
        for position, group_id in enumerate(group_ids):
            waiter = Waiter(gather.slot(position), partial(delete_error, group_id))
            self._submit(group_id, partial(_delete, group_id), waiter)

    def _submit(self, group_id: str, operation: CoordinatorOperation[GroupCoordinatorShard], waiter: Waiter) -> None:
        self._runtime.submit(self.partition_of(group_id), operation, waiter)


def _end_transaction(marker: TransactionMarker) -> Result:
    result = Result(0)
    result.marker = marker
    return result


def _unverified(error_code: int) -> int:
    """Why a transaction could not be verified, as clients of a group coordinator understand it."""
    if error_code == ErrorCode.NETWORK_EXCEPTION:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return response_error(error_code)


def _describe(group_id: str, api_version: int, shard: GroupCoordinatorShard, _now_ms: int) -> Result:
    return Result(described_group(group_id, shard.describe(group_id), api_version))


def _describe_consumer_group(group_id: str, shard: GroupCoordinatorShard, _now_ms: int) -> Result:
    return Result(shard.consumers.describe(group_id))


def _delete(group_id: str, shard: GroupCoordinatorShard, _now_ms: int) -> Result:
    return shard.delete_group(group_id)
