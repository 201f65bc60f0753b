"""The log manager: locks, identity, placing, deletion, checkpoints, start-up cost."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.virtual_world import VirtualWorld
from harness.waiting import PATIENCE_S

from pybroker.config.broker import BrokerConfig
from pybroker.storage.files import checkpoints, os_file
from pybroker.storage.log.log import Log
from pybroker.storage.manager.log_manager import LogManager
from pybroker.storage.results import KAFKA_STORAGE_ERROR, StorageError
from pybroker_protocol.uuids import uuid_bytes, uuid_text
from tests.storage.logs import CLUSTER_ID, TOPIC_ID, Client, Storage, read_all, small_config

MakeStorage = Callable[..., Storage]


def test_meta_properties_are_kafkas(storage: Storage) -> None:
    lines = (storage.path / "meta.properties").read_text().splitlines()
    assert lines[:3] == [f"cluster.id={CLUSTER_ID}", "version=1", "node.id=1"]
    directory_id = storage.manager.directory_ids()[0]
    assert lines[3] == f"directory.id={uuid_text(directory_id)}"


def test_identity_survives_and_a_stranger_is_refused(make_storage: MakeStorage) -> None:
    storage = make_storage()
    directory_ids = storage.manager.directory_ids()
    storage.close()
    again = make_storage()
    assert again.manager.directory_ids() == directory_ids
    assert (again.manager.stored_cluster_id, again.manager.stored_node_id) == (CLUSTER_ID, 1)
    with pytest.raises(StorageError, match="belong to node 1 of cluster"):
        again.manager.set_cluster("another-cluster-id-abc", 1)
    with pytest.raises(StorageError, match="belong to node 1 of cluster"):
        again.manager.set_cluster(CLUSTER_ID, 2)


def test_meta_properties_of_java_are_read(storage: Storage) -> None:
    (storage.path / "meta.properties").write_text(
        "#\n#Sat Nov 21 04:00:00 UTC 2026\ncluster.id=a\\:b\nversion=1\nnode.id=7\n"
        "directory.id=AAAAAAAAAAAAAAAAAAAAAQ\n"
    )
    meta = checkpoints.read_meta_properties(storage.path)
    assert meta is not None
    assert (meta["cluster.id"], meta["node.id"]) == ("a:b", "7")
    assert uuid_bytes(meta["directory.id"]) == bytes(15) + b"\x01"


@pytest.mark.parametrize("text", ["1\n0\n", "0\n2\nt 0 5\n", "0\n1\nt 0\n", "0\n1\nt x 5\n", "0\n"])
def test_malformed_checkpoint_is_an_error_that_names_the_file(storage: Storage, text: str) -> None:
    path = storage.path / "replication-offset-checkpoint"
    path.write_text(text)
    with pytest.raises(StorageError, match="replication-offset-checkpoint"):
        checkpoints.read_offset_checkpoint(path)


def test_checkpoints_are_kafkas_format(storage: Storage, world: VirtualWorld) -> None:
    for partition in (0, 3):
        log = storage.log(partition=partition)
        Client(log).fill(partition + 2)
        log.update_high_watermark(partition + 1)
    world.advance(5001)
    assert (storage.path / "replication-offset-checkpoint").read_text() == "0\n2\nt 0 1\nt 3 4\n"
    storage.log(partition=0).increment_log_start_offset(1)
    world.advance(60_000)
    assert (storage.path / "log-start-offset-checkpoint").read_text() == "0\n1\nt 0 1\n"
    storage.close()
    assert (storage.path / "recovery-point-offset-checkpoint").read_text() == "0\n2\nt 0 2\nt 3 5\n"


def test_checkpoints_keep_partitions_that_were_not_opened(make_storage: MakeStorage) -> None:
    storage = make_storage()
    for partition in range(3):
        log = storage.log(partition=partition)
        Client(log).fill(4)
        log.update_high_watermark(4)
    storage.close()
    again = make_storage()
    Client(again.log(partition=1)).fill(1)
    again.close()
    points = checkpoints.read_offset_checkpoint(storage.path / "recovery-point-offset-checkpoint")
    assert points == {("t", 0): 4, ("t", 1): 5, ("t", 2): 4}


def test_deleted_topic_goes_at_once_by_name_and_later_from_the_disk(storage: Storage, world: VirtualWorld) -> None:
    kept, gone = storage.log("kept"), storage.log("gone", file_delete_delay_ms=1000)
    Client(kept).fill(1)
    Client(gone).fill(1)
    storage.manager.delete("gone", TOPIC_ID, 10)
    assert not (storage.path / "gone-0").exists()
    assert len(list(storage.path.glob("gone-0.*-delete"))) == 1
    world.advance(1001)
    assert list(storage.path.glob("gone*")) == []
    assert len(read_all(kept)) == 1
    fresh = storage.log("gone", topic_id=b"new-topic-id-123")
    assert fresh.log_end_offset == 0


def test_deleting_a_topic_that_was_never_opened(make_storage: MakeStorage, world: VirtualWorld) -> None:
    storage = make_storage()
    Client(storage.log()).fill(1)
    storage.close()
    again = make_storage()
    again.manager.delete("t", b"another-topic-id", 10)
    assert (again.path / "t-0").exists()
    again.manager.delete("t", TOPIC_ID, 10)
    world.advance(1)
    assert not list(again.path.glob("t-0*"))


def test_partition_whose_deletion_fails_keeps_no_other_from_going(
    storage: Storage, world: VirtualWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = [storage.log("gone", partition=partition) for partition in range(3)]
    for log in logs:
        Client(log).fill(1)
    retire = Log.retire

    def fail_once(log: Log) -> None:
        if log is logs[1]:
            raise RuntimeError("nobody thought of it")
        retire(log)

    monkeypatch.setattr(Log, "retire", fail_once)
    storage.manager.delete("gone", TOPIC_ID, 3)
    world.advance(1)
    assert [(storage.path / f"gone-{partition}").exists() for partition in range(3)] == [False, True, False]


def test_deletion_that_a_crash_interrupted_is_finished_at_start(make_storage: MakeStorage, world: VirtualWorld) -> None:
    storage = make_storage()
    Client(storage.log()).fill(1)
    storage.manager.delete("t", TOPIC_ID, 10)
    storage.kill()
    again = make_storage()
    world.advance(0)
    assert list(again.path.glob("*-delete")) == []


def test_name_of_a_deleted_directory_fits_the_file_system(storage: Storage) -> None:
    topic = "x" * 249
    Client(storage.log(topic)).fill(1)
    storage.manager.delete(topic, TOPIC_ID, 10)
    assert storage.all_failed == 0
    assert len(list(storage.path.glob("x*-delete"))) == 1


def test_new_partitions_go_to_the_least_loaded_directory(make_storage: MakeStorage) -> None:
    storage = make_storage(dirs=3)
    logs = [storage.log(partition=partition) for partition in range(9)]
    per_directory = [sum(log.directory is other.directory for log in logs) for other in logs[:3]]
    assert per_directory == [3, 3, 3]


def test_directory_whose_partitions_were_deleted_counts_as_empty(
    make_storage: MakeStorage, world: VirtualWorld
) -> None:
    storage = make_storage(dirs=3)
    storage.log(partition=0)
    gone = storage.log("gone")
    storage.log(partition=1)
    storage.manager.delete("gone", TOPIC_ID, 1)
    world.advance(1)
    assert storage.log(partition=2).directory is gone.directory


def two_homes(make_storage: MakeStorage) -> tuple[Storage, Storage]:
    """A partition's directory with a record in the first log dir, and a copy of it in the second; a restart later."""
    storage = make_storage(dirs=2)
    Client(storage.log()).fill(1)
    storage.close()
    shutil.copytree(storage.path / "t-0", storage.path.with_name("data1") / "t-0")
    return storage, make_storage(dirs=2)


