"""What a cluster link is set to, as its source's clients and the controller want to know it.

Owns: ``LinkConfig``, the typed settings of one link with the sets of topics that they name, and which links there are.
Owns no table (``link_settings``), no state of a link (``link_states``), and no connection (``net/source_client``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

from pybroker.config.broker import BrokerConfig
from pybroker.config.link_settings import OF_LINKS, row_of
from pybroker.config.own_settings import LINKS_PREFIX
from pybroker.config.schema import ConfigError


class LinkConfig:
    """What one link is set to: ``get(setting)`` by the name behind the link's; two with the same texts are equal.

    What cannot be accepted, as out of an older version's store, has its default.  Printed without its values.
    """

    def __init__(self, link: str, texts: Mapping[str, str]) -> None:
        self.link = link
        self.texts = dict(texts)
        self._values: dict[str, Any] = {}
        for setting, text in self.texts.items():
            row = row_of(setting)
            if row is None:
                continue
            with suppress(ConfigError):
                self._values[setting] = row._replace(name=self.name_of(setting)).parse(text)

    def __repr__(self) -> str:
        return f"LinkConfig({self.link!r}, [hidden])"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LinkConfig) and (self.link, self.texts) == (other.link, other.texts)

    __hash__ = None  # type: ignore[assignment]  # it is compared, and no key

    def get(self, setting: str) -> Any:
        """The value, or the default; KeyError for what is no setting of links."""
        if setting in self._values:
            return self._values[setting]
        row = row_of(setting)
        if row is None:
            raise KeyError(setting)
        return row.default

    def name_of(self, setting: str) -> str:
        """The setting's whole name, for errors."""
        return f"{LINKS_PREFIX}{self.link}.{setting}"

    def connection(self) -> dict[str, str]:
        """The texts that say where the source is and how it is reached: with others a connection begins anew."""
        names = ("bootstrap.servers", "security.", "sasl.", "ssl.")
        return {setting: text for setting, text in self.texts.items() if setting.startswith(names)}

    # --- sets of topics, by their names at the source ---------------------------------------------------------------

    @cached_property
    def _topics(self) -> _Names:
        return _Names(self.get("topics"))

    @cached_property
    def _excluded(self) -> _Names:
        return _Names(self.get("topics.exclude"))

    @cached_property
    def _wishes(self) -> tuple[tuple[str, _Names], ...]:
        """The strongest first."""
        return tuple((wish, _Names(self.get(wish))) for wish in ("failover", "promote", "pause"))

    def mirrors(self, topic: str) -> bool:
        """Whether the link is to mirror a topic of the source; Kafka's own it does not by a pattern."""
        if topic not in self._topics or topic in self._excluded:
            return False
        return not topic.startswith("__") or self.names_topic(topic)

    def names_topic(self, topic: str) -> bool:
        """Whether ``topics`` has the name of a topic of the source, beside any pattern."""
        return topic in self._topics.named

    def source_name(self, name: str) -> str | None:
        """The topic of the source that one of that name here is to mirror; None where the link mirrors none so."""
        prefix: str = self.get("prefix")
        topic = name[len(prefix) :]
        return topic if name.startswith(prefix) and self.mirrors(topic) else None

    @cached_property
    def _adopted(self) -> _Names:
        return _Names(self.get("adopt"))

    def adopts(self, topic: str) -> bool:
        """Whether a topic that is here already is mirrored from now on, unless it is to take writes."""
        return topic in self._adopted and self.wish(topic) not in ("failover", "promote")

    @cached_property
    def _discarded(self) -> _Names:
        return _Names(self.get("discard"))

    def discards(self, topic: str) -> bool:
        """Whether what the source lacks of an adopted topic is cut off here."""
        return topic in self._discarded

    @cached_property
    def _groups(self) -> _Names:
        return _Names(self.get("groups"))

    def carries(self, group_id: str) -> bool:
        """Whether the committed offsets of a group are taken over."""
        return group_id in self._groups

    @cached_property
    def _carried(self) -> dict[str, _Names]:
        return {kind: _Names(self.get(kind)) for kind in ("acls", "quotas", "users")}

    def named_groups(self) -> list[str]:
        """The groups that ``groups`` names one by one."""
        return [each for each in self.get("groups") if "*" not in each]

    def matches(self, kind: str, name: str) -> bool:
        """Whether "acls", "quotas" or "users" of that name are taken over: a principal, an entity's name, a user."""
        return name in self._carried[kind]

    def wish(self, topic: str) -> str:
        """What is wanted of a topic of the source: "failover", "promote" or "pause", or "" that it is mirrored."""
        return next((wish for wish, names in self._wishes if topic in names), "")

    def names(self) -> tuple[str, ...] | None:
        """The topics that ``topics`` names one by one; None where it has a pattern."""
        topics: tuple[str, ...] = self.get("topics")
        return None if any("*" in each for each in topics) else topics


class _Names:
    """A set of names and of patterns with ``*``; ``named`` are its names.

    A list has thousands of names, which are looked up for each of thousands of topics: no pattern has them.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        self.named = frozenset(name for name in names if "*" not in name)
        self._patterns = _pattern([name for name in names if "*" in name])

    def __contains__(self, name: str) -> bool:
        return name in self.named or self._patterns.fullmatch(name) is not None


def _pattern(names: Sequence[str]) -> re.Pattern[str]:
    """Matches any of the names; without one it matches nothing."""
    parts = (".*".join(map(re.escape, re.split(r"\*+", name))) for name in names)
    return re.compile("|".join(f"(?:{part})" for part in parts) or r"(?!)", re.DOTALL)


def links_of(config: BrokerConfig) -> dict[str, LinkConfig]:
    """The links that there are, by their names, as the settings of this broker and of all brokers have them."""
    texts: dict[str, dict[str, str]] = {}
    for layer in (config.static, config.cluster_default):
        for name, text in layer.items():
            if name.startswith(LINKS_PREFIX) and (match := OF_LINKS.fullmatch(name)) is not None:
                texts.setdefault(match[1], {})[match[2]] = text
    links = {link: LinkConfig(link, of_link) for link, of_link in texts.items()}
    return {link: config for link, config in links.items() if config.get("bootstrap.servers")}
