"""What a registration, and the failure of a log dir, make of the partitions in it (KIP-858)."""

from __future__ import annotations

from random import Random

import pytest

from pybroker.cluster.decisions.broker_changes import cordon_directories, register_broker, take_directories_offline
from pybroker.cluster.decisions.config_changes import alter_configs
from pybroker.cluster.decisions.placement import Refused, choose_directory, place
from pybroker.cluster.image.cluster_image import (
    LOST_DIRECTORY,
    MIGRATING_DIRECTORY,
    NO_LEADER,
    UNASSIGNED_DIRECTORY,
    BrokerRegistration,
    ClusterImage,
    ImageBuilder,
    PartitionImage,
    TopicImage,
)
from pybroker.cluster.image.supported_features import CORDONED_LOG_DIRS_LEVEL, METADATA_VERSION
from pybroker.cluster.store import store_codec
from pybroker.cluster.store.metadata_store import Entry
from pybroker.config.resources import BROKER, CORDONED_LOG_DIRS, ConfigChange
from pybroker_protocol.errors import ErrorCode

A, B, C = b"a" * 16, b"b" * 16, b"c" * 16
TOPIC_ID = b"t" * 16


def registration(*log_dirs: bytes) -> BrokerRegistration:
    return BrokerRegistration(1, 0, bytes(16), {}, log_dirs=log_dirs)


def partition(*directories: bytes, leader: int = 1) -> PartitionImage:
    return PartitionImage((1,), (1,), leader, 5, 7, directories)


def image_of(*partitions: PartitionImage) -> ClusterImage:
    builder = ImageBuilder(ClusterImage())
    builder.put_topic(TopicImage("t", TOPIC_ID, partitions))
    return builder.build(1)[0]


def registered(
    image: ClusterImage, *log_dirs: bytes, found: dict[tuple[bytes, int], bytes] | None = None
) -> tuple[ClusterImage, dict[bytes, int]]:
    builder = ImageBuilder(image)
    missing = register_broker(builder, registration(*log_dirs), found or {}, clean_shutdown=True)
    return builder.build(2)[0], dict(missing)


def states(image: ClusterImage) -> list[tuple[int, int, int, tuple[bytes, ...]]]:
    partitions = image.topics_by_name["t"].partitions
    return [(p.leader, p.leader_epoch, p.partition_epoch, p.directories) for p in partitions]


def test_registration_with_all_log_dirs_changes_no_partition() -> None:
    image = image_of(partition(A), partition(B))
    after, missing = registered(image, A, B)
    assert after.topics_by_name["t"] is image.topics_by_name["t"]
    assert missing == {}


@pytest.mark.parametrize("directory", [B, LOST_DIRECTORY])
def test_partition_loses_its_leader_while_its_log_dir_is_missing_and_gets_it_back(directory: bytes) -> None:
    after, missing = registered(image_of(partition(A), partition(directory)), A)
    assert states(after) == [(1, 5, 7, (A,)), (NO_LEADER, 6, 8, (directory,))]
    assert missing == {directory: 1}
    assert after.topics_by_name["t"].partitions[1].isr == (1,)
    again, missing = registered(after, A)
    assert again.topics_by_name["t"] is after.topics_by_name["t"]
    assert missing == {directory: 1}
    if directory == B:
        back, missing = registered(again, A, B)
        assert states(back) == [(1, 5, 7, (A,)), (1, 7, 9, (B,))]
        assert missing == {}


def test_found_replicas_name_their_log_dir_and_the_others_get_one() -> None:
    image = image_of(
        partition(), partition(UNASSIGNED_DIRECTORY), partition(MIGRATING_DIRECTORY), partition(C), partition(A)
    )
    after, missing = registered(image, A, B, found={(TOPIC_ID, 0): B, (TOPIC_ID, 3): B})
    directories = [directories for _, _, _, directories in states(after)]
    assert directories[0] == directories[3] == (B,)
    assert directories[4] == (A,)
    assert {directories[1], directories[2]} <= {(A,), (B,)}
    assert [(leader, epoch) for leader, epoch, _, _ in states(after)] == [(1, 5)] * 5
    assert missing == {}


def test_failed_log_dir_takes_the_leader_from_what_lies_in_it_once() -> None:
    image, _ = registered(image_of(partition(A), partition(B)), A, B)
    builder = ImageBuilder(image)
    take_directories_offline(builder, 1, (B,))
    after, delta = builder.build(3)
    assert states(after) == [(1, 5, 7, (A,)), (NO_LEADER, 6, 8, (B,))]
    assert after.brokers[1].log_dirs == (A,)
    assert delta.brokers_changed == (1,)
    builder = ImageBuilder(after)
    take_directories_offline(builder, 1, (B,))
    assert builder.touched_count() == 0


def test_other_brokers_partitions_are_left_alone() -> None:
    other = PartitionImage((2,), (2,), 2, 5, 7, (C,))
    image, missing = registered(image_of(other, partition(B)), A, B)
    builder = ImageBuilder(image)
    take_directories_offline(builder, 1, (B, C))
    assert states(builder.view())[0] == (2, 5, 7, (C,))
    assert missing == {}


