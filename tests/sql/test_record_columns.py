"""Record batches as columns: what the wire's own decoder finds record by record, many at a time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pybroker.sql.fetching.record_columns import (
    HEADERS,
    KEY,
    OFFSET,
    TIMESTAMP,
    VALUE,
    Position,
    next_offset,
    raw_batches,
)
from pybroker.sql.relations.cluster_port import Fetched
from pybroker_protocol.compression import Compression
from pybroker_protocol.errors import ProtocolError
from pybroker_protocol.record_codec import NewRecord, build_batch, decode_records, end_transaction_batch
from pybroker_protocol.records import HEADER_BYTES, batches, set_base_offset, set_crc, set_log_append_time

FIELDS = (KEY, VALUE, OFFSET, TIMESTAMP, HEADERS)
ALL = Position(0, 2**63 - 1)
NOON_MS = 1_769_860_800_000

texts = st.text(max_size=4)
bytes_or_null = st.none() | st.binary(max_size=200)
new_records = st.builds(
    NewRecord,
    key=bytes_or_null,
    value=bytes_or_null,
    headers=st.lists(st.tuples(texts, st.none() | st.binary(max_size=3)), max_size=2),
    timestamp_ms=st.none() | st.integers(0, NOON_MS),
)


def rows(fetched: Fetched, wanted: Position = ALL, fields: Sequence[str] = FIELDS) -> list[dict[str, object]]:
    return [row for batch in raw_batches(fetched, wanted, fields) for row in batch.to_pylist()]


def expected(log: bytes) -> list[dict[str, object]]:
    """The same by the wire's decoder."""
    found: list[dict[str, object]] = []
    for at, header in batches(log):
        if header.is_control:
            continue
        for record in decode_records(log[at : at + header.size_bytes]):
            headers = [
                {"key": name, "value": None if value is None else value.decode(errors="backslashreplace")}
                for name, value in record.headers
            ]
            stamp = None
            if record.timestamp_ms != -1:
                stamp = datetime.fromtimestamp(record.timestamp_ms / 1_000, UTC).replace(tzinfo=None)
            found.append(
                {
                    KEY: record.key,
                    VALUE: record.value,
                    OFFSET: record.offset,
                    TIMESTAMP: stamp,
                    HEADERS: headers,
                }
            )
    return found


def log_of(*parts: Sequence[NewRecord], compression: int = Compression.NONE) -> bytes:
    log, offset = b"", 0
    for part in parts:
        log += build_batch(part, timestamp_ms=NOON_MS, base_offset=offset, compression=compression)
        offset += len(part)
    return log


@settings(deadline=None)
@given(st.lists(st.lists(new_records, min_size=1, max_size=20), min_size=1, max_size=4), st.sampled_from(Compression))
def test_columns_are_what_the_wires_decoder_finds(parts: list[list[NewRecord]], compression: Compression) -> None:
    log = log_of(*parts, compression=compression)
    assert rows(Fetched(0, log, ())) == expected(log)


def plain(count: int, offset: int = 0) -> bytes:
    records = [NewRecord(b"k", b"v%d" % number, timestamp_ms=NOON_MS) for number in range(count)]
    return build_batch(records, timestamp_ms=NOON_MS, base_offset=offset)


def test_records_outside_of_the_wanted_offsets_are_left_out() -> None:
    log = plain(10) + plain(10, 10) + plain(10, 20)
    found = rows(Fetched(0, log, ()), Position(8, 12), [OFFSET, VALUE])
    assert [row[OFFSET] for row in found] == [8, 9, 10, 11]
    assert [row[VALUE] for row in found] == [b"v8", b"v9", b"v0", b"v1"]
    assert rows(Fetched(0, log, ()), Position(30, 40), [OFFSET]) == []


@pytest.mark.parametrize(("wanted", "count"), [(ALL, 20), (Position(5, 15), 10), (Position(20, 30), 0)])
def test_without_fields_the_records_are_counted(wanted: Position, count: int) -> None:
    log = plain(10) + plain(10, 10)
    assert sum(batch.num_rows for batch in raw_batches(Fetched(0, log, ()), wanted, ())) == count


def test_gaps_of_a_compacted_log_stay_gaps() -> None:
    log = plain(2) + plain(2, 100)
    assert [row[OFFSET] for row in rows(Fetched(0, log, ()), fields=[OFFSET])] == [0, 1, 100, 101]


def test_records_of_aborted_transactions_and_markers_are_left_out() -> None:
    def transactional(producer_id: int, offset: int, value: bytes) -> bytes:
        return build_batch(
            [(b"k", value)],
            timestamp_ms=NOON_MS,
            base_offset=offset,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )

    def marker(producer_id: int, offset: int, commit: bool) -> bytes:
        batch = bytearray(
            end_transaction_batch(
                commit=commit, coordinator_epoch=0, producer_id=producer_id, producer_epoch=0, timestamp_ms=NOON_MS
            )
        )
        set_base_offset(batch, offset)
        return bytes(batch)

    log = b"".join(
        [
            transactional(1, 0, b"aborted"),
            transactional(2, 1, b"committed"),
            plain(1, 2),
            marker(1, 3, False),
            transactional(1, 4, b"of the next"),
            marker(2, 5, True),
            marker(1, 6, True),
        ]
    )
    found = rows(Fetched(0, log, [(1, 0)]), fields=[VALUE])
    assert [row[VALUE] for row in found] == [b"committed", b"v0", b"of the next"]
    assert next_offset(Fetched(0, log, ())) == 7


def test_time_of_the_broker_is_that_of_all_records() -> None:
    log = bytearray(plain(3))
    set_log_append_time(log, NOON_MS + 5)
    found = {row[TIMESTAMP] for row in rows(Fetched(0, bytes(log), ()), fields=[TIMESTAMP])}
    assert found == {datetime.fromtimestamp((NOON_MS + 5) / 1_000, UTC).replace(tzinfo=None)}


def test_timestamp_that_is_none_or_beyond_those_of_the_engine_is_null() -> None:
    log = log_of([NewRecord(None, b"", timestamp_ms=-1), NewRecord(None, b"", timestamp_ms=2**62)])
    assert [row[TIMESTAMP] for row in rows(Fetched(0, log, ()), fields=[TIMESTAMP])] == [None, None]


def test_batch_that_is_cut_off_is_left_for_the_next_fetch() -> None:
    log = plain(2) + plain(2, 2)
    fetched = Fetched(0, log[:-1], ())
    assert next_offset(fetched) == 2
    assert len(rows(fetched)) == 2
    assert next_offset(Fetched(0, log[:10], ())) is None


def test_wrong_checksum_is_an_error() -> None:
    log = bytearray(plain(2))
    log[-1] ^= 1
    with pytest.raises(ProtocolError, match="another checksum"):
        rows(Fetched(0, bytes(log), ()))


@given(st.data())
@settings(deadline=None)
def test_damaged_records_are_an_error_or_other_records_and_nothing_else(data: st.DataObject) -> None:
    log = bytearray(log_of([NewRecord(b"key", b"value", [("h", b"x")], NOON_MS) for _ in range(5)]))
    for _ in range(data.draw(st.integers(1, 3))):
        log[data.draw(st.integers(HEADER_BYTES, len(log) - 1))] = data.draw(st.integers(0, 255))
    set_crc(log)
    try:
        found = list(raw_batches(Fetched(0, bytes(log), ()), ALL, FIELDS))
    except ProtocolError:
        return
    assert all(isinstance(batch, pa.RecordBatch) for batch in found)
