"""What a setting is: its type, its range, how its text becomes a value and back.

Owns: ``Setting`` (one row of a table), the value types, the validators, ``parse_value`` and ``value_text``.
Owns no setting: the tables (``broker_settings`` and its neighbours) hold those.

Invariants:
- Parsed values never change (lists are tuples).
- A refused value raises ``ConfigError`` whose text is what Kafka would say.
- Rows are plain tuples and validators are shared, because 400 of them are made at start.

Counterpart in Kafka: ``org.apache.kafka.common.config.ConfigDef``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol

# What a string of the protocol holds.  Not imported from there: what reads topics asks this module about names where
# the protocol may not be installed.
VALUE_BYTES_MAX: Final = 0x7FFF

# Types, with the numbers that DescribeConfigs sends (DescribeConfigsResponse.ConfigType).
UNKNOWN: Final = 0
BOOLEAN: Final = 1
STRING: Final = 2
INT: Final = 3
SHORT: Final = 4
LONG: Final = 5
DOUBLE: Final = 6
LIST: Final = 7
CLASS: Final = 8
PASSWORD: Final = 9

TYPE_NAMES: Final = ("UNKNOWN", "BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS", "PASSWORD")

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
DOUBLE_MAX: Final = 1.7976931348623157e308

_INTEGER_BITS: Final = {SHORT: 15, INT: 31, LONG: 63}
# Not compiled here: most starts read no double, and compiling costs more than the tables.
_DOUBLE: Final = r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)"

# Importance.
HIGH: Final = "HIGH"
MEDIUM: Final = "MEDIUM"
LOW: Final = "LOW"

# Update modes of broker settings (KIP-226).
FIXED: Final = "read-only"
BROKER: Final = "per-broker"
CLUSTER: Final = "cluster-wide"

# Flags: what a setting means here.
USED: Final = 1  # something in pybroker reads it, or refuses what it cannot do
INTERNAL: Final = 2  # Kafka's own undocumented settings: accepted, never described
# Nothing reads these two; each row says which one it is, because what restricts or hides is not accepted in vain.
TUNES: Final = 4  # accepted: it is about how Kafka does a thing, or about a thing that is not served at all
CHECKED: Final = 8  # it restricts, hides, verifies or names code: its validator refuses what would be without effect


class ConfigError(ValueError):
    """A name or a value that cannot be accepted; the text is what the client or the operator reads."""


class WrongArgument(ConfigError):
    """An argument of a start that is wrong by itself: no setting of that name, a second answer, no address."""


def invalid_value(name: str, value: object, reason: str) -> ConfigError:
    """The error for one value, in Kafka's words."""
    return ConfigError(f"Invalid value {value} for configuration {name}: {reason}")


class Validator(Protocol):
    """Refuses values that have the right type but are out of bounds; ``str()`` of it is how Kafka prints the bounds."""

    def check(self, name: str, value: Any) -> None:
        """Raise ``ConfigError`` when ``value`` is not allowed for the setting ``name``."""
        ...


class Range:
    """A number from ``low`` up to ``high``, both inclusive; no ``high`` means no upper bound."""

    __slots__ = ("high", "low")

    def __init__(self, low: float, high: float | None = None) -> None:
        self.low = low
        self.high = high

    def check(self, name: str, value: Any) -> None:
        if value is None:
            raise invalid_value(name, "null", "Value must be non-null")
        if value < self.low:
            raise invalid_value(name, number_text(value), f"Value must be at least {self.low}")
        if self.high is not None and value > self.high:
            raise invalid_value(name, number_text(value), f"Value must be no more than {self.high}")

    def __str__(self) -> str:
        return f"[{self.low},...]" if self.high is None else f"[{self.low},...,{self.high}]"


class RangeOr:
    """A number from ``low`` up to ``high``, or exactly ``other``."""

    __slots__ = ("high", "low", "other")

    def __init__(self, low: int, high: int, other: int) -> None:
        self.low = low
        self.high = high
        self.other = other

    def check(self, name: str, value: Any) -> None:
        if value != self.other and not self.low <= value <= self.high:
            reason = f"Value must be between {self.low} and {self.high} or equal to {self.other}"
            raise invalid_value(name, value, reason)

    def __str__(self) -> str:
        return f"[{self.low},...,{self.high}] or {self.other}"


