"""Groups of two clusters in virtual time: a source with groups, and brokers here that carry and lower their offsets.

Real: the group coordinators, over one log in memory, what they do for links, and what the controller decides of their
words.  In the test's hands: the source, who coordinates which groups, where topics end, and each broker's clock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from harness.virtual_world import VirtualClock

from pybroker.cluster.decisions.mirrored_topics import moved, take_reports
from pybroker.cluster.image.cluster_image import ClusterImage, ImageBuilder, PartitionImage, TopicImage
from pybroker.cluster.image.coordinator_table import GROUPS
from pybroker.cluster.image.link_states import CARRIED, LOWERED, LinkState, MirroredTopic, MirrorReport
from pybroker.cluster.image.metadata_cache import MetadataCache
from pybroker.cluster.membership.peers import CONTROL, PeerDone, PeerError, PeerFailure
from pybroker.config.link_config import LinkConfig
from pybroker.coordinators.carried_offsets import CarriedOffsets
from pybroker.coordinators.group.group_coordinator import GroupCoordinator
from pybroker.coordinators.offsets_past_the_end import OffsetsPastTheEnd
from pybroker.coordinators.settlements import Settlements
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from pybroker_protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from pybroker_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pybroker_protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from pybroker_protocol.schema import Request
from tests.coordinators.support import Reply, World, config

LINK, TOPIC, TOPIC_ID = "west", "orders", bytes(range(16))
THERE = "that-cluster"
INTERVAL_MS = 1_000
# Groups by the partition of ``__consumer_offsets`` in which they lie, of two.
OF_PARTITION = {0: ("b", "d"), 1: ("a", "c")}
LATENCY_MS = 2

Key = tuple[str, int]


class SourceOfGroups:
    """A cluster of one broker: ``offsets`` has those of ``orders`` by groups; ``unstable`` groups have one pending."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.cluster_id = THERE
        self.offsets: dict[str, dict[int, int]] = {}
        self.unstable: set[str] = set()
        self.gone: set[str] = set()  # they are listed still
        self.kind = "consumer"  # of all groups
        self.metadata = ""  # of all offsets
        self.is_away = False
        self.asked: list[Request] = []

    def learn(self, nodes: Mapping[int, tuple[str, int]]) -> None:
        """All nodes are this one."""

    def close(self) -> None:
        """Nothing is held."""

    def ask(
        self, broker_id: int, request: Request, version: int, done: PeerDone, *, timeout_ms: int, channel: str = CONTROL
    ) -> None:
        self.asked.append(request)
        if self.is_away:
            self._world.timers.call_later(LATENCY_MS, done, None, PeerError(PeerFailure.UNREACHABLE, False))
        else:
            self._world.timers.call_later(LATENCY_MS, lambda: done(self._answer(request), None))

    def _answer(self, request: Request) -> Any:
        if isinstance(request, MetadataRequest):
            nodes = [MetadataResponseBroker(node_id=9, host="there", port=9092)]
            return MetadataResponse(brokers=nodes, cluster_id=self.cluster_id, topics=[])
        if isinstance(request, ListGroupsRequest):
            listed = [ListedGroup(group_id=group, protocol_type=self.kind) for group in self.offsets]
            return ListGroupsResponse(error_code=0, groups=listed)
        assert isinstance(request, OffsetFetchRequest)
        return OffsetFetchResponse(groups=[self._offsets_of(each.group_id) for each in request.groups])

    def _offsets_of(self, group: str) -> OffsetFetchResponseGroup:
        if group in self.gone:
            return OffsetFetchResponseGroup(group_id=group, topics=[], error_code=ErrorCode.GROUP_ID_NOT_FOUND)
        code = ErrorCode.UNSTABLE_OFFSET_COMMIT if group in self.unstable else 0
        partitions = [
            OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=-1 if code else offset, metadata=self.metadata, error_code=code
            )
            for index, offset in self.offsets.get(group, {}).items()
        ]
        return OffsetFetchResponseGroup(
            group_id=group, topics=[OffsetFetchResponseTopics(name=TOPIC, partitions=partitions)], error_code=0
        )


