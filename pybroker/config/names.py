"""Names of broker settings, also under a listener's prefix.

Owns: ``base_name`` and ``synonym_names``, which names are a plug-in's, and which settings are secrets.  A setting may
be given for one listener alone, with ``listener.name.<listener>.`` (and, for SASL, ``<mechanism>.``) in front.

Counterparts in Kafka: ``DynamicBrokerConfig.brokerConfigSynonyms`` and ``KafkaConfig.maybeSensitive``.
"""

from __future__ import annotations

from typing import Final

from pybroker.config.broker_settings import BROKER_SETTINGS, DYNAMIC_ONLY_SETTINGS
from pybroker.config.own_settings import LINKS_PREFIX
from pybroker.config.schema import PASSWORD, Setting

LISTENER_PREFIX: Final = "listener.name."

# What Kafka hands to its authorizer: settings of no type and no default, that have no row.
OF_THE_AUTHORIZER: Final = frozenset(("super.users", "allow.everyone.if.no.acl.found"))

# Kafka's config providers: these names, and below the prefix class and parameters of each provider.
PROVIDERS: Final = "config.providers"
OF_PROVIDERS: Final = f"{PROVIDERS}."

# What librdkafka, and the commands' ``-X``, call secrets of clients for which Kafka has other names.
_SECRETS_OF_LIBRDKAFKA: Final = frozenset(("sasl.password", "sasl.oauthbearer.client.secret", "ssl.key.pem"))

# Settings in several units; the first that is set wins.
_UNITS: Final = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
_UNITS_BY_NAME: Final = {name: names for names in _UNITS for name in names}
# The scheduler's interval stands in for log.flush.interval.ms, never the other way round.
del _UNITS_BY_NAME["log.flush.scheduler.interval.ms"]


def base_name(name: str) -> str | None:
    """The setting that ``name`` is, or overrides for one listener; None when Kafka does not know it."""
    if name in BROKER_SETTINGS:
        return name
    if not name.startswith(LISTENER_PREFIX):
        return None
    # A SASL mechanism may stand between the listener's name and the setting.
    parts = name[len(LISTENER_PREFIX) :].split(".")
    for start in (1, 2):
        candidate = ".".join(parts[start:])
        if candidate in BROKER_SETTINGS:
            return candidate
    return None


def broker_setting(name: str) -> Setting | None:
    """The row of ``name``, of the setting it overrides for one listener, or of a dynamic-only or a link's setting."""
    base = base_name(name)
    if base is None and name.startswith(LINKS_PREFIX):
        from pybroker.config.link_settings import link_setting

        return link_setting(name)
    return DYNAMIC_ONLY_SETTINGS.get(name) if base is None else BROKER_SETTINGS[base]


def is_sensitive(setting: Setting | None) -> bool:
    """Whether its value is never shown: it is a secret, or may be one of a plug-in's, for all that is known."""
    return setting is None or setting.type == PASSWORD


def is_secret(name: str) -> bool:
    """Whether a broker's or a client's setting of this name is a secret: Kafka's clients know them by the same names.

    An unknown name is none: a file is not to be guarded for each mistake in it.
    """
    return name in _SECRETS_OF_LIBRDKAFKA or ((setting := broker_setting(name)) is not None and is_sensitive(setting))


def synonym_names(name: str) -> tuple[str, ...]:
    """The names under which a layer may hold the setting, the strongest first; ``name`` is among them."""
    base = base_name(name)
    if base is not None and base != name:
        return (name, base)
    return _UNITS_BY_NAME.get(name, (name,))
