"""A clean stop in the middle of work: what is under way completes, whatever it asks for next."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pybroker.storage.log_dir import CLEAN_SHUTDOWN_FILE
from tests.storage.fake_env import FakeWorld
from tests.storage.logs import Client, Storage

MakeStorage = Callable[..., Storage]
LARGE = [bytes(200_000)]  # goes to the writer thread


def test_stop_completes_an_append_that_waits_behind_a_sync_under_way(make_storage: MakeStorage, tmp_path: Path) -> None:
    storage = make_storage(pybroker_fsync_before_ack="true")
    client = Client(storage.log())
    assert client.send() is None  # its sync is under way
    assert client.send() is None  # and this one waits for the next
    storage.close()
    assert [result.error_code for result in client.later] == [0, 0]
    assert (tmp_path / "data" / CLEAN_SHUTDOWN_FILE).exists()


def test_stop_syncs_what_the_writer_thread_brings_last(make_storage: MakeStorage, tmp_path: Path) -> None:
    storage = make_storage(pybroker_fsync_before_ack="true")
    client = Client(storage.log(internal_segment_bytes=1 << 20))
    assert client.send() is None  # the flusher has been used, and is the first to end
    assert client.send(values=LARGE) is None
    storage.close()
    assert [result.error_code for result in client.later] == [0, 0]
    assert (tmp_path / "data" / CLEAN_SHUTDOWN_FILE).exists()


def test_stop_survives_a_background_sync_that_is_asked_for_again(
    make_storage: MakeStorage, tmp_path: Path, world: FakeWorld
) -> None:
    storage = make_storage()
    log = storage.log()
    Client(log).send_now()
    log.flushes.flush()
    log.flushes.flush()
    storage.close()
    assert not any(executor.jobs for executor in world.executors.values())
    assert (tmp_path / "data" / CLEAN_SHUTDOWN_FILE).exists()
