"""What a kind of connector is: its name, its keys, where its code is, and what its values must be together."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple
from urllib.parse import urlsplit

from pybroker.connectors.declared.common_keys import DEAD_LETTERS, EVERYWHERE, SINK, SOURCE, converter_key
from pybroker.connectors.declared.config_keys import Key, KeyType
from pybroker.connectors.declared.secret_texts import secret_parameters, without_references

# What is wrong with values as they stand together, by the key that is named.
Check = Callable[[Mapping[str, str]], dict[str, list[str]]]


def nothing_wrong(config: Mapping[str, str]) -> dict[str, list[str]]:
    """The check of a kind whose values are judged one by one."""
    return {}


class SourcePartition(NamedTuple):
    """The partition that a source reads, as offsets of Connect's name it, and a field that its offset must have."""

    partition: Mapping[str, str]
    offset: str


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of connector; ``module`` in ``pybroker.connectors.kinds`` has its code.

    A key of its own stands in place of a shared one of that name, whose default does not fit.
    """

    name: str
    type: Literal["source", "sink"]
    module: str
    summary: str
    own_keys: Sequence[Key]
    check: Check = nothing_wrong
    # Whether a source's offsets are in the topic of offsets; else its checkpoint has its place.
    has_offsets: bool = False
    # The one partition that a configuration as declared reads, references and all; None: the source itself knows.
    partition: Callable[[Mapping[str, str]], SourcePartition | None] | None = None
    needs_spark: bool = True
    # Of the shared keys those that mean something; None: all.
    shared_keys: AbstractSet[str] | None = None
    # Whether a checkpoint has state, so that its offsets can be reset, and not altered.
    keeps_state: bool = False
    # The class of Kafka Connect that it runs: its other keys are that class's, which judges them itself.
    runs: str | None = None

    @property
    def names_topics(self) -> bool:
        """Whether a source itself says to which topic each of its records goes."""
        return self.runs is not None

    @property
    def keys(self) -> tuple[Key, ...]:
        """All keys of its configuration."""
        own = {key.name for key in self.own_keys}
        shared = (*EVERYWHERE, *(SOURCE if self.type == "source" else SINK))
        meant = {key.name for key in shared} if self.shared_keys is None else self.shared_keys
        return (*(key for key in shared if key.name in meant - own), *self.own_keys)


def writes_plain_json(name: str, *more: str) -> Check:
    """The check of a source that writes JSON as it comes, and so has no converters, transforms, nor ``more``."""

    def check(config: Mapping[str, str]) -> dict[str, list[str]]:
        refused = ("transforms", "key.converter", "value.converter", *more)
        told = f"{name} writes JSON as it comes: a job or a sink behind it has"
        return {each: [f"{told} {each}"] for each in refused if config.get(each, "").strip()}

    return check


def _check_url(text: str) -> str | None:
    if not text.startswith("jdbc:postgresql:"):
        return "it must begin with jdbc:postgresql:"
    return "a password must not stand in it: connection.password names it" if "password=" in text.lower() else None


def check_http(text: str) -> str | None:
    """The check of a server's URL, of which a part may be a reference."""
    url = without_references(text.strip(), "found")
    if not url.startswith(("http://", "https://")):
        return "it must begin with http:// or https://"
    if not url.isascii() or not url.isprintable() or " " in url:
        return "it has characters that no URL has: they are written as %XX"
    try:
        parts = urlsplit(url)
        names_a_host = bool(parts.hostname) and parts.port != 0
    except ValueError:
        names_a_host = "${" in text
    if "@" in re.split("[/?#]", url)[2]:
        return "a user must not stand in it: http.authorization has the login"
    if (name := next(secret_parameters(text), None)) is not None:
        return f"the value of {name} must be named by a config provider, as ${{file:/path:key}}"
    return None if names_a_host else "it names no host, or a port that is none"


