"""``--command-config FILE``: a client's settings as Kafka's Java clients have them, so that one file serves both.

Owns: what is called otherwise in librdkafka, and what no client library takes.  A password in a file is in no list of
processes.  Owns neither stores of keys (``security/tls_stores``) nor bearer tokens (``bearer_logins``).  Counterpart:
``--command-config`` of Kafka's tools.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pybroker.cli.terminal.failure import CommandFailed, reason_of
from pybroker.cli.terminal.output import remark
from pybroker.config import jaas
from pybroker.config.broker_settings import BROKER_SETTINGS
from pybroker.config.properties import parse_properties
from pybroker.config.providers import resolve
from pybroker.config.schema import ConfigError
from pybroker.config.secret_files import exposure_of_settings

if TYPE_CHECKING:
    from pybroker.cli.connection.bearer_logins import BearerTokens
    from pybroker.security.tls_stores import ClientTls

_LOGIN: Final = "sasl.jaas.config"
# What must not be passed over in silence where it cannot be done.
_OF_SECURITY: Final = ("security.", "sasl.", "ssl.")
_STORES_OF_JAVA: Final = (".jks", ".p12", ".pfx")
_INLINE: Final = frozenset({"ssl.keystore.key", "ssl.keystore.certificate.chain", "ssl.truststore.certificates"})


class FileSettings(NamedTuple):
    """What a file says: settings by Kafka's or librdkafka's names; keys and authorities where they are no PEM files.

    It also says where bearer tokens come from, and whether the user is a delegation token.
    """

    texts: dict[str, str]
    tls: ClientTls | None = None
    tokens: BearerTokens | None = None
    is_delegation_token: bool = False


class _ClientStores:
    """The settings ``ssl.*`` of a client.  See ``tls_stores.StoreSettings``."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = properties

    def get(self, setting: str) -> Any:
        text, row = self._properties.get(setting), BROKER_SETTINGS[setting]
        if text is None and setting in ("ssl.keystore.type", "ssl.truststore.type"):
            location = self._properties.get(setting.replace("type", "location"), "")
            return row.default if location.lower().endswith(_STORES_OF_JAVA) else "PEM"
        return row.default if text is None else row.parse(text)

    def name_of(self, setting: str) -> str:
        return setting

    @property
    def are_pem_files(self) -> bool:
        """Whether client libraries read them by themselves."""
        types = {str(self.get(f"ssl.{kind}.type")).upper() for kind in ("keystore", "truststore")}
        return types == {"PEM"} and not self._properties.keys() & _INLINE


@cache
def _tell_once(warning: str) -> None:
    """A command may read its file for several connections."""
    remark(warning)


def client_properties(path: str, option: str) -> dict[str, str]:
    """What a properties file of a client says, as it stands there; CommandFailed where it cannot be read.

    A file with secrets that others of the machine may read is a line on standard error.
    """
    try:
        with open(path, encoding="utf-8") as file:
            properties = parse_properties(file.read())
    except OSError as error:
        raise CommandFailed(f"{option} {path}: {reason_of(error)}") from error
    except ValueError as error:
        raise CommandFailed(f"{path} is no file of properties in UTF-8") from error
    if (warning := exposure_of_settings(path, properties)) is not None:
        _tell_once(f"pybroker: {warning}")
    return properties


def file_settings(path: str, known: Callable[[str], bool]) -> FileSettings:
    """The settings of a properties file by names that ``known`` finds in the client; CommandFailed.

    Settings of Java clients that this one does not have are passed over, unless they are about security.  References
    to config providers that the file names are resolved, and a secret that refers to nothing is refused.
    """
    properties = client_properties(path, "--command-config")
    taken: set[str] = set()
    try:
        # By ``config.providers`` of this file, as Kafka's clients do.
        properties = resolve(properties)
        tls, tokens = _tls(properties, taken), _tokens(properties, taken)
    except (ConfigError, ValueError) as error:
        raise CommandFailed(f"{path}: {error}") from error
    rest = {name: value for name, value in properties.items() if name not in taken}
    login = _login(path, rest.pop(_LOGIN, None))
    texts = _translated(path, rest, known)
    if login is None:
        return FileSettings(texts, tls, tokens)
    return FileSettings(
        {"sasl.username": login.user, "sasl.password": login.password, **texts}, tls, tokens, login.is_token
    )


def _tls(properties: Mapping[str, str], taken: set[str]) -> ClientTls | None:
    """What the stores hold that are no PEM files; ConfigError.  Which settings say so is added to ``taken``."""
    stores = _ClientStores(properties)
    if stores.are_pem_files:
        return None
    from pybroker.security.tls_stores import client_tls

    taken |= {name for name, setting in BROKER_SETTINGS.items() if name.startswith("ssl.") and setting.used}
    return client_tls(stores)


def _tokens(properties: Mapping[str, str], taken: set[str]) -> BearerTokens | None:
    """Where bearer tokens come from; ConfigError, ValueError."""
    if properties.get("sasl.mechanism", "").strip() != "OAUTHBEARER":
        return None
    from pybroker.cli.connection import bearer_logins

    taken |= bearer_logins.SETTINGS
    return bearer_logins.bearer_tokens(properties)


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


def _login(path: str, line: str | None) -> jaas.Login | None:
    if line is None:
        return None
    try:
        return jaas.login_of(line, takes_tokens=True)
    except jaas.JaasError as error:
        raise CommandFailed(f"{path}: {_LOGIN}: {error}") from error


_NOTHING: Final[Collection[str]] = (
    *("bootstrap.servers", "ssl.protocol", "ssl.enabled.protocols", "ssl.keystore.password", "ssl.truststore.password"),
    *("ssl.truststore.type", "ssl.keystore.type"),
)
_TRANSLATED: Final[dict[str, Callable[[str], dict[str, str]]]] = {
    **dict.fromkeys(_NOTHING, lambda _: {}),
    "ssl.truststore.location": lambda location: {"ssl.ca.location": location},
    "ssl.keystore.location": lambda location: {"ssl.certificate.location": location, "ssl.key.location": location},
    "ssl.endpoint.identification.algorithm": lambda text: {} if text else {"ssl.check.hostname": "false"},
}