def test_partition_in_two_directories_of_which_the_metadata_names_neither_takes_the_second_offline(
    make_storage: MakeStorage,
) -> None:
    _, again = two_homes(make_storage)
    first, second = again.manager.directory_ids()
    assert again.manager.settle(lambda topic, index: (TOPIC_ID, None)) == {(TOPIC_ID, 0): first}
    assert [described.error_code for described in again.describe()] == [0, KAFKA_STORAGE_ERROR]
    assert again.manager.directory_ids() == [first] != [second]
    assert len(read_all(again.log())) == 1


@pytest.mark.parametrize("named", [0, 1])
def test_of_two_directories_the_one_that_the_metadata_names_is_kept_and_the_other_renamed(
    make_storage: MakeStorage, named: int
) -> None:
    """The other was away while the replica was taken from this broker and came back."""
    _, again = two_homes(make_storage)
    ids = again.manager.directory_ids()
    assert again.manager.settle(lambda topic, index: (TOPIC_ID, ids[named])) == {}
    assert again.manager.directory_ids() == ids
    homes = [again.path.with_name(f"data{number}") / "t-0" for number in (0, 1)]
    assert [home.exists() for home in homes] == [named == 0, named == 1]
    assert len(list(homes[1 - named].parent.glob("t-0.*-stray"))) == 1


