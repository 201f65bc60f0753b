"""``--command-config FILE``: a client's settings as Kafka's Java clients have them, so that one file serves both.

Owns: what is called otherwise in kafka-python, and what it cannot take.  A password in a file is in no list of
processes.  Counterpart: ``--command-config`` of Kafka's tools.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from pybroker.cli.failure import CommandFailed
from pybroker.cli.output import remark
from pybroker.config import jaas
from pybroker.config.properties import parse_properties
from pybroker.config.secret_files import exposure_of_settings

# What must not be passed over in silence where it cannot be done.
_OF_SECURITY: Final = ("security.", "sasl.", "ssl.")
_STORES_OF_JAVA: Final = (".jks", ".p12", ".pfx")


def file_settings(path: str, known: Callable[[str], bool]) -> dict[str, str]:
    """The settings of a properties file by names that ``known`` finds in the client; CommandFailed.

    Settings of Java clients that this one does not have are passed over, unless they are about security.
    """
    try:
        with open(path, encoding="utf-8") as file:
            properties = parse_properties(file.read())
    except OSError as error:
        raise CommandFailed(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise CommandFailed(f"{path} is no file of properties in UTF-8") from error
    if (warning := exposure_of_settings(path, properties)) is not None:
        remark(f"pybroker: {warning}")
    return _translated(path, properties, known)


def _translated(path: str, properties: Mapping[str, str], known: Callable[[str], bool]) -> dict[str, str]:
    settings: dict[str, str] = {}
    for name, value in properties.items():
        if (translate := _TRANSLATED.get(name)) is not None:
            try:
                settings |= translate(value)
            except ValueError as error:
                raise CommandFailed(f"{path}: {name}: {error}") from error
        elif known(name):
            settings[name] = value
        elif name.startswith(_OF_SECURITY):
            raise CommandFailed(f"{path}: unknown client setting {name!r}")
    return settings


def _login(text: str) -> dict[str, str]:
    user, password = jaas.login_of(text)
    return {"sasl.username": user, "sasl.password": password}


def _pem(*names: str) -> Callable[[str], dict[str, str]]:
    def translate(location: str) -> dict[str, str]:
        if location.lower().endswith(_STORES_OF_JAVA):
            raise ValueError(f"{location} is a store of Java's; name a PEM file")
        return dict.fromkeys(names, location)

    return translate


def _store_type(text: str) -> dict[str, str]:
    if text.upper() != "PEM":
        raise ValueError(f"{text} is a store of Java's; PEM is served")
    return {}


_NOTHING: Final[Collection[str]] = (
    *("bootstrap.servers", "ssl.protocol", "ssl.enabled.protocols", "ssl.keystore.password", "ssl.truststore.password"),
)
_TRANSLATED: Final[dict[str, Callable[[str], dict[str, str]]]] = {
    **dict.fromkeys(_NOTHING, lambda _: {}),
    "sasl.jaas.config": _login,
    "ssl.truststore.type": _store_type,
    "ssl.truststore.location": _pem("ssl.ca.location"),
    "ssl.keystore.type": _store_type,
    "ssl.keystore.location": _pem("ssl.certificate.location", "ssl.key.location"),
    "ssl.endpoint.identification.algorithm": lambda text: {} if text else {"ssl.check.hostname": "false"},
}
