"""Appends to one partition keep their order, whatever they have to wait for: the sequence numbers of an idempotent
producer go by it, and a gap that is not the producer's own would be the end of the producer."""

from __future__ import annotations

from collections.abc import Callable

from harness.virtual_world import VirtualWorld

from pybroker.storage.log.append_queue import OnComplete
from pybroker.storage.results import AppendResult
from tests.storage.batches import batch
from tests.storage.logs import LATEST_PRODUCE, Client, Storage

MakeStorage = Callable[..., Storage]
LARGE = 200_000  # goes to the writer thread, and two of them do not fit into a segment
SEGMENT_BYTES = 300_000


def numbered(sequence: int, size: int = 10) -> bytearray:
    """A batch of one record of producer 7."""
    return batch(values=[b"%06d" % sequence + bytes(size)], producer_id=7, producer_epoch=0, sequence=sequence)


def test_small_batch_behind_a_large_one_that_waits_to_roll_is_in_sequence(
    make_storage: MakeStorage, world: VirtualWorld
) -> None:
    log = make_storage().log(internal_segment_bytes=SEGMENT_BYTES)
    client = Client(log)
    assert client.send(numbered(0, LARGE)) is None
    assert client.send(numbered(1, LARGE)) is None  # waits: it begins a new segment
    assert client.send(numbered(2)) is None
    world.run()
    assert [result.error_code for result in client.later] == [0, 0, 0]
    assert [result.base_offset for result in client.later] == [0, 1, 2]


def test_batch_behind_one_that_is_being_recompressed_is_in_sequence(
    make_storage: MakeStorage, world: VirtualWorld
) -> None:
    log = make_storage().log(internal_segment_bytes=SEGMENT_BYTES, compression_type="gzip")
    client = Client(log)
    assert client.send_now(numbered(0)).error_code == 0
    assert client.send(numbered(1, LARGE)) is None
    assert client.send(numbered(2)) is None
    world.run()
    assert [result.error_code for result in client.later] == [0, 0]


def test_what_a_reply_sets_off_does_not_pass_those_that_wait(make_storage: MakeStorage, world: VirtualWorld) -> None:
    log = make_storage().log(internal_segment_bytes=SEGMENT_BYTES)
    results: list[AppendResult] = []

    def send(sequence: int, size: int = 10, on_complete: OnComplete = results.append) -> None:
        assert log.append_as_leader(memoryview(numbered(sequence, size)), 0, LATEST_PRODUCE, on_complete) is None

    def answered(result: AppendResult) -> None:
        """The client sends its next batch as soon as it is answered, as a connection with waiting frames does."""
        results.append(result)
        send(5)

    send(0, LARGE)
    send(1, LARGE)
    send(2, on_complete=answered)
    send(3)
    send(4)
    world.run()
    assert [(result.error_code, result.base_offset) for result in results] == [(0, offset) for offset in range(6)]
