"""Where the broker listens and what it advertises."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from pybroker.config.broker import BrokerConfig
from pybroker.config.listeners import Listener, inter_broker_listener, listeners_of
from pybroker.config.schema import ConfigError


@pytest.fixture(autouse=True)
def host_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test asks a name server."""
    monkeypatch.setattr(socket, "getfqdn", lambda: "broker.example")
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, port: [])


def listeners(**settings: str) -> list[Listener]:
    return listeners_of(BrokerConfig({name.replace("_", "."): value for name, value in settings.items()}))


def listened(*arguments: str, **settings: str) -> list[Listener]:
    pairs = [(name.replace("_", "."), value) for name, value in settings.items()]
    return listeners_of(BrokerConfig.load(listen=arguments, settings=pairs))


def test_default_listens_everywhere_and_advertises_the_host_name() -> None:
    assert listeners() == [Listener("PLAINTEXT", "", 9092, "PLAINTEXT", "broker.example", -1)]


@pytest.mark.parametrize("wildcard", ["0.0.0.0", "[::]", ""])
def test_wildcard_is_never_advertised(wildcard: str) -> None:
    (listener,) = listeners(listeners=f"PLAINTEXT://{wildcard}:9092")
    assert listener.advertised(9092) == ("broker.example", 9092)


def test_host_name_that_leads_nowhere_gives_way_to_the_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(host: str, port: object) -> list[object]:
        raise OSError("no such host")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    assert listeners()[0].advertised_host == "127.0.0.1"


def test_bound_port_is_advertised() -> None:
    (listener,) = listeners(listeners="PLAINTEXT://127.0.0.1:0")
    assert listener.advertised(40123) == ("127.0.0.1", 40123)


def test_advertised_listeners_win() -> None:
    internal, external = listeners(
        listeners="INTERNAL://127.0.0.1:9092,EXTERNAL://0.0.0.0:9093",
        advertised_listeners="EXTERNAL://kafka.example:19093,INTERNAL://127.0.0.1:0",
        listener_security_protocol_map="INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT",
    )
    assert internal.advertised(9092) == ("127.0.0.1", 9092)
    assert external.advertised(9093) == ("kafka.example", 19093)


def test_controller_listeners_are_skipped() -> None:
    found = listeners(
        listeners="PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
        controller_listener_names="CONTROLLER",
        advertised_listeners="PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    )
    assert [listener.name for listener in found] == ["PLAINTEXT"]


def test_names_are_compared_in_upper_case() -> None:
    (listener,) = listeners(listeners="plaintext://127.0.0.1:1", advertised_listeners="Plaintext://x:2")
    assert (listener.name, listener.advertised_host) == ("PLAINTEXT", "x")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"inter.broker.listener.name": "inside"}, "INSIDE"),
        ({"security.inter.broker.protocol": "SSL"}, "SSL"),
        ({}, "PLAINTEXT"),
        ({"listeners": "OUTSIDE://:1,INSIDE://:2"}, "OUTSIDE"),
    ],
    ids=["by its name", "by its protocol", "as Kafka's default has it", "the first where there is no such"],
)
def test_brokers_talk_over_the_inter_broker_listener(settings: dict[str, str], expected: str) -> None:
    names = ("OUTSIDE", "INSIDE", "SSL", "PLAINTEXT")
    config = BrokerConfig(
        {
            "listeners": ",".join(f"{name}://:{port}" for port, name in enumerate(names, 1)),
            "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in names),
            **settings,
        }
    )
    assert inter_broker_listener(config, listeners_of(config)) == expected


def test_inter_broker_listener_is_named_in_one_way() -> None:
    settings = {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"}
    config = BrokerConfig(settings)
    with pytest.raises(ConfigError, match="Only one of inter"):
        inter_broker_listener(config, listeners_of(config))


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_ipv4_and_ipv6_may_share_a_port(host: str) -> None:
    found = listeners(
        listeners=f"A://{host}:9092,B://[::1]:9092", listener_security_protocol_map="A:PLAINTEXT,B:PLAINTEXT"
    )
    assert [listener.host for listener in found] == [host, "::1"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"listeners": "foo"}, "unable to parse 'foo'"),
        ({"listeners": "PLAINTEXT://a:b"}, "unable to parse"),
        ({"listeners": "PLAINTEXT://a:70000"}, "out of range"),
        ({"listeners": "PLAINTEXT://a:1,PLAINTEXT://b:2"}, "each listener must have a different name"),
        ({"listeners": "PLAINTEXT://a:1,SSL://a:1"}, "appears twice"),
        ({"listeners": "PLAINTEXT://[::1]:1,SSL://:1"}, "port 1 of every address appears twice"),
        ({"listeners": "PLAINTEXT://[::]:1,SSL://127.0.0.1:1"}, "port 1 of 127.0.0.1 appears twice"),
        ({"listeners": "PLAINTEXT://0.0.0.0:1,SSL://127.0.0.1:1"}, "port 1 of 127.0.0.1 appears twice"),
        ({"listeners": "FOO://a:1"}, "No security protocol defined for listener FOO"),
        ({"listeners": "CONTROLLER://a:1"}, "names no listener for clients"),
        ({"listener_security_protocol_map": "X"}, "Error parsing configuration property"),
        ({"listener_security_protocol_map": "X:Y"}, "Invalid security protocol `Y`"),
        ({"advertised_listeners": "PLAINTEXT://0.0.0.0:1"}, "nonroutable meta-address 0.0.0.0"),
        ({"advertised_listeners": "OTHER://a:1"}, "names OTHER, which listeners does not define"),
    ],
)
def test_unacceptable_listeners_are_refused(settings: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        listeners(**settings)
    assert message in str(caught.value)


def test_arguments_are_plaintext_listeners_in_order() -> None:
    found = listened("127.0.0.1:0", "[::1]:9093", "kafka.example:9094")
    assert [(listener.name, listener.host, listener.port) for listener in found] == [
        ("PLAINTEXT", "127.0.0.1", 0),
        ("PLAINTEXT_2", "::1", 9093),
        ("PLAINTEXT_3", "kafka.example", 9094),
    ]


def test_arguments_win_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("listeners=PLAINTEXT://127.0.0.1:1\n")
    (listener,) = listeners_of(BrokerConfig.load(config_file=str(file), listen=[":9095"]))
    assert (listener.host, listener.port) == ("", 9095)


def test_two_answers_on_the_command_line_to_where_to_listen_are_refused() -> None:
    with pytest.raises(ConfigError, match="listening on :9095 and the setting listeners exclude each other"):
        listened(":9095", listeners="PLAINTEXT://127.0.0.1:1")


def test_argument_may_name_its_listener() -> None:
    (listener,) = listened("INTERNAL://127.0.0.1:1", listener_security_protocol_map="INTERNAL:PLAINTEXT")
    assert listener.name == "INTERNAL"


@pytest.mark.parametrize("argument", ["9092", "::1:9092", "localhost", "a:-1", "a:99999", "[::1]"])
def test_unreadable_argument_is_refused(argument: str) -> None:
    with pytest.raises(ConfigError, match="--listen expects HOST:PORT"):
        listened(argument)
