"""Log dirs that are not there, at a start or from one moment on: what lies in them is offline, never begun anew."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness.batches import batch
from harness.pybroker_process import PybrokerProcess
from harness.waiting import wait_until

from pybroker.cluster.membership.cluster_member import ClusterMember
from pybroker.cluster.store.metadata_store import StoreError
from pybroker.cluster_wiring import ClusterWiring
from pybroker.storage.results import StorageError
from pybroker.testing import Broker
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pybroker_protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from pybroker_protocol.messages.find_coordinator import FindCoordinatorRequest
from pybroker_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pybroker_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.broker.two_dirs import TwoDirs
from tests.broker.wire_client import WireClient

TOPIC = "t"
PARTITIONS = 4
STORAGE_ERROR = int(ErrorCode.KAFKA_STORAGE_ERROR)
ALL_DIRS = ("a", "b", "c")


class Dirs:
    """Log dirs a, b and c, with the metadata in m, and brokers over some of them, one after another."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def broker(self, *names: str, **settings: str) -> Broker:
        chosen = [str(self.root / name) for name in names or ALL_DIRS]
        return Broker(
            {"metadata.log.dir": str(self.root / "m"), **{key.replace("_", "."): v for key, v in settings.items()}},
            data_dir=",".join(chosen),
        )

    def holder(self, partition: int, topic: str = TOPIC) -> str:
        """The log dir that holds a partition."""
        (found,) = (path for name in ALL_DIRS for path in self.root.glob(f"{name}/{topic}-{partition}"))
        return found.parent.name

    def partitions_in(self, name: str) -> list[int]:
        return [partition for partition in range(PARTITIONS) if self.holder(partition) == name]

    def fill(self, topic: str = TOPIC) -> None:
        """One record for every partition of a new topic."""
        with self.broker() as broker:
            broker.create_topic(topic, partitions=PARTITIONS)
            assert set(produced(broker, topic)) == {0}


@pytest.fixture
def dirs(tmp_path: Path) -> Dirs:
    """Three log dirs over which a topic's partitions are spread."""
    (tmp_path / "m").mkdir()
    made = Dirs(tmp_path)
    made.fill()
    return made


def connect(broker: Any) -> WireClient:
    return WireClient((broker.host, broker.port))


def produced(broker: Any, topic: str = TOPIC) -> list[int]:
    """The error of a produce to each partition."""
    with connect(broker) as client:
        return [client.produce(topic, batch(b"v"), partition=index).error_code for index in range(PARTITIONS)]


def end_offsets(broker: Any, topic: str = TOPIC) -> list[int]:
    """Where each partition ends; -1 where a fetch is answered with KAFKA_STORAGE_ERROR."""
    ends = []
    with connect(broker) as client:
        for index in range(PARTITIONS):
            answer = client.fetch(topic, 0, partition=index).responses[0].partitions[0]
            assert answer.error_code in (0, STORAGE_ERROR)
            ends.append(-1 if answer.error_code else answer.high_watermark)
    return ends


def described(broker: Any, topic: str = TOPIC) -> list[tuple[int, int, list[int], int]]:
    """(error, leader, offline replicas, leader epoch) of each partition in Metadata."""
    with connect(broker) as client:
        reply = client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 9)
    return [
        (row.error_code, row.leader_id, row.offline_replicas, row.leader_epoch) for row in reply.topics[0].partitions
    ]


def leaderless(broker: Any) -> list[int]:
    return [index for index, (_, leader, _, _) in enumerate(described(broker)) if leader < 0]


def remove(path: Path) -> None:
    path.rename(path.with_suffix(".away"))


def put_file_in_its_place(path: Path) -> None:
    remove(path)
    path.write_text("not a directory")


def put_another_in_its_place(path: Path) -> None:
    remove(path)
    with Broker(data_dir=path) as stranger:
        stranger.create_topic(TOPIC, partitions=PARTITIONS)
        produced(stranger)
    (path / "pybroker-metadata.db").unlink()


def mount_nothing(path: Path) -> None:
    remove(path)
    path.mkdir()


def bring_back(path: Path) -> None:
    if path.is_file():
        path.unlink()
    shutil.rmtree(path, ignore_errors=True)
    path.with_suffix(".away").rename(path)


