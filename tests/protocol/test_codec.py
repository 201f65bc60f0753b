"""The rules of encoding: what a version cannot express, what is handed on without a copy, and what is refused."""

from __future__ import annotations

import linecache
from typing import Any

import pytest

from pybroker_protocol import codec, messages
from pybroker_protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from pybroker_protocol.messages.headers import RequestHeader
from pybroker_protocol.messages.heartbeat import HeartbeatRequest
from pybroker_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from pybroker_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pybroker_protocol.messages.records_group import OffsetCommitValue

from .message_classes import with_defaults


def test_value_in_a_version_without_the_field_is_an_error() -> None:
    request = with_defaults(HeartbeatRequest, group_id="g", group_instance_id="i")
    with pytest.raises(ValueError, match="no field group_instance_id, which is 'i'"):
        codec.encode(request, 2)
    assert codec.decode(HeartbeatRequest, 3, codec.encode(request, 3)) == request


def test_value_of_an_ignorable_field_is_dropped_in_a_version_without_it() -> None:
    value = OffsetCommitValue(offset=1, leader_epoch=5, metadata="", commit_timestamp=2)
    assert codec.decode(OffsetCommitValue, 0, codec.encode(value, 0)).leader_epoch == -1


def test_null_in_a_version_that_has_none_is_an_error() -> None:
    with pytest.raises(ValueError, match="MetadataRequest version 0 cannot be encoded"):
        codec.encode(MetadataRequest(topics=None), 0)
    assert codec.decode(MetadataRequest, 1, codec.encode(MetadataRequest(topics=None), 1)).topics is None


@pytest.mark.parametrize(
    "fields",
    [
        {"group_id": "x" * 0x8000},
        {"group_id": "\ud800"},
        {"group_id": None},
        {"group_id": b"bytes"},
        {"generation_id": 2**31},
        {"generation_id": 1.5},
        {"generation_id": None},
    ],
    ids=str,
)
@pytest.mark.parametrize("version", [0, 4])
def test_value_that_the_type_cannot_hold_is_an_error(fields: dict[str, Any], version: int) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # of several kinds, each with a text of its own
        codec.encode(HeartbeatRequest(**fields), version)


def test_uuid_of_another_size_is_an_error() -> None:
    topic = MetadataRequestTopic(topic_id=b"short", name=None)
    with pytest.raises(ValueError, match="topic_id is not a uuid"):
        codec.encode(MetadataRequest(topics=[topic]), 12)


def test_undeclared_version_is_an_error() -> None:
    with pytest.raises(ValueError, match="HeartbeatRequest has no version 5"):
        codec.decoder(HeartbeatRequest, 5)
    with pytest.raises(ValueError, match="FetchRequest has no version 3"):
        codec.encoder(FetchRequest, 3)


def fetch_response(*records: Any) -> FetchResponse:
    partitions = [
        PartitionData(partition_index=i, error_code=0, high_watermark=9, records=r) for i, r in enumerate(records)
    ]
    return FetchResponse(throttle_time_ms=0, responses=[FetchableTopicResponse(topic="t", partitions=partitions)])


@pytest.mark.parametrize("version", [4, 12])
def test_records_are_handed_on_without_a_copy(version: int) -> None:
    first, second = memoryview(b"first batch"), b"second batch"
    parts: list[Any] = []
    codec.encoder(FetchResponse, version)(fetch_response(first, None, b"", second), parts)
    assert parts[1] is first
    assert parts[3] is second
    decoded = codec.decode(FetchResponse, version, b"".join(parts))
    assert [p.records for p in decoded.responses[0].partitions] == [b"first batch", None, b"", b"second batch"]


def test_parts_before_are_kept() -> None:
    parts: list[Any] = [b"header"]
    codec.encoder(HeartbeatRequest, 0)(with_defaults(HeartbeatRequest), parts)
    assert parts == [b"header", codec.encode(with_defaults(HeartbeatRequest), 0)]


def test_decoded_records_are_views_into_the_frame() -> None:
    data = PartitionProduceData(index=0, records=b"batch")
    request = ProduceRequest(
        transactional_id=None, acks=1, timeout_ms=1, topic_data=[TopicProduceData(name="t", partition_data=[data])]
    )
    frame = bytearray(b"head" + codec.encode(request, 9))
    with memoryview(frame) as view:
        decoded, end = codec.decoder(ProduceRequest, 9)(view, 4)
        assert end == len(frame)
        records = decoded.topic_data[0].partition_data[0].records
        assert isinstance(records, memoryview)
        frame[frame.index(b"batch")] = ord("m")
        assert bytes(records) == b"match"


def test_decoder_stops_where_the_message_ends() -> None:
    encoded = codec.encode(with_defaults(HeartbeatRequest, group_id="g"), 0)
    message, end = codec.decoder(HeartbeatRequest, 0)(memoryview(b"ab" + encoded + b"cd"), 2)
    assert message == with_defaults(HeartbeatRequest, group_id="g")
    assert end == 2 + len(encoded)


def test_lists_of_decoded_messages_are_not_shared() -> None:
    first, second = (codec.decode(FetchRequest, 4, codec.encode(with_defaults(FetchRequest), 4)) for _ in range(2))
    first.topics.append(with_defaults(FetchTopic))
    first.forgotten_topics_data.append(with_defaults(ForgottenTopic))
    assert second == with_defaults(FetchRequest)


def test_long_lengths_take_more_bytes_in_flexible_versions() -> None:
    for size in (126, 127, 128, 0x3FFE, 0x3FFF, 0x7FFF):
        request = with_defaults(HeartbeatRequest, group_id="x" * size)
        assert codec.decode(HeartbeatRequest, 4, codec.encode(request, 4)) == request
    topics = [MetadataRequestTopic(name=str(i)) for i in range(300)]
    assert codec.decode(MetadataRequest, 9, codec.encode(MetadataRequest(topics=topics), 9)).topics == topics


def test_client_id_keeps_its_old_encoding_in_the_flexible_header() -> None:
    header = RequestHeader(request_api_key=1, request_api_version=2, correlation_id=3, client_id="cl")
    assert codec.encode(header, 2) == b"\x00\x01\x00\x02\x00\x00\x00\x03\x00\x02cl\x00"


def test_generated_source_is_there_for_tracebacks() -> None:
    codec.decoder(HeartbeatRequest, 1)
    assert "def decode(frame, pos):\n" in linecache.getlines("<pybroker_protocol: decode HeartbeatRequest version 1>")


def test_response_header_of_api_versions_never_has_tagged_fields() -> None:
    assert [messages.response_header_version(18, version) for version in range(5)] == [0] * 5
    assert [messages.request_header_version(18, version) for version in range(5)] == [1, 1, 1, 2, 2]
    assert messages.response_header_version(3, 8) == 0
    assert messages.response_header_version(3, 9) == 1


def test_unknown_key_is_a_key_error() -> None:
    for key in (4, 7, 95, -1):
        with pytest.raises(KeyError):
            messages.request_class(key)


def test_flexible_versions_are_told() -> None:
    assert not codec.is_flexible(MetadataResponse, 8)
    assert codec.is_flexible(MetadataResponse, 9)
