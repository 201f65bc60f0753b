"""Spellings of offsets, times and partitions on the command line."""

from __future__ import annotations

import pytest

from pybroker.cli.requests.offsets import (
    Origin,
    ReadRange,
    Start,
    parse_duration_ms,
    parse_partitions,
    parse_range,
    parse_timestamp_ms,
)

NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("beginning", Start(Origin.BEGINNING)),
        ("earliest", Start(Origin.BEGINNING)),
        ("start", Start(Origin.BEGINNING)),
        ("end", Start(Origin.END)),
        ("latest", Start(Origin.END)),
        ("stored", Start(Origin.STORED)),
        ("17", Start(Origin.ABSOLUTE, 17)),
        ("-5", Start(Origin.BEFORE_END, 5)),
        ("@1700000000000", Start(Origin.TIMESTAMP, 1_700_000_000_000)),
        ("s@1700000000000", Start(Origin.TIMESTAMP, 1_700_000_000_000)),
        ("@-1h", Start(Origin.TIMESTAMP, NOW_MS - 3_600_000)),
        ("@2013-01-01", Start(Origin.TIMESTAMP, 1_356_998_400_000)),
        ("@2013-01-01T01:00:00+01:00", Start(Origin.TIMESTAMP, 1_356_998_400_000)),
    ],
)
def test_every_spelling_of_a_start_offset_is_understood(text: str, start: Start) -> None:
    assert parse_range([text], NOW_MS) == ReadRange(start)


def test_an_end_time_joins_a_start_offset() -> None:
    assert parse_range(["17", "e@-15m"], NOW_MS) == ReadRange(Start(Origin.ABSOLUTE, 17), NOW_MS - 900_000)


@pytest.mark.parametrize(
    "texts",
    [
        ["foo"],
        ["@foo"],
        ["-"],
        [""],
        ["1.5"],
        ["beginning", "end"],
        ["e@"],
        ["9223372036854775808"],
        ["-9223372036854775808"],
        ["@9223372036854775808"],
        ["9" * 5000],
    ],
)
def test_what_is_no_offset_is_refused_with_a_sentence(texts: list[str]) -> None:
    with pytest.raises(ValueError, match=r"\w+ \w+ \w+"):
        parse_range(texts, NOW_MS)


@pytest.mark.parametrize(
    ("text", "back_ms"), [("-10ms", 10), ("-90s", 90_000), ("-24h", 86_400_000), ("-7d", 604_800_000)]
)
def test_relative_times_count_back_from_now(text: str, back_ms: int) -> None:
    assert parse_timestamp_ms(text, NOW_MS) == NOW_MS - back_ms


@pytest.mark.parametrize("text", ["-99999999999d", "1969-12-31T23:59:59.999", "0001-01-01"])
def test_times_before_the_epoch_are_the_epoch(text: str) -> None:
    assert parse_timestamp_ms(text, NOW_MS) == 0


def test_a_bare_number_is_a_duration_where_its_unit_is_known() -> None:
    assert [parse_duration_ms(text, "m") for text in ("15", "90s")] == [900_000, 90_000]
    assert parse_duration_ms("12h", None) == 43_200_000
    with pytest.raises(ValueError, match="'12' has no unit"):
        parse_duration_ms("12", None)


def test_partitions_are_numbers_lists_and_ranges() -> None:
    assert parse_partitions(["3,1", "5-7", "6"]) == [1, 3, 5, 6, 7]


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "1,,2", "0-99999999999"])
def test_what_is_no_partition_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="partition"):
        parse_partitions([text])