class OneOf:
    """One of a few strings, in Kafka's spelling."""

    __slots__ = ("choices",)

    def __init__(self, *choices: str) -> None:
        self.choices = choices

    def check(self, name: str, value: Any) -> None:
        if value not in self.choices:
            raise invalid_value(name, value, f"String must be one of: {', '.join(self.choices)}")

    def __str__(self) -> str:
        return f"[{', '.join(self.choices)}]"


class OneOfAnyCase(OneOf):
    """One of a few strings, in any spelling of upper and lower case."""

    __slots__ = ()

    def check(self, name: str, value: Any) -> None:
        if value is None or value.upper() not in self.choices:
            raise invalid_value(name, value, f"String must be one of (case insensitive): {', '.join(self.choices)}")

    def __str__(self) -> str:
        return f"(case insensitive) {super().__str__()}"


class NonEmpty:
    """A string with at least one character; null is let through (a setting without a value)."""

    __slots__ = ()

    def check(self, name: str, value: Any) -> None:
        if value is not None and not value:
            raise invalid_value(name, value, "String must be non-empty")

    def __str__(self) -> str:
        return "non-empty string"


class ListOf:
    """A list of non-empty elements, from ``choices`` when there are any."""

    __slots__ = ("choices", "empty_allowed")

    def __init__(self, *choices: str, empty_allowed: bool = True) -> None:
        self.choices = choices
        self.empty_allowed = empty_allowed

    def check(self, name: str, value: Any) -> None:
        if value is None:
            return
        if not value and not self.empty_allowed:
            valid = str(self) or "any non-empty value"
            raise ConfigError(f"Configuration '{name}' must not be empty. Valid values include: {valid}")
        if "" in value:
            raise ConfigError(f"Configuration '{name}' values must not be empty.")
        if self.choices:
            for element in value:
                if element not in self.choices:
                    raise invalid_value(name, element, f"String must be one of: {', '.join(self.choices)}")

    def __str__(self) -> str:
        return f"[{', '.join(self.choices)}]" if self.choices else ""


class ListMatching:
    """A list whose elements all have one ``form``; ``reason`` says which, ``lone`` is a literal allowed by itself."""

    __slots__ = ("form", "lone", "pattern", "reason")

    def __init__(self, pattern: str, form: str, reason: str, lone: str = "") -> None:
        self.pattern = pattern
        self.form = form
        self.reason = reason
        self.lone = lone

    def check(self, name: str, value: Any) -> None:
        if self.lone and value == (self.lone,):
            return
        if not all(re.fullmatch(self.pattern, element, re.ASCII) for element in value):
            raise invalid_value(name, list_text(value), f"{name} {self.reason}")

    def __str__(self) -> str:
        return self.form


class Matching:
    """A string that matches ``pattern``; ``form`` is how Kafka prints what is allowed, ``reason`` what it answers."""

    __slots__ = ("form", "pattern", "reason")

    def __init__(self, pattern: str, form: str, reason: str) -> None:
        self.pattern = pattern
        self.form = form
        self.reason = reason

    def check(self, name: str, value: Any) -> None:
        if not re.fullmatch(self.pattern, value, re.ASCII | re.IGNORECASE):
            raise invalid_value(name, value, self.reason.format(name=name, value=value))

    def __str__(self) -> str:
        return self.form


class BuiltIn:
    """What a setting that names Java classes, or parts of a JVM, may say: what is here anyhow; other code is nowhere.

    ``names`` are accepted, and classes that begin with ``package``; each element of a list counts.  Kafka prints no
    bounds here, and fails where a class cannot be loaded.
    """

    __slots__ = ("names", "package")

    def __init__(self, *names: str, package: str = "") -> None:
        self.names = names
        self.package = package

    def check(self, name: str, value: Any) -> None:
        for element in value if isinstance(value, tuple) else (value,):
            if element and element not in self.names and not (self.package and element.startswith(self.package)):
                here = f"{' and '.join(self.names)} alone" if self.names else "it has to stay unset"
                raise invalid_value(name, element, f"pybroker loads no Java classes: {here}")

    def __str__(self) -> str:
        return ""


class Not:
    """A feature that is asked for, and not served: the setting may have any value but ``refused``."""

    __slots__ = ("reason", "refused")

    def __init__(self, refused: Any, reason: str) -> None:
        self.refused = refused
        self.reason = reason

    def check(self, name: str, value: Any) -> None:
        if value == self.refused:
            raise invalid_value(name, value_text(value), self.reason)

    def __str__(self) -> str:
        return ""