@pytest.mark.parametrize("lose", [remove, mount_nothing, put_file_in_its_place, put_another_in_its_place])
def test_partitions_of_a_missing_dir_are_offline_until_it_is_back(dirs: Dirs, lose: Callable[[Path], None]) -> None:
    lost = dirs.partitions_in("b")
    expected = [-1 if partition in lost else 1 for partition in range(PARTITIONS)]
    lose(dirs.root / "b")
    for _ in range(2):  # the second start finds what the first one wrote
        with dirs.broker() as broker:
            assert end_offsets(broker) == expected
            assert [error == STORAGE_ERROR for error in produced(broker)] == [end < 0 for end in expected]
            expected = [end if end < 0 else end + 1 for end in expected]
            for partition, row in enumerate(described(broker)):
                assert row[:3] == ((5, -1, [1]) if partition in lost else (0, 1, [])), partition
    bring_back(dirs.root / "b")
    with dirs.broker() as broker:
        assert end_offsets(broker) == [1 if end < 0 else end for end in expected]
        assert leaderless(broker) == []
        assert set(produced(broker)) == {0}
        epochs = [epoch for _, _, _, epoch in described(broker)]
        assert min(epochs[partition] for partition in lost) >= 2  # lost its leader, and got it back


def test_dir_left_out_of_the_settings_keeps_its_partitions_offline(dirs: Dirs) -> None:
    lost = dirs.partitions_in("b")
    with dirs.broker("a", "c") as broker:
        assert leaderless(broker) == lost
        assert [error == STORAGE_ERROR for error in produced(broker)] == [p in lost for p in range(PARTITIONS)]
        broker.create_topic("new", partitions=PARTITIONS)  # new ones find a place in the others
        assert set(produced(broker, "new")) == {0}
    assert not list((dirs.root / "b").glob("new-*"))
    with dirs.broker() as broker:
        assert end_offsets(broker) == [1 if partition in lost else 2 for partition in range(PARTITIONS)]
        assert end_offsets(broker, "new") == [1] * PARTITIONS


def test_dirs_that_exchange_their_paths_serve_what_they_hold(dirs: Dirs) -> None:
    a, b, aside = (dirs.root / name for name in ("a", "b", "aside"))
    a.rename(aside)
    b.rename(a)
    aside.rename(b)
    with dirs.broker("b", "c", "a") as broker:
        assert end_offsets(broker) == [1] * PARTITIONS
        assert leaderless(broker) == []


def test_dir_that_lost_its_meta_properties_keeps_its_partitions(dirs: Dirs) -> None:
    (dirs.root / "b" / "meta.properties").unlink()
    for records in (1, 2):
        with dirs.broker() as broker:
            assert end_offsets(broker) == [records] * PARTITIONS
            assert set(produced(broker)) == {0}


def test_partition_that_was_moved_by_hand_is_served_where_it_lies(dirs: Dirs) -> None:
    moved = dirs.partitions_in("b")[0]
    (dirs.root / "b" / f"{TOPIC}-{moved}").rename(dirs.root / "a" / f"{TOPIC}-{moved}")
    for names in (ALL_DIRS, ("a", "c")):
        with dirs.broker(*names) as broker:
            assert end_offsets(broker)[moved] == 1


def test_topic_made_anew_while_a_dir_was_missing_does_not_get_the_old_records(dirs: Dirs) -> None:
    lost = dirs.partitions_in("b")
    with dirs.broker("a", "c") as broker:
        broker.delete_topic(TOPIC)
        broker.create_topic(TOPIC, partitions=PARTITIONS)
        for _ in range(3):
            assert set(produced(broker)) == {0}
    for _ in range(2):
        with dirs.broker() as broker:
            assert end_offsets(broker) == [3] * PARTITIONS
    strays = sorted(path.name for path in (dirs.root / "b").glob("*-stray"))
    assert [int(name.split("-")[1].split(".")[0]) for name in strays] == lost
    assert all((dirs.root / "b" / name / f"{0:020}.log").stat().st_size for name in strays)


def test_replicas_of_a_deleted_topic_become_strays_when_their_dir_is_back(dirs: Dirs) -> None:
    lost = dirs.partitions_in("b")
    with dirs.broker("a", "c") as broker:
        broker.delete_topic(TOPIC)
    with dirs.broker() as broker:
        assert not list((dirs.root / "b").glob(f"{TOPIC}-?"))
        assert len(list((dirs.root / "b").glob(f"{TOPIC}-*-stray"))) == len(lost)
        broker.create_topic(TOPIC, partitions=PARTITIONS)
        assert end_offsets(broker) == [0] * PARTITIONS


