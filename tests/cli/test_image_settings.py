"""Variables of the container image become settings by the names that the image of Apache Kafka takes."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from pybroker.cli.serve.image_entry import known, refuse_split_quorum
from pybroker.cli.serve.image_settings import PROTOCOL_MAP, SECRETS, from_variables, listener_settings, setting_of
from pybroker.config.broker import BrokerConfig
from pybroker.config.listeners import inter_broker_listener, listeners_of
from pybroker.config.schema import ConfigError


def settings(**variables: str) -> dict[str, str]:
    return from_variables(variables, lambda path, setting: f"text of {path}\n").settings


def listeners(given: Mapping[str, str], host_name: str = "kafka") -> dict[str, tuple[str, int, str, str, int]]:
    """Host, port, protocol and advertised address of each listener, by its name."""
    config = BrokerConfig({**given, **listener_settings(given, host_name)})
    found = {each.name: tuple(each)[1:] for each in listeners_of(config)}
    return found  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("variable", "setting"),
    [
        ("KAFKA_NUM_PARTITIONS", "num.partitions"),
        ("KAFKA_LISTENER_NAME_IN__SIDE_SSL_KEY_PASSWORD", "listener.name.in_side.ssl.key.password"),
        ("KAFKA_VALID___PROPERTY__ALL_CASES", "valid-property_all.cases"),
    ],
)
def test_underscores_are_dots_two_are_one_and_three_are_a_hyphen(variable: str, setting: str) -> None:
    assert setting_of(variable) == setting


def test_other_variables_than_kafkas_are_not_looked_at() -> None:
    assert settings(PATH="/bin", NUM_PARTITIONS="3", KAFKA_NUM_PARTITIONS="4") == {"num.partitions": "4"}


def test_cluster_id_is_the_one_of_a_new_cluster() -> None:
    assert settings(CLUSTER_ID="5L6g3nShT-eMCtK--X86sw") == {"pybroker.cluster.id": "5L6g3nShT-eMCtK--X86sw"}
    assert settings(CLUSTER_ID="") == {}


def test_key_stores_and_their_passwords_are_files_among_the_secrets() -> None:
    assert settings(
        KAFKA_SSL_KEYSTORE_FILENAME="broker.p12",
        KAFKA_SSL_KEYSTORE_CREDENTIALS="store",
        KAFKA_SSL_KEY_CREDENTIALS="key",
        KAFKA_SSL_TRUSTSTORE_FILENAME="trust.p12",
        KAFKA_SSL_TRUSTSTORE_CREDENTIALS="trust",
    ) == {
        "ssl.keystore.location": f"{SECRETS}/broker.p12",
        "ssl.keystore.password": f"text of {SECRETS}/store",
        "ssl.key.password": f"text of {SECRETS}/key",
        "ssl.truststore.location": f"{SECRETS}/trust.p12",
        "ssl.truststore.password": f"text of {SECRETS}/trust",
    }


def test_variables_of_the_jvm_and_of_kubernetes_set_nothing() -> None:
    of_the_jvm = ["KAFKA_GC_LOG_OPTS", "KAFKA_HEAP_OPTS", "KAFKA_JMX_PORT", "KAFKA_LOG4J_LOGGERS", "KAFKA_OPTS"]
    of_kubernetes = ["KAFKA_PORT", "KAFKA_PORT_9092_TCP_ADDR", "KAFKA_SERVICE_HOST", "KAFKA_SERVICE_PORT_CLIENTS"]
    found = from_variables(dict.fromkeys([*of_the_jvm, *of_kubernetes], "x"), lambda path, setting: "")
    assert found == ({}, of_the_jvm, of_kubernetes)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("KAFKA_NUM_PARTITIONS", "KAFKA_num_partitions"),
        ("KAFKA_SSL_KEYSTORE_FILENAME", "KAFKA_SSL_KEYSTORE_LOCATION"),
        ("KAFKA_PYBROKER_CLUSTER_ID", "CLUSTER_ID"),
    ],
)
def test_two_variables_for_a_setting_have_to_say_the_same(one: str, other: str) -> None:
    value = f"{SECRETS}/3"
    same = {one: value.rpartition("/")[2] if one.endswith("FILENAME") else value, other: value}
    assert list(settings(**same).values()) == [value]
    with pytest.raises(ValueError, match=f"{one} and {other} both set .*, and not to the same: leave one away"):
        settings(**{**same, other: "4"})


def test_unknown_setting_is_said_and_does_not_end_the_start(capsys: pytest.CaptureFixture[str]) -> None:
    assert known({"num.partitions": "3", "num.partition": "4"}) == {"num.partitions": "3"}
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("pybroker: num.partition has no effect")
    assert "num.partitions" in line


def test_without_listeners_one_is_for_the_host_and_one_for_other_containers() -> None:
    assert listeners({}) == {
        "PLAINTEXT_HOST": ("0.0.0.0", 9092, "PLAINTEXT", "localhost", 9092),
        "PLAINTEXT": ("0.0.0.0", 29092, "PLAINTEXT", "kafka", 29092),
    }


def test_brokers_reach_each_other_by_the_listener_for_containers() -> None:
    config = BrokerConfig(listener_settings({}, "kafka"))
    assert inter_broker_listener(config, listeners_of(config)) == "PLAINTEXT"


def test_own_map_of_protocols_keeps_the_listeners_of_the_image() -> None:
    found = listeners({PROTOCOL_MAP: "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"})
    assert set(found) == {"PLAINTEXT_HOST", "PLAINTEXT"}


def test_where_addresses_alone_are_advertised_their_ports_are_listened_on() -> None:
    advertised = "INSIDE://kafka:19092,OUTSIDE://[::1]:9094"
    given = {"advertised.listeners": advertised, PROTOCOL_MAP: "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT"}
    assert listeners(given) == {
        "INSIDE": ("0.0.0.0", 19092, "PLAINTEXT", "kafka", 19092),
        "OUTSIDE": ("0.0.0.0", 9094, "PLAINTEXT", "::1", 9094),
    }


def test_given_listeners_are_taken_as_they_are() -> None:
    assert listener_settings({"listeners": "PLAINTEXT://:9092"}, "kafka") == {}


@pytest.mark.parametrize("name", ["controller.quorum.voters", "controller.quorum.bootstrap.servers"])
def test_quorum_of_several_is_refused_without_a_store_that_they_share(name: str) -> None:
    several = "1@a:9093,2@b:9093,3@c:9093"
    with pytest.raises(ConfigError, match="3 brokers that are alone"):
        refuse_split_quorum({name: several})
    refuse_split_quorum({name: several, "pybroker.metadata": "zookeeper://z:2181"})
    refuse_split_quorum({name: "1@a:9093"})