class NoBound:
    """A bound that is asked for, and not kept: the setting may have no value but ``largest``, which bounds nothing."""

    __slots__ = ("largest", "reason")

    def __init__(self, largest: int, reason: str) -> None:
        self.largest = largest
        self.reason = reason

    def check(self, name: str, value: Any) -> None:
        if value != self.largest:
            raise invalid_value(name, value_text(value), self.reason)

    def __str__(self) -> str:
        return f"[1,...,{self.largest}]"  # what Kafka prints


class Setting(NamedTuple):
    """One setting.  ``default`` is a parsed value or None; ``mode`` says how a broker setting may change at run time.

    Settings of other resources are always changeable and have the mode CLUSTER.
    """

    name: str
    type: int
    default: Any
    valid: Validator | None
    importance: str
    mode: str
    flags: int

    @property
    def used(self) -> bool:
        """Whether anything in pybroker reads it."""
        return bool(self.flags & USED)

    @property
    def has_effect(self) -> bool:
        """Whether it is read, or held to what is done anyhow."""
        return bool(self.flags & (USED | CHECKED))

    @property
    def internal(self) -> bool:
        """Whether it is one of Kafka's undocumented settings, which are never described."""
        return bool(self.flags & INTERNAL)

    def parse(self, text: str) -> Any:
        """The value of ``text``, checked against type and bounds; raises ``ConfigError``."""
        value = parse_value(self.name, text, self.type)
        if self.valid is not None:
            self.valid.check(self.name, value)
        return value


def table(rows: Iterable[tuple[Any, ...]]) -> dict[str, Setting]:
    """A table out of rows in the order of ``Setting``'s fields; rows of six fields have no mode of their own."""
    whole = (row if len(row) == len(Setting._fields) else (*row[:5], CLUSTER, row[5]) for row in rows)
    return {row[0]: Setting._make(row) for row in whole}


def parse_value(name: str, text: str, type_: int) -> Any:
    """``text`` as a value of ``type_``: bool, int, float, str, or tuple of str; raises ``ConfigError``."""
    trimmed = text.strip()
    if type_ in _INTEGER_BITS:
        digits = trimmed[1:] if trimmed[:1] in ("+", "-") else trimmed
        if digits.isdigit() and digits.isascii():
            number = int(trimmed)
            bits = _INTEGER_BITS[type_]
            if -(1 << bits) <= number < 1 << bits:
                return number
        raise invalid_value(name, text, f"Not a number of type {TYPE_NAMES[type_]}")
    if type_ == BOOLEAN:
        lowered = trimmed.lower()
        if lowered not in ("true", "false"):
            raise invalid_value(name, text, "Expected value to be either true or false")
        return lowered == "true"
    if type_ == DOUBLE:
        if not re.fullmatch(_DOUBLE, trimmed):
            raise invalid_value(name, text, "Not a number of type DOUBLE")
        return float(trimmed.rstrip("fFdD") if not trimmed.endswith(("NaN", "Infinity")) else trimmed)
    if type_ == LIST:
        # Kafka drops repeated elements and keeps the order of the first ones.
        return tuple(dict.fromkeys(element.strip() for element in trimmed.split(","))) if trimmed else ()
    return trimmed


def too_long(name: str, text: str) -> str | None:
    """Why a value is refused that no reply could show, and with it no other setting of its resource; None if it can."""
    if 4 * len(text) <= VALUE_BYTES_MAX:  # no character takes more bytes; a request may have a hundred thousand values
        return None
    size = len(text.encode(errors="surrogatepass"))
    if size <= VALUE_BYTES_MAX:
        return None
    return f"Invalid value for configuration {name}: it has {size} bytes, and {VALUE_BYTES_MAX} are the most"


def value_text(value: Any) -> str | None:
    """A parsed value as Kafka writes it (ConfigDef.convertToString)."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, tuple | frozenset):
        return ",".join(value)
    return number_text(value)


def number_text(value: Any) -> str:
    """A number or a boolean as Java prints it: ``true``, ``42``, ``0.5``, ``1.0E8``."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, float):
        return str(value)
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    mantissa, _, exponent = f"{value!r}e0".partition("e")
    digits = mantissa.replace(".", "").replace("-", "")
    power = int(exponent.split("e")[0]) + len(mantissa.lstrip("-").split(".")[0]) - 1
    leading = len(digits) - len(digits.lstrip("0"))
    digits = digits.strip("0") or "0"
    sign = "-" if value < 0 else ""
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{power - leading}"


def list_text(value: Sequence[str]) -> str:
    """A list as Java prints it in messages: ``[a, b]``."""
    return f"[{', '.join(value)}]"
