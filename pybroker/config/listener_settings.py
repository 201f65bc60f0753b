"""The settings of one listener: ``listener.name.<name>.…`` where that is set, else the broker's.

Owns: which of two names counts, and the value by either.  Owns no meaning (``security``).

Counterpart in Kafka: ``AbstractConfig.valuesWithPrefixOverride`` and, for mechanisms, ``JaasContext``.
"""

from __future__ import annotations

from typing import Any

from pybroker.config.broker import BrokerConfig
from pybroker.config.broker_settings import BROKER_SETTINGS
from pybroker.config.names import LISTENER_PREFIX
from pybroker.config.schema import PASSWORD, ConfigError


class ListenerSettings:
    """Look-ups for one listener; ``mechanism`` is a SASL mechanism with settings of its own."""

    __slots__ = ("_config", "_prefix")

    def __init__(self, config: BrokerConfig, listener: str) -> None:
        self._config = config
        self._prefix = f"{LISTENER_PREFIX}{listener.lower()}."

    def own_name(self, setting: str, mechanism: str = "") -> str:
        """The setting's name for this listener alone."""
        return f"{self._prefix}{mechanism.lower()}.{setting}" if mechanism else f"{self._prefix}{setting}"

    def is_own(self, setting: str, mechanism: str = "") -> bool:
        """Whether it is set for this listener alone."""
        return self._text(self.own_name(setting, mechanism)) is not None

    def name_of(self, setting: str, mechanism: str = "") -> str:
        """The name by which the value that counts was set, for errors."""
        return next((name for name in self._own_names(setting, mechanism) if self._text(name) is not None), setting)

    def get(self, setting: str, mechanism: str = "") -> Any:
        """The value; ConfigError, which names the setting as it was set, for one that cannot be accepted."""
        for name in self._own_names(setting, mechanism):
            text = self._text(name)
            if text is not None:
                if "${" in text and BROKER_SETTINGS[setting].type == PASSWORD:
                    _refuse_reference(name, text)
                return BROKER_SETTINGS[setting]._replace(name=name).parse(text)
        return self._config[setting]

    def all_of(self, *prefixes: str) -> dict[str, Any]:
        """Every setting that begins so, and all that is set for this listener alone: equal where nothing differs."""
        config = self._config
        own = {**config.static, **config.per_broker}
        return {name: config[name] for name in BROKER_SETTINGS if name.startswith(prefixes)} | {
            name: text for name, text in own.items() if name.startswith(self._prefix)
        }

    def _own_names(self, setting: str, mechanism: str) -> list[str]:
        return [self.own_name(setting, mechanism), self.own_name(setting)] if mechanism else [self.own_name(setting)]

    def _text(self, name: str) -> str | None:
        config = self._config
        return config.per_broker.get(name, config.static.get(name))


def _refuse_reference(name: str, text: str) -> None:
    """A secret that refers elsewhere and was not resolved (an older version's store): its text must not be it."""
    from pybroker.config.providers import refers_elsewhere

    if refers_elsewhere(text):
        raise ConfigError(f"{name}: references to config providers are resolved in a broker's own file alone")
