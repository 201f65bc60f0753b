"""What a client has sent behind a refused batch is refused with the same error, until the missing batch is there."""

from __future__ import annotations

from typing import Any

import pytest
from harness.virtual_world import VirtualWorld

from pybroker.storage.results import INVALID_TXN_STATE, KAFKA_STORAGE_ERROR, OUT_OF_ORDER_SEQUENCE_NUMBER
from pybroker.storage.rules.refused_batches import REFUSED_BATCH_REMEMBERED_MS, RefusedBatches
from pybroker_protocol.errors import ErrorCode
from tests.storage.batches import batch
from tests.storage.logs import TRANSACTIONAL_FLAG, Client, Storage
from tests.storage.test_disk_faults import Disk, disk  # noqa: F401

NOT_ENOUGH_REPLICAS = int(ErrorCode.NOT_ENOUGH_REPLICAS)
LAST = (1 << 31) - 1


def refuse(client: Client, error_code: int = NOT_ENOUGH_REPLICAS, **fields: Any) -> None:
    client.log.note_refusal(memoryview(batch(**fields)), error_code)


def send(client: Client, sequence: int, epoch: int = 0, producer_id: int = 1) -> int:
    return client.send_now(producer_id=producer_id, producer_epoch=epoch, sequence=sequence).error_code


@pytest.fixture
def client(storage: Storage) -> Client:
    """A client of a log in which producer 1 has written sequences 0 to 4."""
    client = Client(storage.log())
    assert [send(client, sequence) for sequence in range(5)] == [0] * 5
    return client


def test_what_comes_behind_a_refused_batch_gets_its_error_until_the_gap_is_closed(client: Client) -> None:
    refuse(client, producer_id=1, producer_epoch=0, sequence=5)
    assert [send(client, 6), send(client, 7)] == [NOT_ENOUGH_REPLICAS] * 2
    assert [send(client, 5), send(client, 6), send(client, 7)] == [0] * 3
    assert send(client, 9) == OUT_OF_ORDER_SEQUENCE_NUMBER


def test_of_several_refused_batches_the_first_is_the_one_to_wait_for(client: Client) -> None:
    for sequence in (5, 6, 7):
        refuse(client, producer_id=1, producer_epoch=0, sequence=sequence)
    assert send(client, 8) == NOT_ENOUGH_REPLICAS
    assert send(client, 5) == 0
    assert send(client, 7) == OUT_OF_ORDER_SEQUENCE_NUMBER, "nothing that was refused is missing before it"


def test_a_batch_that_is_refused_again_lends_the_newest_error(client: Client) -> None:
    refuse(client, producer_id=1, producer_epoch=0, sequence=5)
    refuse(client, KAFKA_STORAGE_ERROR, producer_id=1, producer_epoch=0, sequence=5)
    assert send(client, 6) == KAFKA_STORAGE_ERROR


def test_a_gap_that_no_refusal_has_made_is_out_of_order(client: Client) -> None:
    assert send(client, 6) == OUT_OF_ORDER_SEQUENCE_NUMBER
    refuse(client, producer_id=2, producer_epoch=0, sequence=0)
    assert send(client, 6) == OUT_OF_ORDER_SEQUENCE_NUMBER, "it was another producer's batch"


def test_a_repeat_and_an_earlier_batch_are_answered_as_ever(client: Client) -> None:
    refuse(client, producer_id=1, producer_epoch=0, sequence=4)
    refuse(client, producer_id=1, producer_epoch=0, sequence=5)
    assert client.send_now(producer_id=1, producer_epoch=0, sequence=4).base_offset == 4


def test_a_new_epoch_forgets_what_was_refused_in_the_last(client: Client) -> None:
    refuse(client, producer_id=1, producer_epoch=0, sequence=5)
    assert send(client, 7, epoch=1) == OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [send(client, 0, epoch=1), send(client, 2, epoch=1)] == [0, OUT_OF_ORDER_SEQUENCE_NUMBER]


def test_the_refused_beginning_of_an_epoch_is_waited_for(client: Client) -> None:
    refuse(client, producer_id=1, producer_epoch=1, sequence=0)
    assert send(client, 1, epoch=1) == NOT_ENOUGH_REPLICAS
    assert [send(client, 0, epoch=1), send(client, 1, epoch=1)] == [0, 0]


def test_a_producer_without_state_does_not_begin_behind_its_refused_batch(client: Client) -> None:
    refuse(client, producer_id=2, producer_epoch=0, sequence=0)
    assert send(client, 1, producer_id=2) == NOT_ENOUGH_REPLICAS
    assert [send(client, 0, producer_id=2), send(client, 1, producer_id=2)] == [0, 0]


