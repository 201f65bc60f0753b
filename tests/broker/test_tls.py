"""Listeners with TLS: stock clients get in, whoever speaks something else goes at once, and keys change in between."""

from __future__ import annotations

import logging
import os
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from harness.waiting import PATIENCE_S, wait_until
from kafka import KafkaConsumer, KafkaProducer

from pybroker import limits
from pybroker.config.schema import ConfigError
from pybroker.net import half_open
from pybroker.security import tls_stores
from pybroker.security.certificates import read_certificate
from pybroker.testing import Broker
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pybroker_protocol.messages.metadata import MetadataRequest
from tests.broker.wire_client import WireClient
from tests.certificates import Authority

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SUITE = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
DAMAGED = "-----BEGIN CERTIFICATE-----\nbm9uZQ==\n-----END CERTIFICATE-----\n"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


def settings_of(authority: Authority, **more: str) -> dict[str, str | int | float]:
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.pem("broker")),
        **{name.replace("_", "."): text for name, text in more.items()},
    }


@pytest.fixture(scope="module")
def broker(authority: Authority) -> Iterator[Broker]:
    with Broker(settings_of(authority, message_max_bytes=str(4 << 20)), listen="SSL://127.0.0.1:0") as broker:
        yield broker


class TlsClient(WireClient):
    """A raw client over TLS."""

    def __init__(self, broker: Broker, authority: Authority, key: Path | None = None, **limits: Any) -> None:
        super().__init__((broker.host, broker.port))
        context = ssl.create_default_context(cafile=str(authority.ca))
        for name, value in limits.items():
            setattr(context, name, value)
        if key is not None:
            context.load_cert_chain(key)
        for name, value in vars(self).items():
            if isinstance(value, socket.socket):
                self.tls = context.wrap_socket(value, server_hostname="localhost")
                setattr(self, name, self.tls)
                break


def damaged(authority: Authority, whole: Path) -> str:
    """The file ``whole`` with a second certificate, which is none."""
    file = authority.ca.parent / f"{whole.name}-damaged"
    file.write_text(whole.read_text() + DAMAGED)
    return str(file)


def empty(authority: Authority) -> str:
    file = authority.ca.parent / "empty.pem"
    file.touch()
    return str(file)


def fifo(authority: Authority) -> str:
    """A pipe without a writer."""
    file = authority.ca.parent / "fifo"
    if not file.exists():
        os.mkfifo(file)
    return str(file)


def altered(client: WireClient, **texts: str) -> Any:
    configs = [AlterableConfig(name=n.replace("_", "."), config_operation=0, value=t) for n, t in texts.items()]
    resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    return client.ask(request, 1).responses[0]


def is_served(broker: Broker, authority: Authority, key: Path | None = None, **limits: Any) -> bool:
    try:
        with TlsClient(broker, authority, key, **limits) as client:
            return client.ask(MetadataRequest(topics=None), 9) is not None
    except OSError:
        return False


def test_stock_clients_speak_tls(broker: Broker, authority: Authority) -> None:
    common: dict[str, Any] = {
        "bootstrap_servers": f"localhost:{broker.port}",
        "security_protocol": "SSL",
        "ssl_cafile": str(authority.ca),
    }
    producer = KafkaProducer(**common, max_request_size=4 << 20)
    values = [b"x", b"y" * 3_000_000, b"z" * 100_000]
    for value in values:
        producer.send("tls", value).get(PATIENCE_S)
    producer.close()
    consumer = KafkaConsumer("tls", auto_offset_reset="earliest", max_partition_fetch_bytes=8 << 20, **common)
    assert [next(consumer).value for _ in values] == values
    consumer.close()
    admin = AdminClient(
        {"bootstrap.servers": broker.bootstrap, "security.protocol": "SSL", "ssl.ca.location": str(authority.ca)}
    )
    assert "tls" in admin.list_topics(timeout=PATIENCE_S).topics


