"""``pybroker dump-log``: every kind of file, intact and damaged."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from pybroker.cli.records.log_files import CorruptFile, is_known, read_entries
from pybroker.cli.records.record_decoders import decoder_of
from pybroker_protocol.codec import encode
from pybroker_protocol.compression import Compression
from pybroker_protocol.construct_forms import PRODUCER_SNAPSHOT_FILE
from pybroker_protocol.data_records import encode_key, encode_value
from pybroker_protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from pybroker_protocol.messages.records_control import LeaderChangeMessage
from pybroker_protocol.messages.records_group import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from pybroker_protocol.messages.records_transaction import PartitionsSchema, TransactionLogKey, TransactionLogValue
from pybroker_protocol.record_codec import ControlRecordType, NewRecord, build_batch, control_key, end_transaction_batch
from tests.cli.command import CommandLine

FIRST = build_batch([(b"k", b"v"), (None, b"w")], timestamp_ms=1000)
SECOND = build_batch(
    [NewRecord(b"\xff", None, [("h", b"1")])], timestamp_ms=2000, base_offset=2, compression=Compression.ZSTD
)
MARKER = end_transaction_batch(commit=True, coordinator_epoch=3, producer_id=7, producer_epoch=0, timestamp_ms=3000)


def entries(path: Path, *, topic: str | None = None) -> list[dict[str, Any]]:
    """All entries of a file; with a topic the records too."""
    return list(read_entries(path, None if topic is None else decoder_of(topic)))


def write(directory: Path, name: str, data: bytes) -> Path:
    """A file of a partition."""
    path = directory / name
    path.write_bytes(data)
    return path


def test_a_segment_is_listed_batch_by_batch(tmp_path: Path) -> None:
    first, second = entries(write(tmp_path, "0.log", FIRST + SECOND))
    assert (first["base_offset"], first["last_offset"], first["position"], first["crc_valid"]) == (0, 1, 0, True)
    assert (second["base_offset"], second["position"], second["compression"]) == (2, len(FIRST), "zstd")


def test_deep_shows_the_records(tmp_path: Path) -> None:
    first, second = entries(write(tmp_path, "0.log", FIRST + SECOND), topic="flights")
    assert first["records"] == [
        {"offset": 0, "timestamp": 1000, "key": "k", "value": "v"},
        {"offset": 1, "timestamp": 1000, "key": None, "value": "w"},
    ]
    assert second["records"] == [
        {
            "offset": 2,
            "timestamp": 2000,
            "key_base64": "/w==",
            "value": None,
            "headers": [{"key": "h", "value": "1"}],
        }
    ]


def test_control_records_are_named(tmp_path: Path) -> None:
    [batch] = entries(write(tmp_path, "0.log", MARKER), topic="flights")
    assert batch["is_control"]
    assert batch["records"] == [{"offset": 0, "timestamp": 3000, "control": "COMMIT", "coordinator_epoch": 3}]


def test_control_records_of_the_metadata_log_are_decoded_and_bad_ones_shown_as_bytes(tmp_path: Path) -> None:
    leader = LeaderChangeMessage(version=1, leader_id=5, voters=[], granting_voters=[])
    change = control_key(ControlRecordType.LEADER_CHANGE)
    marker = control_key(ControlRecordType.COMMIT)
    records = [(change, encode(leader, 1)), (change, b"\x00\x63"), (marker, b"\x00"), (b"\x00\x00\x00\x4d", b"new")]
    batch = build_batch(records, timestamp_ms=0, is_control=True)
    [entry] = entries(write(tmp_path, "0.log", batch), topic="__cluster_metadata")
    known, *damaged, unknown = entry["records"]
    assert known["control"] == "LEADER_CHANGE"
    assert known["value"] == {"version": 1, "leader_id": 5, "voters": [], "granting_voters": []}
    assert ["undecodable" in record for record in damaged] == [True, True]
    assert unknown["control"] == "UNKNOWN(77)"


def test_states_are_named_and_a_value_shows_what_its_version_has(tmp_path: Path) -> None:
    value = TransactionLogValue(
        producer_id=7,
        producer_epoch=2,
        transaction_timeout_ms=1000,
        transaction_status=1,
        transaction_partitions=[PartitionsSchema(topic="t", partition_ids=[0])],
        transaction_last_update_timestamp_ms=6,
        transaction_start_timestamp_ms=5,
        next_producer_epoch=-1,
    )
    key = encode_key(TransactionLogKey(transactional_id="tx"))
    batch = build_batch([(key, encode_value(value, version)) for version in (0, 1)], timestamp_ms=0)
    [entry] = entries(write(tmp_path, "0.log", batch), topic="__transaction_state")
    for version, record in enumerate(entry["records"]):
        assert record["version"] == version
        assert record["value"] == {
            "producer_id": 7,
            "producer_epoch": 2,
            "transaction_timeout_ms": 1000,
            "transaction_status": "Ongoing",
            "transaction_partitions": [{"topic": "t", "partition_ids": [0]}],
            "transaction_last_update_timestamp_ms": 6,
            "transaction_start_timestamp_ms": 5,
        }


def test_what_consumers_tell_each_other_is_decoded_or_left_as_it_is(tmp_path: Path) -> None:
    subscription = b"\x00\x01" + encode(ConsumerProtocolSubscription(topics=["t"], user_data=None), 1)
    members = [
        MemberMetadata(
            member_id="m",
            group_instance_id=None,
            client_id="c",
            client_host="h",
            rebalance_timeout=1,
            session_timeout=1,
            subscription=data,
            assignment=b"",
        )
        for data in (subscription, b"\x00\x01\xff")
    ]
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=1,
        protocol="range",
        leader="m",
        current_state_timestamp=0,
        members=members,
    )
    batch = build_batch([(encode_key(GroupMetadataKey(group="g")), encode_value(value, 3))], timestamp_ms=0)
    [entry] = entries(write(tmp_path, "0.log", batch), topic="__consumer_offsets")
    decoded, opaque = entry["records"][0]["value"]["members"]
    assert decoded["subscription"] == {"topics": ["t"], "user_data": None, "owned_partitions": []}
    assert (opaque["subscription"], opaque["assignment"]) == ("AAH/", "")


def test_files_of_a_cleaner_are_read_when_named_and_left_out_of_a_directory(tmp_path: Path) -> None:
    partition = tmp_path / "flights-0"
    partition.mkdir()
    for name in ("0.log", "0.log.cleaned", "0.log.swap", "0.log.deleted"):
        assert is_known(write(partition, name, FIRST))
    assert entries(write(partition, "0.log.cleaned", SECOND))[0]["base_offset"] == 2
    cli = CommandLine("")
    assert len(cli.lines("dump-log", str(partition), "--json")) == 1
    assert len(cli.lines("dump-log", str(partition / "0.log.swap"), "--json")) == 1


def test_aborted_transactions_stand_in_the_order_of_their_markers(tmp_path: Path) -> None:
    def aborted(first_offset: int, last_offset: int) -> bytes:
        return struct.pack(">hqqqq", 0, 7, first_offset, last_offset, first_offset)

    good = write(tmp_path, "100.txnindex", aborted(50, 105) + aborted(101, 109))
    assert [entry["last_offset"] for entry in entries(good)] == [105, 109]
    for bad in (aborted(101, 109) + aborted(50, 105), aborted(50, 60)):
        with pytest.raises(CorruptFile):
            entries(write(tmp_path, "100.txnindex", bad))


def test_committed_offsets_are_decoded_and_the_unknown_is_shown_as_bytes(tmp_path: Path) -> None:
    key = encode_key(OffsetCommitKey(group="g", topic="t", partition=1))
    value = encode_value(OffsetCommitValue(offset=42, metadata="m", commit_timestamp=5), 3)
    batch = build_batch([(key, value), (key, None), (b"\x7f\xffnew", b"x"), (key, b"\x00")], timestamp_ms=0)
    [entry] = entries(write(tmp_path, "0.log", batch), topic="__consumer_offsets")
    commit, tombstone, unknown, damaged = entry["records"]
    assert commit["type"] == "OffsetCommit"
    assert commit["key"] == {"group": "g", "topic": "t", "partition": 1}
    assert (commit["value"]["offset"], commit["value"]["metadata"]) == (42, "m")
    assert tombstone["value"] is None
    assert "type" not in unknown
    assert "undecodable" in damaged


@pytest.mark.parametrize(
    ("data", "good_batches"),
    [
        (FIRST + SECOND[:-1], 1),
        (FIRST + SECOND[:30], 1),
        (FIRST + bytes(100), 1),
        (FIRST[:-1] + b"!" + SECOND, 0),
        (SECOND + FIRST, 1),
        (FIRST[:16] + b"\x01" + FIRST[17:], 0),
        (FIRST[:8] + struct.pack(">i", -5) + FIRST[12:], 0),
    ],
    ids=["torn batch", "torn header", "zeros", "flipped byte", "offsets go back", "old magic", "negative length"],
)
def test_a_damaged_segment_is_corrupt_after_its_good_batches(tmp_path: Path, data: bytes, good_batches: int) -> None:
    seen: list[dict[str, Any]] = []
    with pytest.raises(CorruptFile):
        seen.extend(read_entries(write(tmp_path, "0.log", data), None))
    assert sum(entry["crc_valid"] for entry in seen) == good_batches


def test_an_empty_segment_is_intact(tmp_path: Path) -> None:
    assert entries(write(tmp_path, "0.log", b"")) == []


def test_indexes_are_read_up_to_their_preallocated_zeros(tmp_path: Path) -> None:
    write(tmp_path, "00000000000000000100.log", b"")
    times = write(tmp_path, "00000000000000000100.timeindex", struct.pack(">qi", 1000, 256) + bytes(24))
    assert entries(times) == [{"timestamp": 1000, "offset": 356}]
    aborted = write(tmp_path, "00000000000000000100.txnindex", struct.pack(">hqqqq", 0, 7, 100, 105, 99))
    assert entries(aborted) == [
        {"version": 0, "producer_id": 7, "first_offset": 100, "last_offset": 105, "last_stable_offset": 99}
    ]


def test_an_offset_index_points_at_the_batches_of_its_segment(tmp_path: Path) -> None:
    write(tmp_path, "0.log", FIRST + SECOND)
    good = struct.pack(">iiii", 1, 0, 2, len(FIRST))
    assert entries(write(tmp_path, "0.index", good + bytes(16))) == [
        {"offset": 1, "position": 0},
        {"offset": 2, "position": len(FIRST)},
    ]
    for bad in (struct.pack(">ii", 2, 0), struct.pack(">ii", 1, 10**6), good[8:] + good[:8], good[:-1]):
        with pytest.raises(CorruptFile):
            entries(write(tmp_path, "0.index", bad))


def test_a_producer_snapshot_is_checked_by_its_checksum(tmp_path: Path) -> None:
    producer = {
        "producer_id": 7,
        "producer_epoch": 1,
        "last_sequence": 9,
        "last_offset": 42,
        "offset_delta": 2,
        "timestamp": 1000,
        "coordinator_epoch": 0,
        "current_txn_first_offset": -1,
    }
    body = PRODUCER_SNAPSHOT_FILE.build({"crc": 0, "producers": [producer]})
    good = body[:2] + struct.pack(">I", crc32c(body[6:])) + body[6:]
    assert entries(write(tmp_path, "43.snapshot", good)) == [producer]
    for bad in (good[:-1], good[:-1] + b"!", b"", b"\x00\x02" + good[2:]):
        with pytest.raises(CorruptFile):
            entries(write(tmp_path, "43.snapshot", bad))


def test_checkpoints_hold_as_many_entries_as_they_say(tmp_path: Path) -> None:
    offsets = write(tmp_path, "recovery-point-offset-checkpoint", b"0\n1\nflights 3 42\n")
    assert entries(offsets) == [{"topic": "flights", "partition": 3, "offset": 42}]
    epochs = write(tmp_path, "leader-epoch-checkpoint", b"0\n2\n0 0\n3 42\n")
    assert entries(epochs) == [{"epoch": 0, "start_offset": 0}, {"epoch": 3, "start_offset": 42}]
    for bad in (b"", b"1\n0\n", b"0\n2\n0 0\n", b"0\n1\n0 0 0\n", b"0\n2\n3 0\n1 5\n", b"0\n1\na b\n"):
        with pytest.raises(CorruptFile):
            entries(write(tmp_path, "leader-epoch-checkpoint", bad))


def test_properties_are_names_and_values(tmp_path: Path) -> None:
    write(tmp_path, "partition.metadata", b"version: 0\ntopic_id: abc\n")
    assert entries(tmp_path / "partition.metadata") == [
        {"name": "version", "value": "0"},
        {"name": "topic_id", "value": "abc"},
    ]
    assert not is_known(tmp_path / "notes.txt")


def test_the_command_goes_on_after_a_corrupt_file_and_fails_at_the_end(tmp_path: Path) -> None:
    cli = CommandLine("")
    partition = tmp_path / "flights-0"
    partition.mkdir()
    write(partition, "0.log", FIRST)
    write(partition, "2.log", SECOND)
    lines = [json.loads(line) for line in cli.lines("dump-log", str(partition), "--deep", "--json")]
    assert [line["base_offset"] for line in lines] == [0, 2]
    assert "| offset: 0 timestamp: 1000 key: k value: v" in cli.lines("dump-log", "--deep", str(partition / "0.log"))

    write(partition, "0.log", FIRST[:-1])
    finished = cli.run("dump-log", str(partition), "--json")
    assert finished.returncode == 1
    assert json.loads(finished.stdout)["base_offset"] == 2
    assert "1 of 2 files are corrupt" in finished.stderr.decode()


def test_a_file_that_is_none_of_a_logs_is_refused(tmp_path: Path) -> None:
    stranger = write(tmp_path, "notes.txt", b"")
    for path in (stranger, tmp_path / "missing.log"):
        assert CommandLine("").run("dump-log", str(path)).returncode == 1
