"""The records of ``__transaction_state``: Kafka's bytes, both ways."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.coordinators.transaction.transaction_metadata import NO_EPOCH, TransactionMetadata, TransactionState
from pybroker.coordinators.transaction.transaction_records import (
    read_transaction,
    read_transactional_id,
    transaction_key,
    transaction_record,
)
from pybroker_protocol.errors import ProtocolError

int64s = st.integers(-(2**63), 2**63 - 1)
int32s = st.integers(-(2**31), 2**31 - 1)
int16s = st.integers(-(2**15), 2**15 - 1)
names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=50)
open_or_done = st.sampled_from([state for state in TransactionState if state != TransactionState.EMPTY])
partition_sets = st.frozensets(st.tuples(names, int32s), max_size=6)

# By the schema of TransactionLogValue, field by field.
KEY = bytes.fromhex("0000 0001 78")
VALUE_0 = bytes.fromhex(
    "0000"  # version
    "00000000000003e8 0007 0000ea60 01"  # producer id 1000, epoch 7, time-out, Ongoing
    "00000001 0001 74 00000002 00000000 00000003"  # topic t, partitions 0 and 3
    "0000018bcfe56800 0000018bcfe56801"  # latest update, begin
)
VALUE_1 = bytes.fromhex(
    "0001"
    "00000000000003e8 0007 0000ea60 01"
    "02 02 74 03 00000000 00000003 00"
    "0000018bcfe56800 0000018bcfe56801"
    "02"  # tagged fields, those that are not their default
    "00 08 00000000000003e7"  # previous producer id 999
    "02 02 0002"  # client transaction version
)
TRANSACTION = TransactionMetadata(
    "x", 1000, 999, -1, 7, -1, 60_000, TransactionState.ONGOING, frozenset({("t", 3), ("t", 0)}),
    0x18BCFE56801, 0x18BCFE56800, 2,
)  # fmt: skip


@pytest.mark.parametrize(("transaction_version", "value"), [(0, VALUE_0), (1, VALUE_1), (2, VALUE_1)])
def test_a_transaction_is_written_by_kafkas_schema(transaction_version: int, value: bytes) -> None:
    assert transaction_record(TRANSACTION, transaction_version) == (KEY, value)


def test_an_empty_transaction_has_no_list_of_partitions() -> None:
    empty = TRANSACTION._replace(state=TransactionState.EMPTY, partitions=frozenset())
    _, value = transaction_record(empty, 0)
    assert value == VALUE_0[:16] + b"\0" + b"\xff\xff\xff\xff" + VALUE_0[-16:]


def test_version_0_keeps_nothing_that_came_later() -> None:
    assert read_transaction("x", VALUE_0) == TRANSACTION._replace(previous_producer_id=-1, client_version=0)


@given(
    st.builds(
        TransactionMetadata,
        names, int64s, int64s, int64s, int16s, st.just(NO_EPOCH), int32s, open_or_done, partition_sets, int64s, int64s,
        int16s,
    )
)  # fmt: skip
def test_what_was_written_is_read_again(txn: TransactionMetadata) -> None:
    key, value = transaction_record(txn, 2)
    assert read_transactional_id(key) == txn.transactional_id
    assert read_transaction(txn.transactional_id, value) == txn


@pytest.mark.parametrize("key", [b"", b"\0", b"\0\x01\0\x01x"])
def test_keys_of_unknown_kinds_are_passed_over(key: bytes) -> None:
    assert read_transactional_id(key) is None


@pytest.mark.parametrize("value", [b"", b"\0", b"\0\x02" + VALUE_1[2:], VALUE_1[:20]])
def test_a_value_that_cannot_be_read_is_an_error(value: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_transaction("x", value)


def test_a_key_is_short() -> None:
    assert transaction_key("x") == KEY
