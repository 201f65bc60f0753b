"""A topic is deleted while its partitions are written to and synced: nothing of it touches its path any more, which may
be another log's already, and the log directory stays online."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pybroker_protocol.errors import ErrorCode
from tests.storage.fake_env import FakeWorld
from tests.storage.logs import TOPIC_ID, Client, Storage

MakeStorage = Callable[..., Storage]
LARGE = [bytes(200_000)]  # goes to the writer thread
ANOTHER_ID = b"fedcba9876543210"


def test_sync_that_comes_due_after_the_deletion_leaves_the_directory_online(storage: Storage, world: FakeWorld) -> None:
    log = storage.log()
    Client(log).fill(50)
    storage.manager.delete("t", TOPIC_ID)
    done: list[bool] = []
    log.flushes.flush(lambda: done.append(True))
    world.run()
    world.advance(0)
    assert done == [True]
    assert storage.all_failed == 0


def test_deleted_log_writes_nothing_into_its_successor(storage: Storage, world: FakeWorld) -> None:
    log = storage.log(internal_segment_bytes=1 << 20)
    Client(log).fill(50)
    storage.manager.delete("t", TOPIC_ID)
    successor = storage.log(topic_id=ANOTHER_ID)
    Client(successor).send_now()
    successor.flushes.flush()
    world.run()
    files = {path: path.read_bytes() for path in successor.path.iterdir()}
    log.flushes.flush()
    world.run()
    assert {path: path.read_bytes() for path in successor.path.iterdir()} == files


@pytest.mark.parametrize("values", [[b"small"], LARGE], ids=["inline", "in the writer thread"])
def test_append_that_waits_for_its_sync_is_refused_when_the_topic_goes(
    make_storage: MakeStorage, world: FakeWorld, values: list[bytes]
) -> None:
    storage = make_storage(pybroker_fsync_before_ack="true")
    client = Client(storage.log(internal_segment_bytes=1 << 20))
    assert client.send() is None  # its sync is under way
    assert client.send(values=values) is None
    storage.manager.delete("t", TOPIC_ID)
    world.run()
    assert [result.error_code for result in client.later] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    assert storage.all_failed == 0