@pytest.mark.parametrize("ours", [0, 1])
def test_of_two_directories_the_one_of_the_topic_is_kept_and_the_other_renamed(
    make_storage: MakeStorage, ours: int
) -> None:
    storage = make_storage(dirs=2)
    Client(storage.log()).fill(1)
    storage.close()
    homes = [storage.path.with_name(f"data{number}") / "t-0" for number in (0, 1)]
    shutil.copytree(homes[0], homes[1])
    checkpoints.write_partition_metadata(homes[1 - ours], b"an-older-topicid")
    again = make_storage(dirs=2)
    ids = again.manager.directory_ids()
    assert again.manager.settle(lambda topic, index: (TOPIC_ID, ids[0])) == ({(TOPIC_ID, 0): ids[1]} if ours else {})
    assert [home.exists() for home in homes] == [ours == 0, ours == 1]
    assert len(list(homes[1 - ours].parent.glob("t-0.*-stray"))) == 1
    assert again.log().directory.path == homes[ours].parent


def test_replicas_without_a_chosen_directory_tell_where_they_lie(make_storage: MakeStorage) -> None:
    storage = make_storage(dirs=2)
    for partition in range(2):
        Client(storage.log(partition=partition)).fill(1)
    storage.close()
    (storage.path / "t-0" / "partition.metadata").unlink()  # as a loss of power may leave it
    again = make_storage(dirs=2)
    ids = again.manager.directory_ids()
    assert again.manager.settle(lambda topic, index: (TOPIC_ID, None)) == {(TOPIC_ID, 0): ids[0], (TOPIC_ID, 1): ids[1]}


@pytest.mark.parametrize("left", ["", "version: 0\ntopic_id: zXKQ", None])
def test_a_partition_that_lost_whose_it_is_with_the_power_says_so_again(
    make_storage: MakeStorage, left: str | None
) -> None:
    storage = make_storage()
    Client(storage.log()).fill(1)
    storage.close()
    file = storage.path / "t-0" / "partition.metadata"
    file.unlink()
    if left is not None:
        file.write_text(left)
    again = make_storage()
    again.manager.settle(lambda topic, index: (TOPIC_ID, again.manager.directory_ids()[0]))
    assert again.log().log_end_offset == 1
    assert checkpoints.read_partition_metadata(file.parent) == TOPIC_ID


def test_what_belongs_to_no_replica_is_renamed_and_kept(make_storage: MakeStorage, world: VirtualWorld) -> None:
    storage = make_storage()
    Client(storage.log()).fill(1)
    storage.close()
    again = make_storage()
    assert again.manager.settle(lambda topic, index: None) == {}
    world.advance(120_000)
    (stray,) = again.path.glob("t-0.*-stray")
    assert (stray / f"{0:020}.log").stat().st_size > 0
    assert again.log().log_end_offset == 0
    again.close()
    assert make_storage().manager.partition_count == 0


def test_partition_whose_directory_is_not_here_gets_no_other(make_storage: MakeStorage) -> None:
    storage = make_storage(dirs=2)
    assert storage.manager.open("t", TOPIC_ID, 0, small_config(), b"of-a-missing-dir") is None
    first, second = storage.manager.directory_ids()
    for partition, directory_id in enumerate((second, second, first)):
        log = storage.manager.open("t", TOPIC_ID, partition, small_config(), directory_id)
        assert log is not None
        assert log.directory.directory_id == directory_id


def test_directories_with_one_id_are_refused(make_storage: MakeStorage) -> None:
    storage = make_storage(dirs=2)
    storage.close()
    shutil.copy(storage.path / "meta.properties", storage.path.with_name("data1") / "meta.properties")
    with pytest.raises(StorageError, match="copy of the other"):
        make_storage(dirs=2)


def test_directory_that_cannot_be_used_is_offline_unless_it_is_the_metadatas(make_storage: MakeStorage) -> None:
    storage = make_storage(dirs=2)
    storage.close()
    for name in ("data1", "data0"):
        path = storage.path.with_name(name)
        path.rename(path.with_suffix(".away"))
        path.write_text("not a directory")
        if name == "data1":
            again = make_storage(dirs=2)
            assert [described.error_code for described in again.describe()] == [0, KAFKA_STORAGE_ERROR]
            again.close()
    with pytest.raises(StorageError, match="data0 cannot be used"):
        make_storage(dirs=2)