def test_clients_are_told_that_the_listener_speaks_tls(broker: Broker) -> None:
    server = broker._running()
    (endpoint,) = server.services.metadata.image.brokers[server.services.broker_id].endpoints.values()
    assert endpoint.security_protocol == 1


def test_sasl_goes_inside_of_tls(authority: Authority) -> None:
    jaas = f'{PLAIN} required user_alice="a";'
    settings = settings_of(authority) | {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": jaas,
    }
    with Broker(settings, listen="SASL_SSL://127.0.0.1:0") as broker:
        producer = KafkaProducer(
            bootstrap_servers=f"localhost:{broker.port}",
            security_protocol="SASL_SSL",
            ssl_cafile=str(authority.ca),
            sasl_mechanism="PLAIN",
            sasl_plain_username="alice",
            sasl_plain_password="a",
        )
        assert producer.send("both", b"x").get(PATIENCE_S).offset == 0
        producer.close()


def test_who_speaks_something_else_goes_at_once(
    broker: Broker, authority: Authority, pybroker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    with WireClient((broker.host, broker.port)) as client:
        assert client.ask(MetadataRequest(topics=None), 9) is None
    assert "a client without TLS on a listener with TLS" in caplog.text
    assert not is_served(pybroker, authority)
    assert "a TLS client on a listener without TLS" in caplog.text
    assert is_served(broker, authority)


def test_a_connection_that_never_begins_its_handshake_is_bounded(
    broker: Broker, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HALF_OPEN_MAX", 10)
    idle = [socket.create_connection((broker.host, broker.port)) for _ in range(40)]
    assert is_served(broker, authority)
    idle[0].settimeout(PATIENCE_S)
    assert idle[0].recv(1) == b""
    for each in idle:
        each.close()


def principals_of(broker: Broker) -> list[str]:
    connections: Any = broker._running()._sockets
    return [each.principal for each in connections.processor.connections if hasattr(each, "principal")]


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ("DEFAULT", r"User:CN=alice,O=Tests\, Inc."),
        (r"RULE:^CN=(.*?),O=.*$/$1/U, DEFAULT", "User:ALICE"),
        (r"RULE:^CN=bob$/nobody/,RULE:^CN=([a-z]+),.*$/$1@$2/L", "User:alice@$2"),
    ],
)
def test_a_certificate_says_who_it_is(authority: Authority, rules: str, expected: str) -> None:
    settings = settings_of(
        authority,
        ssl_client_auth="required",
        ssl_truststore_type="PEM",
        ssl_truststore_location=str(authority.ca),
        ssl_principal_mapping_rules=rules,
    )
    with Broker(settings, listen="SSL://127.0.0.1:0") as broker:
        assert not is_served(broker, authority), "without a certificate"
        other = Authority(authority.ca.parent, "another")
        assert not is_served(broker, authority, other.pem("mallory")), "another authority's"
        with TlsClient(broker, authority, authority.pem("alice")) as client:
            assert client.ask(MetadataRequest(topics=None), 9).brokers
            assert principals_of(broker) == [expected]


@pytest.mark.parametrize(("name", "expected"), [("alice", r"User:CN=alice,O=Tests\, Inc."), (None, "User:ANONYMOUS")])
def test_a_certificate_that_is_only_requested_says_who_it_is_and_without_one_it_is_nobody(
    authority: Authority, name: str | None, expected: str
) -> None:
    settings = settings_of(
        authority,
        ssl_client_auth="requested",
        ssl_truststore_type="PEM",
        ssl_truststore_location=str(authority.ca),
    )
    with Broker(settings, listen="SSL://127.0.0.1:0") as broker:
        other = Authority(authority.ca.parent, "another")
        assert not is_served(broker, authority, other.pem("mallory")), "another authority's"
        with TlsClient(broker, authority, None if name is None else authority.pem(name)) as client:
            assert client.ask(MetadataRequest(topics=None), 9).brokers
            assert principals_of(broker) == [expected]


