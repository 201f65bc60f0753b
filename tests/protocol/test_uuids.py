"""The text form of uuids, and which of them are reserved."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker_protocol.uuids import ZERO_UUID, is_reserved, uuid_bytes, uuid_text


@given(st.binary(min_size=16, max_size=16))
def test_text_form_has_22_characters_and_reads_back(value: bytes) -> None:
    text = uuid_text(value)
    assert len(text) == 22
    assert uuid_bytes(text) == value


@pytest.mark.parametrize("text", ["", "short", "A" * 21, "A" * 23, "AAAAAAAAAAAAAAAAAAAAA§"])
def test_text_that_is_no_uuid_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no uuid"):
        uuid_bytes(text)


def test_the_first_hundred_ids_are_reserved() -> None:
    assert is_reserved(ZERO_UUID)
    assert is_reserved(bytes(15) + b"\x63")
    assert not is_reserved(bytes(15) + b"\x64")
    assert not is_reserved(b"\x01" + bytes(15))
