"""Variable-length numbers: both signs, all sizes, and what is too long."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pybroker_protocol.errors import ProtocolError
from pybroker_protocol.primitives import read_uvarint, read_varint, read_varlong, skip_tagged_fields, uvarint, varint


@settings(database=None)
@given(st.integers(0, 2**31 - 1))
def test_unsigned_varint_round_trip(value: int) -> None:
    assert read_uvarint(b"." + uvarint(value) + b".", 1) == (value, 1 + len(uvarint(value)))


@settings(database=None)
@given(st.integers(-(2**31), 2**31 - 1))
def test_varint_round_trip(value: int) -> None:
    assert read_varint(varint(value), 0) == (value, len(varint(value)))


@settings(database=None)
@given(st.integers(-(2**63), 2**63 - 1))
def test_varlong_round_trip(value: int) -> None:
    assert read_varlong(varint(value), 0) == (value, len(varint(value)))


@pytest.mark.parametrize(
    ("value", "encoded"), [(0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (-64, "7f"), (64, "8001"), (300, "d804")]
)
def test_varint_is_zigzag(value: int, encoded: str) -> None:
    assert varint(value).hex() == encoded


def test_varint_that_is_too_long_is_refused() -> None:
    for reader, largest in ((read_uvarint, uvarint(2**31 - 1)), (read_varint, varint(-(2**31)))):
        assert reader(largest, 0)[1] == 5
        for data in (b"\xff" * 4 + b"\x7f", b"\x80" * 5 + b"\x00", b"\xff" * 20):
            with pytest.raises(ProtocolError, match="too long"):
                reader(data, 0)
    with pytest.raises(ProtocolError, match="too long"):
        read_varlong(b"\xff" * 9 + b"\x02", 0)


def test_varint_that_is_cut_off_is_refused() -> None:
    for reader in (read_uvarint, read_varint, read_varlong):
        for data in (b"", b"\x80", b"\xff\xff"):
            with pytest.raises(ProtocolError, match="ends inside"):
                reader(data, 0)


def test_negative_number_has_no_unsigned_varint() -> None:
    with pytest.raises(ValueError, match="negative"):
        uvarint(-1)


def test_tagged_fields_are_skipped() -> None:
    section = b"\x02" + b"\x00\x01a" + b"\x05\x02bc"
    assert skip_tagged_fields(section + b"rest", 0) == len(section)
    assert skip_tagged_fields(b"\x00", 0) == 1


@pytest.mark.parametrize("data", [b"", b"\x01", b"\x01\x00", b"\x01\x00\x02a", b"\xff\xff\xff\xff\x07"])
def test_tagged_fields_that_are_cut_off_or_too_many_are_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        skip_tagged_fields(memoryview(data), 0)