CONNECTION: Final = (
    Key(
        "connection.url",
        KeyType.STRING,
        "The database, as jdbc:postgresql://HOST:PORT/DATABASE.",
        is_required=True,
        importance="HIGH",
        group="Database",
        check=_check_url,
    ),
    Key("connection.user", KeyType.STRING, "The user.", group="Database"),
    Key("connection.password", KeyType.PASSWORD, "The user's password.", group="Database"),
)

_OF_CLUSTER: Final[Sequence[tuple[str, KeyType, str, Sequence[str]]]] = (
    ("bootstrap.servers", KeyType.STRING, "Brokers of the other cluster; unset is the supervisor's own.", ()),
    ("security.protocol", KeyType.STRING, "How it is reached.", ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")),
    ("sasl.mechanism", KeyType.STRING, "The way of logging in.", ()),
    ("sasl.jaas.config", KeyType.PASSWORD, "The login, as Kafka's clients have it.", ()),
    ("ssl.truststore.location", KeyType.STRING, "Certificates that are trusted, in a file of PEM.", ()),
    ("ssl.keystore.location", KeyType.STRING, "The own key and certificate, in a file of PEM or PKCS#12.", ()),
    ("ssl.keystore.password", KeyType.PASSWORD, "The password of that file.", ()),
    ("ssl.key.password", KeyType.PASSWORD, "The password of the own key.", ()),
)
CLUSTER: Final = tuple(
    Key(f"cluster.{name}", kind, documentation, one_of=choices, group="Cluster", importance="HIGH" if not at else "LOW")
    for at, (name, kind, documentation, choices) in enumerate(_OF_CLUSTER)
)
# Of a connector from topics to topics: records stay as they are, unless another converter is named.
COPYING: Final = (
    converter_key("key", "bytes"),
    converter_key("value", "bytes"),
    Key("topic", KeyType.STRING, "The topic that is written; unset is the one of the same name.", ""),
    Key("keep.partitions", KeyType.BOOLEAN, "Whether a record stays in the partition of its number.", "false"),
    *CLUSTER,
)


def copying(topics: str, pattern: str) -> Check:
    """The check of a connector from topics to topics, which the keys ``topics`` and ``pattern`` name."""

    def check(config: Mapping[str, str]) -> dict[str, list[str]]:
        target, another = config.get("topic", "").strip(), config.get("cluster.bootstrap.servers", "").strip()
        names = [name.strip() for name in config.get(topics, "").split(",")]
        is_routed = bool(config.get("transforms", "").strip()) and not target
        reads_it = target in names or not target or _fits(config.get(pattern, "").strip(), target)
        if another or is_routed or not reads_it:
            return {}
        return {"topic": ["records would be read again: topic or cluster.bootstrap.servers says where else they go"]}

    return check


def own_dead_letters(topics: str, pattern: str) -> Check:
    """The check of a connector that reads the topics which the keys ``topics`` and ``pattern`` name.

    Where its dead letters' topic is one of them, each would be read, and put aside, for ever.
    """

    def check(config: Mapping[str, str]) -> dict[str, list[str]]:
        letters, fitting = config.get(DEAD_LETTERS, "").strip(), config.get(pattern, "").strip()
        names = [name.strip() for name in config.get(topics, "").split(",")]
        found = {}
        if letters and letters in names:
            found[topics] = [
                f"The DLQ topic '{letters}' may not be included in the list of topics "
                f"('{topics}={', '.join(names)}') consumed by the connector"
            ]
        if letters and _fits(fitting, letters):
            found[pattern] = [
                f"The DLQ topic '{letters}' may not be included in the regex matching the topics "
                f"('{pattern}={fitting}') consumed by the connector"
            ]
        return found

    return check


def _fits(pattern: str, topic: str) -> bool:
    try:
        return bool(pattern) and re.fullmatch(pattern, topic) is not None
    except re.error:  # which is told for itself
        return False


FILE_FORMATS: Final = ("csv", "json", "text", "parquet")
