"""A broker that asks who its clients are: TLS, SCRAM with sessions of some seconds, and an authorizer.

Owns: its listeners, its one user and what that user may do.  The plain listener beside them is the harness's, whose
client is a super user: the workload's clients get nothing there.
"""

from __future__ import annotations

from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from harness.broker_probe import free_port
from harness.pybroker_process import PybrokerProcess

from histories.clients import CALL_S
from pybroker.security.client_access import ClientAccess
from pybroker.testing.security import Security

USER, PASSWORD = "historian", "of times past"
MECHANISM = "SCRAM-SHA-512"
# Before it is over librdkafka says anew who it is; aiokafka, which cannot, is turned out and comes again.
SESSION_MS = 3_000
SECURITY = Security("SASL_SSL", {USER: PASSWORD})
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "connections.max.reauth.ms": str(SESSION_MS),
}
# All that clients ask for; the cluster's is for producers with idempotence.
GRANTED = (
    (ResourceType.TOPIC, "histories-", ResourcePatternType.PREFIXED),
    (ResourceType.GROUP, "*", ResourcePatternType.LITERAL),
    (ResourceType.TRANSACTIONAL_ID, "histories-", ResourcePatternType.PREFIXED),
)


class SecureBroker:
    """The process, which is killed and started again as any other, and how its clients get in."""

    def __init__(self, directory: Path, properties: dict[str, str]) -> None:
        keys = directory / "keys"
        keys.mkdir(parents=True)
        address = f"{PybrokerProcess.host}:{free_port()}"
        settings = {**properties, **AUTHORIZER, **SECURITY.prepare(keys)}
        users = directory / "users"
        users.write_text(f'{MECHANISM}=[name={USER},password="{PASSWORD}"]\n')
        users.chmod(0o600)
        arguments = ["--listen", f"SASL_SSL://{address}", "--add-scram", f"@{users}"]
        self.process = PybrokerProcess(directory, settings, arguments)
        self.access: ClientAccess = SECURITY.access(address, keys, USER, MECHANISM)

    def grant(self) -> None:
        """Have the authorizer let the workload's clients do what they do; the broker runs."""
        admin = AdminClient({"bootstrap.servers": self.process.bootstrap})
        allow, everything = AclPermissionType.ALLOW, AclOperation.ALL
        acls = [AclBinding(*resource, f"User:{USER}", "*", everything, allow) for resource in GRANTED]
        for taken in admin.create_acls(acls).values():
            taken.result(CALL_S)