def test_a_key_store_may_be_of_pkcs12(authority: Authority) -> None:
    settings = {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(authority.pkcs12("broker", "hunter2")),
        "ssl.keystore.password": "hunter2",
    }
    with Broker(settings, listen="SSL://127.0.0.1:0") as broker:
        assert is_served(broker, authority)


def test_versions_of_tls_are_those_that_are_enabled(authority: Authority) -> None:
    settings = settings_of(authority, ssl_enabled_protocols="TLSv1.2", ssl_protocol="TLSv1.2")
    with Broker(settings, listen="SSL://127.0.0.1:0") as broker:
        assert is_served(broker, authority)
        assert not is_served(broker, authority, minimum_version=ssl.TLSVersion.TLSv1_3)


def test_where_tls_1_3_alone_is_enabled_it_is_spoken_and_1_2_is_refused(authority: Authority) -> None:
    settings = settings_of(authority, ssl_enabled_protocols="TLSv1.3")
    with Broker(settings, listen="SSL://127.0.0.1:0") as broker:
        with TlsClient(broker, authority) as client:
            assert client.ask(MetadataRequest(topics=None), 9).brokers
            assert client.tls.version() == "TLSv1.3"
        assert not is_served(broker, authority, maximum_version=ssl.TLSVersion.TLSv1_2)


# Neither is what both sides would choose without the setting.
@pytest.mark.parametrize(
    ("java_name", "openssl_name"),
    [
        ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "ECDHE-ECDSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
    ],
)
def test_a_cipher_suite_by_its_name_in_java_is_the_one_that_is_spoken(
    authority: Authority, java_name: str, openssl_name: str
) -> None:
    settings = settings_of(authority, ssl_cipher_suites=java_name)
    with (
        Broker(settings, listen="SSL://127.0.0.1:0") as broker,
        TlsClient(broker, authority, maximum_version=ssl.TLSVersion.TLSv1_2) as client,
    ):
        assert client.ask(MetadataRequest(topics=None), 9).brokers
        negotiated = client.tls.cipher()
        assert negotiated is not None
        assert negotiated[0] == openssl_name


def test_a_client_that_has_none_of_the_cipher_suites_is_refused(authority: Authority) -> None:
    """Of RSA, which a certificate with an elliptic key cannot speak."""
    settings = settings_of(authority, ssl_cipher_suites="TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384")
    with Broker(settings, listen="SSL://127.0.0.1:0") as broker:
        assert not is_served(broker, authority, maximum_version=ssl.TLSVersion.TLSv1_2)


@pytest.mark.parametrize(
    ("suite", "is_spoken_in"), [(SUITE, ssl.TLSVersion.TLSv1_2), ("TLS_AES_256_GCM_SHA384", ssl.TLSVersion.TLSv1_3)]
)
def test_a_version_without_a_suite_is_not_spoken(
    authority: Authority, suite: str, is_spoken_in: ssl.TLSVersion
) -> None:
    with Broker(settings_of(authority, ssl_cipher_suites=suite), listen="SSL://127.0.0.1:0") as broker:
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            served = is_served(broker, authority, minimum_version=version, maximum_version=version)
            assert served is (version is is_spoken_in)


