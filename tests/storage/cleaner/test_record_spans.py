"""The places of records in a batch, against the full decoder and against damage."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker_protocol.errors import ProtocolError
from pybroker_protocol.record_codec import NewRecord, build_batch, decode_records
from pybroker_protocol.record_spans import record_spans
from pybroker_protocol.records import HEADER_BYTES

RECORDS = st.lists(
    st.builds(
        NewRecord,
        st.none() | st.binary(max_size=200),
        st.none() | st.binary(max_size=9000),
        st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=2),
        st.integers(0, 2**41),
    ),
    min_size=1,
    max_size=70,
)


@given(RECORDS)
def test_spans_say_what_the_decoder_says_and_cut_the_section_without_gaps(records: list[NewRecord]) -> None:
    batch = build_batch(records, timestamp_ms=0)
    spans = record_spans(batch[HEADER_BYTES:], len(records))
    first = records[0].timestamp_ms or 0
    assert [(first + span[2], span[3], span[4], span[5]) for span in spans] == [
        (record.timestamp_ms, record.offset, record.key, record.value is not None) for record in decode_records(batch)
    ]
    assert [span[0] for span in spans] == [0, *(span[1] for span in spans[:-1])]
    assert spans[-1][1] == len(batch) - HEADER_BYTES


@given(RECORDS, st.data())
def test_damage_is_an_error_or_another_record_but_never_another_exception(
    records: list[NewRecord], data: st.DataObject
) -> None:
    section = bytearray(build_batch(records, timestamp_ms=0)[HEADER_BYTES:])
    section[data.draw(st.integers(0, len(section) - 1))] = data.draw(st.integers(0, 255))
    with suppress(ProtocolError):
        record_spans(bytes(section), len(records))


def test_section_that_is_cut_or_too_long_is_refused() -> None:
    section = build_batch([(b"k", b"v")] * 3, timestamp_ms=0)[HEADER_BYTES:]
    for bad in (section[:-1], section + b"\x00", b""):
        with pytest.raises(ProtocolError):
            record_spans(bad, 3)
