"""Settings of Kafka's Java clients, as librdkafka knows them."""

import re
import subprocess
import sys

import pytest

from pybroker.pipeline.topics.librdkafka_settings import client_settings
from pybroker.pipeline.topics.sink_options import read_sink_options
from pybroker.pipeline.topics.source_options import read_source_options


def settings(**given: str) -> dict[str, str]:
    named = {name.replace("_", "."): value for name, value in given.items()}
    found = client_settings({"bootstrap.servers": "h:9092", **named})
    del found["bootstrap.servers"]
    return found


def test_what_has_the_same_name_passes() -> None:
    assert settings(fetch_max_bytes="7", security_protocol="SASL_SSL") == {
        "fetch.max.bytes": "7",
        "security.protocol": "SASL_SSL",
    }


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"fetch.max.wait.ms": "5"}, {"fetch.wait.max.ms": "5"}),
        ({"buffer.memory": "1048576"}, {"queue.buffering.max.kbytes": "1024"}),
        ({"ssl.truststore.location": "/ca.pem"}, {"ssl.ca.location": "/ca.pem"}),
        (
            {"ssl.keystore.type": "PEM", "ssl.keystore.location": "/me.pem"},
            {"ssl.certificate.location": "/me.pem", "ssl.key.location": "/me.pem"},
        ),
        ({"ssl.keystore.location": "/me.p12"}, {"ssl.keystore.location": "/me.p12"}),
        ({"ssl.endpoint.identification.algorithm": ""}, {"ssl.endpoint.identification.algorithm": "none"}),
        ({"max.poll.records": "5", "session.timeout.ms": "1", "metric.reporters": "a.B"}, {}),
        ({"max.request.size": "2000000"}, {"message.max.bytes": "2000000"}),
        ({"enable.idempotence": "true", "exclude.internal.topics": "true", "partitioner.ignore.keys": "false"}, {}),
        ({"ssl.protocol": "TLSv1.3", "ssl.enabled.protocols": "TLSv1.2, TLSv1.3", "ssl.truststore.password": "x"}, {}),
        (
            {"receive.buffer.bytes": "-1", "send.buffer.bytes": "65536"},
            {"socket.receive.buffer.bytes": "0", "socket.send.buffer.bytes": "65536"},
        ),
        ({"connections.max.idle.ms": "-1"}, {"connections.max.idle.ms": "0"}),
        (
            {"compression.type": "zstd", "compression.zstd.level": "3", "compression.gzip.level": "9"},
            {"compression.type": "zstd", "compression.level": "3"},
        ),
    ],
)
def test_what_is_called_otherwise_is_translated(given: dict[str, str], meant: dict[str, str]) -> None:
    assert settings(**given) == meant


def test_a_jaas_line_gives_user_and_password() -> None:
    for line in (
        r'username="a" password="b\"c"',
        """username = a /* who */\npassword='b"c'""",
        r'username="\141" password="b\42c"',
    ):
        module = f"org.apache.kafka.common.security.scram.ScramLoginModule required {line};"
        assert settings(sasl_jaas_config=module) == {"sasl.username": "a", "sasl.password": 'b"c'}


