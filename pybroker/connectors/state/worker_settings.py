"""Settings of a supervisor: a file as Kafka Connect's workers have (``connect-distributed.properties``), and options.

Owns names and defaults, and which settings of the file are a client's.  Values of connectors that name a config
provider are resolved by the providers of this file alone, as Connect does it: without any, a reference is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from pybroker.config.names import OF_PROVIDERS, PROVIDERS
from pybroker.config.properties import parse_properties
from pybroker.config.providers import references, resolve
from pybroker.connectors.declared.config_keys import is_of_providers
from pybroker.connectors.declared.secret_texts import is_reference

_SECURITY: Final = ("security.", "sasl.", "ssl.")


class SettingsRefused(ValueError):
    """A setting of the supervisor cannot be meant."""


class Found(NamedTuple):
    """What a text with a reference has become, and the key of the configuration that it belongs to."""

    key: str
    declared: str
    value: str


class Resolved(NamedTuple):
    """A connector's configuration with what its references find, and what they have found."""

    config: dict[str, str]
    found: Sequence[Found]


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """What a supervisor goes by.  ``client`` are settings of Kafka's Java clients, the address among them."""

    client: Mapping[str, str]
    group: str = "connect-cluster"
    config_topic: str = "connect-configs"
    offset_topic: str = "connect-offsets"
    status_topic: str = "connect-status"
    replication_factor: int = -1
    providers: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"WorkerSettings({self.group!r}, {self.client.get('bootstrap.servers')!r})"

    def resolved(self, config: Mapping[str, str]) -> Resolved:
        """A connector's configuration with what its references find; SettingsRefused for one that finds nothing.

        A connector has no providers of its own: it would lift what those of the supervisor are bound to.
        """
        own = {name: text for name, text in config.items() if not is_of_providers(name)}
        # By the key, which has no blank: the references in its text.
        parts = {
            f"{name} {at}": text[each.start : each.end]
            for name, text in own.items()
            if not is_reference(text)
            for at, each in enumerate(references(text))
        }
        found = resolve({**own, **parts, **self.providers})
        for name, text in own.items():
            if is_reference(text) and found[name] == text:
                raise SettingsRefused(f"{name} names a config provider, and it finds nothing")
        texts = {**own, **parts}
        values = [
            Found(name.partition(" ")[0], text, found[name]) for name, text in texts.items() if found[name] != text
        ]
        return Resolved({name: found[name] for name in own}, values)


def worker_settings(file: Path | None, bootstrap: str | None, group: str | None) -> WorkerSettings:
    """The settings; options win over the file.  SettingsRefused, OSError."""
    properties: dict[str, str] = {}
    if file is not None:
        try:
            properties = parse_properties(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise SettingsRefused(f"{file} is no file of properties in UTF-8") from error
    providers = {name: text for name, text in properties.items() if name == PROVIDERS or name.startswith(OF_PROVIDERS)}
    properties = resolve(properties)
    servers = bootstrap or properties.get("bootstrap.servers", "127.0.0.1:9092")
    security = {name: text for name, text in properties.items() if name.startswith(_SECURITY)}
    factor = properties.get("config.storage.replication.factor", "-1").strip()
    if not factor.lstrip("-").isdigit():
        raise SettingsRefused(f"config.storage.replication.factor must be a number, not {factor}")
    return WorkerSettings(
        client={"bootstrap.servers": servers, **security},
        group=group or properties.get("group.id", "connect-cluster"),
        config_topic=properties.get("config.storage.topic", "connect-configs"),
        offset_topic=properties.get("offset.storage.topic", "connect-offsets"),
        status_topic=properties.get("status.storage.topic", "connect-status"),
        replication_factor=int(factor),
        providers=providers,
    )