def test_a_store_that_cannot_be_read_is_refused_and_keeps_no_other_setting_from_changing(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    trusted = authority.ca.parent / "trusted.pem"
    trusted.write_bytes(authority.ca.read_bytes())
    settings = settings_of(authority, ssl_truststore_type="PEM", ssl_truststore_location=str(trusted))
    with Broker(settings, listen="SSL://127.0.0.1:0") as broker, TlsClient(broker, authority) as client:
        refused = altered(client, listener_name_ssl_ssl_truststore_location=damaged(authority, authority.ca))
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        assert "listener.name.ssl.ssl.truststore.location: " in refused.error_message
        trusted.write_text(DAMAGED)
        assert altered(client, log_cleaner_threads="2").error_code == 0
        assert "listener SSL stays as it was: ssl.truststore.location: " in caplog.text
        assert "a listener failed" not in caplog.text, "of the image"
        assert is_served(broker, authority)


@pytest.mark.parametrize("store", ["keystore", "truststore"])
@pytest.mark.parametrize("file", ["fifo", "/dev/zero", "/proc/kmsg", "huge"])
def test_a_store_that_is_no_file_of_bounded_size_is_refused_while_others_are_served(
    authority: Authority, broker: Broker, store: str, file: str
) -> None:
    huge = authority.ca.parent / "huge"
    with huge.open("wb") as sparse:
        sparse.truncate(5 << 30)
    where = {"fifo": fifo(authority), "huge": str(huge)}.get(file, file)
    with TlsClient(broker, authority) as client:
        refused = altered(client, **{f"listener_name_ssl_ssl_{store}_location": where})
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        assert f"listener.name.ssl.ssl.{store}.location: " in refused.error_message
        assert is_served(broker, authority)


def test_a_file_system_that_does_not_answer_keeps_nobody_but_who_named_it(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()
    asked = threading.Event()

    def hang(path: str, *_: Any) -> bytes:
        asked.set()
        assert answers.wait(PATIENCE_S)
        raise ConfigError("too late")

    monkeypatch.setattr("pybroker.net.key_stores.NAMED_FILES_MS", 500)
    with Broker(settings_of(authority), listen="SSL://127.0.0.1:0") as broker, TlsClient(broker, authority) as client:
        monkeypatch.setattr(tls_stores, "read_named_file", hang)
        texts = {"listener.name.ssl.ssl.truststore.location": "/hangs"}
        configs = [AlterableConfig(name=name, config_operation=0, value=text) for name, text in texts.items()]
        resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=configs)
        client.send(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
        assert asked.wait(PATIENCE_S)
        assert is_served(broker, authority), "while the thread is held"
        refused = client.receive().responses[0]
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        assert "listener.name.ssl.ssl.truststore.location=/hangs: not read within 500 ms" in refused.error_message
        assert altered(client, log_cleaner_threads="2").error_code == 0
        answers.set()
        wait_until(
            lambda: "too late" in altered(client, listener_name_ssl_ssl_truststore_location="/hangs").error_message,
            "the thread to go on",
        )


def test_a_certificate_changes_while_the_broker_runs_and_connections_stand(authority: Authority) -> None:
    with Broker(settings_of(authority), listen="SSL://127.0.0.1:0") as broker, TlsClient(broker, authority) as client:

        def shown() -> bytes:
            with TlsClient(broker, authority) as other:
                return other.tls.getpeercert(binary_form=True) or b""

        def alter(location: Path, **more: str) -> Any:
            prefix = "listener.name.ssl.ssl"
            texts = {f"{prefix}.keystore.location": str(location), f"{prefix}.keystore.type": "PEM", **more}
            configs = [AlterableConfig(name=name, config_operation=0, value=text) for name, text in texts.items()]
            resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=configs)
            request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
            return client.ask(request, 1).responses[0]

        before = shown()
        assert alter(authority.ca.parent / "missing").error_code == ErrorCode.INVALID_REQUEST
        refused = alter(authority.pem("somebody-else"))
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        assert "ssl.allow.dn.changes" in refused.error_message
        assert shown() == before
        assert alter(authority.pem("broker", days=3)).error_code == 0
        assert shown() != before
        assert client.ask(MetadataRequest(topics=None), 9).brokers, "the connection stands"


def test_files_of_keys_are_read_again_where_a_setting_of_their_broker_is_set_be_it_to_what_it_was(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    key_store = authority.ca.parent / "replaced.pem"
    key_store.write_bytes(authority.pem("broker").read_bytes())
    settings = settings_of(authority) | {"ssl.keystore.location": str(key_store)}
    with Broker(settings, listen="SSL://127.0.0.1:0") as broker, TlsClient(broker, authority) as client:

        def shown() -> bytes:
            with TlsClient(broker, authority) as other:
                return other.tls.getpeercert(binary_form=True) or b""

        def set_anew(name: str, text: str) -> None:
            configs = [AlterableConfig(name=name, config_operation=0, value=text)]
            resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=configs)
            request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
            assert client.ask(request, 1).responses[0].error_code == 0

        where = ("listener.name.ssl.ssl.keystore.location", str(key_store))
        set_anew(*where)
        seen = [shown()]
        for alteration in (where, ("log.cleaner.threads", "1"), ("log.cleaner.threads", "1")):
            key_store.write_bytes(authority.pem("broker").read_bytes())
            assert shown() == seen[-1], "until somebody says so"
            set_anew(*alteration)
            assert shown() not in seen
            seen.append(shown())
        for wrong, reason in ((authority.pem("mallory"), "another one's"), (authority.ca, "no private key")):
            key_store.write_bytes(wrong.read_bytes())
            set_anew(*where)
            assert shown() == seen[-1]
            assert reason in caplog.text
        key_store.write_bytes(authority.pem("broker").read_bytes())
        set_anew(*where)
        assert shown() not in seen


def test_a_certificate_that_has_expired_keeps_no_other_setting_from_changing(authority: Authority) -> None:
    key_store = authority.ca.parent / "expires.pem"
    key_store.write_bytes(authority.pem("broker").read_bytes())
    settings = settings_of(authority) | {"ssl.keystore.location": str(key_store)}
    with Broker(settings, listen="SSL://127.0.0.1:0") as broker, TlsClient(broker, authority) as client:

        def altered(name: str, text: str) -> int:
            configs = [AlterableConfig(name=name, config_operation=0, value=text)]
            resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=configs)
            request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
            return int(client.ask(request, 1).responses[0].error_code)

        key_store.write_bytes(authority.pem("broker", days=-1).read_bytes())
        assert altered("log.cleaner.threads", "2") == 0
        assert altered("listener.name.ssl.ssl.client.auth", "requested") == ErrorCode.INVALID_REQUEST
        assert is_served(broker, authority), "the listener stays as it was"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda files: {"ssl.keystore.location": ""}, "ssl.keystore.location"),
        (lambda files: {"ssl.keystore.location": "/nowhere/x.pem"}, "ssl.keystore.location: /nowhere/x.pem cannot be"),
        (lambda files: {"ssl.keystore.location": str(files.pem("late", days=-1))}, "expired on"),
        (lambda files: {"ssl.keystore.location": str(files.ca)}, "holds no private key"),
        (lambda files: {"ssl.keystore.type": "PKCS12"}, "set ssl.keystore.type=PEM"),
        (lambda files: {"ssl.keystore.type": "BCFKS"}, "PEM and PKCS12 are served"),
        (lambda files: {"ssl.keystore.location": str(files.pem("locked", password="hunter2"))}, "password right"),
        (lambda files: {"ssl.keystore.type": "PKCS12", "ssl.keystore.password": "wrong",
                        "ssl.keystore.location": str(files.pkcs12("broker", "hunter2"))}, ".password right"),
        (lambda files: {"ssl.truststore.type": "PEM", "ssl.truststore.location": "/dev/zero"}, "no regular file"),
        (lambda files: {"ssl.keystore.location": fifo(files)}, "ssl.keystore.location: "),
        (lambda files: {"ssl.truststore.type": "PEM", "ssl.truststore.location": empty(files)}, "holds no certificate"),
        (lambda files: {"ssl.truststore.type": "PEM", "ssl.truststore.location": damaged(files, files.ca)},
         "ssl.truststore.location: "),
        (lambda files: {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": DAMAGED},
         "ssl.truststore.certificates: its value holds a certificate that cannot be read"),
        (lambda files: {"ssl.keystore.location": damaged(files, files.pem("half"))},
         "half-1.pem-damaged holds a certificate that cannot be read"),
        (lambda files: {"ssl.keystore.location": "a\0b"}, "ssl.keystore.location: 'a\\x00b' is no name of a file"),
        (lambda files: {"ssl.keystore.location": str(files.pem("locked", password="hunter2")),
                        "ssl.key.password": "hunter2" * 1000}, "ssl.keystore.location: the key and its certificate"),
        (lambda files: {"ssl.enabled.protocols": "SSLv3"}, "ssl.enabled.protocols names SSLv3"),
        (lambda files: {"ssl.principal.mapping.rules": "RULE:(/x/"}, "ssl.principal.mapping.rules: Invalid rule"),
        (lambda files: {"ssl.cipher.suites": "NONSENSE"}, "ssl.cipher.suites"),
        (lambda files: {"ssl.cipher.suites": f"{SUITE},TLS_NO_SUCH_SUITE"}, "names TLS_NO_SUCH_SUITE, which is no"),
        (lambda files: {"ssl.cipher.suites": "ALL:eNULL:@SECLEVEL=0"}, "which is no cipher suite that is served"),
        (lambda files: {"ssl.cipher.suites": SUITE, "ssl.enabled.protocols": "TLSv1.3"}, "a version that is enabled"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_at_the_start(
    authority: Authority, change: Callable[[Authority], dict[str, str]], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        Broker(settings_of(authority) | change(authority), listen="SSL://127.0.0.1:0").start()
    assert message in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_store_of_java_is_named_with_the_command_that_converts_it(authority: Authority) -> None:
    file = authority.ca.parent / "store.jks"
    file.write_bytes(b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    with pytest.raises(ConfigError, match=r"keytool -importkeystore .*-deststoretype PKCS12"):
        Broker({"ssl.keystore.location": str(file)}, listen="SSL://127.0.0.1:0").start()


def test_brokers_of_a_cluster_reach_each_other_by_tls(authority: Authority, tmp_path: Path) -> None:
    settings = settings_of(
        authority,
        ssl_client_auth="required",
        ssl_truststore_type="PEM",
        ssl_truststore_location=str(authority.ca),
        pybroker_metadata=f"sqlite://{tmp_path}/metadata.db",
    )
    nodes = [settings | {"node.id": node} for node in (1, 2)]
    with (
        Broker(nodes[0], listen="SSL://127.0.0.1:0") as first,
        Broker(nodes[1], listen="SSL://127.0.0.1:0") as second,
    ):
        key = authority.pem("client")
        for broker in (first, second):
            with TlsClient(broker, authority, key) as client:
                client.create_topic(f"made-by-{broker.port}")  # one of them forwards it to the other
        logging.getLogger(__name__).debug("both are served")


def test_a_name_is_written_as_java_writes_it(authority: Authority) -> None:
    der = ssl.PEM_cert_to_DER_cert(authority.pem("a+b").read_text().partition("-----END PRIVATE KEY-----\n")[2])
    assert read_certificate(der).subject == r"CN=a\+b,O=Tests\, Inc."


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl's own client")
def test_a_client_cannot_have_keys_agreed_upon_anew(broker: Broker, authority: Authority) -> None:
    """Renegotiation of TLS 1.2 costs the server far more than the client, as often as it likes."""
    command = ["openssl", "s_client", "-connect", broker.bootstrap, "-tls1_2", "-CAfile", str(authority.ca)]
    asked = subprocess.run(command, input="R\n", capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert "RENEGOTIATING" in asked.stdout + asked.stderr
    assert "no renegotiation" in asked.stderr.lower().replace("_", " "), asked.stderr
    assert is_served(broker, authority)


def test_a_handshake_that_trickles_has_no_more_time_than_another(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(half_open, "HALF_OPEN_MS", 400)
    begun = time.monotonic()
    with (
        Broker(settings_of(authority), listen="SSL://127.0.0.1:0") as broker,
        socket.create_connection((broker.host, broker.port)) as slow,
    ):
        slow.settimeout(0.02)
        slow.sendall(b"\x16\x03\x01\x40\x00\x01")
        ended = False
        while not ended and time.monotonic() - begun < PATIENCE_S:
            try:
                slow.sendall(b"\0")
                ended = slow.recv(1) == b""
            except TimeoutError:
                pass
            except ConnectionError:
                ended = True
        assert ended
        assert time.monotonic() - begun > 0.3
