"""Brokers for the tests of clients that are about security: pybroker or Apache Kafka, with a listener of each kind.

Owns: their listeners, their one user, its keys and theirs, and how suites get in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from harness.apache_cluster import ApacheCluster
from harness.apache_kafka import ApacheKafka
from harness.broker_probe import free_port
from harness.pybroker_cluster import PybrokerCluster
from harness.pybroker_process import PybrokerProcess
from harness.waiting import wait_until

from pybroker.config import jaas
from pybroker.security import plain, scram
from pybroker.security.certificate_authority import CA_FILE, write_certificates

# kafka-python's fixtures know this user by name and password.
USER, PASSWORD = "alice", "alice-secret"
_HOST = "localhost"
# The security protocol of each listener that asks something.  At MTLS clients have to show a certificate.
_PROTOCOLS = {"SASL_PLAINTEXT": "SASL_PLAINTEXT", "SASL_SSL": "SASL_SSL", "SSL": "SSL", "MTLS": "SSL"}
_SCRAM = {
    scram.SHA_256.name: ScramMechanism.SCRAM_SHA_256,
    scram.SHA_512.name: ScramMechanism.SCRAM_SHA_512,
}
_ITERATIONS = 4096
_CALL_S = 60.0
# What tests would wait for otherwise.
_APACHE_KAFKA_PROPERTIES = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "4"}
_NOTHING: Mapping[str, str] = MappingProxyType({})


class SecuredBroker(NamedTuple):
    """How clients get in.

    ``listeners`` has for each one's name the addresses, with commas, where there are several brokers; PLAINTEXT, where
    nobody is asked anything, is one of them.  ``certificates`` has the files of ``write_certificates``.
    """

    listeners: Mapping[str, str]
    certificates: Path

    @property
    def ca(self) -> Path:
        """Whom to trust where TLS is spoken."""
        return self.certificates / CA_FILE


@contextmanager
def secured_broker(
    directory: Path, *, apache: bool = False, brokers: int = 1, properties: Mapping[str, str] = _NOTHING
) -> Iterator[SecuredBroker]:
    """A pybroker or an Apache Kafka, or a cluster, whose user logs in by PLAIN and SCRAM, over TLS or without."""
    keys = directory / "certificates"
    write_certificates(keys, servers={"broker": (_HOST, PybrokerProcess.host)}, clients=(USER,), days=1)
    addresses = {name: [f"{_HOST}:{free_port()}" for _ in range(brokers)] for name in _PROTOCOLS}

    def listeners(number: int) -> list[str]:
        return [f"{name}://{found[number - 1]}" for name, found in addresses.items()]

    settings = {**_settings(keys), **(_APACHE_KAFKA_PROPERTIES if apache else {}), **properties}
    with _running(directory, settings, listeners, apache=apache, brokers=brokers) as bootstraps:
        _add_user(bootstraps)
        by_name = {name: ",".join(found) for name, found in addresses.items()}
        yield SecuredBroker({"PLAINTEXT": ",".join(bootstraps), **by_name}, keys)


def _settings(keys: Path) -> dict[str, str]:
    mechanisms = {
        plain.MECHANISM: jaas.LoginModule(plain.LOGIN_MODULE, "REQUIRED", {f"user_{USER}": PASSWORD}),
        **{name: jaas.LoginModule(scram.LOGIN_MODULE, "REQUIRED", {}) for name in _SCRAM},
    }
    logins = {
        f"listener.name.{listener.lower()}.{name.lower()}.sasl.jaas.config": jaas.text_of(module)
        for listener, protocol in _PROTOCOLS.items()
        if protocol.startswith("SASL_")
        for name, module in mechanisms.items()
    }
    everywhere = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **_PROTOCOLS}
    return {
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in everywhere.items()),
        "sasl.enabled.mechanisms": ",".join(mechanisms),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keys / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(keys / CA_FILE),
        "listener.name.mtls.ssl.client.auth": "required",
        **logins,
    }


@contextmanager
def _running(
    directory: Path,
    settings: Mapping[str, str],
    listeners: Callable[[int], Sequence[str]],
    *,
    apache: bool,
    brokers: int,
) -> Iterator[list[str]]:
    """The addresses of brokers that run, of the listener that is in the clear."""
    if brokers > 1:
        make = ApacheCluster if apache else PybrokerCluster
        with make(directory, settings, brokers, more_listeners=listeners) as cluster:
            yield cluster.bootstraps
    elif apache:
        with ApacheKafka(directory, settings, more_listeners=listeners(1)) as kafka:
            yield [kafka.bootstrap]
    else:
        arguments = [argument for listener in listeners(1) for argument in ("--listen", listener)]
        with PybrokerProcess(directory, settings, arguments) as broker:
            yield [broker.bootstrap]


def _add_user(bootstraps: Sequence[str]) -> None:
    """Give the user credentials of SCRAM, and wait until every broker knows them."""
    admins = [AdminClient({"bootstrap.servers": bootstrap}) for bootstrap in bootstraps]
    for mechanism in _SCRAM.values():  # one after another: Kafka takes no two credentials of one user in a request
        upsertion = UserScramCredentialUpsertion(USER, ScramCredentialInfo(mechanism, _ITERATIONS), PASSWORD.encode())
        for altered in admins[0].alter_user_scram_credentials([upsertion]).values():
            altered.result(_CALL_S)

    def is_known(admin: AdminClient) -> bool:
        asked = admin.describe_user_scram_credentials()
        assert isinstance(asked, Future), "of all users"
        described = asked.result(_CALL_S)
        return USER in described and len(described[USER].scram_credential_infos) == len(_SCRAM)

    wait_until(lambda: all(map(is_known, admins)), f"brokers that know {USER}", _CALL_S)
