"""Frames and records that stock clients and Apache Kafka wrote: each is read, and written again byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from pybroker_protocol import codec, messages
from pybroker_protocol.data_records import (
    CONSUMER_OFFSETS,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
    decode_key,
    decode_metadata_record,
    decode_value,
    encode_key,
    encode_metadata_record,
    encode_value,
    record_classes,
)
from pybroker_protocol.messages.headers import RequestHeader, ResponseHeader
from pybroker_protocol.schema import Header, Request

from .message_classes import message_classes

HERE = Path(__file__).parent


def golden(name: str) -> list[list[str]]:
    lines = (HERE / name).read_text().splitlines()
    return [line.split(" ") for line in lines if not line.startswith("#")]


@pytest.mark.parametrize(("name", "version", "frame"), golden("golden_frames.txt"), ids=lambda text: text[:40])
def test_frame_is_read_and_written_again(name: str, version: str, frame: str) -> None:
    cls, api_version, data = message_classes()[name], int(version), bytes.fromhex(frame)
    key = cls.__declaration__.key
    assert key is not None
    header_class: type[Header] = ResponseHeader
    header_version = messages.response_header_version(key, api_version)
    if issubclass(cls, Request):
        header_class, header_version = RequestHeader, messages.request_header_version(key, api_version)
    header, pos = codec.decoder(header_class, header_version)(memoryview(data), 0)
    message, end = codec.decoder(cls, api_version)(memoryview(data), pos)
    assert end == len(data)
    assert codec.encode(header, header_version) + codec.encode(message, api_version) == data
    if isinstance(header, RequestHeader):
        assert (header.request_api_key, header.request_api_version) == (key, api_version)


@pytest.mark.parametrize(("name", "version", "key", "value"), golden("golden_records.txt"), ids=lambda text: text[:40])
def test_record_is_read_and_written_again(name: str, version: str, key: str, value: str) -> None:
    value_version, data = int(version), bytes.fromhex(value)
    if key == "-":
        record, read_version = decode_metadata_record(data)
        assert record is not None
        assert (type(record).__name__, read_version) == (name, value_version)
        assert encode_metadata_record(record, value_version) == data
        return
    (topic,) = [
        modules
        for modules in (CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE)
        if message_classes()[name] in record_classes(modules, "value").values()
    ]
    record_key, encoded_key = decode_key(topic, bytes.fromhex(key)), bytes.fromhex(key)
    assert record_key is not None
    assert encode_key(record_key) == encoded_key
    record = decode_value(topic, encoded_key, data)
    assert type(record).__name__ == name
    assert encode_value(record, value_version) == data