class Coordinating:
    """One broker's coordinator, with what it does for links."""

    def __init__(self, side: GroupsHere, broker_id: int, clock: VirtualClock) -> None:
        world, metadata = side.world, side.metadata
        env = replace(world.env, clock=clock)
        self.broker_id, self.clock = broker_id, clock
        settings = {f"pybroker_links_{LINK}_{name}": text for name, text in side.settings.items()}
        broker_config = config(offsets_topic_num_partitions=2, **settings)
        log = world.partitions
        self.groups = GroupCoordinator(env, broker_config, metadata, log, log)
        self.led: set[int] = set()
        self.lead(side.led_by(broker_id))

        def settlements(kind: int) -> Settlements:
            return Settlements(env, metadata, broker_id, partial(side.report, broker_id), kind)

        def coordinates(group_id: str) -> bool:
            return self.groups.partition_of(group_id) in side.led_by(broker_id)

        def connect(_config: LinkConfig) -> Any:
            return side.source

        self.past = OffsetsPastTheEnd(env, metadata, lambda: self.groups, side.ask_ends, settlements(LOWERED))
        self.carried = CarriedOffsets(
            env,
            broker_config,
            metadata,
            connect,
            lambda: self.groups,
            coordinates,
            side.ask_ends,
            side.ask_ends_before,
            settlements(CARRIED),
        )

    def lead(self, partitions: set[int]) -> None:
        """It leads these partitions of ``__consumer_offsets`` from now on."""
        gained, lost = partitions - self.led, self.led - partitions
        self.led = partitions
        self.groups.on_leadership(gained, lost)

    def close(self) -> None:
        for each in (self.past, self.carried, self.groups):
            each.close()


