"""What the simulation takes for lost with a disk: who may be relied on, and which partitions have to be given up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pybroker.cluster.image.cluster_image import (
    NO_LEADER,
    BrokerRegistration,
    ClusterImage,
    ImageBuilder,
    PartitionImage,
    TopicImage,
)
from pybroker_protocol.uuids import uuid_text
from tests.simulation.cluster_observer import Holders
from tests.simulation.lost_disks import waiting_for_lost_disks
from tests.simulation.processes import Process, World

OLD, NEW = b"o" * 16, b"n" * 16
NOBODY: frozenset[int] = frozenset()


def only(broker_id: int) -> frozenset[int]:
    return frozenset((broker_id,))


def test_who_comes_back_into_sync_has_everything_again() -> None:
    holders = Holders()
    holders.become(frozenset((1, 2)), NOBODY, caught_up=True)
    holders.torn = only(2)
    holders.become(only(1), NOBODY, caught_up=True)
    holders.become(frozenset((1, 2)), NOBODY, caught_up=True)
    assert not holders.torn
    assert not holders.would_lose_all(1)


def test_who_leads_for_want_of_others_has_what_it_had() -> None:
    holders = Holders()
    holders.become(frozenset((1, 2)), NOBODY, caught_up=True)
    holders.torn = only(2)
    holders.become(only(1), NOBODY, caught_up=True)
    holders.become(only(2), NOBODY, caught_up=False)
    assert holders.has_lost_all


def leaderless(**more: Any) -> PartitionImage:
    return PartitionImage((0,), (), NO_LEADER, directories=(OLD,), elr=(0,))._replace(**more)


def image_of(partition: PartitionImage, registration: BrokerRegistration) -> ClusterImage:
    builder = ImageBuilder(ClusterImage())
    builder.put_broker(registration)
    builder.put_topic(TopicImage("t", b"t" * 16, (partition,)))
    return builder.view()


@pytest.fixture
def process(tmp_path: Path) -> Process:
    """A broker's machine with one log dir."""
    log_dir = tmp_path / "a"
    log_dir.mkdir()
    return World(1).broker("10.0.0.1", tmp_path, {}, "broker-0", [log_dir])


REGISTERED = BrokerRegistration(0, 0, bytes(16), {}, log_dirs=(NEW,))


@pytest.mark.parametrize(
    ("partition", "registration", "on_disk", "found"),
    [
        (leaderless(), REGISTERED, NEW, {"t": [0]}),
        (leaderless(elr=(), last_known_elr=(0,)), REGISTERED, NEW, {"t": [0]}),
        (leaderless(), REGISTERED, OLD, {}),  # it does not work now
        (leaderless(), REGISTERED._replace(fenced=True), NEW, {}),  # it is not back yet
        (leaderless(directories=(NEW,)), REGISTERED, NEW, {}),
        (leaderless(leader=0, isr=(0,), elr=()), REGISTERED, NEW, {}),
    ],
)
def test_a_partition_is_given_up_where_whoever_may_lead_has_lost_its_disk(
    process: Process,
    partition: PartitionImage,
    registration: BrokerRegistration,
    on_disk: bytes,
    found: dict[str, list[int]],
) -> None:
    (process.log_dirs[0] / "meta.properties").write_text(f"version=1\ndirectory.id={uuid_text(on_disk)}\n")
    assert waiting_for_lost_disks(image_of(partition, registration), [process]) == found
