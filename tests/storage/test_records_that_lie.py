"""Records that are not what their batch says are refused wherever records are looked at, and leave nothing behind."""

from __future__ import annotations

from typing import Any

import pytest
from comparator.lying_records import CODECS, lying_batches
from harness.virtual_world import VirtualWorld

from pybroker.storage.log.log import Log
from pybroker.storage.results import INVALID_RECORD, AppendResult
from pybroker_protocol.record_codec import decode_records
from pybroker_protocol.records import read_batch_header
from tests.storage.logs import Client, Storage, read

# What is odd and can be read all the same.
ODD = {
    "a value of length -2",
    "a header's value of length -2",
    "a header's key that is no text",
    "attributes that nobody uses",
    "a length of more bytes than it needs",
    "a timestamp of ten bytes",
    "a maximum time too early",
    "a maximum time too late",
}
BEHIND_THE_STREAM = {"gzip": {"bytes behind the compressed ones"}, "lz4": {"bytes behind the compressed ones"}}
BEHIND_THE_STREAM["lz4"] |= {"compressed bytes twice"}
BATCHES = [
    pytest.param(bytes(records), lie in ODD | BEHIND_THE_STREAM.get(codec, set()), id=f"{codec}: {lie}")
    for codec, number in {"none": 0, **CODECS}.items()
    for lie, records in lying_batches(number).items()
    if lie != "a key of length -2"  # no key: fine, or not, by the topic
]
LOOKED_INTO: dict[str, dict[str, Any]] = {
    "validated": {"pybroker_validate_records": True},
    "compacted": {"cleanup_policy": frozenset({"compact"})},
    "rewritten": {"compression_type": "zstd"},
    "bounded in time": {"message_timestamp_before_max_ms": 1 << 60},
}


@pytest.fixture(params=LOOKED_INTO)
def log(request: pytest.FixtureRequest, storage: Storage) -> Log:
    return storage.log(**LOOKED_INTO[request.param])


def outcome(log: Log, world: VirtualWorld, data: bytes) -> AppendResult:
    client = Client(log)
    result = client.send(bytearray(data))
    if result is None:
        world.run()
        [result] = client.later
    return result


@pytest.mark.parametrize(("data", "is_taken"), BATCHES)
def test_records_that_lie_are_refused_and_odd_ones_taken(
    log: Log, world: VirtualWorld, data: bytes, is_taken: bool
) -> None:
    result = outcome(log, world, data)
    if is_taken:
        assert (result.error_code, result.base_offset) == (0, 0)
    else:
        assert (result.error_code, result.base_offset, list(result.record_errors)) == (INVALID_RECORD, -1, [])
        assert log.next_offset == log.log_end_offset == 0
        assert log.active.size == 0
        sound = bytearray(lying_batches(0)["a maximum time too late"])
        assert Client(log).send_now(sound).base_offset == 0


@pytest.mark.parametrize("codec", CODECS)
def test_rewritten_records_are_those_that_were_sent(storage: Storage, world: VirtualWorld, codec: str) -> None:
    sent = lying_batches(CODECS[codec])["a maximum time too late"]
    for target in ("uncompressed", *CODECS):
        log = storage.log(f"{codec}-{target}", compression_type=target)
        assert outcome(log, world, sent).error_code == 0
        assert list(decode_records(read(log, 0)[0][2])) == list(decode_records(sent))


# What a walk by the records' lengths and times alone does not come to see.
INSIDE_OF_RECORDS = {
    "a header too few",
    "a header too many",
    "a header without a key",
    "a header's key behind its record",
    "a header's value behind its record",
    "a key behind its record",
    "a key of length -2",
    "a negative count of headers",
    "a record without headers' count",
    "a value behind its record",
    "an offset of int32's end",
    "an offset of six bytes",
    "bytes behind the headers",
    "negative offsets",
    "offsets behind the last one",
    "offsets from one on",
    "offsets that descend",
    "offsets with a gap",
    "one offset for all",
    "two billion headers",
}


@pytest.mark.parametrize(("codec", "number"), {"none": 0, **CODECS}.items())
def test_only_what_is_inside_of_a_record_gets_into_a_plain_topic(
    storage: Storage, world: VirtualWorld, codec: str, number: int
) -> None:
    """The price of no longer look, and what is always seen: records that are not as many or as long as is said."""
    batches = lying_batches(number)
    taken = {
        lie
        for lie, records in batches.items()
        if not outcome(storage.log(f"{lie.replace(' ', '-')}-{number}"), world, records).error_code
    }
    assert taken == (ODD | INSIDE_OF_RECORDS | BEHIND_THE_STREAM.get(codec, set())) & set(batches)


@pytest.mark.parametrize("settings", [{}, *LOOKED_INTO.values()], ids=["plain", *LOOKED_INTO])
@pytest.mark.parametrize("lie", ["a maximum time too early", "a maximum time too late"])
@pytest.mark.parametrize("number", [0, *CODECS.values()])
def test_maximum_time_that_lies_is_corrected(
    storage: Storage, world: VirtualWorld, number: int, lie: str, settings: dict[str, Any]
) -> None:
    log = storage.log(**settings)
    assert outcome(log, world, lying_batches(number)[lie]).error_code == 0
    stored = read(log, 0)[0][2]
    assert read_batch_header(stored).max_timestamp == max(record.timestamp_ms for record in decode_records(stored))
