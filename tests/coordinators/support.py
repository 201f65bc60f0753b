"""A group coordinator in a world of its own: virtual time, and a log in memory.

``Cluster`` asks the coordinator in plain calls and keeps replies.
"""

from __future__ import annotations

from typing import Any

from harness.virtual_world import MemoryPartitions, VirtualClock, VirtualWorld

from pybroker.cluster.image.cluster_image import ClusterImage, ImageDelta, PartitionImage, TopicImage
from pybroker.cluster.image.coordinator_table import GROUPS
from pybroker.cluster.image.metadata_cache import MetadataCache
from pybroker.config.broker import BrokerConfig
from pybroker.coordinators.group.group_coordinator import GroupCoordinator
from pybroker_protocol import codec
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.heartbeat import HeartbeatRequest
from pybroker_protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pybroker_protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from pybroker_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pybroker_protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from pybroker_protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

TOPIC_ID = bytes(range(16))


class World(VirtualWorld):
    """A world with one thread and the partitions of one topic."""

    def __init__(self, topic: str = GROUPS.topic, *, clock: VirtualClock | None = None) -> None:
        super().__init__(7, has_threads=False, clock=clock)
        self.partitions = MemoryPartitions(topic)


def image(partitions: int = 1, topics: tuple[str, ...] = ("t",)) -> ClusterImage:
    """A cluster of one broker with the internal topic and some others of ten partitions."""
    state = PartitionImage(replicas=(1,), isr=(1,), leader=1)
    all_topics = [TopicImage(GROUPS.topic, bytes(15) + b"\x63", (state,) * partitions, True)]
    all_topics += [TopicImage(name, TOPIC_ID, (state,) * 10) for name in topics]
    return ClusterImage(
        epoch=1,
        topics_by_name={topic.name: topic for topic in all_topics},
        topics_by_id={topic.topic_id: topic for topic in all_topics},
    )


def config(**settings: Any) -> BrokerConfig:
    """A broker's configuration with some settings (underscores for dots) set."""
    given = {"group.initial.rebalance.delay.ms": 0}
    given.update({name.replace("_", "."): value for name, value in settings.items()})
    return BrokerConfig({name: str(value) for name, value in given.items()})


def subscription(*topics: str) -> bytes:
    """A consumer's metadata: version 0, topics, no user data."""
    names = b"".join(len(name).to_bytes(2, "big") + name.encode() for name in topics)
    return b"\x00\x00" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff"


class Reply:
    """The reply to one request; ``response`` is None while it is parked."""

    def __init__(self) -> None:
        self.response: Any = None

    def done(self, response: Any) -> None:
        assert self.response is None, "a request is answered once"
        assert response is not None
        self.response = response

    @property
    def parked(self) -> bool:
        return self.response is None

    @property
    def error(self) -> int:
        assert self.response is not None, "still parked"
        return int(self.response.error_code)


