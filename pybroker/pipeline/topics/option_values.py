"""Reads the values of options: text from ``.option(...)``, whose names Spark folds to lower case.

Owns the messages for values that are none; ``source_options`` and ``sink_options`` own what there is to say.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import TypeVar

Value = TypeVar("Value")

_UNITS_MS = {"ms": 1, "s": 1_000, "sec": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


class OptionValues:
    """Options by name, whatever the case; raises ValueError, with the option's name, for what cannot be read."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._values = {name.lower(): value for name, value in options.items()}

    def text(self, name: str) -> str | None:
        """The value, trimmed; ``None`` where the option is absent."""
        value = self._values.get(name.lower())
        return None if value is None else value.strip()

    def parsed(self, name: str, parse: Callable[[str], Value]) -> Value | None:
        """What ``parse`` makes of the value."""
        value = self.text(name)
        if value is None:
            return None
        try:
            return parse(value)
        except ValueError as error:
            raise ValueError(f"option {name}: {error}") from error

    def positive(self, name: str) -> int | None:
        """A whole number of one or more."""
        return self.parsed(name, _positive)

    def flag(self, name: str, default: bool) -> bool:
        """``true`` or ``false``."""
        value = self.parsed(name, _flag)
        return default if value is None else value

    def duration_ms(self, name: str, default_ms: int) -> int:
        """A time as Spark writes it: ``15m``, ``500ms``; a bare number counts milliseconds."""
        value = self.parsed(name, _duration_ms)
        return default_ms if value is None else value

    def prefixed(self, prefix: str) -> dict[str, str]:
        """Options that begin with ``prefix``, without it."""
        return {name.removeprefix(prefix): value for name, value in self._values.items() if name.startswith(prefix)}

    def refuse_unknown(self, known: Iterable[str], prefixes: tuple[str, ...]) -> None:
        """Raises ValueError for an unknown name: a mistyped option must not pass for its default."""
        names = {name.lower(): name for name in known}
        for name in self._values:
            if name not in names and not name.startswith(prefixes):
                near = [names[match] for match in get_close_matches(name, names, 1)]
                raise ValueError(f"unknown option {name}" + "".join(f"; did you mean {match}?" for match in near))


def _positive(text: str) -> int:
    number = int(text)
    if number <= 0:
        raise ValueError(f"must be positive, is {number}")
    return number


def _flag(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise ValueError(f"must be true or false, is {text}")
    return text.lower() == "true"


def _duration_ms(text: str) -> int:
    matched = re.fullmatch(r"(\d+)\s*([a-z]*)", text.lower())
    unit_ms = matched and _UNITS_MS.get(matched[2] or "ms")
    if matched is None or unit_ms is None:
        raise ValueError(f"must be a time such as 500ms, 30s or 15m, is {text}")
    return int(matched[1]) * unit_ms
