"""Settings of Kafka's Java clients, as librdkafka knows them."""

import pytest

from pybroker.pipeline.topics.client_settings import client_settings
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
        ({"max.poll.records": "5"}, {}),
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
    ],
)
def test_what_cannot_be_told_to_librdkafka_is_refused(given: dict[str, str], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        settings(**given)