def test_copy_of_a_log_dir_beside_the_original_is_refused(dirs: Dirs) -> None:
    shutil.rmtree(dirs.root / "c")
    shutil.copytree(dirs.root / "b", dirs.root / "c")
    with pytest.raises(StorageError, match="copy of the other"):
        dirs.broker().start()


def test_start_is_refused_where_the_metadata_does_not_lie(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    with Broker(data_dir=f"{first},{second}") as broker:
        broker.create_topic(TOPIC, partitions=PARTITIONS)
        produced(broker)
    before = sorted(path.name for path in second.iterdir() if path.is_dir())
    with pytest.raises(StoreError, match="metadata lies in"):
        Broker(data_dir=f"{second},{first}").start()
    with pytest.raises(StoreError, match="no metadata"):
        Broker(data_dir=second).start()
    assert sorted(path.name for path in second.iterdir() if path.is_dir()) == before != []
    with Broker(data_dir=f"{first},{second}") as broker:
        assert end_offsets(broker) == [1] * PARTITIONS


def test_dir_that_vanishes_at_run_time_takes_its_partitions_offline(dirs: Dirs) -> None:
    lost = dirs.partitions_in("b")
    with dirs.broker(replica_high_watermark_checkpoint_interval_ms="20") as broker:
        remove(dirs.root / "b")
        wait_until(lambda: leaderless(broker) == lost, "the partitions of the dir have no leader")
        assert [error == STORAGE_ERROR for error in produced(broker)] == [p in lost for p in range(PARTITIONS)]
        assert [end < 0 for end in end_offsets(broker)] == [p in lost for p in range(PARTITIONS)]
        with connect(broker) as client:
            results = client.ask(DescribeLogDirsRequest(topics=None), 4).results
        assert {Path(result.log_dir).name: result.error_code for result in results} == {"a": 0, "b": 56, "c": 0}
        broker.create_topic("new", partitions=PARTITIONS)
        assert set(produced(broker, "new")) == {0}
    bring_back(dirs.root / "b")
    with dirs.broker() as broker:
        assert end_offsets(broker) == [1 if partition in lost else 2 for partition in range(PARTITIONS)]


@pytest.mark.parametrize("touched", [True, False], ids=["in use", "not touched since the start"])
def test_partition_that_is_moved_away_at_run_time_takes_its_dir_offline(dirs: Dirs, touched: bool) -> None:
    lost = dirs.partitions_in("b")
    moved = dirs.root / "b" / f"{TOPIC}-{lost[0]}"
    with dirs.broker(replica_high_watermark_checkpoint_interval_ms="20") as broker:
        if touched:
            assert set(produced(broker)) == {0}
        moved.rename(dirs.root / "elsewhere")
        if not touched:
            assert produced(broker)[lost[0]] == STORAGE_ERROR
        wait_until(
            lambda: [error == STORAGE_ERROR for error in produced(broker)] == [p in lost for p in range(PARTITIONS)],
            "the partitions of the dir are refused, the others are not",
        )
        wait_until(lambda: leaderless(broker) == lost, "the partitions of the dir have no leader")
    assert not moved.exists()


def test_dir_in_whose_place_another_comes_is_taken_offline(dirs: Dirs) -> None:
    lost = dirs.partitions_in("b")
    with dirs.broker(replica_high_watermark_checkpoint_interval_ms="20") as broker:
        mount_nothing(dirs.root / "b")
        wait_until(lambda: leaderless(broker) == lost, "the partitions of the dir have no leader")
    assert not list((dirs.root / "b").iterdir())


def test_waiting_fetch_is_answered_when_its_dir_vanishes(dirs: Dirs) -> None:
    partition = dirs.partitions_in("b")[0]
    with dirs.broker(replica_high_watermark_checkpoint_interval_ms="20") as broker, connect(broker) as client:
        remove(dirs.root / "b")
        answer = client.fetch(TOPIC, 1, partition=partition, max_wait_ms=60_000).responses[0].partitions[0]
        assert answer.error_code == STORAGE_ERROR


@pytest.mark.parametrize("vanishing", ["a", "m"])
def test_broker_whose_metadata_dir_vanishes_ends_with_1(tmp_path: Path, vanishing: str) -> None:
    settings = {"replica.high.watermark.checkpoint.interval.ms": "20"}
    if vanishing == "m":
        (tmp_path / "m").mkdir()
        settings["metadata.log.dir"] = str(tmp_path / "m")
    broker = PybrokerProcess(tmp_path / "process", settings)
    broker.data_directory = Path(f"{tmp_path / 'a'},{tmp_path / 'b'}")
    try:
        broker.start()
        process = broker._process
        assert process is not None
        shutil.rmtree(tmp_path / vanishing)
        wait_until(lambda: process.exit_code is not None, "the process has ended")
        assert process.exit_code == 1
    finally:
        broker.kill()


def test_dir_that_fails_while_its_broker_registers_is_taken_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    join = ClusterWiring.join

    async def join_and_lose_a_dir(self: ClusterWiring, member: ClusterMember, *arguments: Any) -> None:
        await join(self, member, *arguments)
        directories = [state.directory for state in self._services.logs._states]
        for directory in directories:
            if directory.path.name == "b-2":
                directory.fail(OSError("no such device"), "a write")

    monkeypatch.setattr(ClusterWiring, "join", join_and_lose_a_dir)
    with TwoDirs(brokers=3, data_dir=tmp_path) as cluster:

        def known_dirs(broker_id: int) -> int:
            return len(cluster.brokers[1]._running().services.metadata.image.brokers[broker_id].log_dirs)

        wait_until(lambda: [known_dirs(each) for each in (1, 2, 3)] == [2, 1, 2], "the metadata lacks the dir")


@pytest.mark.parametrize("requests", [1, 3])
def test_kill_nine_does_not_lose_where_a_partition_lies(tmp_path: Path, requests: int) -> None:
    """Right after the first append: nothing that is acknowledged may begin anew in another dir."""
    (tmp_path / "m").mkdir()

    def process(*names: str) -> PybrokerProcess:
        broker = PybrokerProcess(tmp_path / "process", {"metadata.log.dir": str(tmp_path / "m")})
        broker.data_directory = Path(",".join(str(tmp_path / name) for name in names))
        return broker

    broker = process(*ALL_DIRS).start()
    try:
        with connect(broker) as client:
            topic = CreatableTopic(
                name=TOPIC, num_partitions=PARTITIONS, replication_factor=1, assignments=[], configs=[]
            )
            client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000, validate_only=False), 5)
        for _ in range(requests):
            assert set(produced(broker)) == {0}
    finally:
        broker.kill()
    dirs = Dirs(tmp_path)
    lost = dirs.partitions_in("b")
    assert lost
    broker = process("a", "c").start()
    try:
        assert [error == STORAGE_ERROR for error in produced(broker)] == [p in lost for p in range(PARTITIONS)]
    finally:
        broker.kill()
    broker = process(*ALL_DIRS).start()
    try:
        expected = [requests if partition in lost else requests + 1 for partition in range(PARTITIONS)]
        assert end_offsets(broker) == expected
    finally:
        broker.kill()


