"""The construct descriptions of what lies on disk agree with the codec."""

from __future__ import annotations

from pybroker_protocol import construct_forms as forms
from pybroker_protocol.record_codec import NewRecord, build_batch, end_transaction_batch
from pybroker_protocol.records import BatchHeader, read_batch_header

HEADERS = [("name", b"value"), ("none", None)]


def test_header_reads_the_same() -> None:
    batch = build_batch(
        [(b"k", b"v")] * 3, timestamp_ms=5, base_offset=9, producer_id=1, producer_epoch=2, base_sequence=3
    )
    ours, theirs = read_batch_header(batch), forms.BATCH_HEADER.parse(batch)
    for name in BatchHeader._fields:
        if name != "attributes":
            assert getattr(ours, name) == theirs[name]


def test_records_read_the_same() -> None:
    new = [NewRecord(b"k", b"v" * 200, HEADERS, 77), NewRecord(None, None, (), 70), NewRecord(b"", b"", (), 80)]
    (batch,) = forms.LOG_FILE.parse(build_batch(new, timestamp_ms=0))
    parsed = forms.UNCOMPRESSED_RECORDS.parse(batch.payload)
    assert [(r.key, r.value, r.timestamp_delta, r.offset_delta) for r in parsed] == [
        (b"k", b"v" * 200, 0, 0),
        (None, None, -7, 1),
        (b"", b"", 3, 2),
    ]
    assert [(header.key, header.value) for header in parsed[0].headers] == HEADERS


def test_batch_is_built_the_same() -> None:
    batch = build_batch([NewRecord(b"k", None, HEADERS)], timestamp_ms=1000)
    assert forms.LOG_FILE.build(forms.LOG_FILE.parse(batch)) == batch


def test_log_is_parsed_batch_by_batch() -> None:
    first = build_batch([(b"k", b"v")], timestamp_ms=1)
    marker = end_transaction_batch(commit=True, coordinator_epoch=3, producer_id=1, producer_epoch=0, timestamp_ms=2)
    parsed = forms.LOG_FILE.parse(first + marker)
    assert [batch.position for batch in parsed] == [0, len(first)]
    assert parsed[1].header.attributes.control
    assert parsed[1].header.attributes.transactional
    (record,) = forms.UNCOMPRESSED_RECORDS.parse(parsed[1].payload)
    assert forms.CONTROL_RECORD_KEY.parse(record.key).type == 1
    assert forms.END_TRANSACTION_MARKER.parse(record.value).coordinator_epoch == 3


def test_sizes_of_index_entries_are_kafkas() -> None:
    assert forms.OFFSET_INDEX_ENTRY.sizeof() == 8
    assert forms.TIME_INDEX_ENTRY.sizeof() == 12
    assert forms.TRANSACTION_INDEX_ENTRY.sizeof() == 34
    assert forms.PRODUCER_SNAPSHOT_ENTRY.sizeof() == 46
