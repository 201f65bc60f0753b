"""Brokers with TLS beside their plain listener, and ACLs in numbers.

Owns: one throw-away certificate (EC, P-256) that both brokers show, the settings of a second listener, and the ACLs of
an authorizer that has much to look through.  A load goes to the second listener; topics are made over the first.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.apache_kafka import SERVER_JVM_OPTIONS, ApacheKafka
from harness.broker_probe import free_port
from harness.pybroker_process import PybrokerProcess

from bench.contestants import HEAP_MB, KAFKA, PROPERTIES, Contestant
from bench.context import LONG_SESSIONS, Context
from bench.wire import Client
from pybroker.security.certificate_authority import write_certificates
from pybroker_protocol.messages.create_acls import AclCreation, CreateAclsRequest

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class TlsContestant:
    """A broker with a plain listener and one with TLS."""

    broker: Contestant
    tls_bootstrap: str

    @property
    def pid(self) -> int:
        return self.broker.pid

    @property
    def data_directory(self) -> Path:
        return self.broker.data_directory


@contextmanager
def running_with_tls(context: Context) -> Iterator[dict[str, TlsContestant]]:
    """All brokers of this run on fresh directories, each with a second listener that speaks TLS."""
    directory = context.root / uuid.uuid4().hex[:8]
    write_certificates(directory, servers={"broker": [HOST]}, days=1, for_java=False)
    ssl = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(directory / "broker.pem")}
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        brokers: dict[str, TlsContestant] = {}
        for name in context.brokers:
            made = _make(name, directory / name, {**PROPERTIES, **LONG_SESSIONS, **ssl}, tls_port := free_port())
            stack.callback(made.kill)
            made.start()
            brokers[name] = TlsContestant(made, f"{HOST}:{tls_port}")
        yield brokers


def _make(name: str, directory: Path, properties: dict[str, str], tls_port: int) -> Contestant:
    if name != KAFKA:
        return PybrokerProcess(directory, properties, ["--listen", f"SSL://{HOST}:{tls_port}"])
    port, controller_port = free_port(), free_port()
    listeners = {
        "listeners": f"PLAINTEXT://{HOST}:{port},SSL://{HOST}:{tls_port},CONTROLLER://{HOST}:{controller_port}",
        "controller.quorum.voters": f"1@{HOST}:{controller_port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
    }
    jvm_options = ("-Xms1g", *SERVER_JVM_OPTIONS)
    return ApacheKafka(directory, {**properties, **listeners}, heap_mb=HEAP_MB, jvm_options=jvm_options, port=port)


# Until there are ACLs everybody may do everything, and so add the first ones.
AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
_TOPIC, _CLUSTER, _LITERAL, _PREFIXED, _ALLOW, _ALL, _WRITE = 2, 4, 3, 4, 3, 2, 4
_CREATE_ACLS_VERSION = 3


def add_acls(bootstrap: str, count: int) -> None:
    """So many ACLs: two give the benchmark's client the cluster and its topics, the rest concern others."""

    def acl(kind: int, name: str, pattern: int, principal: str, operation: int) -> AclCreation:
        return AclCreation(
            resource_type=kind,
            resource_name=name,
            resource_pattern_type=pattern,
            principal=principal,
            host="*",
            operation=operation,
            permission_type=_ALLOW,
        )

    creations = [
        acl(_CLUSTER, "kafka-cluster", _LITERAL, "User:ANONYMOUS", _ALL),
        acl(_TOPIC, "bench-", _PREFIXED, "User:ANONYMOUS", _ALL),
        *(acl(_TOPIC, f"orders-{number}", _LITERAL, f"User:team-{number % 50}", _WRITE) for number in range(count - 2)),
    ]
    with Client(bootstrap) as client:
        reply = client.ask(CreateAclsRequest(creations=creations), _CREATE_ACLS_VERSION)
    if reply is None or any(result.error_code for result in reply.results):
        raise RuntimeError(f"the ACLs were not taken: {reply}")
