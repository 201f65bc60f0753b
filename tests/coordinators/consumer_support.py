"""Consumer groups (KIP-848) in the world of ``support``: members that speak the consumer protocol in plain calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.virtual_world import START_MS

from pybroker.cluster.image.cluster_image import ClusterImage, ImageDelta, PartitionImage, TopicImage
from pybroker.coordinators.group.consumer.consumer_group import ConsumerGroup
from pybroker.coordinators.group.consumer.consumer_group_manager import ConsumerGroupContext
from pybroker.coordinators.group.consumer.consumer_member import MemberState
from pybroker.coordinators.group.consumer.consumer_records import current_assignment_record
from pybroker.coordinators.group.consumer.consumer_settings import ConsumerSettings
from pybroker.coordinators.group.group_coordinator_settings import GroupSettings
from pybroker.coordinators.group.group_coordinator_shard import GroupCoordinatorShard
from pybroker.coordinators.group.group_topics import Topics
from pybroker_protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
)
from pybroker_protocol.record_codec import build_batch, decode_records
from pybroker_protocol.records import NO_PRODUCER_ID, batches
from tests.coordinators.support import Cluster, Reply, config

SESSION_MS = 45_000
ASSIGNMENT_INTERVAL_MS = 1_000
JOIN, LEAVE, LEAVE_STATIC = 0, -1, -2

# What a client owns, by topic name.
Partitions = Mapping[str, set[int]]


def new_shard(image: ClusterImage | None = None, **settings: Any) -> GroupCoordinatorShard:
    """An empty shard, to be filled by replaying a log."""
    topics = Topics(ClusterImage() if image is None else image)
    world = ConsumerGroupContext(ConsumerSettings(config(**settings), topics), topics, lambda: "new", lambda: 0)
    return GroupCoordinatorShard(GroupSettings(), world)


def replayed(cluster: Cluster) -> GroupCoordinatorShard:
    """What loading the log of partition 0 would bring back."""
    shard = new_shard(cluster.metadata.image)
    log = memoryview(cluster.world.partitions.logs.get(0, bytearray()))
    for position, _ in batches(log):
        for record in decode_records(log[position:]):
            shard.replay(record.key or b"", record.value, record.offset, NO_PRODUCER_ID, START_MS)
    return shard


def topic_id(name: str) -> bytes:
    """The id of a topic of ``ConsumerCluster``."""
    return name.encode().rjust(16, b"\x01")


class ConsumerCluster(Cluster):
    """A coordinator, and the topics of its cluster at will; each topic has its own id."""

    def set_topics(self, **partitions: int) -> None:
        """Create, grow or delete topics until they are these."""
        before = self.metadata.image
        state = PartitionImage(replicas=(1,), isr=(1,), leader=1)
        topics = {name: topic for name, topic in before.topics_by_name.items() if topic.is_internal}
        for name, count in partitions.items():
            topics[name] = TopicImage(name, topic_id(name), (state,) * count)
        ids_before = before.topics_by_id
        created = tuple(topic for topic in topics.values() if topic.topic_id not in ids_before)
        ids = {topic.topic_id: topic for topic in topics.values()}
        deleted = tuple(topic for key, topic in ids_before.items() if key not in ids)
        changed = tuple((ids_before[key], topic) for key, topic in ids.items() if key in ids_before)
        delta = ImageDelta(
            topics_created=created,
            topics_deleted=deleted,
            topics_changed=tuple(pair for pair in changed if len(pair[0].partitions) != len(pair[1].partitions)),
        )
        image = ClusterImage(epoch=before.epoch + 1, topics_by_name=topics, topics_by_id=ids, configs=before.configs)
        self.metadata.apply(image, delta)

    def set_group_configs(self, group: str, **settings: Any) -> None:
        """A group's own settings, underscores for dots."""
        before = self.metadata.image
        overrides = {name.replace("_", "."): str(value) for name, value in settings.items()}
        image = ClusterImage(
            epoch=before.epoch + 1,
            topics_by_name=before.topics_by_name,
            topics_by_id=before.topics_by_id,
            configs={**before.configs, (32, group): overrides},
        )
        self.metadata.apply(image, ImageDelta(configs_changed=((32, group),)))

    def beat(
        self,
        member_id: str,
        epoch: int,
        *,
        group: str = "g",
        topics: list[str] | None = None,
        regex: str | None = None,
        owned: Partitions | None = None,
        instance: str | None = None,
        rack: str | None = None,
        rebalance_ms: int = -1,
        assignor: str | None = None,
        version: int = 1,
        client: str = "client",
    ) -> Reply:
        """ConsumerGroupHeartbeat."""
        reply = Reply()
        request = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=member_id,
            member_epoch=epoch,
            instance_id=instance,
            rack_id=rack,
            rebalance_timeout_ms=rebalance_ms,
            subscribed_topic_names=topics,
            subscribed_topic_regex=regex,
            server_assignor=assignor,
            topic_partitions=None
            if owned is None
            else [
                ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=topic_id(name), partitions=sorted(partitions))
                for name, partitions in owned.items()
            ],
        )
        self.groups.consumer_heartbeat(request, version, client, "/127.0.0.1", lambda _: True, reply.done)
        return reply

    def enter(self, member_id: str, *topics: str, **how: Any) -> Reply:
        """A member joins by a full request."""
        how.setdefault("rebalance_ms", 60_000)
        if topics or "regex" not in how:
            how.setdefault("topics", list(topics))
        return self.beat(member_id, JOIN, owned={}, **how)

    def describe_consumer(self, group: str = "g") -> Any:
        reply = Reply()
        self.groups.describe_consumer_groups([group], reply.done)
        return reply.response[0]

    def with_unknown_state(self, member_id: str) -> ConsumerCluster:
        """Another coordinator, for which a later version has left a member in a state that is not known here."""
        member = self.group().members[member_id]._replace(state=MemberState.UNKNOWN)
        self.world.partitions.write(0, build_batch([current_assignment_record("g", member)], timestamp_ms=START_MS))
        self.groups.close()
        after = ConsumerCluster(self.world)
        after.metadata.apply(self.metadata.image, ImageDelta())
        return after

    def group(self, group: str = "g") -> ConsumerGroup:
        """The state behind the requests."""
        shard = self.groups._runtime._contexts[0].state
        found = shard.groups[group]
        assert isinstance(found, ConsumerGroup)
        return found


