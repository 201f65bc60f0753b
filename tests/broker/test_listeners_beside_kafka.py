"""What is altered of a listener that runs: Apache Kafka is asked what pybroker is asked, and both do the same."""

from __future__ import annotations

import socket
import ssl
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from harness.apache_kafka import ApacheKafka
from harness.broker_probe import free_port
from harness.pybroker_process import COMMAND, serving
from harness.waiting import PATIENCE_S, wait_until

from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pybroker_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.wire_client import WireClient
from tests.certificates import Authority

PROTOCOLS = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL"
LOCATION = "listener.name.ssl.ssl.keystore.location"


class Asked(NamedTuple):
    """A broker with a listener in the clear and one with TLS, whose key store lies in ``key_store``."""

    client: WireClient
    clear: tuple[str, int]
    tls: tuple[str, int]
    authority: Authority
    key_store: Path

    def alter(self, name: str, value: str) -> int:
        config = AlterableConfig(name=name, config_operation=0, value=value)
        resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=[config])
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        code: int = self.client.ask(request, 1).responses[0].error_code
        return code

    def settle(self) -> None:
        """Until what was altered is in force, by all of a listener's threads.

        Kafka answers before it is, and takes up one set of changes after another.  A topic may come in the same set as
        the alteration; what is made once it is there cannot.
        """
        for _ in range(2):
            name = str(uuid.uuid4())
            self.client.create_topic(name)
            wait_until(partial(self._has, name), "the topic")

    def _has(self, topic: str) -> bool:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        return bool(self.client.ask(request, 9).topics[0].error_code == 0)

    def replace_key_store(self, name: str = "broker", *hosts: str) -> None:
        self.key_store.write_bytes(self.authority.pem(name, hosts=("localhost", *hosts)).read_bytes())

    def shown(self, timeout_s: float = 20) -> bytes:
        """The certificate that a new client is shown."""
        trusting = ssl.create_default_context(cafile=str(self.authority.ca))
        with (
            socket.create_connection(self.tls, timeout=timeout_s) as raw,
            trusting.wrap_socket(raw, server_hostname="localhost", do_handshake_on_connect=False) as tls,
        ):
            tls.do_handshake()
            return tls.getpeercert(binary_form=True) or b""

    def is_served(self) -> bool:
        """Whether a new client's handshake comes to an end: else Kafka lets it wait, and pybroker closes it."""
        try:
            return bool(self.shown(timeout_s=1))
        except OSError:
            return False


def settings_of(key_store: Path) -> dict[str, str]:
    return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(key_store)}


@pytest.fixture(params=["pybroker", pytest.param("Apache Kafka", marks=pytest.mark.jvm)])
def asked(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Asked]:
    authority, key_store, port = Authority(tmp_path), tmp_path / "key.pem", free_port()
    key_store.write_bytes(authority.pem("broker").read_bytes())
    if request.param == "pybroker":
        options = [each for name, text in settings_of(key_store).items() for each in ("--set", f"{name}={text}")]
        listen = ("--listen", "127.0.0.1:0", "--listen", f"SSL://127.0.0.1:{port}")
        with serving([COMMAND, "serve", "--data-dir", tmp_path / "data", *listen, *options]) as served:
            address = (served.host, served.port)
            with WireClient(address) as client:
                yield Asked(client, address, ("127.0.0.1", port), authority, key_store)
            served.stop()
        return
    with (
        ApacheKafka(
            tmp_path / "kafka",
            {"listener.security.protocol.map": PROTOCOLS, **settings_of(key_store)},
            more_listeners=[f"SSL://127.0.0.1:{port}"],
        ) as kafka,
        WireClient((kafka.host, kafka.port)) as client,
    ):
        yield Asked(client, (kafka.host, kafka.port), ("127.0.0.1", port), authority, key_store)


def set_where_it_is(asked: Asked) -> int:
    return asked.alter(LOCATION, str(asked.key_store))


def set_something_else(asked: Asked) -> int:
    return asked.alter("log.cleaner.threads", "1")


@pytest.mark.parametrize("alter", [set_where_it_is, set_something_else])
def test_a_key_store_that_was_replaced_is_read_again_at_the_next_alteration(
    asked: Asked, alter: Callable[[Asked], int]
) -> None:
    assert set_where_it_is(asked) == 0
    assert set_something_else(asked) == 0
    asked.settle()
    seen = [asked.shown()]
    for _ in range(2):
        asked.replace_key_store()
        assert asked.shown() == seen[-1], "until somebody says so"
        assert alter(asked) == 0
        asked.settle()
        assert asked.shown() not in seen, "the new certificate"
        seen.append(asked.shown())
    asked.replace_key_store("mallory")
    assert alter(asked) == 0
    asked.settle()
    assert asked.shown() == seen[-1], "it is another one's"


def test_a_new_certificate_has_all_alternative_names_of_the_one_before(asked: Asked) -> None:
    asked.replace_key_store("broker", "broker.example")
    assert set_where_it_is(asked) == 0
    asked.settle()
    more = asked.shown()
    assert b"broker.example" in more
    fewer = asked.key_store.with_name("fewer.pem")
    fewer.write_bytes(asked.authority.pem("broker").read_bytes())
    assert asked.alter(LOCATION, str(fewer)) == ErrorCode.INVALID_REQUEST
    asked.settle()
    assert asked.shown() == more


@pytest.mark.parametrize("value", ["0", "-1"])
def test_a_listener_of_no_connections_is_refused(asked: Asked, value: str) -> None:
    assert asked.alter("listener.name.ssl.max.connections", value) == ErrorCode.INVALID_REQUEST


def test_a_listener_has_no_more_connections_than_its_own_bound(asked: Asked) -> None:
    assert asked.alter("listener.name.ssl.max.connections", "1") == 0
    with socket.create_connection(asked.tls, timeout=PATIENCE_S):
        wait_until(lambda: not asked.is_served(), "the listener is full")
        with WireClient(asked.clear) as other:
            assert other.ask(IncrementalAlterConfigsRequest(resources=[], validate_only=True), 1).responses == []
        assert asked.alter("listener.name.ssl.max.connections", "2") == 0
        wait_until(asked.is_served, "room for one more")
