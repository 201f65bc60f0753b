"""Turns ``kafka.*`` options, whose names are those of Kafka's Java clients, into librdkafka's settings.

Owns what is called otherwise there, what has no counterpart and is left out, and what nobody may set because the data
source does it itself.  Most names are the same in both and pass through; librdkafka refuses what it does not know.
"""

from collections.abc import Callable, Mapping

from pybroker.config import jaas
from pybroker.config.names import is_secret

CLIENT_PREFIX = "kafka."

_RENAMED = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}

# Of the Java clients' threads, pools and classes: nothing here behaves otherwise without them.
_WITHOUT_COUNTERPART = frozenset(
    {
        "default.api.timeout.ms",
        "max.block.ms",
        "max.poll.records",
        "metadata.recovery.strategy",
        "ssl.keystore.type",
        "ssl.truststore.type",
    }
)

_BY_THE_SOURCE = "Spark keeps the positions itself"
_AS_BYTES = "keys and values are bytes; use DataFrame functions to read them"
_REFUSED = {
    "auto.offset.reset": f"{_BY_THE_SOURCE}; set startingOffsets",
    "enable.auto.commit": f"{_BY_THE_SOURCE}; pipeline.mirror_progress shows them in a group",
    "enable.auto.offset.store": _BY_THE_SOURCE,
    "interceptor.classes": "interceptors may change records",
    "key.deserializer": _AS_BYTES,
    "value.deserializer": _AS_BYTES,
    "key.serializer": _AS_BYTES,
    "value.serializer": _AS_BYTES,
    "transactional.id": "the sink gives each task its own",
    "enable.idempotence": "the sink's producers are always idempotent",
}


class ClientSettings(dict[str, str]):
    """librdkafka's settings by name; printed without the secrets among them."""

    def __repr__(self) -> str:
        return repr({name: "[hidden]" if is_secret(name) else value for name, value in self.items()})


def client_settings(options: Mapping[str, str]) -> ClientSettings:
    """librdkafka's settings for the ``kafka.*`` options without their prefix; raises ValueError for what is refused."""
    if not options.get("bootstrap.servers", "").strip():
        raise ValueError(f"option {CLIENT_PREFIX}bootstrap.servers must be set")
    settings = ClientSettings()
    for name, value in options.items():
        if name in _REFUSED:
            raise ValueError(f"option {CLIENT_PREFIX}{name} is not supported: {_REFUSED[name]}")
        if name in _TRANSLATED:
            settings.update(_TRANSLATED[name](value))
        elif name not in _WITHOUT_COUNTERPART:
            settings[_RENAMED.get(name, name)] = value
    return settings


def _login(line: str) -> dict[str, str]:
    """User and password of a JAAS line for PLAIN or SCRAM; others take more than librdkafka could be told by it."""
    try:
        user, password = jaas.login_of(line)
    except jaas.JaasError as error:
        raise ValueError(f"option {CLIENT_PREFIX}sasl.jaas.config: {error}") from error
    return {"sasl.username": user, "sasl.password": password}


def _trust_store(path: str) -> dict[str, str]:
    if path.lower().endswith((".jks", ".p12", ".pfx")):
        raise ValueError(
            f"option {CLIENT_PREFIX}ssl.truststore.location must name a PEM file: "
            f"keytool -exportcert -rfc -keystore {path} -alias NAME -file ca.pem makes one"
        )
    return {"ssl.ca.location": path}


def _key_store(path: str) -> dict[str, str]:
    """librdkafka has one name for PKCS#12, two for PEM, where Java has the key and its certificates in one file."""
    if path.lower().endswith(".jks"):
        raise ValueError(f"option {CLIENT_PREFIX}ssl.keystore.location must name a file of PEM or PKCS#12, not {path}")
    if path.lower().endswith((".p12", ".pfx")):
        return {"ssl.keystore.location": path}
    return {"ssl.certificate.location": path, "ssl.key.location": path}


def _host_name_check(algorithm: str) -> dict[str, str]:
    return {"ssl.endpoint.identification.algorithm": algorithm or "none"}


def _buffer_kbytes(buffer_bytes: str) -> dict[str, str]:
    return {"queue.buffering.max.kbytes": str(max(int(buffer_bytes) // 1024, 1))}


_TRANSLATED: dict[str, Callable[[str], dict[str, str]]] = {
    "sasl.jaas.config": _login,
    "ssl.keystore.location": _key_store,
    "ssl.truststore.location": _trust_store,
    "ssl.endpoint.identification.algorithm": _host_name_check,
    "buffer.memory": _buffer_kbytes,
    # Java's sockets wait for a request's time; librdkafka's setting of that name belongs to producers alone.
    "request.timeout.ms": lambda timeout_ms: {"socket.timeout.ms": timeout_ms},
}
