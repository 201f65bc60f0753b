"""The comparator's own encoding of requests, against the codec that shares no code with it."""

from __future__ import annotations

from typing import Any

import pytest

from comparator.encoding import Tree, encode_request
from comparator.wire import tree_of
from pybroker.apis import APIS
from pybroker_protocol.codec import decode, encode
from pybroker_protocol.errors import ProtocolError
from pybroker_protocol.messages import request_class
from pybroker_protocol.schema import Array, Fixed, Nested, Request, Struct, Variable, WireType, schema_of

SERVED = [(api.key, version) for api in APIS for version in range(api.versions[0], api.versions[1] + 1)]
METADATA, HEARTBEAT, DESCRIBE_TOPIC_PARTITIONS = 3, 12, 75


def full(cls: type[Struct], version: int) -> dict[str, Any]:
    """A tree in which no field of the version has its default."""
    return {
        field.name: _full_value(field.type, version) for field in schema_of(cls).fields if version in field.versions
    }


def _full_value(wire_type: WireType, version: int) -> Tree:
    match wire_type:
        case Fixed("bool"):
            return True
        case Fixed("uuid"):
            return bytes(range(16))
        case Fixed():
            return 77
        case Variable("string"):
            return "text"
        case Variable():
            return b"bytes"
        case Array(element):
            return [_full_value(element, version)] * 2
        case Nested(struct):
            return full(struct, version)


@pytest.mark.parametrize(("key", "version"), SERVED)
@pytest.mark.parametrize("empty", [True, False])
def test_the_codec_reads_what_is_meant_and_writes_the_same_bytes(key: int, version: int, empty: bool) -> None:
    cls = request_class(key)
    tree = {} if empty else full(cls, version)
    encoded = encode_request(cls, version, tree)
    message = decode(cls, version, encoded)
    assert {name: value for name, value in tree_of(message, version).items() if name in tree} == tree
    assert encode(message, version) == encoded


@pytest.mark.parametrize("version", [0, 4])
def test_null_is_written_where_none_may_be(version: int) -> None:
    cls: type[Request] = request_class(HEARTBEAT)
    with pytest.raises(ProtocolError):
        decode(cls, version, encode_request(cls, version, {"group_id": None}))


def test_a_struct_that_may_be_null_stands_behind_a_byte() -> None:
    cls = request_class(DESCRIBE_TOPIC_PARTITIONS)
    none, some = (encode_request(cls, 0, {"cursor": cursor}) for cursor in (None, {"topic_name": "t"}))
    assert tree_of(decode(cls, 0, none), 0)["cursor"] is None
    assert tree_of(decode(cls, 0, some), 0)["cursor"] == {"topic_name": "t", "partition_index": 0}


def test_fields_of_other_versions_are_dropped_and_unknown_ones_refused() -> None:
    cls = request_class(METADATA)
    assert encode_request(cls, 1, {"allow_auto_topic_creation": False}) == encode_request(cls, 1, {})
    with pytest.raises(ValueError, match="no \\['name'\\]"):
        encode_request(cls, 1, {"name": "t"})
