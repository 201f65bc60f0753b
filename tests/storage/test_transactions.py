"""Transactions in a log, case by case: verification, markers, what a failed write must not change (KIP-890)."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest
from harness.virtual_world import VirtualWorld

from pybroker.storage.files import os_file
from pybroker.storage.log import unreplicated_transactions
from pybroker.storage.results import (
    INVALID_PRODUCER_EPOCH,
    INVALID_TXN_STATE,
    KAFKA_STORAGE_ERROR,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    TRANSACTION_COORDINATOR_FENCED,
    AppendResult,
)
from pybroker.storage.rules.verification_state import TRANSACTION_VERIFICATIONS_PER_PARTITION
from tests.storage.batches import batch, end_marker
from tests.storage.logs import TRANSACTIONAL_FLAG, Client, Storage

LAST_EPOCH = (1 << 15) - 1


@pytest.fixture
def client(storage: Storage) -> Client:
    return Client(storage.log())


def unverified(client: Client, producer_id: int = 1, epoch: int = 0, sequence: int = 0) -> AppendResult:
    data = batch(attributes=TRANSACTIONAL_FLAG, producer_id=producer_id, producer_epoch=epoch, sequence=sequence)
    return client.send_now(data)


def written_by_the_broker(client: Client, producer_id: int = 1, epoch: int = 0) -> AppendResult:
    """The offsets of a transaction: without sequence numbers."""
    data = batch(attributes=TRANSACTIONAL_FLAG, producer_id=producer_id, producer_epoch=epoch)
    result = client.log.append_internal(data, 0, client.later.append)
    assert result is not None
    return result


def test_first_batch_of_a_transaction_must_be_verified_and_later_ones_need_not(client: Client) -> None:
    assert unverified(client).error_code == INVALID_TXN_STATE
    client.verify(1, 0)
    assert [unverified(client, sequence=sequence).error_code for sequence in range(3)] == [0, 0, 0]
    client.end(1, 0, commit=True)
    assert unverified(client, sequence=3).error_code == INVALID_TXN_STATE


def test_what_the_broker_writes_for_a_producer_must_be_verified_too(client: Client) -> None:
    assert written_by_the_broker(client).error_code == INVALID_TXN_STATE
    client.verify(1, 0)
    assert [written_by_the_broker(client).error_code for _ in range(2)] == [0, 0]
    client.end(1, 0, commit=True)
    assert written_by_the_broker(client).error_code == INVALID_TXN_STATE


@pytest.mark.parametrize("write", [unverified, written_by_the_broker])
def test_verification_holds_for_one_epoch(client: Client, write: Any) -> None:
    client.verify(1, 0)
    assert write(client, epoch=1).error_code == INVALID_TXN_STATE
    client.verify(1, 1)
    assert write(client, epoch=1).error_code == 0
    assert write(client, epoch=0).error_code == INVALID_PRODUCER_EPOCH


def test_marker_takes_a_verification_away_that_was_not_used(client: Client) -> None:
    verifications = client.log.producers.verifications
    asked = verifications.begin(1, 0, 0, False, 0)
    client.end(1, 0, commit=False)
    verifications.succeed(1, asked, 0)  # the answer comes after the transaction has ended
    assert unverified(client).error_code == INVALID_TXN_STATE


def test_batch_does_not_overtake_one_that_could_not_be_verified_at_first(client: Client) -> None:
    verifications = client.log.producers.verifications
    verifications.begin(1, 0, 0, False, 0)  # and the coordinator is not there
    client.verify(1, 0, sequence=1)
    assert unverified(client, sequence=1).error_code == OUT_OF_ORDER_SEQUENCE_NUMBER
    assert unverified(client, sequence=0).error_code == 0
    assert unverified(client, sequence=1).error_code == 0


@pytest.mark.parametrize(("supports_epoch_bump", "error_code"), [(True, OUT_OF_ORDER_SEQUENCE_NUMBER), (False, 0)])
def test_unknown_producer_of_the_second_protocol_begins_with_sequence_0(
    client: Client, supports_epoch_bump: bool, error_code: int
) -> None:
    client.verify(1, 0, sequence=5, supports_epoch_bump=supports_epoch_bump)
    assert unverified(client, sequence=5).error_code == error_code


def test_epoch_that_a_marker_began_begins_with_sequence_0(client: Client) -> None:
    client.send(attributes=TRANSACTIONAL_FLAG, producer_id=1, producer_epoch=0, sequence=0)
    client.end(1, 1, commit=True, version=2)
    client.verify(1, 1, sequence=5)
    assert unverified(client, epoch=1, sequence=5).error_code == OUT_OF_ORDER_SEQUENCE_NUMBER
    assert unverified(client, epoch=1, sequence=0).error_code == 0


def test_repeated_batch_of_an_ended_transaction_is_answered_with_its_offsets(client: Client) -> None:
    client.send(attributes=TRANSACTIONAL_FLAG, producer_id=1, producer_epoch=0, sequence=0)
    client.end(1, 0, commit=True)
    repeated = unverified(client)
    assert (repeated.error_code, repeated.base_offset, client.log.log_end_offset) == (0, 0, 2)


def test_plain_batch_inside_of_a_transaction_is_refused_in_a_new_epoch_too(client: Client) -> None:
    client.send(attributes=TRANSACTIONAL_FLAG, producer_id=1, producer_epoch=0, sequence=0)
    assert client.send_now(producer_id=1, producer_epoch=1, sequence=0).error_code == INVALID_TXN_STATE


@pytest.mark.parametrize(
    ("version", "epoch", "error_code"),
    [
        (0, 4, 0),
        (1, 4, 0),
        (1, 5, 0),
        (1, 3, INVALID_PRODUCER_EPOCH),
        (2, 4, INVALID_PRODUCER_EPOCH),
        (2, 3, INVALID_PRODUCER_EPOCH),
        (2, 5, 0),
    ],
)
def test_epoch_of_a_marker_by_the_version_of_its_transaction(
    client: Client, version: int, epoch: int, error_code: int
) -> None:
    client.send(attributes=TRANSACTIONAL_FLAG, producer_id=1, producer_epoch=4, sequence=0)
    assert client.end(1, epoch, commit=True, version=version).error_code == error_code
    assert (client.log.producers.producers[1].current_txn_first_offset == -1) == (error_code == 0)


def test_repeated_marker_is_written_again_and_ends_nothing(client: Client) -> None:
    client.send(attributes=TRANSACTIONAL_FLAG, producer_id=1, producer_epoch=4, sequence=0)
    for _ in range(2):
        assert client.end(1, 5, commit=False, version=2).error_code == 0
    assert len(client.log.aborted_transactions(0, 3)) == 1


def test_last_epoch_of_a_producer_may_end_its_transaction_itself(client: Client) -> None:
    client.send(attributes=TRANSACTIONAL_FLAG, producer_id=1, producer_epoch=LAST_EPOCH, sequence=0)
    assert client.end(1, LAST_EPOCH, commit=True, version=2).error_code == 0


def test_marker_of_a_former_coordinator_is_fenced(client: Client) -> None:
    assert client.end(1, 0, commit=True, coordinator_epoch=7).error_code == 0
    assert client.end(1, 0, commit=True, coordinator_epoch=6).error_code == TRANSACTION_COORDINATOR_FENCED
    assert client.end(1, 0, commit=True, coordinator_epoch=7).error_code == 0


def test_marker_waits_for_the_writes_in_flight_and_a_failed_one_leaves_the_transaction_open(
    storage: Storage, world: VirtualWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(storage.log(internal_segment_bytes=1 << 24))
    client.send(attributes=TRANSACTIONAL_FLAG, producer_id=1, producer_epoch=0, sequence=0)
    client.send(values=[bytes(200_000)])

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    results: list[AppendResult] = []
    marker = bytes(end_marker(1, 0, commit=False))
    assert client.log.append_end_transaction(marker, 0, 1, 0, results.append) is None
    with monkeypatch.context() as patch:
        patch.setattr(os_file, "pwrite", full)
        world.run()
    assert [result.error_code for result in client.later] == [KAFKA_STORAGE_ERROR]
    assert [result.error_code for result in results] == [KAFKA_STORAGE_ERROR]
    client.log.update_high_watermark(client.log.log_end_offset)
    assert client.log.last_stable_offset == 0
    assert client.log.aborted_transactions(0, 1) == []
    assert client.end(1, 0, commit=False).error_code == 0
    assert [one.first_offset for one in client.log.aborted_transactions(0, 2)] == [0]


def test_open_transaction_outlives_the_expiry_of_its_producer(client: Client, world: VirtualWorld) -> None:
    client.send(attributes=TRANSACTIONAL_FLAG, producer_id=1, producer_epoch=0, sequence=0)
    client.send(producer_id=2, producer_epoch=0, sequence=0)
    client.verify(3, 0)
    world.advance(2 * 86_400_000)
    assert list(client.log.producers.producers) == [1]
    assert not client.log.producers.verifications
    client.log.update_high_watermark(2)
    assert client.log.last_stable_offset == 0


def test_last_stable_offset_is_never_below_the_log_start(client: Client) -> None:
    client.send(attributes=TRANSACTIONAL_FLAG, producer_id=1, producer_epoch=0, sequence=0)
    client.send()
    client.log.update_high_watermark(2)
    assert client.log.increment_log_start_offset(1) == 0
    assert client.log.last_stable_offset == 1
    assert client.log.increment_log_start_offset(2) == 0
    assert client.log.last_stable_offset == 2


def test_transaction_decided_below_the_high_watermark_holds_no_reader_back_after_a_truncation(client: Client) -> None:
    client.send(attributes=TRANSACTIONAL_FLAG, producer_id=1, producer_epoch=0, sequence=0)
    client.end(1, 0, False)
    client.send()
    client.log.update_high_watermark(3)
    client.log.truncate_to(2)
    assert (client.log.high_watermark, client.log.last_stable_offset) == (2, 2)


@pytest.mark.parametrize("commit", [False, True])
def test_transaction_whose_marker_is_not_replicated_holds_readers_back_after_a_clean_stop(
    make_storage: Callable[..., Storage], commit: bool
) -> None:
    storage = make_storage()
    client = Client(storage.log())
    for i in range(2):  # one transaction before another, of one producer
        client.send(attributes=TRANSACTIONAL_FLAG, producer_id=1, producer_epoch=0, sequence=2 * i)
        client.fill(40)  # some segments
        client.send(attributes=TRANSACTIONAL_FLAG, producer_id=1, producer_epoch=0, sequence=2 * i + 1)
        client.end(1, 0, commit)
    client.log.update_high_watermark(85)
    assert client.log.last_stable_offset == 43
    storage.close()
    log = make_storage().log()
    assert (log.high_watermark, log.last_stable_offset, log.log_end_offset) == (85, 43, 86)
    log.update_high_watermark(86)
    assert log.last_stable_offset == 86


def test_search_for_transactions_whose_markers_are_not_replicated_is_bounded(
    make_storage: Callable[..., Storage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unreplicated_transactions, "UNREPLICATED_TRANSACTIONS_BYTES", 1000)
    monkeypatch.setattr(unreplicated_transactions, "_WINDOW_BYTES", 300)
    storage = make_storage()
    client = Client(storage.log())
    client.send(attributes=TRANSACTIONAL_FLAG, producer_id=1, producer_epoch=0, sequence=0)
    client.fill(40)
    client.send(attributes=TRANSACTIONAL_FLAG, producer_id=1, producer_epoch=0, sequence=1)
    client.end(1, 0, commit=True)
    client.log.update_high_watermark(42)
    storage.close()
    assert make_storage().log().last_stable_offset == 41, "of what lies further back nothing is known"


def test_parked_log_finds_its_open_transaction_again(storage: Storage, client: Client) -> None:
    client.send(attributes=TRANSACTIONAL_FLAG, producer_id=1, producer_epoch=0, sequence=0)
    client.log.update_high_watermark(1)
    opened_again = storage.shut_and_open(client.log)
    assert opened_again is not client.log
    assert opened_again.last_stable_offset == 0


def test_log_is_not_parked_while_the_coordinator_is_asked(storage: Storage, client: Client) -> None:
    client.log.producers.verifications.begin(1, 0, 0, False, 0)
    partition_log = storage.partition_log()
    partition_log.shut()
    assert partition_log.opened is client.log


def test_verifications_are_bounded(client: Client) -> None:
    for producer_id in range(TRANSACTION_VERIFICATIONS_PER_PARTITION + 10):
        client.verify(producer_id, 0)
    verifications = client.log.producers.verifications
    assert verifications.of(9) is None
    assert verifications.of(10) is not None


@pytest.mark.parametrize("value_bytes", [1, 200_000])
def test_first_batch_of_a_transaction_that_the_disk_does_not_take_can_be_sent_again(
    storage: Storage, world: VirtualWorld, monkeypatch: pytest.MonkeyPatch, value_bytes: int
) -> None:
    client = Client(storage.log(internal_segment_bytes=1 << 24))
    client.send()
    client.verify(1, 0)

    def answer() -> AppendResult:
        values = [bytes(value_bytes)]
        data = batch(values, attributes=TRANSACTIONAL_FLAG, producer_id=1, producer_epoch=0, sequence=0)
        result = client.send(data)
        world.run()
        return result or client.later.pop()

    def full(fd: int, data: Any, position: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full_disk:
        full_disk.setattr(os_file, "pwrite", full)
        assert answer().error_code == KAFKA_STORAGE_ERROR
    assert client.log.last_stable_offset == client.log.high_watermark
    assert (answer().error_code, list(client.log.producers.ongoing_txns)) == (0, [1])
