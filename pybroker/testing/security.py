"""A broker for tests that asks who its clients are: TLS and SASL, with keys and users of its own.

Owns: what a test says of that (``Security``), the broker's settings that follow, and what clients need.  The files are
made in a directory that ends with the broker.  TLS needs the extra ``tls``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from pybroker.config import jaas
from pybroker.config.listeners import KNOWN_PROTOCOLS
from pybroker.extras import how_to_install
from pybroker.security import plain, scram
from pybroker.security.client_access import ClientAccess

if TYPE_CHECKING:
    from pybroker.security.first_users import FirstUsers

MECHANISMS: Final = (*reversed(scram.MECHANISMS), plain.MECHANISM)

_BROKER: Final = "broker"
_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
_CERTIFICATES: Final = "certificates"


class Security(NamedTuple):
    """What a broker, or each of a cluster, asks of its clients; ``security`` of ``Broker`` and ``Cluster`` takes it.

    ``protocol`` is Kafka's ``security.protocol``.  ``users`` are passwords by name; they log in by PLAIN, SCRAM-SHA-256
    or SCRAM-SHA-512.  With ``client_auth`` clients show certificates: each user has one, and is its principal.

    ``Broker`` and ``Cluster`` raise ValueError for a protocol that there is not, for ``client_auth`` without TLS, and
    where there are no users.
    """

    protocol: str = "SASL_SSL"
    users: Mapping[str, str] = MappingProxyType({"alice": "alice-secret"})
    client_auth: bool = False

    @property
    def has_tls(self) -> bool:
        """Whether clients speak TLS."""
        return self.protocol.endswith("SSL")

    @property
    def has_login(self) -> bool:
        """Whether clients log in."""
        return self.protocol.startswith("SASL_")

    def check(self) -> None:
        """ValueError for what cannot be."""
        if self.protocol not in KNOWN_PROTOCOLS:
            raise ValueError(f"no such security protocol: {self.protocol}; there are {', '.join(KNOWN_PROTOCOLS)}")
        if self.client_auth and not self.has_tls:
            raise ValueError(f"client_auth is about certificates, and {self.protocol} has none")
        if not self.users:
            raise ValueError("users: at least one has to get in")

    def certificates_in(self, directory: Path) -> Path:
        """Where in the directory of a broker's keys the certificates lie."""
        return directory / _CERTIFICATES

    def prepare(self, directory: Path) -> dict[str, str]:
        """Write the keys into ``directory``; the broker's settings."""
        settings: dict[str, str] = {}
        if self.has_login:
            users = {f"user_{name}": password for name, password in self.users.items()}
            prefix = f"listener.name.{self.protocol.lower()}"
            settings |= {
                "sasl.enabled.mechanisms": ",".join(MECHANISMS),
                f"{prefix}.plain.sasl.jaas.config": jaas.text_of(
                    jaas.LoginModule(plain.LOGIN_MODULE, "REQUIRED", users)
                ),
            }
        if self.has_tls:
            settings |= self._tls(self.certificates_in(directory))
        return settings

    def _tls(self, directory: Path) -> dict[str, str]:
        try:
            from pybroker.security.certificate_authority import CA_FILE, write_certificates
        except ModuleNotFoundError:
            raise ModuleNotFoundError(f"TLS in a test needs the extra: {how_to_install('tls')}") from None
        clients = self.users if self.client_auth else ()
        write_certificates(directory, servers={_BROKER: _HOSTS}, clients=clients, days=1, for_java=False)
        settings = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(directory / f"{_BROKER}.pem"),
            # Of clients with certificates, and of the other brokers of a cluster.
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(directory / CA_FILE),
        }
        if self.client_auth:
            settings |= {
                f"listener.name.{self.protocol.lower()}.ssl.client.auth": "required",
                "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/,DEFAULT",
            }
        return settings

    def first_users(self) -> FirstUsers:
        """The users of SCRAM."""
        from pybroker.security.first_users import credentials_of

        return credentials_of(self.users) if self.has_login else {}

    def access(self, bootstrap: str, directory: Path, user: str | None, mechanism: str | None) -> ClientAccess:
        """How ``user`` gets in, the first one if it is None; ValueError for what the broker does not have."""
        name = next(iter(self.users)) if user is None else user
        if name not in self.users:
            raise ValueError(f"no such user: {name}; there are {', '.join(self.users)}")
        if mechanism is not None and not (self.has_login and mechanism in MECHANISMS):
            raise ValueError(f"no such mechanism: {mechanism}; there are {', '.join(MECHANISMS)} where clients log in")
        certificates = self.certificates_in(directory)
        return ClientAccess(
            bootstrap,
            self.protocol,
            ca=_authority_in(certificates) if self.has_tls else None,
            key=certificates / f"{name}.pem" if self.client_auth else None,
            mechanism=(mechanism or MECHANISMS[0]) if self.has_login else None,
            user=name if self.has_login else "",
            password=self.users[name] if self.has_login else "",
        )


def _authority_in(certificates: Path) -> Path:
    from pybroker.security.certificate_authority import CA_FILE

    return certificates / CA_FILE
