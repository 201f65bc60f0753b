"""Log dirs without room: what the controller makes of them.  How it hears of log dirs until it knows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import pytest
from harness.virtual_world import VirtualWorld

from pybroker.cluster.decisions.broker_changes import (
    assign_replicas,
    fence_brokers,
    note_full_directories,
    register_broker,
    take_directories_offline,
)
from pybroker.cluster.decisions.elections import elect_leaders
from pybroker.cluster.decisions.operations import PREFERRED, InSyncChange
from pybroker.cluster.decisions.partition_changes import alter_partitions
from pybroker.cluster.decisions.placement import choose_directory, new_partition, place
from pybroker.cluster.image.cluster_image import (
    BrokerRegistration,
    ClusterImage,
    ImageBuilder,
    PartitionImage,
    TopicImage,
)
from pybroker.cluster.image.supported_features import ELIGIBLE_LEADER_REPLICAS_VERSION
from pybroker.cluster.membership.log_dir_reports import LOG_DIR_REPORT_PAUSE_MAX_MS, LogDirReports
from pybroker.cluster_limits import STORE_RETRY_MS
from pybroker.config.resources import BROKER, MIN_INSYNC_REPLICAS
from pybroker_protocol.errors import ErrorCode

TOPIC_ID = b"t" * 16
DIRS = {1: b"a" * 16, 2: b"b" * 16, 3: b"c" * 16}
OTHER = b"o" * 16  # one more log dir, which each of them has


class Metadata:
    """One partition of three brokers, of which the controller hears one after another."""

    def __init__(self, isr: tuple[int, ...] = (1, 2, 3), leader: int = 1, *, tracked: bool = False) -> None:
        builder = ImageBuilder(ClusterImage())
        for broker_id, directory in DIRS.items():
            incarnation = bytes([broker_id]) * 16
            builder.put_broker(BrokerRegistration(broker_id, 5, incarnation, {}, log_dirs=(directory, OTHER)))
        if tracked:
            builder.put_feature(ELIGIBLE_LEADER_REPLICAS_VERSION, 1)
            builder.put_overrides((BROKER, ""), {MIN_INSYNC_REPLICAS: "2"})
        partition = PartitionImage((1, 2, 3), isr, leader, 5, 7, tuple(DIRS.values()))
        builder.put_topic(TopicImage("t", TOPIC_ID, (partition,)))
        self.image = builder.build(1)[0]

    def decide(self, decide: Callable[[ImageBuilder], object]) -> None:
        builder = ImageBuilder(self.image)
        steps = decide(builder)
        if hasattr(steps, "__next__"):
            for _ in steps:  # type: ignore[attr-defined]
                pass
        self.image = builder.build(self.image.epoch + 1)[0]

    def fill(self, broker_id: int) -> None:
        self.decide(lambda builder: note_full_directories(builder, broker_id, [DIRS[broker_id]]))

    def empty(self, broker_id: int) -> None:
        self.decide(lambda builder: note_full_directories(builder, broker_id, []))

    def join(self, *isr: int) -> int:
        """The leader asks for these in sync; what it is answered."""
        partition, codes = self.partition, list[int]()
        change = InSyncChange(
            TOPIC_ID, 0, partition.leader_epoch, partition.partition_epoch, tuple((each, -1) for each in isr)
        )

        def decide(builder: ImageBuilder) -> None:
            steps = alter_partitions(builder, partition.leader, [change])
            try:
                while True:
                    next(steps)
            except StopIteration as end:
                codes.append(end.value[0].error_code)

        self.decide(decide)
        return codes[0]

    @property
    def partition(self) -> PartitionImage:
        return self.image.topics_by_name["t"].partitions[0]

    @property
    def state(self) -> tuple[int, tuple[int, ...]]:
        return self.partition.leader, self.partition.isr


def test_a_full_leader_is_replaced_by_one_in_sync_that_has_room_and_is_in_sync_no_more() -> None:
    metadata = Metadata()
    metadata.fill(1)
    assert metadata.state == (2, (2, 3))
    assert (metadata.partition.leader_epoch, metadata.partition.partition_epoch > 7) == (6, True)


def test_a_full_follower_is_in_sync_no_more_and_the_leader_stays() -> None:
    metadata = Metadata()
    metadata.fill(3)
    assert (metadata.state, metadata.partition.leader_epoch) == ((1, (1, 2)), 5)


def test_a_full_leader_that_no_other_in_sync_can_replace_goes_on() -> None:
    metadata = Metadata(isr=(1,))
    before = metadata.partition
    metadata.fill(1)
    assert metadata.partition is before, "what it has can be read"


def test_where_all_are_full_the_last_of_them_leads_and_the_first_with_room_takes_over() -> None:
    metadata = Metadata()
    for broker_id in (1, 2, 3):
        metadata.fill(broker_id)
    assert metadata.state == (3, (3,))
    metadata.empty(1)
    assert metadata.state == (3, (3,)), "it has to catch up first"
    assert metadata.join(1, 3) == ErrorCode.NEW_LEADER_ELECTED
    assert metadata.state == (1, (1,))
    metadata.empty(3)
    assert metadata.join(1, 3) == 0
    assert metadata.partition.isr == (1, 3)


def test_those_who_are_full_in_a_new_partition_leave_when_one_of_them_has_room() -> None:
    metadata = Metadata()
    builder = ImageBuilder(metadata.image)
    for broker_id, directory in DIRS.items():
        builder.put_broker(metadata.image.brokers[broker_id]._replace(full_dirs=(directory,)))
    metadata.image = builder.build(9)[0]
    metadata.empty(2)
    assert metadata.state == (2, (2,))


def test_a_replica_without_room_is_not_taken_into_the_isr() -> None:
    metadata = Metadata(isr=(1, 2))
    metadata.fill(3)
    assert metadata.join(1, 2, 3) == ErrorCode.INELIGIBLE_REPLICA
    metadata.empty(3)
    assert metadata.join(1, 2, 3) == 0


def test_of_those_that_could_lead_one_with_room_is_elected_and_one_without_where_none_has() -> None:
    metadata = Metadata(isr=(1, 2))
    metadata.fill(2)
    assert metadata.state == (1, (1,))
    metadata.decide(lambda builder: fence_brokers(builder, {1: 5}))
    assert metadata.partition.leader == -1
    tracked = Metadata(isr=(1, 2), tracked=True)
    tracked.fill(1)
    assert (tracked.state, tracked.partition.elr) == ((2, (2,)), (1,)), "below the minimum it stays eligible"
    tracked.decide(lambda builder: fence_brokers(builder, {2: 5}))
    assert tracked.partition.leader == 1, "it can be read"


def test_a_preferred_replica_without_room_is_not_elected() -> None:
    metadata = Metadata()
    metadata.fill(1)
    metadata.decide(lambda builder: elect_leaders(builder, PREFERRED, [("t", [0])]))
    assert metadata.state == (2, (2, 3))


def test_another_log_dir_of_the_broker_keeps_what_lies_in_it() -> None:
    metadata = Metadata()
    metadata.decide(lambda builder: note_full_directories(builder, 1, [OTHER]))
    assert metadata.state == (1, (1, 2, 3))
    metadata.decide(lambda builder: take_directories_offline(builder, 1, [OTHER]))
    assert metadata.image.brokers[1].full_dirs == ()


@pytest.mark.parametrize("at_registration", [False, True])
def test_a_replica_that_has_moved_to_a_full_log_dir_is_relieved(at_registration: bool) -> None:
    """The log dir was full before the controller heard that the replica lies in it: a move had filled it up."""
    metadata, found = Metadata(), {(TOPIC_ID, 0): OTHER}
    metadata.decide(lambda builder: note_full_directories(builder, 1, [OTHER]))
    assert metadata.partition.leader == 1
    if at_registration:
        registration = BrokerRegistration(1, 0, bytes([1]) * 16, {}, log_dirs=(DIRS[1], OTHER))
        metadata.decide(lambda builder: register_broker(builder, registration, found, clean_shutdown=True) and None)
    else:
        metadata.decide(lambda builder: assign_replicas(builder, 1, found))
    assert metadata.partition.directory(1) == OTHER
    assert metadata.state == (2, (2, 3))


def test_what_is_said_of_a_log_dir_that_is_not_registered_means_nothing_and_nothing_new_changes_nothing() -> None:
    metadata = Metadata()
    before = metadata.image.brokers
    metadata.decide(lambda builder: note_full_directories(builder, 1, [b"?" * 16]))
    assert metadata.image.brokers[1] is before[1]


@pytest.mark.parametrize(("incarnation", "still_full"), [(bytes([1]) * 16, (DIRS[1],)), (bytes(16), ())])
def test_a_process_that_registers_anew_is_as_full_as_it_was_and_another_has_to_say_so(
    incarnation: bytes, still_full: tuple[bytes, ...]
) -> None:
    metadata = Metadata()
    metadata.fill(1)
    registration = BrokerRegistration(1, 0, incarnation, {}, log_dirs=(DIRS[1], OTHER))
    metadata.decide(lambda builder: register_broker(builder, registration, {}, clean_shutdown=True) and None)
    assert metadata.image.brokers[1].full_dirs == still_full
    assert metadata.state == (2, (2, 3))


def test_new_partitions_are_led_and_lie_where_there_is_room() -> None:
    metadata = Metadata()
    metadata.decide(lambda builder: note_full_directories(builder, 1, [DIRS[1], OTHER]))
    metadata.fill(2)
    builder, brokers = ImageBuilder(metadata.image), metadata.image.brokers
    placed = list(place(brokers, 6, 2, Random(1)))
    assert {replicas[0] for replicas in placed} == {2, 3}, "one of broker 2's log dirs has room"
    assert not any(1 in replicas for replicas in placed)
    assert choose_directory(builder, brokers[2]) == OTHER
    partition = new_partition(builder, 0, (1, 2, 3), brokers, manual=True)
    assert (partition.leader, partition.isr) == (2, (2, 3))


def test_where_all_are_full_topics_can_be_made_all_the_same() -> None:
    metadata = Metadata()
    for broker_id, directory in DIRS.items():

        def fill(builder: ImageBuilder, broker_id: int = broker_id, directory: bytes = directory) -> object:
            return note_full_directories(builder, broker_id, [directory, OTHER])

        metadata.decide(fill)
    brokers = metadata.image.brokers
    replicas = next(place(brokers, 1, 3, Random(1)))
    partition = new_partition(ImageBuilder(metadata.image), 0, replicas, brokers, manual=False)
    assert (partition.leader, partition.isr) == (replicas[0], replicas)


class Controller:
    """Hears of full log dirs, and does it or not; ``registration`` is what the image shows."""

    def __init__(self, world: VirtualWorld) -> None:
        self.registration: BrokerRegistration | None = None
        self.works = True
        self.told: list[list[bytes]] = []
        self.term = 1
        self.full = LogDirReports(
            world.env.timers,
            lambda: self.registration,
            lambda own: own.full_dirs,
            lambda: self.term,
            self._tell,
        )

    def register(self) -> None:
        self.registration = BrokerRegistration(1, 1, bytes(16), {}, log_dirs=(DIRS[1], OTHER))
        self.full.look()

    def _tell(self, directories: Sequence[bytes], done: Callable[[], None]) -> None:
        self.told.append(list(directories))
        if self.works and self.registration is not None:
            self.registration = self.registration._replace(full_dirs=tuple(directories))
        done()


def test_the_controller_is_told_once_registered_and_until_the_image_shows_it() -> None:
    world = VirtualWorld()
    controller = Controller(world)
    controller.full.become(frozenset({DIRS[1]}))
    assert controller.told == []
    controller.works = False
    controller.register()
    world.advance(3 * STORE_RETRY_MS)
    assert controller.told == [[DIRS[1]]] * 3
    controller.works = True
    world.advance(10 * STORE_RETRY_MS)
    assert controller.told == [[DIRS[1]]] * 4


def test_a_controller_that_does_not_show_it_hears_it_ever_more_rarely_and_its_successor_at_once() -> None:
    """One of an older version passes over what it does not know, and answers without an error."""
    world = VirtualWorld()
    controller = Controller(world)
    controller.works = False
    controller.register()
    controller.full.become({DIRS[1]})
    world.advance(60_000)
    heard = len(controller.told)
    assert heard < 15
    world.advance(5 * LOG_DIR_REPORT_PAUSE_MAX_MS)
    assert len(controller.told) == heard + 5
    controller.term, controller.works = 2, True
    controller.full.look()
    assert len(controller.told) == heard + 6
    world.advance(60_000)
    assert len(controller.told) == heard + 6


def test_what_the_image_says_stands_until_this_process_has_anything_to_say() -> None:
    controller = Controller(VirtualWorld())
    controller.register()
    assert controller.registration is not None
    controller.registration = controller.registration._replace(full_dirs=(DIRS[1],))
    controller.full.look()
    assert controller.told == []
    controller.full.become(())
    assert controller.told == [[]]


def test_only_the_last_word_counts_and_a_registration_that_forgot_is_told_again() -> None:
    world = VirtualWorld()
    controller = Controller(world)
    controller.register()
    controller.full.become(frozenset({DIRS[1]}))
    controller.full.become(frozenset())
    controller.full.become(frozenset({OTHER}))
    world.advance(5 * STORE_RETRY_MS)
    assert controller.told == [[DIRS[1]], [], [OTHER]]
    controller.register()
    world.advance(5 * STORE_RETRY_MS)
    assert controller.told == [[DIRS[1]], [], [OTHER], [OTHER]]
    controller.full.become(frozenset())
    world.advance(5 * STORE_RETRY_MS)
    assert controller.told[-1] == []


def test_a_log_dir_that_is_not_registered_is_not_told_of() -> None:
    world = VirtualWorld()
    controller = Controller(world)
    controller.register()
    controller.full.become(frozenset({b"?" * 16}))
    controller.full.close()
    controller.full.become(frozenset({DIRS[1]}))
    world.advance(5 * STORE_RETRY_MS)
    assert controller.told == []
