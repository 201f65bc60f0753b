"""Keys of a connector's configuration, and whether its values are what the keys take.

Owns types, defaults and the words of errors, which are those of Kafka where Kafka has the error, too.  A key that a
kind does not know is an error here, and names the nearest one; Kafka passes over it.  ``secret_texts`` knows which
texts are secrets.

Invariants: no text has the value of a secret.  Counterparts in Kafka: ``ConfigDef`` and ``ConfigKeyInfo``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum
from typing import Any, Final

from pybroker.config.names import PROVIDERS
from pybroker.connectors.declared.secret_texts import HIDDEN, is_reference, quoted

_BITS = {"INT": 31, "LONG": 63}
# What Python takes for a number may have underscores, or digits of other scripts.
_WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}")


class KeyType(StrEnum):
    """Kafka's types of a setting."""

    BOOLEAN = "BOOLEAN"
    CLASS = "CLASS"
    INT = "INT"
    LIST = "LIST"
    LONG = "LONG"
    PASSWORD = "PASSWORD"
    STRING = "STRING"


@dataclass(frozen=True, slots=True)
class Key:
    """One key.  Without a ``default`` it is required; ``None`` is a default, too, and means unset.

    ``least`` bounds numbers; ``one_of`` lists the texts that are taken, in any case.
    """

    name: str
    type: KeyType
    documentation: str
    default: str | None = None
    is_required: bool = False
    importance: str = "MEDIUM"
    group: str = "Connector"
    one_of: Sequence[str] = ()
    least: int | None = None
    check: Callable[[str], str | None] | None = None

    @property
    def is_secret(self) -> bool:
        """Whether its value is never shown."""
        return self.type is KeyType.PASSWORD

    def errors(self, text: str | None) -> list[str]:
        """What is wrong with its value; ``None`` is an absent one."""
        if text is None:
            if self.is_required:
                return [f'Missing required configuration "{self.name}" which has no default value.']
            return []
        if self.is_secret:
            return (
                []
                if is_reference(text)
                else [self._wrong(HIDDEN, "a secret must be named by a config provider, as ${file:/path:key}")]
            )
        if "${" in text and is_reference(text):
            return []  # what it finds is looked at when the connector starts
        try:
            parsed = parse(self.type, text)
        except ValueError as error:
            return [self._wrong(text, str(error))]
        if self.least is not None and isinstance(parsed, int) and parsed < self.least:
            return [self._wrong(text, f"Value must be at least {self.least}")]
        if self.one_of and text.strip().lower() not in map(str.lower, self.one_of):
            near = nearest(text.strip(), self.one_of)
            hint = f"; is {near} meant?" if near else ""
            return [self._wrong(text, f"String must be one of: {', '.join(self.one_of)}{hint}")]
        refusal = self.check(text) if self.check is not None else None
        return [] if refusal is None else [self._wrong(text, refusal)]

    def _wrong(self, text: str, why: str) -> str:
        return f"Invalid value {quoted(text)} for configuration {self.name}: {why}"


@dataclass(slots=True)
class ConfigValue:
    """A key with its value and what is wrong with it; ``key`` is ``None`` where there is no such key."""

    name: str
    key: Key | None
    value: str | None
    errors: list[str] = field(default_factory=list)


def parse(kind: KeyType, text: str) -> Any:
    """The value of a text: bool, int, list of str or str; ValueError with Kafka's words."""
    stripped = text.strip()
    if kind is KeyType.BOOLEAN:
        if stripped.lower() not in ("true", "false"):
            raise ValueError("Expected value to be either true or false")
        return stripped.lower() == "true"
    if kind in (KeyType.INT, KeyType.LONG):
        is_one = _WHOLE_NUMBER.fullmatch(stripped) is not None
        if not is_one or not -(2 ** _BITS[kind]) <= (number := int(stripped)) < 2 ** _BITS[kind]:
            raise ValueError(f"Not a number of type {kind}")
        return number
    if kind is KeyType.LIST:
        return [part.strip() for part in text.split(",")] if stripped else []
    return stripped


def is_of_providers(name: str) -> bool:
    """Whether a key is one of config providers, which a supervisor has, and no connector nor a client of its."""
    return f".{PROVIDERS}." in f".{name}."


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like this one, if any is."""
    found = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return found[0] if found else None


def validated(keys: Sequence[Key], config: Mapping[str, str], prefixes: Sequence[str] = ()) -> list[ConfigValue]:
    """Each key with its value, and each name of ``config`` that is no key.  Names below ``prefixes`` are not judged."""
    by_name = {key.name: key for key in keys}
    values = [
        ConfigValue(key.name, key, config.get(key.name, key.default), key.errors(config.get(key.name))) for key in keys
    ]
    for name, text in config.items():
        if name in by_name or name.startswith(tuple(prefixes)):
            continue
        near = nearest(name, by_name)
        hint = f"; is {near} meant?" if near else ""
        values.append(ConfigValue(name, None, text, [f"Configuration is not defined: {name}{hint}"]))
    return values


def setting(keys: Sequence[Key], config: Mapping[str, str], name: str) -> Any:
    """The parsed value of one key of a valid configuration: its default where it is unset."""
    (key,) = (each for each in keys if each.name == name)
    text = config.get(name, key.default)
    return None if text is None else parse(key.type, text)
