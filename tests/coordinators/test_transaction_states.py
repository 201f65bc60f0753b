"""The states of a transactional id, walked: what each request leads to in each state."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from pybroker.coordinators.transaction import decisions
from pybroker.coordinators.transaction.decisions import Decision
from pybroker.coordinators.transaction.transaction_metadata import (
    TransactionMetadata,
    TransactionState,
    completed,
    created,
    prepared,
    with_partitions,
)
from pybroker_protocol.errors import ErrorCode

PRODUCER, EPOCH, TIMEOUT_MS, NOW_MS = 7, 3, 1_000, 0
S = TransactionState
EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = STATES = [*S][:6]
DONE, BUSY, INVALID, FENCED, BUG = (
    ErrorCode.NONE,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.PRODUCER_FENCED,
    AssertionError,
)


def initialize(txn: TransactionMetadata) -> Decision:
    return decisions.initialize(txn, "id", TIMEOUT_MS, None, None, 2, NOW_MS)


def add(txn: TransactionMetadata) -> Decision:
    return decisions.add_partitions(txn, PRODUCER, EPOCH, [("t", 1)], 2, NOW_MS)


def end(commit: bool, version: int, epoch: int = EPOCH) -> Callable[[TransactionMetadata], Decision]:
    return lambda txn: decisions.end(txn, PRODUCER, epoch, commit, version, None, NOW_MS)


def fence(txn: TransactionMetadata) -> Decision:
    return decisions.fence(txn, None, 2, NOW_MS)


def complete(txn: TransactionMetadata) -> Decision:
    return completed(txn, NOW_MS)


# By request: where it leads from each state, or the error.  In the second version of the protocol an end raises the
# epoch, so that a request which comes again has the epoch before.
# fmt: off
TABLE: dict[Callable[[TransactionMetadata], Decision], tuple[Any, ...]] = {
    #            EMPTY     ONGOING         PREPARE_COMMIT   PREPARE_ABORT   COMPLETE_COMMIT COMPLETE_ABORT
    initialize: (EMPTY,    PREPARE_ABORT,  BUSY,            BUSY,           EMPTY,          EMPTY),
    add:        (ONGOING,  ONGOING,        BUSY,            BUSY,           ONGOING,        ONGOING),
    end(True, 0):  (INVALID, PREPARE_COMMIT, BUSY, BUSY, DONE,    INVALID),
    end(False, 0): (INVALID, PREPARE_ABORT,  BUSY, BUSY, INVALID, DONE),
    end(True, 2):  (INVALID, PREPARE_COMMIT, BUSY, BUSY, INVALID, INVALID),
    end(False, 2): (PREPARE_ABORT, PREPARE_ABORT, BUSY, BUSY, PREPARE_ABORT, PREPARE_ABORT),
    end(True, 2, EPOCH - 1):  (FENCED, FENCED, BUSY, BUSY, DONE,    INVALID),
    end(False, 2, EPOCH - 1): (FENCED, FENCED, BUSY, BUSY, INVALID, DONE),
    fence:      (BUG,      PREPARE_ABORT,  BUG,             BUG,            BUG,            BUG),
    complete:   (BUG,      BUG,            COMPLETE_COMMIT, COMPLETE_ABORT, BUG,            BUG),
}
# fmt: on


def metadata_in(state: TransactionState) -> TransactionMetadata:
    """Of a producer that came to the state by requests, with the epoch that it has there."""
    txn = created("id", PRODUCER, TIMEOUT_MS, NOW_MS)
    if state is not EMPTY:
        txn = with_partitions(txn, [("t", 0)], 2, NOW_MS)
    if state not in {EMPTY, ONGOING}:
        txn = prepared(txn, state in {PREPARE_COMMIT, COMPLETE_COMMIT}, 2, -1, NOW_MS)
    if state in {COMPLETE_COMMIT, COMPLETE_ABORT}:
        txn = completed(txn, NOW_MS)
    assert txn.state is state
    return txn._replace(producer_epoch=EPOCH)


@pytest.mark.parametrize(("row", "column"), list(itertools.product(range(len(TABLE)), range(len(STATES)))))
def test_each_request_leads_in_each_state_to_what_the_table_has(row: int, column: int) -> None:
    (request, expected), txn = list(TABLE.items())[row], metadata_in(STATES[column])
    if expected[column] is BUG:
        with pytest.raises(AssertionError):
            request(txn)
    else:
        decided = request(txn)
        assert (decided.state if isinstance(decided, TransactionMetadata) else decided) == expected[column]


def test_every_state_but_those_that_no_log_has_can_be_reached_and_left() -> None:
    moves = {
        (before, after)
        for row in TABLE.values()
        for before, after in zip(STATES, row, strict=True)
        if isinstance(after, TransactionState) and after is not before
    }
    assert {before for before, _ in moves} == {after for _, after in moves} == set(STATES)
