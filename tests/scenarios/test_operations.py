"""What operators do to a cluster in use: it grows, a broker retires, all are restarted one by one; clients go on."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.waiting import wait_until

from pybroker.cluster.image.cluster_image import PartitionImage
from pybroker.testing import Cluster
from tests.broker.two_dirs import TwoDirs
from tests.cli.command import CommandLine

from .load import GAP_MAX_S, PARTITIONS, TOPIC, Load
from .operating import described, grow_and_retire_the_first

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    # kafka-python forgets sockets that could not be connected.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture
def load(pybroker_cluster: Cluster) -> Iterator[Load]:
    pybroker_cluster.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=3)
    with Load(pybroker_cluster.bootstrap) as running:
        yield running


def test_cluster_grows_and_a_broker_retires_under_load(pybroker_cluster: Cluster, load: Load) -> None:
    cli = CommandLine(pybroker_cluster.bootstrap)
    grow_and_retire_the_first(cli, load, pybroker_cluster.add_broker(), lambda: pybroker_cluster.stop_broker(1))


def test_all_brokers_are_restarted_one_by_one_under_load(pybroker_cluster: Cluster, load: Load) -> None:
    for broker_id in list(pybroker_cluster.brokers):
        pybroker_cluster.restart(broker_id)
        wait_until(lambda: all_are_in_sync(pybroker_cluster), "all are in sync again")
        load.wait_for_progress()
    assert max(load.longest_gap_s().values()) < GAP_MAX_S


def test_log_dir_that_is_lost_moves_the_leaders_of_its_partitions_alone(tmp_path: Path) -> None:
    settings = {"replica.high.watermark.checkpoint.interval.ms": 20}  # how often a dir is looked at
    with TwoDirs(brokers=3, settings=settings, data_dir=tmp_path) as cluster:
        cluster.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=3)
        with Load(cluster.bootstrap) as load:
            broker_id, lost, kept = led_in_both_dirs(cluster, tmp_path)
            before = states(cluster, broker_id)
            directory = tmp_path / f"b-{broker_id}"
            directory.rename(tmp_path / "aside")
            wait_until(
                lambda: all(state.leader not in {broker_id, -1} for state in pick(states(cluster, broker_id), lost)),
                "others lead what was in the dir",
            )
            load.wait_for_progress()
            # Neither its leader nor its epoch is another.
            for now, former in zip(pick(states(cluster, broker_id), kept), pick(before, kept), strict=True):
                assert (now.leader, now.leader_epoch) == (broker_id, former.leader_epoch)
            assert not directory.exists()
            (tmp_path / "aside").rename(directory)
            cluster.restart(broker_id)
            wait_until(lambda: all_are_in_sync(cluster), "all are in sync again")
            load.wait_for_progress()


def test_broker_that_comes_back_with_an_empty_disk_has_all_its_replicas_again(tmp_path: Path) -> None:
    with Cluster(brokers=3, data_dir=tmp_path) as cluster:
        cluster.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=3)
        with Load(cluster.bootstrap) as load:
            load.wait_for_progress()
            cluster.kill(3)
            shutil.rmtree(tmp_path / "broker-3")
            cluster.restart(3)
            wait_until(lambda: all_are_in_sync(cluster), "all are in sync again")
            load.wait_for_progress()


def test_partition_whose_only_disk_was_replaced_begins_anew_by_an_unclean_election(tmp_path: Path) -> None:
    with Cluster(brokers=3, data_dir=tmp_path) as cluster:
        cli = CommandLine(cluster.bootstrap)
        cli.ok("topics", "create", TOPIC, "--partitions", "3", "--replicas", "1")
        (index,) = (each["partition"] for each in described(cli) if each["leader"] == 3)
        cluster.kill(3)
        shutil.rmtree(tmp_path / "broker-3")
        cluster.restart(3)
        part = f"{TOPIC}:{index}"
        waiting = cli.run("partitions", "elect", part)
        assert waiting.returncode == 1, "an empty log does not pass for what was there"
        cli.ok("partitions", "elect", "--unclean", part)
        cli.ok("produce", TOPIC, "--partition", str(index), stdin=b"anew\n")
        read = cli.ok("consume", TOPIC, "--partitions", str(index), "--offset", "beginning", "--exit")
        assert read == b"anew\n"


def test_no_partition_lies_twice_where_a_dir_is_back_beside_what_took_its_place(tmp_path: Path) -> None:
    with TwoDirs(brokers=3, data_dir=tmp_path) as cluster:
        cluster.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=3)
        with Load(cluster.bootstrap) as load:
            load.wait_for_progress()
        wait_until(lambda: all_are_in_sync(cluster), "all are in sync")
        cluster.kill(3)
        (tmp_path / "b-3").rename(tmp_path / "aside")
        cluster.restart(3)
        wait_until(lambda: all_are_in_sync(cluster), "all are in sync again, in the dir that is left")
        cluster.kill(3)
        shutil.rmtree(tmp_path / "b-3", ignore_errors=True)
        (tmp_path / "aside").rename(tmp_path / "b-3")
        cluster.restart(3)
        wait_until(lambda: all_are_in_sync(cluster), "all are in sync once more")
        for index in range(PARTITIONS):
            assert sum((tmp_path / name / f"{TOPIC}-{index}").exists() for name in ("a-3", "b-3")) == 1


def led_in_both_dirs(cluster: Cluster, folder: Path) -> tuple[int, list[int], list[int]]:
    """A broker that leads something in each of its dirs, and which partitions it leads in b and in a."""
    for broker_id in cluster.brokers:
        led = [index for index, state in enumerate(states(cluster, broker_id)) if state.leader == broker_id]
        in_b = [index for index in led if (folder / f"b-{broker_id}" / f"{TOPIC}-{index}").exists()]
        in_a = [index for index in led if index not in in_b]
        if in_a and in_b:
            return broker_id, in_b, in_a
    raise AssertionError("no broker leads partitions in both of its dirs")


def states(cluster: Cluster, broker_id: int) -> list[PartitionImage]:
    """The topic's partitions as a broker knows them."""
    return list(cluster.brokers[broker_id].image().topics_by_name[TOPIC].partitions)


def pick(found: list[PartitionImage], indexes: list[int]) -> list[PartitionImage]:
    return [found[index] for index in indexes]


def all_are_in_sync(cluster: Cluster) -> bool:
    return all(
        set(partition.isr) == set(partition.replicas) and partition.leader >= 0
        for node in cluster.brokers.values()
        for topic in node.image().topics_by_name.values()
        for partition in topic.partitions
    )
