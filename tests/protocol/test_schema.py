"""What a declared class is: constructor, defaults, equality, and the vocabulary itself."""

from __future__ import annotations

import subprocess
import sys

import pytest
from harness.waiting import PATIENCE_S

from pybroker_protocol.messages.fetch import FetchRequest, FetchTopic, LeaderIdAndEpoch, PartitionData
from pybroker_protocol.messages.heartbeat import HeartbeatRequest
from pybroker_protocol.messages.records_consumer_group import ClassicMemberMetadata, ConsumerGroupMemberMetadataValue
from pybroker_protocol.schema import (
    ALWAYS,
    NEVER,
    Int32,
    NullableString,
    Request,
    String,
    Struct,
    Versions,
    default_struct,
    field,
    schema_of,
    since,
    until,
)

from .message_classes import with_defaults


class Element(Struct):
    number: Int32


class Sample(Request, key=999, versions="1-3", flexible="3+"):
    plain: String
    later: NullableString = since(2, default="")
    gone: Int32 = until(1, ignorable=True)
    many: list[Element] | None = field(nullable="2+")
    tagged: Element = since(3, tag=4)


def test_constructor_has_kafkas_defaults() -> None:
    request = with_defaults(FetchRequest)
    assert request.max_bytes == 0x7FFF_FFFF
    assert request.replica_id == -1
    assert request.cluster_id is None
    assert request.topics == []
    assert request.rack_id == ""


def test_default_lists_are_not_shared() -> None:
    with_defaults(FetchRequest).topics.append(with_defaults(FetchTopic))
    assert with_defaults(FetchRequest).topics == []


def test_unknown_keyword_is_an_error() -> None:
    with pytest.raises(TypeError, match="gruop_id"):
        with_defaults(HeartbeatRequest, gruop_id="g")


def test_unknown_attribute_is_an_error() -> None:
    with pytest.raises(AttributeError):
        with_defaults(HeartbeatRequest).gruop_id = "g"  # type: ignore[attr-defined]


def test_messages_are_equal_if_their_fields_are() -> None:
    assert with_defaults(HeartbeatRequest, group_id="a") == with_defaults(HeartbeatRequest, group_id="a")
    assert with_defaults(HeartbeatRequest, group_id="a") != with_defaults(HeartbeatRequest, group_id="b")
    assert Element(number=1) != LeaderIdAndEpoch(leader_id=1)


def test_messages_are_not_hashable() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(with_defaults(HeartbeatRequest))


def test_repr_shows_what_is_not_at_its_default() -> None:
    assert repr(with_defaults(HeartbeatRequest, group_id="g")) == "HeartbeatRequest(group_id='g')"
    partition = with_defaults(PartitionData, partition_index=1, records=b"x" * 1000)
    assert repr(partition) == "PartitionData(partition_index=1, records=<1000 bytes>)"


def test_default_struct_is_shared_and_refuses_changes() -> None:
    partition = with_defaults(PartitionData)
    assert partition.current_leader is with_defaults(PartitionData).current_leader
    assert partition.current_leader == LeaderIdAndEpoch()
    assert isinstance(partition.current_leader, LeaderIdAndEpoch)
    with pytest.raises(AttributeError, match="assign a new one"):
        partition.current_leader.leader_id = 3
    partition.current_leader = LeaderIdAndEpoch(leader_id=3)
    assert with_defaults(PartitionData).current_leader.leader_id == -1


def test_default_of_a_nullable_struct_may_be_a_struct() -> None:
    value = with_defaults(ConsumerGroupMemberMetadataValue)
    assert value.classic_member_metadata == with_defaults(ClassicMemberMetadata)


def test_schema_says_what_was_declared() -> None:
    plain, later, gone, many, tagged = schema_of(Sample).fields
    assert plain.versions == ALWAYS
    assert plain.nullable == NEVER
    assert later.versions == later.nullable == Versions.parse("2+")
    assert later.default == ""
    assert gone.versions == Versions(0, 1)
    assert gone.ignorable
    assert many.versions == ALWAYS
    assert many.nullable == Versions.parse("2+")
    assert many.default is None
    assert tagged.tagged == Versions.parse("3+")
    assert tagged.tag == 4
    assert tagged.default is default_struct(Element)


def test_first_version_with_a_field_is_asked_of_the_message() -> None:
    assert [Sample.since(name) for name in ("plain", "later", "gone")] == [0, 2, 0]
    assert FetchTopic.since("topic_id") == 13
    with pytest.raises(KeyError):
        Sample.since("nothing")


def test_last_version_with_a_field_is_asked_of_the_message() -> None:
    assert Sample.versions_of("gone") == Versions(0, 1)
    assert Sample.versions_of("later") == Versions.parse("2+")
    with pytest.raises(KeyError):
        Sample.versions_of("nothing")


def test_first_flexible_version_is_asked_of_the_message() -> None:
    assert Sample.flexible_since() == 3
    with pytest.raises(ValueError, match="Element"):
        Element.flexible_since()


def test_type_outside_of_the_vocabulary_is_an_error() -> None:
    class Wrong(Struct):
        number: int

    with pytest.raises(TypeError, match="not in the vocabulary"):
        schema_of(Wrong)


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [("3", [3], [2, 4]), ("0-4", [0, 4], [5]), ("3+", [3, 1000], [2]), ("none", [], [0, 1])],
)
def test_version_ranges_are_read(text: str, inside: list[int], outside: list[int]) -> None:
    assert all(version in Versions.parse(text) for version in inside)
    assert all(version not in Versions.parse(text) for version in outside)


def test_modules_of_messages_are_imported_at_their_first_use() -> None:
    program = """
import sys
from pybroker_protocol import codec, messages, records
loaded = {name for name in sys.modules if name.startswith("pybroker_protocol.messages.")}
assert not loaded, loaded
messages.request_class(12)
loaded = {name for name in sys.modules if name.startswith("pybroker_protocol.messages.")}
assert loaded == {"pybroker_protocol.messages.heartbeat"}, loaded
heavy = {"cramjam", "lz4", "construct", "asyncio", "dataclasses", "inspect"} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=PATIENCE_S)