def coordinator_errors(broker: Broker) -> dict[str, int]:
    """Of each of some groups what a commit of an offset is answered with, or why there is no coordinator."""
    errors = {}
    with connect(broker) as client:
        for group in (f"group-{number}" for number in range(8)):
            found = client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 4).coordinators[0]
            offset = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
            topic = OffsetCommitRequestTopic(name=TOPIC, partitions=[offset])
            reply = client.ask(OffsetCommitRequest(group_id=group, member_id="", topics=[topic]), 8)
            errors[group] = found.error_code or reply.topics[0].partitions[0].error_code
    return errors


def test_groups_whose_offsets_lie_in_a_missing_dir_have_no_coordinator_until_it_is_back(dirs: Dirs) -> None:
    def all_served(broker: Broker) -> bool:
        return not any(coordinator_errors(broker).values())

    settings = {"offsets_topic_num_partitions": "6"}
    with dirs.broker(**settings) as broker:
        wait_until(lambda: all_served(broker), "every group commits")
    with dirs.broker("a", "c", **settings) as broker:
        wait_until(
            lambda: set(coordinator_errors(broker).values()) == {0, int(ErrorCode.COORDINATOR_NOT_AVAILABLE)},
            "some groups commit, the others have no coordinator",
        )
    with dirs.broker(**settings) as broker:
        wait_until(lambda: all_served(broker), "every group commits again")