def test_options_are_printed_without_their_secrets() -> None:
    secrets = {"sasl.jaas.config": 'M required username="a" password="hunter2";', "ssl.key.password": "hunter2"}
    given = {f"kafka.{name}": value for name, value in {"bootstrap.servers": "h:9092", **secrets}.items()}
    given |= {"kafka.ssl.keystore.key": "hunter2"}
    read = read_source_options({**given, "subscribe": "t"}, streaming=False)
    for options in (read, read_sink_options(given)):
        assert "hunter2" not in repr(options)
        assert "h:9092" in repr(options)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"ssl.truststore.location": "/trust.jks"}, "must name a PEM file: keytool"),
        ({"ssl.keystore.location": "/me.jks"}, "a file of PEM or PKCS#12"),
        ({"sasl.jaas.config": "Krb5LoginModule required;"}, "a username and a password"),
        ({"sasl.jaas.config": 'M required username="t" password="h" tokenauth="true";'}, "delegation tokens"),
        ({"enable.auto.commit": "true"}, "Spark keeps the positions itself"),
        ({"key.deserializer": "x"}, "keys and values are bytes"),
        ({"transactional.id": "x"}, "gives each task its own"),
        ({"enable.idempotence": "false"}, "must be true, is false: the sink writes each row once"),
        ({"exclude.internal.topics": "false"}, "must be true, is false: subscribe reads those that it names"),
        ({"ssl.protocol": "SSLv3"}, "must be TLS, TLSv1.2 or TLSv1.3, is SSLv3"),
        ({"ssl.enabled.protocols": "TLSv1.3"}, "must be TLSv1.2,TLSv1.3, is TLSv1.3"),
        ({"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"}, "a name of Java's"),
        ({"partitioner.class": "a.B"}, "the column partition says where a row goes"),
        ({"sasl.login.callback.handler.class": "a.B"}, "names a class of Java's"),
    ],
)
def test_what_cannot_be_told_to_librdkafka_is_refused(given: dict[str, str], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        settings(**given)


def test_a_sink_without_all_acknowledgements_is_refused() -> None:
    for acks in ("all", "-1"):
        assert read_sink_options({"kafka.bootstrap.servers": "h:9092", "kafka.acks": acks}).client["acks"] == acks
    with pytest.raises(ValueError, match=r"option kafka\.acks must be all, is 1: the sink writes in transactions"):
        read_sink_options({"kafka.bootstrap.servers": "h:9092", "kafka.acks": "1"})


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"no.such.setting": "1"}, 'No such configuration property: "no.such.setting"'),
        ({"fetch.min.bytes": "many"}, "fetch.min.bytes"),
        ({"isolation.level": "serializable"}, "isolation.level"),
        ({"security.protocol": "TLS"}, "security.protocol must be one of PLAINTEXT, SSL"),
    ],
)
def test_what_librdkafka_does_not_take_is_told_before_it_connects(given: dict[str, str], told: str) -> None:
    from pybroker.pipeline.topics.settings_check import check_consumer

    options = {"kafka.bootstrap.servers": "h:9092", "subscribe": "t"}
    options |= {f"kafka.{name}": value for name, value in given.items()}
    with pytest.raises(ValueError, match=re.escape(told)) as refused:
        check_consumer(read_source_options(options, streaming=False).client)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"no.such.setting": "1"}, 'No such configuration property: "no.such.setting"'),
        ({"compression.type": "brotli"}, "compression"),
        ({"max.in.flight.requests.per.connection": "6"}, "max.in.flight"),
        ({"delivery.timeout.ms": "9999999"}, "transaction.timeout.ms"),
    ],
)
def test_what_no_transactional_producer_can_be_is_told_before_it_connects(given: dict[str, str], told: str) -> None:
    from pybroker.pipeline.topics.settings_check import check_producer

    options = {"kafka.bootstrap.servers": "h:9092"} | {f"kafka.{name}": value for name, value in given.items()}
    with pytest.raises(ValueError, match=re.escape(told)) as refused:
        check_producer(read_sink_options(options).client)
    assert "\n" not in str(refused.value)


def test_settings_of_consumers_and_of_tls_do_not_stop_a_producer() -> None:
    """One set of options for both sides, and files that the tasks' machines have."""
    from pybroker.pipeline.topics.settings_check import check_consumer, check_producer

    files = {"ssl.truststore.location": "/nowhere/ca.pem", "ssl.keystore.location": "/nowhere/me.pem"}
    common = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "fetch.max.wait.ms": "5", **files}
    given = {f"kafka.{name}": value for name, value in {"bootstrap.servers": "h:9092", **common}.items()}
    check_producer(read_sink_options(given).client)
    check_consumer(read_source_options({**given, "subscribe": "t"}, streaming=False).client)


def test_settings_are_read_where_only_the_package_is_found() -> None:
    """As in a Python of Spark's that has a checkout on its path and says what else it needs."""
    shown = (
        "from pybroker.pipeline.topics import librdkafka_settings as s; print(s.ClientSettings({'ssl.key.pem': ''}))"
    )
    code = f"import sys; sys.modules['pybroker_protocol'] = None; {shown}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "{'ssl.key.pem': '[hidden]'}\n"
