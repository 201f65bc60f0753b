"""Values from text and back, with Kafka's messages for what cannot be read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.config.schema import (
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    LONG,
    SHORT,
    STRING,
    ConfigError,
    ListMatching,
    ListOf,
    OneOf,
    OneOfAnyCase,
    Range,
    RangeOr,
    Validator,
    number_text,
    parse_value,
    value_text,
)


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        (INT, " 42 ", 42),
        (INT, "+7", 7),
        (LONG, "-9223372036854775808", -(2**63)),
        (SHORT, "32767", 32767),
        (BOOLEAN, " TRUE", True),
        (BOOLEAN, "false", False),
        (DOUBLE, "1.5f", 1.5),
        (DOUBLE, ".5", 0.5),
        (DOUBLE, "1e-3", 0.001),
        (DOUBLE, "-Infinity", float("-inf")),
        (STRING, " a b ", "a b"),
        (LIST, "", ()),
        (LIST, " a , b,a", ("a", "b")),
        (LIST, "a,", ("a", "")),
    ],
)
def test_text_is_read_as_java_reads_it(type_: int, text: str, value: object) -> None:
    assert parse_value("x", text, type_) == value


@pytest.mark.parametrize(
    ("type_", "text", "message"),
    [
        (INT, "1_000", "Invalid value 1_000 for configuration x: Not a number of type INT"),
        (INT, "٣", "Invalid value ٣ for configuration x: Not a number of type INT"),
        (INT, "", "Invalid value  for configuration x: Not a number of type INT"),
        (INT, "2147483648", "Invalid value 2147483648 for configuration x: Not a number of type INT"),
        (SHORT, "32768", "Invalid value 32768 for configuration x: Not a number of type SHORT"),
        (LONG, "0x10", "Invalid value 0x10 for configuration x: Not a number of type LONG"),
        (DOUBLE, "inf", "Invalid value inf for configuration x: Not a number of type DOUBLE"),
        (BOOLEAN, "yes", "Invalid value yes for configuration x: Expected value to be either true or false"),
    ],
)
def test_unreadable_text_gets_kafkas_message(type_: int, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_value("x", text, type_)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("validator", "value", "reason"),
    [
        (Range(1), 0, "Invalid value 0 for configuration x: Value must be at least 1"),
        (Range(0, 1), 2.0, "Invalid value 2.0 for configuration x: Value must be no more than 1"),
        (RangeOr(1, 9, -1), 0, "Invalid value 0 for configuration x: Value must be between 1 and 9 or equal to -1"),
        (OneOf("a", "b"), "c", "Invalid value c for configuration x: String must be one of: a, b"),
        (OneOfAnyCase("A"), "b", "Invalid value b for configuration x: String must be one of (case insensitive): A"),
        (ListOf("a"), ("a", "z"), "Invalid value z for configuration x: String must be one of: a"),
        (ListOf(), ("",), "Configuration 'x' values must not be empty."),
        (
            ListOf(empty_allowed=False),
            (),
            "Configuration 'x' must not be empty. Valid values include: any non-empty value",
        ),
        (ListMatching("[0-9]+", "", "is odd", "*"), ("*", "1"), "Invalid value [*, 1] for configuration x: x is odd"),
    ],
)
def test_value_out_of_bounds_gets_kafkas_message(validator: Validator, value: object, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validator.check("x", value)
    assert str(caught.value) == reason


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (42, "42"),
        (0.5, "0.5"),
        (1000.0, "1000.0"),
        (1e8, "1.0E8"),
        (1e7, "1.0E7"),
        (1.25e-7, "1.25E-7"),
        (-123456789.5, "-1.234567895E8"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
    ],
)
def test_numbers_are_written_as_java_writes_them(value: float, text: str) -> None:
    assert number_text(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_written_doubles_read_back_as_themselves(value: float) -> None:
    assert parse_value("x", number_text(value), DOUBLE) == value


def test_lists_are_joined_and_nothing_stays_nothing() -> None:
    assert value_text(("a", "b")) == "a,b"
    assert value_text(()) == ""
    assert value_text(None) is None