class GroupsHere:
    """A cluster whose topic ``orders`` is mirrored: brokers 1 and 2 each coordinate a partition of groups' topic."""

    def __init__(self, **settings: str) -> None:
        self.world = World()
        self.source = SourceOfGroups(self.world)
        self.settings = {
            "bootstrap_servers": "there:9092",
            "topics": TOPIC,
            "groups": "*",
            "refresh_interval_ms": str(INTERVAL_MS),
            **settings,
        }
        self.ends: dict[Key, int] = {(TOPIC, 0): 100, (TOPIC, 1): 100}
        self.cut_over = dict(self.ends)  # where what is the source's ends of a promoted topic
        self.hears = True  # the controller, of what coordinators have done
        states = [PartitionImage(replicas=(1, 2), isr=(1, 2), leader=leader, leader_epoch=5) for leader in (1, 2)]
        topics = [
            TopicImage(GROUPS.topic, bytes(15) + b"\x63", (states[0], states[1]), True),
            TopicImage(TOPIC, TOPIC_ID, (states[0], states[0])),
        ]
        self.metadata = MetadataCache(
            ClusterImage(
                epoch=1,
                cluster_id="here",
                topics_by_name={topic.name: topic for topic in topics},
                topics_by_id={topic.topic_id: topic for topic in topics},
                links={LINK: LinkState(THERE)},
                mirrors={TOPIC: MirroredTopic(LINK, TOPIC, TOPIC_ID)},
            )
        )
        self.brokers: dict[int, Coordinating] = {}
        for broker_id in (1, 2):
            self.start(broker_id)

    # --- brokers -----------------------------------------------------------------------------------------------------

    def start(self, broker_id: int, *, ahead_ms: int = 0) -> None:
        """Start a broker, whose clock is so wrong."""
        self.brokers[broker_id] = Coordinating(self, broker_id, _Ahead(self.world.clock, ahead_ms))

    def kill(self, broker_id: int) -> None:
        """It does nothing more; who coordinates its groups stands until that is changed."""
        self.brokers.pop(broker_id).close()

    def led_by(self, broker_id: int) -> set[int]:
        states = self.metadata.image.topics_by_name[GROUPS.topic].partitions
        return {index for index, state in enumerate(states) if state.leader == broker_id}

    def move(self, partition: int, broker_id: int) -> None:
        """Another broker coordinates the groups of a partition."""
        topic = self.metadata.image.topics_by_name[GROUPS.topic]
        states = list(topic.partitions)
        states[partition] = states[partition]._replace(
            leader=broker_id, leader_epoch=states[partition].leader_epoch + 1
        )
        self.decide(lambda builder: builder.put_topic(topic._replace(partitions=tuple(states))))

    # --- the controller ----------------------------------------------------------------------------------------------

    def decide(self, decision: Callable[[ImageBuilder], object]) -> None:
        """Change the metadata; coordinators hear of their partitions first."""
        builder = ImageBuilder(self.metadata.image)
        decision(builder)
        image, delta = builder.build(self.metadata.image.epoch + 1)
        states = image.topics_by_name[GROUPS.topic].partitions
        for broker_id, broker in self.brokers.items():
            broker.lead({index for index, state in enumerate(states) if state.leader == broker_id})
        self.metadata.apply(image, delta)

    def stand(self, **fields: Any) -> None:
        """The mirrored topic stands so."""
        self.decide(lambda builder: builder.put_mirror(TOPIC, self.mirror._replace(**fields)))

    def moved(self, by: str) -> None:
        """The mirrored topic moves by an input."""
        self.decide(lambda builder: moved(builder, TOPIC, by))

    def report(self, broker_id: int, reports: Collection[MirrorReport], done: Callable[[int], None]) -> None:
        def told() -> None:
            if self.hears:
                self.decide(lambda builder: take_reports(builder, broker_id, list(reports)))
            done(0 if self.hears else ErrorCode.NOT_CONTROLLER)

        self.world.timers.call_later(LATENCY_MS, told)

    @property
    def mirror(self) -> MirroredTopic:
        return self.metadata.image.mirrors[TOPIC]

    # --- offsets -----------------------------------------------------------------------------------------------------

    def ask_ends(self, partitions: Iterable[Key], done: Callable[[Mapping[Key, int]], None]) -> None:
        known = {key: self.ends[key] for key in partitions if key in self.ends}
        self.world.timers.call_later(LATENCY_MS, done, known)

    def ask_ends_before(self, epochs: Mapping[Key, int], done: Callable[[Mapping[Key, int]], None]) -> None:
        assert all(self.mirror.first_epochs[index] == epoch for (_, index), epoch in epochs.items())
        self.world.timers.call_later(LATENCY_MS, done, {key: self.cut_over[key] for key in epochs})

    def _coordinator(self, group: str) -> GroupCoordinator:
        return next(
            broker.groups for broker in self.brokers.values() if broker.groups.partition_of(group) in broker.led
        )

    def commit(self, group: str, **offsets: int) -> None:
        """Commit here as a tool does: ``p0=7``."""
        self.world.run()
        partitions = [
            OffsetCommitRequestPartition(
                partition_index=int(name[1:]), committed_offset=offset, committed_metadata="", committed_leader_epoch=-1
            )
            for name, offset in offsets.items()
        ]
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1,
            member_id="",
            group_instance_id=None,
            topics=[OffsetCommitRequestTopic(name=TOPIC, topic_id=TOPIC_ID, partitions=partitions)],
        )
        reply = Reply()
        self._coordinator(group).commit_offsets(request, 9, reply.done)
        self.world.run()
        assert [each.error_code for topic in reply.response.topics for each in topic.partitions] == [0] * len(offsets)

    def committed(self, group: str) -> dict[int, int]:
        """The offsets of a group here."""
        reply = Reply()
        self._coordinator(group).fetch_offsets(OffsetFetchRequestGroup(group_id=group, topics=None), False, reply.done)
        self.world.run()
        return {
            each.partition_index: each.committed_offset for topic in reply.response.topics for each in topic.partitions
        }

    def look(self, times: int = 1) -> None:
        """Let so much time pass as a look at the source takes, and the pause before it."""
        self.world.advance(times * (INTERVAL_MS + 100))

    def close(self) -> None:
        for broker_id in tuple(self.brokers):
            self.kill(broker_id)


class _Ahead(VirtualClock):
    """A clock that goes with another one, and is wrong."""

    def __init__(self, clock: VirtualClock, ahead_ms: int) -> None:
        super().__init__()
        self._clock = clock
        self.wall_ahead_ms = ahead_ms

    def now_ms(self) -> int:
        return self._clock.now_ms() + self.wall_ahead_ms

    def monotonic_ms(self) -> int:
        return self._clock.monotonic_ms()

    def monotonic_ns(self) -> int:
        return self._clock.monotonic_ns()
