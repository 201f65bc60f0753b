"""What the container image makes of its environment: settings of the broker, and what to say of the rest.

Owns: the names of variables, which are those of the image of Apache Kafka, and the listeners of a container that is
given none.  Owns no process (``image_entry``).  Standard library alone, so that the check of health starts quickly.

Counterparts in Kafka: ``KafkaDockerWrapper``, and ``configure`` of its image.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

PREFIX: Final = "KAFKA_"
SETTINGS_FILE: Final = "/mnt/shared/config/server.properties"
SECRETS: Final = "/etc/kafka/secrets"
DATA_DIR: Final = "/data"
HOST_PORT: Final = 9092
CONTAINER_PORT: Final = 29092
CLUSTER_ID: Final = "pybroker.cluster.id"
PROTOCOL_MAP: Final = "listener.security.protocol.map"
# Of the process in the stock image, and not of the broker in it.
_OF_THE_STOCK_IMAGE: Final = re.compile(r"KAFKA_(?:(?:.*_)?OPTS?|(?:TOOLS_)?LOG4J_.*|JMX_.*|VERSION|HOME)")
# A service of Kubernetes that is called kafka gives them to every pod of its namespace.
_OF_KUBERNETES: Final = re.compile(r"KAFKA_(?:SERVICE_(?:HOST|PORT.*)|PORT|PORT_\d+_(?:TCP|UDP).*)")
# Variables that name a file in SECRETS: a key store, or one whose text is a password.
_STORES: Final = {
    "ssl.keystore.filename": "ssl.keystore.location",
    "ssl.truststore.filename": "ssl.truststore.location",
}
_PASSWORDS: Final = {
    "ssl.key.credentials": "ssl.key.password",
    "ssl.keystore.credentials": "ssl.keystore.password",
    "ssl.truststore.credentials": "ssl.truststore.password",
}
_HOST: Final = re.compile(r"://(?:\[[^\]]*\]|[^:,]*):")
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


class FromVariables(NamedTuple):
    """Settings of the broker by name, and the variables that set nothing: of the stock image's JVM, of Kubernetes."""

    settings: dict[str, str]
    of_the_jvm: list[str]
    of_kubernetes: list[str]


def setting_of(variable: str) -> str:
    """The setting that a variable is for: KAFKA_A_B is a.b, two underscores are one, and three are a hyphen."""
    name = variable.removeprefix(PREFIX).lower()
    return name.replace("_", ".").replace("...", "-").replace("..", "_")


def from_variables(environment: Mapping[str, str], read: Callable[[str, str], str]) -> FromVariables:
    """What the variables say; ``read(path, setting)`` gives the text of a file in SECRETS, or raises.

    Raises ``ValueError`` where two variables give a setting two values, as KAFKA_a and KAFKA_A may.
    """
    found = FromVariables({}, [], [])
    given_by: dict[str, str] = {}

    def take(variable: str, name: str, value: str) -> None:
        if found.settings.setdefault(name, value) != value:
            raise ValueError(f"{given_by[name]} and {variable} both set {name}, and not to the same: leave one away")
        given_by[name] = variable

    for variable in sorted(name for name in environment if name.startswith(PREFIX)):
        if _OF_THE_STOCK_IMAGE.fullmatch(variable):
            found.of_the_jvm.append(variable)
            continue
        if _OF_KUBERNETES.fullmatch(variable):
            found.of_kubernetes.append(variable)
            continue
        name, value = setting_of(variable), environment[variable]
        if name in _STORES:
            name, value = _STORES[name], f"{SECRETS}/{value}"
        elif name in _PASSWORDS:
            name, value = _PASSWORDS[name], read(f"{SECRETS}/{value}", variable).rstrip("\n")
        take(variable, name, value)
    if cluster_id := environment.get("CLUSTER_ID", ""):
        take("CLUSTER_ID", CLUSTER_ID, cluster_id)
    return found


def listener_settings(given: Mapping[str, str], host_name: str) -> dict[str, str]:
    """The settings of listeners that complete ``given``, the settings of variables, file and arguments.

    Where listeners are given, none.  Where advertised ones alone are, listeners on all addresses with their ports, as
    in the stock image.  Else two: HOST_PORT is advertised as localhost's, for clients on the host; CONTAINER_PORT as
    that of ``host_name``, for those in other containers and for the brokers of a cluster.
    """
    if given.get("listeners"):
        return {}
    if advertised := given.get("advertised.listeners"):
        return {"listeners": _HOST.sub("://0.0.0.0:", advertised)}
    protocols = given.get(PROTOCOL_MAP) or ",".join(f"{each}:{each}" for each in _PROTOCOLS)
    return {
        "listeners": f"PLAINTEXT_HOST://0.0.0.0:{HOST_PORT},PLAINTEXT://0.0.0.0:{CONTAINER_PORT}",
        "advertised.listeners": f"PLAINTEXT_HOST://localhost:{HOST_PORT},PLAINTEXT://{host_name}:{CONTAINER_PORT}",
        PROTOCOL_MAP: f"{protocols},PLAINTEXT_HOST:PLAINTEXT",
    }
