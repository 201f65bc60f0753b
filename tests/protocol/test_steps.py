"""What is decoded or encoded in steps is what is decoded or encoded at once, and no step goes through much."""

from __future__ import annotations

from collections.abc import Generator
from random import Random
from typing import Any

import pytest

from pybroker_protocol import codec
from pybroker_protocol.errors import ProtocolError
from pybroker_protocol.messages.metadata import MetadataRequest
from pybroker_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pybroker_protocol.schema import Message
from pybroker_protocol.source import ELEMENTS_PER_STEP

from .message_classes import case_id, message_classes, versions_of
from .random_messages import random_message


def drive(steps: Generator[Any, None, Any]) -> tuple[Any, int]:
    """What a generator returns, and how often it stopped on the way."""
    stops = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, stops
        stops += 1


def encoded_in_steps(message: Message, version: int) -> bytes:
    parts: list[Any] = []
    drive(codec.encoder_in_steps(type(message), version)(message, parts))
    return b"".join(parts)


@pytest.mark.parametrize("cls", message_classes().values(), ids=case_id)
def test_steps_lead_to_what_one_call_does(cls: type[Message], request: pytest.FixtureRequest) -> None:
    random = Random(request.node.name)
    for version in versions_of(cls):
        message = random_message(random, cls, version)
        encoded = codec.encode(message, version)
        assert encoded_in_steps(message, version) == encoded
        (decoded, end), _ = drive(codec.decoder_in_steps(cls, version)(memoryview(encoded), 0))
        assert end == len(encoded)
        assert codec.encode(decoded, version) == encoded


def commit(topics: int, partitions: int) -> OffsetCommitRequest:
    each = [OffsetCommitRequestPartition(partition_index=index, committed_offset=1) for index in range(partitions)]
    return OffsetCommitRequest(
        group_id="g",
        member_id="",
        topics=[OffsetCommitRequestTopic(name=f"t{index}", partitions=each) for index in range(topics)],
    )


@pytest.mark.parametrize(("topics", "partitions"), [(2_000, 1), (1, 2_000), (50, 40)])
def test_a_step_goes_through_so_many_elements_at_most_however_they_are_nested(topics: int, partitions: int) -> None:
    encoded = codec.encode(commit(topics, partitions), 8)
    (decoded, _), stops = drive(codec.decoder_in_steps(OffsetCommitRequest, 8)(memoryview(encoded), 0))
    least = (topics + topics * partitions) // ELEMENTS_PER_STEP
    assert stops == least
    assert drive(codec.encoder_in_steps(OffsetCommitRequest, 8)(decoded, []))[1] == least


def test_bad_bytes_behind_a_step_are_refused_like_all_others() -> None:
    encoded = codec.encode(commit(1, 1_000), 8)[:-3]
    with pytest.raises(ProtocolError):
        drive(codec.decoder_in_steps(OffsetCommitRequest, 8)(memoryview(encoded), 0))


def test_a_long_section_of_tagged_fields_is_a_step_of_its_own() -> None:
    def stops(tags: bytes) -> int:
        topic = bytes(17) + tags
        frame = memoryview(bytes([11]) + topic * 10 + bytes(3))
        (decoded, end), stopped = drive(codec.decoder_in_steps(MetadataRequest, 12)(frame, 0))
        assert len(decoded.topics) == 10
        assert end == len(frame)
        return stopped

    assert stops(b"\x01\x7f\x00") == 0
    assert stops(b"\x80\x01" + b"\x7f\x00" * 128) == 10
