"""What the simulation's readers make of transactions is what clients of Kafka's make of them."""

from __future__ import annotations

import pytest

from tests.simulation.consuming import committed_records
from tests.simulation.model import CONTROL, TRANSACTIONAL, Batch, batches_of
from tests.storage.batches import batch, end_marker

PRODUCER = 7


@pytest.mark.parametrize(("is_commit", "read"), [(True, []), (False, [(2, b"later")])])
def test_an_abort_marker_ends_what_was_aborted_and_no_commit_marker_does(
    is_commit: bool, read: list[tuple[int, bytes]]
) -> None:
    marker = end_marker(PRODUCER, 0, is_commit)
    marker[:8] = (1).to_bytes(8, "big")
    log = [*_transactional(0, b"aborted"), *batches_of(bytes(marker)), *_transactional(2, b"later")]
    assert committed_records(log, [(PRODUCER, 0)]) == read


def test_a_marker_of_which_the_cleaner_has_left_no_record_ends_nothing() -> None:
    cleaned = batch((), base_offset=5, last_offset_delta=0, producer_id=PRODUCER, attributes=CONTROL | TRANSACTIONAL)
    assert committed_records([*batches_of(bytes(cleaned)), *_transactional(6, b"later")], []) == [(6, b"later")]


def _transactional(base_offset: int, value: bytes) -> list[Batch]:
    written = batch((value,), base_offset=base_offset, producer_id=PRODUCER, attributes=TRANSACTIONAL)
    return list(batches_of(bytes(written)))