@pytest.mark.parametrize("put_another", [False, True])
def test_directory_that_is_gone_is_noticed_at_the_next_checkpoint(
    make_storage: MakeStorage, world: VirtualWorld, put_another: bool
) -> None:
    storage = make_storage(dirs=2)
    failed: list[bytes] = []
    storage.manager.on_directory_failed = failed.append
    ids = storage.manager.directory_ids()
    path = storage.path.with_name("data1")
    path.rename(path.with_suffix(".away"))
    if put_another:
        path.mkdir()
    world.advance(5_001)
    assert (failed, storage.all_failed) == ([ids[1]], 0)
    assert storage.manager.directory_ids() == [ids[0]]


@pytest.mark.parametrize("put_another", [False, True])
def test_no_log_begins_in_a_directory_that_is_gone(make_storage: MakeStorage, put_another: bool) -> None:
    storage = make_storage()
    untouched, opened = storage.log(partition=0), storage.log(partition=1)
    assert opened.log_end_offset == 0
    storage.path.rename(storage.path.with_suffix(".away"))
    if put_another:
        storage.path.mkdir()
    assert Client(opened).send_now().error_code == KAFKA_STORAGE_ERROR
    assert untouched.log_end_offset == 0
    assert untouched.refuses
    assert storage.all_failed == 1


def test_second_broker_on_the_directory_is_refused(storage: Storage) -> None:
    import subprocess
    import sys

    code = (
        "import sys; from pathlib import Path; from pybroker.storage.files import os_file;"
        "sys.exit(0 if os_file.lock_file(Path(sys.argv[1])) is None else 1)"
    )
    command = [sys.executable, "-c", code, str(storage.path / ".lock")]
    assert subprocess.run(command, timeout=PATIENCE_S, check=False).returncode == 0
    storage.close()
    assert subprocess.run(command, timeout=PATIENCE_S, check=False).returncode == 1


def test_lock_is_taken_on_the_file_that_lies_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / ".lock"
    lock = fcntl.lockf

    def removed_meanwhile(fd: int, operation: int) -> None:
        monkeypatch.setattr(fcntl, "lockf", lock)
        path.unlink()
        lock(fd, operation)

    monkeypatch.setattr(fcntl, "lockf", removed_meanwhile)
    fd = os_file.lock_file(path)
    assert fd is not None
    assert os.path.samestat(os.fstat(fd), path.stat())
    os.close(fd)


def test_broker_that_is_refused_leaves_the_directory_alone(make_storage: MakeStorage, world: VirtualWorld) -> None:
    storage = make_storage()
    Client(storage.log()).fill(1)
    before = {path.name: path.stat().st_mtime_ns for path in storage.path.iterdir()}
    config = BrokerConfig.load(data_dir=str(storage.path))
    second = LogManager(world.env, config, on_all_dirs_failed=lambda: None)
    with pytest.raises(StorageError, match=r"is locked: .*; end that broker, or choose another directory"):
        second.start()
    second.close()
    assert {path.name: path.stat().st_mtime_ns for path in storage.path.iterdir()} == before
    with pytest.raises(StorageError, match="is locked"):
        make_storage()


def test_describe_counts_bytes_of_open_and_unopened_logs(make_storage: MakeStorage) -> None:
    storage = make_storage()
    for partition in range(2):
        Client(storage.log(partition=partition)).fill(3)
    size = storage.log(partition=0).size_bytes
    storage.close()
    again = make_storage()
    again.log(partition=1)
    (described,) = again.describe()
    assert sorted((p.topic, p.index, p.size_bytes) for p in described.partitions) == [("t", 0, size), ("t", 1, size)]
    assert 0 < described.usable_bytes <= described.total_bytes


def test_failed_start_leaves_no_mark_of_a_clean_stop(make_storage: MakeStorage, world: VirtualWorld) -> None:
    storage = make_storage()
    Client(storage.log()).fill(1)
    storage.kill()
    (storage.path / "recovery-point-offset-checkpoint").mkdir()
    with pytest.raises(StorageError):
        make_storage()
    assert not (storage.path / ".kafka_cleanshutdown").exists()


def test_ten_thousand_partitions_start_without_being_opened(make_storage: MakeStorage) -> None:
    storage = make_storage()
    for partition in range(10_000):
        (storage.path / f"many-{partition}").mkdir()
    storage.close()
    again = make_storage()
    logs = [again.manager.open("many", TOPIC_ID, partition, small_config()) for partition in range(10_000)]
    assert all(log is not None and log.opened is None for log in logs)