@pytest.mark.parametrize(
    ("directory", "log_dirs", "online"),
    [
        (A, (A, B), True),
        (C, (A, B), False),
        (C, (), True),
        (UNASSIGNED_DIRECTORY, (A,), True),
        (MIGRATING_DIRECTORY, (A,), True),
        (LOST_DIRECTORY, (A,), False),
        (LOST_DIRECTORY, (), False),
    ],
)
def test_which_log_dirs_are_online(directory: bytes, log_dirs: tuple[bytes, ...], online: bool) -> None:
    assert registration(*log_dirs).has_online_dir(directory) is online


def cluster_of(*brokers: BrokerRegistration, level: int = CORDONED_LOG_DIRS_LEVEL) -> ImageBuilder:
    builder = ImageBuilder(ClusterImage(features={METADATA_VERSION: level}))
    for broker in brokers:
        builder.put_broker(broker)
    return builder


def test_new_replicas_go_to_log_dirs_that_are_not_cordoned() -> None:
    builder = cluster_of(registration(A, B, C))
    cordon_directories(builder, 1, (B, A))
    broker = builder.view().brokers[1]
    assert broker.cordoned_log_dirs == (A, B)
    assert {choose_directory(builder, broker) for _ in range(9)} == {C}
    cordon_directories(builder, 1, ())
    assert {choose_directory(builder, builder.view().brokers[1]) for _ in range(30)} == {A, B, C}


@pytest.mark.parametrize("log_dirs", [(A,), (A, B)])
def test_who_assigns_replicas_by_hand_may_choose_a_broker_that_is_cordoned(log_dirs: tuple[bytes, ...]) -> None:
    broker = registration(*log_dirs)._replace(cordoned_log_dirs=log_dirs)
    assert choose_directory(cluster_of(broker), broker) in log_dirs


def test_a_broker_that_is_cordoned_counts_for_none_and_one_without_log_dirs_is_trusted() -> None:
    def placed(brokers: dict[int, BrokerRegistration], factor: int = 1) -> set[int]:
        return {each for replicas in place(brokers, 20, factor, Random(1)) for each in replicas}

    cordoned = registration(A, B)._replace(cordoned_log_dirs=(A, B))
    half = registration(A, B)._replace(broker_id=2, cordoned_log_dirs=(A,))
    nameless = registration()._replace(broker_id=3, cordoned_log_dirs=(A,))
    assert placed({1: cordoned, 2: half, 3: nameless}) == {2, 3}
    with pytest.raises(Refused, match=r"only 1 broker\(s\) are registered"):
        placed({1: cordoned, 2: half}, 2)
    with pytest.raises(Refused, match="fenced, or have all their log directories cordoned"):
        placed({1: cordoned})
    # A broker all of whose open log dirs have failed takes none either.
    assert not half._replace(log_dirs=(A,)).takes_replicas


def test_what_is_cordoned_stays_so_while_its_broker_is_away_and_until_it_says_otherwise() -> None:
    builder = cluster_of(registration(A, B))
    cordon_directories(builder, 1, (B,))
    register_broker(builder, registration(A, B), {}, clean_shutdown=True)
    assert builder.view().brokers[1].cordoned_log_dirs == (B,)
    cordon_directories(builder, 1, (A,))
    assert builder.view().brokers[1].cordoned_log_dirs == (A,)


def test_a_cluster_of_an_older_level_cordons_nothing_and_refuses_the_setting() -> None:
    builder = cluster_of(registration(A, B), level=CORDONED_LOG_DIRS_LEVEL - 1)
    cordon_directories(builder, 1, (B,))
    assert builder.view().brokers[1].cordoned_log_dirs == ()
    (refused,) = alter_configs(builder, [ConfigChange(BROKER, "1", {CORDONED_LOG_DIRS: "/x"}, False)])
    assert refused.error_code == ErrorCode.INVALID_CONFIG
    assert refused.error_message is not None
    assert refused.error_message.endswith(f"it requires metadata.version >= {CORDONED_LOG_DIRS_LEVEL}")
    (removed,) = alter_configs(builder, [ConfigChange(BROKER, "1", {CORDONED_LOG_DIRS: None}, False)])
    assert not removed.error_code


def test_what_is_cordoned_comes_back_from_the_store_and_costs_nothing_where_there_is_none() -> None:
    for cordoned in ((), (B,)):
        builder = cluster_of(registration(A, B)._replace(cordoned_log_dirs=cordoned))
        image, delta = builder.build(1)
        puts, _ = store_codec.encode(ClusterImage(), image, delta)
        text = puts[store_codec.BROKERS + "1"]
        assert (b"cordoned" in text) is bool(cordoned)
        decoded = store_codec.decode({key: Entry(value, 1) for key, value in puts.items()})
        assert decoded.brokers[1].cordoned_log_dirs == cordoned
