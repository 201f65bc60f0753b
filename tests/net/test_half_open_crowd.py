"""Ten thousand strangers who begin a login and never end it: memory is bounded, and honest clients get in."""

from __future__ import annotations

import resource
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
from harness.pybroker_process import COMMAND, Serving, serving
from harness.waiting import PATIENCE_S, wait_until
from harness.wire import request_frame
from kafka import KafkaAdminClient

from pybroker import limits
from pybroker_protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.certificates import Authority

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(230)]

STRANGERS = 10_000
SPARE_DESCRIPTORS = 1_000  # for what else the tests' process has open
# What one may cost: OpenSSL keeps a session and two buffers, and Python what is around them.
BYTES_EACH_MAX = 64 << 10
HONEST_LOGIN_S = 10
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="a";'


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def broker(tmp_path: Path, authority: Authority) -> Iterator[Serving]:
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.pem("broker")),
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": JAAS,
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
    }
    listeners = ["--listen", "SASL_SSL://127.0.0.1:0", "--listen", "SASL_PLAINTEXT://127.0.0.1:0"]
    options = [argument for name, value in settings.items() for argument in ("--set", f"{name}={value}")]
    with serving([COMMAND, "serve", "--data-dir", tmp_path / "data", *listeners, *options]) as process:
        yield process
        process.stop()


def hello() -> bytes:
    """The first message of a TLS client, whole."""
    outgoing = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


def half_a_hello() -> bytes:
    whole = hello()
    return whole[: len(whole) // 2]


@pytest.fixture(autouse=True)
def _descriptors_for_all() -> None:
    """This process may have as many sockets as there are strangers; the broker raises its own limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = STRANGERS + SPARE_DESCRIPTORS
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.skip(f"the crowd needs {needed} descriptors, and the hard limit (ulimit -Hn) is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@pytest.mark.parametrize("says", [hello, half_a_hello, bytes], ids=["a whole hello", "half a hello", "nothing"])
def test_a_crowd_in_its_handshakes_is_bounded_and_lets_others_in(
    broker: Serving, authority: Authority, says: Callable[[], bytes]
) -> None:
    message = says()
    process = psutil.Process(broker.process.pid)

    def log_in() -> None:
        client = KafkaAdminClient(
            bootstrap_servers=f"localhost:{broker.port}",
            security_protocol="SASL_SSL",
            ssl_cafile=str(authority.ca),
            sasl_mechanism="PLAIN",
            sasl_plain_username="alice",
            sasl_plain_password="a",
            request_timeout_ms=HONEST_LOGIN_S * 1_000,
        )
        client.list_topics()
        client.close()

    log_in()
    before = process.memory_info().rss
    with ExitStack() as stack:
        for index in range(STRANGERS):
            stranger = stack.enter_context(socket.create_connection((broker.host, broker.port), timeout=PATIENCE_S))
            stranger.sendall(message)
            if index % (STRANGERS // 4) == STRANGERS // 8:
                log_in()
        half_open = min(STRANGERS, limits.HALF_OPEN_MAX)
        wait_until(lambda: process.num_fds() <= half_open + 200, "the oldest have gone", 30)
        log_in()
        assert process.memory_info().rss - before < half_open * BYTES_EACH_MAX
    wait_until(lambda: process.num_fds() < 200, "who has left is forgotten", 30)
    log_in()


def test_memory_of_a_crowd_comes_back_for_the_next(broker: Serving) -> None:
    """Three crowds, one after another, cost what one does."""
    process = psutil.Process(broker.process.pid)
    message = request_frame(SaslHandshakeRequest(mechanism="PLAIN"), 1)[:-3]
    grown = []
    for _ in range(3):
        with ExitStack() as stack:
            for _ in range(3_000):
                stranger = stack.enter_context(socket.create_connection((broker.host, broker.port), timeout=PATIENCE_S))
                stranger.sendall(message)
        wait_until(lambda: process.num_fds() < 200, "who has left is forgotten", 30)
        grown.append(process.memory_info().rss)
    assert grown[2] - grown[0] < 20 << 20, grown
