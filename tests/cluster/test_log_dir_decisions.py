"""What a registration, and the failure of a log dir, make of the partitions in it (KIP-858)."""

from __future__ import annotations

import pytest

from pybroker.cluster.decisions.brokers import register_broker, take_directories_offline
from pybroker.cluster.image import (
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
