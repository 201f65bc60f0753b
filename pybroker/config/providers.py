"""Kafka's config providers: ``${provider:[path:]key}`` in the broker's static settings, taken from elsewhere.

Owns: the three providers of Kafka (environment, file, directory), their parameters, and what becomes of a reference.
Owns no setting.  A value that is put in is looked at no further, as in Kafka: what it holds of ``${…}`` is text.

A reference that finds nothing stays as it is, as in Kafka, with a warning; but a secret that is one is refused, because
its text would be the password.  Static settings alone are looked through: who may alter settings of a running broker
has no way by them to its environment and files (Kafka resolves those, too).

Invariants: no text tells of a value; a file is read within ``NAMED_FILE_BYTES_MAX``; the time is linear in the
length of the values.

Counterparts in Kafka: ``AbstractConfig.resolveConfigVariables``, ``ConfigTransformer``, ``EnvVarConfigProvider``,
``FileConfigProvider``, ``DirectoryConfigProvider`` and ``AllowedPaths``.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from pybroker.config.named_files import read_named_text
from pybroker.config.names import OF_PROVIDERS as PREFIX
from pybroker.config.names import PROVIDERS, is_secret
from pybroker.config.properties import parse_properties
from pybroker.config.schema import LIST, ConfigError, invalid_value, parse_value

log = logging.getLogger("pybroker.config")

_PACKAGE: Final = "org.apache.kafka.common.config.provider."
_PROVIDER_NAME: Final = re.compile(r"[A-Za-z0-9_.-]+")


class Reference(NamedTuple):
    """One ``${provider:[path:]key}``, and where it stands in its text."""

    start: int
    end: int
    provider: str
    path: str
    key: str


def references(text: str) -> Iterator[Reference]:
    """What the text refers to; the key may hold colons where there is a path."""
    start = text.find("${")
    while start >= 0 and (end := text.find("}", start)) >= 0:
        provider, colon, rest = text[start + 2 : end].partition(":")
        if colon:
            path, second, key = rest.partition(":")
            yield Reference(start, end + 1, provider, path if second else "", key if second else rest)
        start = text.find("${", end + 1)


def refers_elsewhere(text: str) -> bool:
    """Whether the text has the form of a reference to any provider."""
    return any(_is_meant(each.provider) for each in references(text))


def _is_meant(provider: str) -> bool:
    """Whether this names a provider, also with blanks around it or behind another ``${``, where Kafka finds none."""
    return _PROVIDER_NAME.fullmatch(provider.rpartition("${")[2].strip()) is not None


def resolve(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings with what their references find; ConfigError, which names the setting."""
    providers = _providers(settings)
    return {name: _resolved(name, text, providers) for name, text in settings.items()}


def _resolved(name: str, text: str, providers: Mapping[str, Lookup]) -> str:
    if "${" not in text:
        return text
    parts, at = [], 0
    for each in references(text):
        lookup = providers.get(each.provider)
        found = None if lookup is None else lookup(each.path, each.key, name)
        if found is None:
            _tell_unresolved(name, text[each.start : each.end], each.provider, lookup is not None)
            continue
        parts += [text[at : each.start], found]
        at = each.end
    return "".join((*parts, text[at:]))


def _tell_unresolved(name: str, reference: str, provider: str, is_known: bool) -> None:
    if not _is_meant(provider):
        return
    why = "finds nothing" if is_known else f"names a provider that {PROVIDERS} does not"
    if is_secret(name):
        if not is_known:
            reference = "${…}"  # it may be a part of the secret itself
        raise ConfigError(f"{name}: {reference} {why}, and its text must not be the secret")
    log.warning("%s: %s %s: it stays as it is", name, reference, why)


# --- providers -------------------------------------------------------------------------------------------------------

# The value of (path, key), or None; the last argument is the setting, for errors.
Lookup = Callable[[str, str, str], str | None]


def _providers(settings: Mapping[str, str]) -> dict[str, Lookup]:
    found = {}
    for name in parse_value(PROVIDERS, settings.get(PROVIDERS, ""), LIST):
        setting = f"{PREFIX}{name}.class"
        class_name = settings.get(setting, "").strip()
        if not class_name:
            raise ConfigError(f"{PROVIDERS} names {name}, but {setting} is not set")
        make = _CLASSES.get(class_name)
        if make is None:
            here = ", ".join(_CLASSES)
            raise invalid_value(setting, class_name, f"pybroker loads no Java classes; there are {here}")
        parameters = f"{PREFIX}{name}.param."
        found[name] = make(
            parameters, {each[len(parameters) :]: settings[each] for each in settings if each.startswith(parameters)}
        )
    return found


def _one_of(parameters: Mapping[str, str], known: str, prefix: str) -> str | None:
    """The one parameter that a provider has; a misspelt one would allow everything."""
    for name in parameters:
        if name != known:
            raise ConfigError(f"{prefix}{name}: there is no such parameter, but {known}")
    return parameters.get(known)


def _environment(prefix: str, parameters: Mapping[str, str]) -> Lookup:
    pattern = _one_of(parameters, "allowlist.pattern", prefix)
    try:
        allowed = re.compile(".*" if pattern is None else pattern.strip())
    except re.error as error:
        raise invalid_value(f"{prefix}allowlist.pattern", pattern, f"it is no regular expression: {error}") from None

    def lookup(path: str, key: str, setting: str) -> str | None:
        if path:
            raise ConfigError(f"{setting}: Path is not supported for EnvVarConfigProvider, invalid value '{path}'")
        return os.environ.get(key) if allowed.fullmatch(key) else None

    return lookup


def _file(prefix: str, parameters: Mapping[str, str]) -> Lookup:
    allowed = _allowed_paths(prefix, parameters)
    read: dict[str, dict[str, str]] = {}

    def lookup(path: str, key: str, setting: str) -> str | None:
        plain = allowed(path, setting) if path else None
        if plain is None:
            return None
        if plain not in read:
            text = read_named_text(plain, setting)
            try:
                read[plain] = parse_properties(text)
            except ValueError:
                raise ConfigError(f"{setting}: {plain} is no file of properties") from None
        return read[plain].get(key)

    return lookup


def _directory(prefix: str, parameters: Mapping[str, str]) -> Lookup:
    allowed = _allowed_paths(prefix, parameters)

    def lookup(path: str, key: str, setting: str) -> str | None:
        plain = allowed(path, setting) if path else None
        if plain is None or "/" in key or key in ("", ".", "..") or "\0" in plain + key:
            return None
        file = os.path.join(plain, key)
        # Kafka passes over what is no regular file.
        return read_named_text(file, setting) if os.path.isfile(file) else None

    return lookup


def _allowed_paths(prefix: str, parameters: Mapping[str, str]) -> Callable[[str, str], str | None]:
    """What to open for a path that lies in one of ``allowed.paths`` by its name, else None.

    A link in there may lead elsewhere, as in Kafka.  ``link/..`` is gone before the path is opened: it would leave by
    the link's target.
    """
    listed = _one_of(parameters, "allowed.paths", prefix)
    roots = []
    for path in (listed or "").split(",") if listed else ():
        root = os.path.normpath(path.strip())
        if not os.path.isabs(root):
            raise ConfigError(f"{prefix}allowed.paths: Path {root} is not absolute")
        if not os.path.exists(root):
            raise ConfigError(f"{prefix}allowed.paths: Path {root} does not exist")
        roots.append(root.rstrip("/") + "/")

    def allowed(path: str, setting: str) -> str | None:
        if not roots:
            return path
        plain = os.path.normpath(path)
        if any(f"{plain}/".startswith(root) for root in roots):
            return plain
        log.warning("%s: the path %s is not allowed to be accessed", setting, path)
        return None

    return allowed


_CLASSES: Final[Mapping[str, Callable[[str, Mapping[str, str]], Lookup]]] = {
    f"{_PACKAGE}EnvVarConfigProvider": _environment,
    f"{_PACKAGE}FileConfigProvider": _file,
    f"{_PACKAGE}DirectoryConfigProvider": _directory,
}
