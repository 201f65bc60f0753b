"""Kafka's hash tables list their elements in the order that Java gives them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker_protocol.java_order import in_hash_map_order, in_timeline_order, string_hash


@pytest.mark.parametrize(
    ("text", "code"),
    # The last two are of the documentation of String.hashCode's formula: 31 * 'A' + 'a' and 31 * 'B' + 'B'.
    [("", 0), ("a", 97), ("hello", 99_162_322), ("Aa", 2112), ("BB", 2112), ("é", 0xE9), ("😀", 0xD83D * 31 + 0xDE00)],
)
def test_hash_codes_of_strings_are_javas(text: str, code: int) -> None:
    assert string_hash(text) == code


@given(st.text(max_size=80))
def test_a_hash_code_is_the_polynomial_of_31_over_the_utf_16(text: str) -> None:
    data, code = text.encode("utf-16-be", "surrogatepass"), 0
    for at in range(0, len(data), 2):
        code = (31 * code + int.from_bytes(data[at : at + 2], "big")) & 0xFFFF_FFFF
    assert string_hash(text) == code


def test_groups_and_members_come_as_tests_of_kafka_expect_them() -> None:
    """ListGroupsRequestTest and ConsumerGroupDescribeRequestTest."""
    assert in_timeline_order(["member-1", "member-2"], string_hash) == ["member-2", "member-1"]
    groups = in_timeline_order([f"grp-{number}" for number in range(1, 7)], string_hash)
    assert [group for group in groups if group in {"grp-1", "grp-4"}] == ["grp-4", "grp-1"]


def test_a_table_that_is_made_for_one_element_grows_as_one_that_is_larger() -> None:
    names = ["consumer_byte_rate", "producer_byte_rate", "request_percentage", "controller_mutation_rate"]
    tables = {slots: in_hash_map_order(names, string_hash, slots) for slots in (1, 8)}
    assert tables[1] == tables[8], "four elements need eight slots"


@given(st.lists(st.text(max_size=5), unique=True))
def test_each_element_is_listed_once(names: list[str]) -> None:
    assert sorted(in_hash_map_order(names, string_hash)) == sorted(names)
    assert sorted(in_timeline_order(names, string_hash)) == sorted(names)