def test_sequences_wrap_around_behind_a_refused_batch(storage: Storage) -> None:
    client = Client(storage.log())
    assert send(client, LAST - 1) == 0
    refuse(client, producer_id=1, producer_epoch=0, sequence=LAST)
    assert [send(client, 0), send(client, 1)] == [NOT_ENOUGH_REPLICAS] * 2
    assert [send(client, LAST), send(client, 0)] == [0, 0]


def test_a_client_that_gives_the_batch_up_hears_of_the_gap(client: Client, world: VirtualWorld) -> None:
    refuse(client, producer_id=1, producer_epoch=0, sequence=5)
    assert send(client, 6) == NOT_ENOUGH_REPLICAS
    world.advance(REFUSED_BATCH_REMEMBERED_MS)
    assert send(client, 6) == OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_error_is_lent_from_the_first_batch_that_is_refused_for_its_sake(
    client: Client, world: VirtualWorld
) -> None:
    for sequence in (5, 6):  # both find too few replicas
        refuse(client, producer_id=1, producer_epoch=0, sequence=sequence)
    world.advance(REFUSED_BATCH_REMEMBERED_MS)
    assert send(client, 6) == NOT_ENOUGH_REPLICAS
    world.advance(REFUSED_BATCH_REMEMBERED_MS)
    assert send(client, 6) == OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_batch_that_never_comes_again_is_forgotten_with_its_producer(client: Client, world: VirtualWorld) -> None:
    """Else each producer that ends behind a refusal would leave something for good, and could never write again."""
    producers, expiration_ms = client.log.producers, client.log.producers.expiration_ms
    refuse(client, producer_id=2, producer_epoch=0, sequence=0)
    producers.remove_expired(world.clock.now_ms())
    assert send(client, 1, producer_id=2) == NOT_ENOUGH_REPLICAS
    producers.remove_expired(world.clock.now_ms() + expiration_ms - 1)
    assert send(client, 1, producer_id=2) != 0
    producers.remove_expired(world.clock.now_ms() + expiration_ms)
    assert not producers.refused.by_producer
    assert send(client, 1, producer_id=2) == 0


def test_the_first_batch_of_a_transaction_is_waited_for_too(client: Client) -> None:
    refuse(client, producer_id=3, producer_epoch=0, sequence=0, attributes=TRANSACTIONAL_FLAG)
    client.verify(3, 0, sequence=0)
    behind = batch(producer_id=3, producer_epoch=0, sequence=1, attributes=TRANSACTIONAL_FLAG)
    assert client.send_now(behind).error_code == NOT_ENOUGH_REPLICAS


@pytest.mark.parametrize("fields", [{}, {"producer_id": 1, "producer_epoch": 0, "sequence": -1}])
def test_batches_without_a_sequence_are_not_noted(client: Client, fields: dict[str, Any]) -> None:
    refuse(client, **fields)
    assert not client.log.producers.refused.by_producer


def test_garbage_in_place_of_a_batch_is_not_noted(client: Client) -> None:
    for garbage in (b"", b"\xff" * 10, bytes(61), b"\xff" * 200):
        client.log.note_refusal(memoryview(garbage), NOT_ENOUGH_REPLICAS)
    assert not client.log.producers.refused.by_producer


@pytest.mark.parametrize("size", [10, 200_000])
def test_what_comes_behind_a_batch_that_found_no_room_gets_its_error(
    storage: Storage,
    world: VirtualWorld,
    disk: Disk,  # noqa: F811
    size: int,
) -> None:
    client = Client(storage.log(internal_segment_bytes=1 << 24))

    def send_sized(sequence: int) -> int:
        result = client.send(values=[bytes(size)], producer_id=1, producer_epoch=0, sequence=sequence)
        if result is None:
            world.run()
            result = client.later.pop()
        return result.error_code

    assert send_sized(0) == 0
    disk.room = 0
    assert send_sized(1) == KAFKA_STORAGE_ERROR
    disk.room = None
    assert [send_sized(2), send_sized(3)] == [KAFKA_STORAGE_ERROR] * 2
    assert [send_sized(1), send_sized(2), send_sized(3)] == [0] * 3


def test_notes_are_bounded_and_the_oldest_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pybroker.storage.rules.refused_batches.UNWRITTEN_PRODUCERS_MAX", 3)
    refused = RefusedBatches()
    for producer_id in range(5):
        refused.note(producer_id, 0, 0, INVALID_TXN_STATE)
    assert [refused.lend_error(producer_id, 0, 1, 1) for producer_id in range(5)] == [0, 0, *[INVALID_TXN_STATE] * 3]
