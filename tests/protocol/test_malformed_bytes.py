"""Whatever bytes arrive, a decoder answers with a message or a ProtocolError, and soon."""

from __future__ import annotations

import tracemalloc
from contextlib import suppress
from random import Random
from struct import pack

import pytest

from pybroker_protocol import codec
from pybroker_protocol.errors import ProtocolError
from pybroker_protocol.messages.consumer_protocol import ConsumerProtocolAssignment
from pybroker_protocol.messages.create_topics import CreateTopicsRequest
from pybroker_protocol.messages.describe_groups import DescribeGroupsRequest
from pybroker_protocol.messages.fetch import FetchRequest, FetchResponse
from pybroker_protocol.messages.heartbeat import HeartbeatRequest
from pybroker_protocol.messages.metadata import MetadataRequest
from pybroker_protocol.messages.produce import ProduceRequest
from pybroker_protocol.schema import Message

from .message_classes import case_id, message_classes, versions_of, with_defaults
from .random_messages import random_message

MUTATIONS = 30
LENGTHS_THAT_LIE = (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff\xff\xff\xff\x0f", b"\xff" * 9)


def decodes_or_is_refused(cls: type[Message], version: int, data: bytes) -> None:
    with suppress(ProtocolError):
        codec.decode(cls, version, data)


def mutate(random: Random, data: bytearray) -> bytes:
    """Change some bytes, put a lying length somewhere, or cut or repeat a piece."""
    at = random.randrange(len(data) + 1)
    match random.randrange(4):
        case 0:
            for _ in range(random.randrange(1, 4)):
                data[random.randrange(len(data))] = random.randrange(256)
        case 1:
            lie = random.choice(LENGTHS_THAT_LIE)
            data[at : at + len(lie)] = lie
        case 2:
            del data[at : at + random.randrange(1, 9)]
        case 3:
            data[at:at] = random.randbytes(random.randrange(1, 9))
    return bytes(data)


@pytest.mark.parametrize("cls", message_classes().values(), ids=case_id)
def test_mutated_bytes_are_decoded_or_refused(cls: type[Message], request: pytest.FixtureRequest) -> None:
    random = Random(request.node.name)
    for version in versions_of(cls):
        encoded = codec.encode(random_message(random, cls, version), version)
        for _ in range(MUTATIONS if encoded else 0):
            decodes_or_is_refused(cls, version, mutate(random, bytearray(encoded)))


@pytest.mark.parametrize("cls", message_classes().values(), ids=case_id)
def test_truncated_bytes_are_refused(cls: type[Message], request: pytest.FixtureRequest) -> None:
    random = Random(request.node.name)
    version = versions_of(cls)[-1]
    encoded = codec.encode(random_message(random, cls, version), version)
    for size in range(min(len(encoded), 200)):
        with pytest.raises(ProtocolError):
            codec.decode(cls, version, encoded[:size])


@pytest.mark.parametrize("cls", message_classes().values(), ids=case_id)
def test_bytes_after_the_end_are_refused(cls: type[Message]) -> None:
    version = versions_of(cls)[-1]
    with pytest.raises(ProtocolError, match="after the end"):
        codec.decode(cls, version, codec.encode(cls(), version) + b"\x00")


@pytest.mark.parametrize("cls", message_classes().values(), ids=case_id)
def test_noise_is_decoded_or_refused(cls: type[Message], request: pytest.FixtureRequest) -> None:
    random = Random(request.node.name)
    for size in (0, 1, 2, 5, 17, 64, 300):
        decodes_or_is_refused(cls, versions_of(cls)[-1], random.randbytes(size))


def peak_bytes(cls: type[Message], version: int, data: bytes) -> int:
    """How much memory the refusal of ``data`` takes."""
    codec.decoder(cls, version)
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            codec.decode(cls, version, data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("cls", "version", "data"),
    [
        (MetadataRequest, 1, pack(">i", 2**31 - 1) + bytes(100)),
        (MetadataRequest, 12, b"\xff\xff\xff\xff\x07" + bytes(100)),
        (CreateTopicsRequest, 4, pack(">i", 100_000_000) + bytes(1000)),
        (ProduceRequest, 3, pack(">hhii", -1, 1, 1000, 2**30) + bytes(50)),
        (FetchResponse, 4, pack(">ii", 0, 2**31 - 1) + bytes(50)),
    ],
)
def test_count_that_the_frame_cannot_hold_is_refused_before_anything_is_allocated(
    cls: type[Message], version: int, data: bytes
) -> None:
    assert peak_bytes(cls, version, data) < 100_000


def test_records_length_that_lies_is_refused_not_cut() -> None:
    one_partition = pack(">hhi", -1, 1, 1000) + pack(">i", 1) + pack(">h1s", 1, b"t") + pack(">ii", 1, 0)
    assert codec.decode(ProduceRequest, 3, one_partition + pack(">i3s", 3, b"abc")).topic_data
    with pytest.raises(ProtocolError, match="records"):
        codec.decode(ProduceRequest, 3, one_partition + pack(">i3s", 4, b"abc"))


def test_request_with_more_than_a_million_elements_is_refused() -> None:
    elements = 1_000_001
    head = codec.encode(with_defaults(FetchRequest), 4)[:-4]
    with pytest.raises(ProtocolError, match="1000000 elements"):
        codec.decode(FetchRequest, 4, head + pack(">i", elements) + bytes(6 * elements))


def test_elements_of_nested_arrays_count_together() -> None:
    head = codec.encode(with_defaults(FetchRequest), 7)[:-8]
    forgotten = pack(">h1si", 1, b"t", 400_000) + bytes(4 * 400_000)
    two = head + pack(">i", 0) + pack(">i", 2) + 2 * forgotten
    assert len(codec.decode(FetchRequest, 7, two).forgotten_topics_data) == 2
    with pytest.raises(ProtocolError, match="elements"):
        codec.decode(FetchRequest, 7, head + pack(">i", 0) + pack(">i", 3) + 3 * forgotten)


def test_log_may_have_more_elements_than_a_request() -> None:
    data = pack(">i1h1si", 1, 1, b"t", 1_000_001) + bytes(4 * 1_000_001) + pack(">i", -1)
    assert len(codec.decode(ConsumerProtocolAssignment, 0, data).assigned_partitions[0].partitions) == 1_000_001


def tagged(count: int) -> bytes:
    """A section of tagged fields that nobody knows, each with a byte of content."""
    length = bytes([count]) if count < 128 else bytes([count & 0x7F | 0x80, count >> 7])
    return length + b"\x7f\x01\x00" * count


def test_unknown_tagged_fields_are_skipped() -> None:
    encoded = codec.encode(with_defaults(HeartbeatRequest, group_id="g", member_id="m"), 4)
    message = codec.decode(HeartbeatRequest, 4, encoded[:-1] + tagged(3))
    assert message == with_defaults(HeartbeatRequest, group_id="g", member_id="m")


def test_request_with_more_than_ten_thousand_tagged_fields_is_refused() -> None:
    encoded = codec.encode(with_defaults(HeartbeatRequest), 4)
    codec.decode(HeartbeatRequest, 4, encoded[:-1] + tagged(10_000))
    with pytest.raises(ProtocolError, match="10001 tagged fields"):
        codec.decode(HeartbeatRequest, 4, encoded[:-1] + tagged(10_001))


def metadata_of_tagged_topics(topics: int, tags: int) -> bytes:
    """A MetadataRequest, version 12, of which each topic has as many unknown tagged fields."""
    one = bytes(17) + tagged(tags)
    return bytes([topics + 1]) + one * topics + bytes(3)


def test_tagged_fields_of_all_elements_count_together() -> None:
    decoded = codec.decode(MetadataRequest, 12, metadata_of_tagged_topics(100, 10_000))
    assert len(decoded.topics or ()) == 100
    with pytest.raises(ProtocolError, match="1000000 tagged fields"):
        codec.decode(MetadataRequest, 12, metadata_of_tagged_topics(101, 10_000))


def test_known_tagged_field_that_is_not_as_long_as_it_says_is_refused() -> None:
    message = with_defaults(FetchRequest, cluster_id="abc")
    encoded = codec.encode(message, 12)
    assert encoded.endswith(b"\x01\x00\x04\x04abc")
    assert codec.decode(FetchRequest, 12, encoded) == message
    for tampered in (b"\x01\x00\x03\x04abc", b"\x01\x00\x05\x04abcd", b"\x01\x00\x04\x03abc", b"\x01\x00\x09\x04abc"):
        with pytest.raises(ProtocolError):
            codec.decode(FetchRequest, 12, encoded[:-7] + tampered)


def test_bytes_that_are_not_utf_8_are_refused() -> None:
    with pytest.raises(ProtocolError, match="HeartbeatRequest version 0"):
        codec.decode(HeartbeatRequest, 0, pack(">h2sih", 2, b"\xff\xfe", 1, 0))


def test_null_where_the_version_has_none_is_refused() -> None:
    with pytest.raises(ProtocolError, match="group_id must not be null"):
        codec.decode(HeartbeatRequest, 0, pack(">hih", -1, 1, 0))
    with pytest.raises(ProtocolError, match="group_id must not be null"):
        codec.decode(HeartbeatRequest, 4, b"\x00\x00\x00\x00\x01\x01\x00\x00")
    with pytest.raises(ProtocolError, match="topics must not be null"):
        codec.decode(MetadataRequest, 0, pack(">i", -1))


def test_null_inside_of_a_list_is_refused() -> None:
    for version, data in ((0, pack(">ih", 1, -1)), (5, b"\x02\x00\x00\x00")):
        with pytest.raises(ProtocolError, match="groups must not be null"):
            codec.decode(DescribeGroupsRequest, version, data)


def test_string_longer_than_an_int16_is_refused() -> None:
    data = b"\x81\x80\x02" + b"x" * 0x8000  # length plus one, as a varint
    with pytest.raises(ProtocolError, match="a string of 32768 bytes"):
        codec.decode(HeartbeatRequest, 4, data + bytes(10))