def assigned(reply: Reply) -> dict[str, set[int]] | None:
    """The assignment in a response, by topic name; None when it has none."""
    assignment = reply.response.assignment
    if assignment is None:
        return None
    return {topic.topic_id.lstrip(b"\x01").decode(): set(topic.partitions) for topic in assignment.topic_partitions}


class Member:
    """A well-behaved client: it gives up and takes what it is told, in its next heartbeat."""

    def __init__(self, cluster: ConsumerCluster, member_id: str, *topics: str, **how: Any) -> None:
        self.cluster = cluster
        self.member_id = member_id
        self.topics = list(topics)
        self.how = how
        self.epoch = JOIN
        self.owned: dict[str, set[int]] = {}
        self.acknowledge = False
        self.alive = True

    def beat(self, **extra: Any) -> Reply:
        """The next heartbeat; a fenced member begins anew."""
        if self.epoch == JOIN:
            reply = self.cluster.enter(self.member_id, *self.topics, **self.how)
        else:
            how = {name: self.how[name] for name in ("group", "instance") if name in self.how}
            owned = self.owned if self.acknowledge else None
            reply = self.cluster.beat(self.member_id, self.epoch, owned=owned, **how, **extra)
        self.acknowledge = False
        if reply.error:
            self.epoch, self.owned = JOIN, {}
            return reply
        self.epoch = reply.response.member_epoch
        told = assigned(reply)
        if told is not None:
            self.acknowledge = told != self.owned
            self.owned = told
        return reply


def settle(cluster: ConsumerCluster, *members: Member, rounds: int = 8, step_ms: int = 1_000) -> None:
    """All members send heartbeats until nothing is left to do."""
    for _ in range(rounds):
        for member in members:
            assert member.beat().error == 0
        cluster.world.advance(step_ms)
