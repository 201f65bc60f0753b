"""A metadata store that lacks what was acknowledged is noticed by the log dirs, however it came to lack it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.batches import batch

from pybroker.cluster.store.metadata_store import StoreError
from pybroker.cluster.store.sqlite.sqlite_store import FILE_NAME
from pybroker.storage.files.metadata_mark import MARK_FILE, read_mark
from pybroker.testing import Broker
from tests.broker.wire_client import WireClient

TOPICS = 20
WAL = FILE_NAME + "-wal"
ACCEPTED = {"pybroker.accept.lost.metadata": "true"}


def fill(path: Path, *names: str) -> None:
    """Topics with a record each."""
    with Broker(data_dir=path) as broker:
        write(broker, *names)


def write(broker: Broker, *names: str) -> None:
    for name in names:
        broker.create_topic(name, partitions=1)
        with WireClient((broker.host, broker.port)) as client:
            assert client.produce(name, batch(b"v")).error_code == 0


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """What a broker that was killed has left: every topic has a directory, the newest are in the write-ahead log."""
    with Broker(data_dir=tmp_path / "running") as broker:
        write(broker, *(f"t{i}" for i in range(TOPICS)))
        shutil.copytree(tmp_path / "running", tmp_path / "data")
    return tmp_path / "data"


def cut(path: Path, keep: float) -> None:
    os.truncate(path, int(path.stat().st_size * keep))


LOSSES: dict[str, Callable[[Path], None]] = {
    "half of the write-ahead log": lambda data: cut(data / WAL, 0.5),
    "the end of the write-ahead log": lambda data: cut(data / WAL, 0.99),
    "the write-ahead log": lambda data: (data / WAL).unlink(),
    "an empty write-ahead log": lambda data: cut(data / WAL, 0),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_start_is_refused_in_one_sentence_that_names_the_way_on(killed: Path, loss: str) -> None:
    before = sorted(path.name for path in killed.glob("t*-0"))
    LOSSES[loss](killed)
    for _ in range(2):  # a refused start changes nothing
        with pytest.raises(StoreError, match=r"--accept-lost-metadata|has no metadata") as refused:
            Broker(data_dir=killed).start()
        assert "\n" not in str(refused.value)
    assert sorted(path.name for path in killed.glob("t*-0")) == before


def test_loss_that_is_accepted_is_forgotten_at_the_next_start(killed: Path) -> None:
    cut(killed / WAL, 0.5)
    with Broker(ACCEPTED, data_dir=killed) as broker:
        write(broker, "new")
    assert list(killed.glob("*-stray"))
    with Broker(data_dir=killed) as broker, WireClient((broker.host, broker.port)) as client:
        assert client.fetch("new", 0).responses[0].partitions[0].high_watermark == 1


def test_older_copy_of_the_metadata_is_noticed_by_the_other_log_dirs(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()

    def broker() -> Broker:
        return Broker({"metadata.log.dir": str(tmp_path / "m")}, data_dir=tmp_path / "a")

    with broker() as first:
        write(first, "before")
    shutil.copytree(tmp_path / "m", tmp_path / "copy")
    with broker() as second:
        write(second, "after")
    shutil.rmtree(tmp_path / "m")
    (tmp_path / "copy").rename(tmp_path / "m")
    with pytest.raises(StoreError, match="--accept-lost-metadata"):
        broker().start()


@pytest.mark.parametrize("content", [None, b"", b"garbage\n", bytes(21), b"9" * 5, b"longer garbage\n" * 500])
def test_mark_that_is_missing_or_damaged_is_made_anew(tmp_path: Path, content: bytes | None) -> None:
    fill(tmp_path / "data", "t")
    mark = tmp_path / "data" / MARK_FILE
    if content is None:
        mark.unlink()
    else:
        mark.write_bytes(content)
    fill(tmp_path / "data", "u")
    assert read_mark(tmp_path / "data") > 0


def test_topics_that_come_and_go_are_no_loss(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "running") as broker:
        write(broker, "kept", "gone")
        broker.delete_topic("gone")
        shutil.copytree(tmp_path / "running", tmp_path / "data")
    with Broker(data_dir=tmp_path / "data"):
        pass
