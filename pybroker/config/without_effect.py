"""Settings that were given and have no effect: a line for each, at the start and where they are altered.

Owns: what has none, and why, in words.  Refuses nothing: what must not be without effect its row refuses
(``schema.CHECKED``).  No line quotes a value, which may be a secret.

Counterpart in Kafka: ``AbstractConfig.logUnused``, which knows of unknown names alone.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from pybroker.config.broker_settings import BROKER_SETTINGS, PROTOCOL_MAP
from pybroker.config.names import LISTENER_PREFIX, OF_PROVIDERS, OF_THE_AUTHORIZER, base_name, broker_setting

log = logging.getLogger("pybroker.config")

_UNKNOWN: Final = "it is no setting that is known here"
_LIKENESS_MIN: Final = 0.6
_TUNES: Final = "pybroker does without what it tunes"
# What is read for one listener, and of that what is read for one of its SASL mechanisms.
_OF_LISTENERS: Final = ("ssl.", "sasl.", "principal.")
_NAMES_OF_LISTENERS: Final = frozenset(("connections.max.reauth.ms", "max.connections", "max.connection.creation.rate"))
_OF_MECHANISMS: Final = ("sasl.jaas.", "sasl.server.callback.", "sasl.oauthbearer.", "connections.max.reauth.ms")
_OF_LOGINS: Final = ("sasl.", "connections.max.reauth.ms")


def tell_without_effect(names: Iterable[str], settings: Mapping[str, str]) -> None:
    """A line for each of ``names`` that changes nothing beside the others of ``settings``."""
    for name in sorted(set(names)):
        why = _why_without_effect(name, settings)
        if why is not None:
            # What is unknown may be misspelt; the others stand in every file of Kafka's.
            hint = suggestion(name) if why is _UNKNOWN else ""
            log.log(logging.INFO if why is _TUNES else logging.WARNING, "%s has no effect: %s%s", name, why, hint)


def suggestion(name: str) -> str:
    """What may have been meant by an unknown name, to stand behind what is said of it; empty where nothing is near."""
    if "." not in name:  # a word of something else: few settings are one
        return ""
    from difflib import get_close_matches

    nearest = get_close_matches(name, BROKER_SETTINGS, n=1, cutoff=_LIKENESS_MIN)
    return f"; did you mean '{nearest[0]}'?" if nearest else ""


def _why_without_effect(name: str, settings: Mapping[str, str]) -> str | None:
    if name in OF_THE_AUTHORIZER:
        return None if settings.get("authorizer.class.name", "").strip() else "authorizer.class.name is not set"
    if name.startswith(OF_PROVIDERS):
        provider = name[len(OF_PROVIDERS) :].split(".", maxsplit=1)[0]
        known = provider in (each.strip() for each in settings.get("config.providers", "").split(","))
        return None if known else f"config.providers does not name {provider}"
    setting = broker_setting(name)
    if setting is None:
        return _UNKNOWN
    if not setting.has_effect:
        return _TUNES
    base = base_name(name)
    if base is not None and base != name:
        return _why_without_effect_for_a_listener(name, base, settings)
    return None


def _why_without_effect_for_a_listener(name: str, base: str, settings: Mapping[str, str]) -> str | None:
    listener, _, rest = name[len(LISTENER_PREFIX) :].partition(".")
    if listener not in _listeners(settings):
        return f"there is no listener {listener}"
    if base not in _NAMES_OF_LISTENERS and not base.startswith(_OF_LISTENERS):
        return f"{base} holds for all listeners alone"
    if rest != base and not base.startswith(_OF_MECHANISMS):
        return f"{base} is no setting of a SASL mechanism"
    protocol = _protocols(settings).get(listener, listener)
    if base.startswith("ssl.") and not protocol.endswith("ssl"):
        return f"listener {listener} speaks no TLS"
    if base.startswith(_OF_LOGINS) and not protocol.startswith("sasl_"):
        return f"listener {listener} asks for no login by SASL"
    mechanism = rest[: -len(base) - 1].upper()
    if mechanism and mechanism not in _mechanisms(listener, settings):
        return f"listener {listener} does not enable {mechanism}"
    return None


def _protocols(settings: Mapping[str, str]) -> dict[str, str]:
    """The security protocol of each listener, both in lower case."""
    entries = settings.get("listener.security.protocol.map", PROTOCOL_MAP).lower().split(",")
    split = (entry.rpartition(":") for entry in entries)
    return {name.strip(): protocol.strip() for name, _, protocol in split}


def _mechanisms(listener: str, settings: Mapping[str, str]) -> set[str]:
    """Those that the listener enables, in upper case."""
    setting = "sasl.enabled.mechanisms"
    text = settings.get(f"{LISTENER_PREFIX}{listener}.{setting}", settings.get(setting))
    names = BROKER_SETTINGS[setting].default if text is None else text.split(",")
    return {name.strip().upper() for name in names}


def _listeners(settings: Mapping[str, str]) -> set[str]:
    """The names of the listeners that clients reach, as they stand in the names of settings."""

    def names(setting: str, text: str | None, separator: str) -> set[str]:
        elements = BROKER_SETTINGS[setting].parse(text) if text is not None else BROKER_SETTINGS[setting].default
        return {element.partition(separator)[0].strip().lower() for element in elements}

    controllers = names("controller.listener.names", settings.get("controller.listener.names", "CONTROLLER"), ",")
    return names("listeners", settings.get("listeners"), "://") - controllers
