"""Turns ``kafka.*`` options, whose names are those of Kafka's Java clients, into librdkafka's settings.

Owns what is called otherwise there, what has no counterpart and is passed over, and what is refused. What is refused is
what the data source does itself, and what librdkafka has no setting for. Most names are the same in both and pass
through; ``settings_check`` has librdkafka refuse what it does not know.
"""

from collections.abc import Callable, Mapping

from pybroker.config import jaas
from pybroker.config.names import is_secret

CLIENT_PREFIX = "kafka."

_RENAMED = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.request.size": "message.max.bytes",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}

# Of the Java clients' threads, pools, measurements and groups, which nobody joins: nothing here behaves otherwise
# without them.  A trust store of PEM has no password, and of another kind is refused by its location.
_WITHOUT_COUNTERPART = frozenset(
    {
        "auto.include.jmx.reporter",
        "default.api.timeout.ms",
        "group.instance.id",
        "group.protocol",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "max.block.ms",
        "max.poll.interval.ms",
        "max.poll.records",
        "metadata.max.idle.ms",
        "metadata.recovery.strategy",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partition.assignment.strategy",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
        "sasl.login.connect.timeout.ms",
        "sasl.login.read.timeout.ms",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.login.retry.backoff.max.ms",
        "sasl.login.retry.backoff.ms",
        "session.timeout.ms",
        "socket.connection.setup.timeout.max.ms",
        "ssl.keymanager.algorithm",
        "ssl.keystore.type",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)

_LEVELS = frozenset(f"compression.{codec}.level" for codec in ("gzip", "lz4", "zstd"))

_BY_THE_SOURCE = "Spark keeps the positions itself"
_AS_BYTES = "keys and values are bytes; use DataFrame functions to read them"
_CLASSES = (
    "partitioner.class",
    "sasl.client.callback.handler.class",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "security.providers",
    "ssl.engine.factory.class",
)
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
    "transaction.two.phase.commit.enable": "the sink ends its transactions itself",
    **dict.fromkeys(_CLASSES, "it names a class of Java's, and librdkafka has none"),
}
_REFUSED["partitioner.class"] += "; the column partition says where a row goes"


class ClientSettings(dict[str, str]):
    """librdkafka's settings by name; printed without the secrets among them."""

    def __repr__(self) -> str:
        return repr({name: "[hidden]" if is_secret(name) else value for name, value in self.items()})


def without_prefix(options: Mapping[str, str]) -> dict[str, str]:
    """What `client_settings` takes, of options that all begin with `CLIENT_PREFIX`."""
    return {name.removeprefix(CLIENT_PREFIX): value for name, value in options.items()}


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
        elif name not in _WITHOUT_COUNTERPART | _LEVELS:
            settings[_RENAMED.get(name, name)] = value
    codec = options.get("compression.type", "").strip()
    for name in _LEVELS & options.keys():
        if name == f"compression.{codec}.level":  # those of other codecs say nothing
            settings["compression.level"] = options[name]
    return settings


def _login(line: str) -> dict[str, str]:
    """User and password of a JAAS line for PLAIN or SCRAM; others take more than librdkafka has settings for."""
    try:
        user, password, _ = jaas.login_of(line)
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


def _only(name: str, wanted: str, why: str) -> Callable[[str], dict[str, str]]:
    """Of a setting that is taken where it says what is anyway."""

    def check(value: str) -> dict[str, str]:
        if value.strip().lower() != wanted:
            raise ValueError(f"option {CLIENT_PREFIX}{name} must be {wanted}, is {value}: {why}")
        return {}

    return check


def _protocol(value: str) -> dict[str, str]:
    """Java's names of what a connection may begin with; both sides then agree on the newest that they have."""
    if value.strip() not in _PROTOCOLS | {"TLS"}:
        raise ValueError(f"option {CLIENT_PREFIX}ssl.protocol must be TLS, TLSv1.2 or TLSv1.3, is {value}")
    return {}


def _protocols(value: str) -> dict[str, str]:
    if {each.strip() for each in value.split(",")} != _PROTOCOLS:
        raise ValueError(
            f"option {CLIENT_PREFIX}ssl.enabled.protocols must be TLSv1.2,TLSv1.3, is {value}: "
            "librdkafka takes both, and has no setting for another choice"
        )
    return {}


def _cipher_suites(value: str) -> dict[str, str]:
    if named := [each.strip() for each in value.split(",") if each.strip().startswith("TLS_")]:
        raise ValueError(
            f"option {CLIENT_PREFIX}ssl.cipher.suites has {named[0]}, a name of Java's: librdkafka takes those that "
            "openssl ciphers lists, with colons between them"
        )
    return {"ssl.cipher.suites": value}


def _renamed(name: str, *, without: str) -> Callable[[str], dict[str, str]]:
    """A number whose -1 leaves the choice to the system, or is no bound: librdkafka has another one for that."""
    return lambda value: {name: without if value.strip() == "-1" else value}


_PROTOCOLS = {"TLSv1.2", "TLSv1.3"}

_TRANSLATED: dict[str, Callable[[str], dict[str, str]]] = {
    "sasl.jaas.config": _login,
    "ssl.keystore.location": _key_store,
    "ssl.truststore.location": _trust_store,
    "ssl.endpoint.identification.algorithm": _host_name_check,
    "ssl.protocol": _protocol,
    "ssl.enabled.protocols": _protocols,
    "ssl.cipher.suites": _cipher_suites,
    "buffer.memory": _buffer_kbytes,
    "connections.max.idle.ms": _renamed("connections.max.idle.ms", without="0"),
    "receive.buffer.bytes": _renamed("socket.receive.buffer.bytes", without="0"),
    "send.buffer.bytes": _renamed("socket.send.buffer.bytes", without="0"),
    "enable.idempotence": _only("enable.idempotence", "true", "the sink writes each row once"),
    "exclude.internal.topics": _only("exclude.internal.topics", "true", "subscribe reads those that it names"),
    "partitioner.ignore.keys": _only("partitioner.ignore.keys", "false", "rows of a key have one partition"),
    # Java's sockets wait for a request's time; librdkafka's setting of that name belongs to producers alone.
    "request.timeout.ms": lambda timeout_ms: {"socket.timeout.ms": timeout_ms},
}