class Cluster:
    """A coordinator in a world, already leading its partitions (and, unless not ``settled``, done with loading)."""

    def __init__(self, world: World | None = None, partitions: int = 1, settled: bool = True, **settings: Any) -> None:
        self.world = World() if world is None else world
        self.metadata = MetadataCache(image(partitions))
        log = self.world.partitions
        self.groups = GroupCoordinator(self.world.env, config(**settings), self.metadata, log, log)
        log.on_high_watermark = self.groups.on_high_watermark
        self.groups.on_leadership(set(range(partitions)), set())
        if settled:
            self.world.advance()

    def restart(self, **settings: Any) -> Cluster:
        """Another coordinator over the same log."""
        self.groups.close()
        partitions = len(self.metadata.image.topics_by_name[GROUPS.topic].partitions)
        return Cluster(self.world, partitions, **settings)

    def delete_topics(self, *names: str) -> None:
        """The cluster's image loses topics."""
        before = self.metadata.image
        gone = tuple(before.topics_by_name[name] for name in names)
        left = {name: topic for name, topic in before.topics_by_name.items() if name not in names}
        self.metadata.apply(ClusterImage(epoch=before.epoch + 1, topics_by_name=left), ImageDelta(topics_deleted=gone))

    def topic_id(self, name: str) -> bytes:
        """The topic's id, as a handler resolves it."""
        topic = self.metadata.image.topics_by_name.get(name)
        return TOPIC_ID if topic is None else topic.topic_id

    # --- requests -------------------------------------------------------------------------------------------------

    def join(
        self,
        member_id: str = "",
        *,
        group: str = "g",
        instance: str | None = None,
        version: int = 9,
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        protocol_type: str = "consumer",
        protocols: tuple[tuple[str, bytes], ...] = (("range", subscription("t")),),
    ) -> Reply:
        reply = Reply()
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols],
        )
        self.groups.join_group(request, version, "client", "/127.0.0.1", reply.done)
        return reply

    def new_member(self, **how: Any) -> tuple[str, Reply]:
        """Ask for a member id and join with it: (member id, the second request's reply)."""
        first = self.join(**how)
        assert first.error == ErrorCode.MEMBER_ID_REQUIRED
        member_id = first.response.member_id
        return member_id, self.join(member_id, **how)

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        group: str = "g",
        instance: str | None = None,
        protocol_type: str | None = "consumer",
        protocol_name: str | None = "range",
    ) -> Reply:
        reply = Reply()
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=member, assignment=assignment)
                for member, assignment in (assignments or {}).items()
            ],
        )
        self.groups.sync_group(request, reply.done)
        return reply

    def heartbeat(self, member_id: str, generation: int, *, group: str = "g", instance: str | None = None) -> Reply:
        reply = Reply()
        request = HeartbeatRequest(
            group_id=group, generation_id=generation, member_id=member_id, group_instance_id=instance
        )
        self.groups.heartbeat(request, reply.done)
        return reply

    def leave(self, *members: tuple[str, str | None], group: str = "g") -> Reply:
        reply = Reply()
        identities = [MemberIdentity(member_id=member, group_instance_id=instance) for member, instance in members]
        self.groups.leave_group(LeaveGroupRequest(group_id=group, members=identities), reply.done)
        return reply

    def commit(
        self,
        offset: int,
        member_id: str = "",
        generation: int = -1,
        *,
        group: str = "g",
        instance: str | None = None,
        topic: str = "t",
        partition: int = 0,
        metadata: str | None = "",
        leader_epoch: int = -1,
        retention_ms: int = -1,
        version: int = 9,
        reply: Reply | None = None,
    ) -> Reply:
        reply = Reply() if reply is None else reply
        partitions = [
            OffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=offset,
                committed_leader_epoch=leader_epoch,
                committed_metadata=metadata,
            )
        ]
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance,
            retention_time_ms=retention_ms,
            topics=[OffsetCommitRequestTopic(name=topic, topic_id=self.topic_id(topic), partitions=partitions)],
        )
        self.groups.commit_offsets(request, version, reply.done)
        return reply

    def commit_error(self, *args: Any, **how: Any) -> int:
        """The error of the only partition of a commit."""
        return int(self.commit(*args, **how).response.topics[0].partitions[0].error_code)

    def fetch(
        self,
        group: str = "g",
        topics: dict[str, list[int]] | None = None,
        *,
        topic_id: bytes = bytes(16),
        require_stable: bool = False,
    ) -> Reply:
        """All offsets unless topics are given."""
        reply = Reply()
        asked = None
        if topics is not None:
            asked = [
                OffsetFetchRequestTopics(name=name, topic_id=topic_id, partition_indexes=indexes)
                for name, indexes in topics.items()
            ]
        request = OffsetFetchRequestGroup(group_id=group, topics=asked)
        self.groups.fetch_offsets(request, require_stable, reply.done)
        return reply

    def committed(self, group: str = "g") -> dict[tuple[str, int], int]:
        """All offsets of a group."""
        response = self.fetch(group).response
        assert response.error_code == 0
        return {
            (topic.name, partition.partition_index): partition.committed_offset
            for topic in response.topics
            for partition in topic.partitions
        }

    def describe(self, group: str = "g", version: int = 6) -> Any:
        reply = Reply()
        self.groups.describe_groups([group], version, reply.done)
        return reply.response[0]

    def state(self, group: str = "g") -> str:
        return str(self.describe(group, version=5).group_state)

    # --- whole rebalances -----------------------------------------------------------------------------------------

    def stable_group(self, members: int = 1, **how: Any) -> tuple[list[str], int]:
        """Let members join and get their assignments: (member ids with the leader first, generation)."""
        joined = [self.new_member(**how) for _ in range(members)]
        return self.settle(joined)

    def settle(self, joined: list[tuple[str, Reply]]) -> tuple[list[str], int]:
        """Finish a rebalance that the members have joined."""
        self.world.advance()
        generation = joined[0][1].response.generation_id
        leader = joined[0][1].response.leader
        ids = sorted((member_id for member_id, _ in joined), key=lambda member_id: member_id != leader)
        replies = [self.sync(member_id, generation) for member_id in ids[1:]]
        replies.append(self.sync(leader, generation, {member_id: member_id.encode() for member_id in ids}))
        assert [reply.error for reply in replies] == [0] * len(ids)
        return ids, generation


def round_trip(message: Any, version: int) -> Any:
    """The message as a client of that version reads it."""
    return codec.decode(type(message), version, codec.encode(message, version))
