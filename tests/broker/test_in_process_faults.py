"""A broker alone in the test's process: killed, paused and restarted on its port with its data."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from harness.batches import batch
from harness.waiting import PATIENCE_S
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from pybroker.testing import Broker
from tests.broker.wire_client import WireClient, fetch_request
from tests.new_threads import NewThreads

UNANSWERED_S = 0.5  # so long a paused broker is seen to say nothing


def read(broker: Broker, topic: str, offset: int = 0) -> bytes:
    with WireClient((broker.host, broker.port)) as client:
        return bytes(client.fetch(topic, offset).responses[0].partitions[0].records or b"")


def write(broker: Broker, topic: str, value: bytes) -> int:
    with WireClient((broker.host, broker.port)) as client:
        return client.produce(topic, batch(value)).base_offset


def killed(broker: Broker) -> None:
    broker.kill()
    broker.restart()


def killed_while_paused(broker: Broker) -> None:
    broker.pause()
    broker.kill()
    broker.restart()


def restarted_while_paused(broker: Broker) -> None:
    broker.pause()
    broker.restart()


@pytest.mark.parametrize("again", [killed, killed_while_paused, restarted_while_paused, Broker.restart])
@pytest.mark.parametrize("given", [True, False], ids=["directory given", "directory of its own"])
def test_what_was_acknowledged_is_there_on_the_same_port_when_it_is_started_again(
    tmp_path: Path, again: Callable[[Broker], None], given: bool
) -> None:
    with Broker(data_dir=tmp_path / "data" if given else None) as broker:
        broker.create_topic("t")
        before = broker.bootstrap
        for number in range(3):
            assert write(broker, "t", b"value %d" % number) == number
            again(broker)
            assert broker.is_running
            assert not broker.is_paused
            assert broker.bootstrap == before
        assert [number for number in range(3) if b"value %d" % number in read(broker, "t")] == [0, 1, 2]
        assert write(broker, "t", b"last") == 3


def test_groups_stand_where_they_stood_and_clients_go_on() -> None:
    partition = TopicPartition("t", 0)
    with Broker() as broker:
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
        producer.send("t", b"one").get(PATIENCE_S)
        settings = {"bootstrap_servers": broker.bootstrap, "group_id": "readers", "auto_offset_reset": "earliest"}
        with KafkaConsumer("t", **settings) as consumer:
            assert next(consumer).value == b"one"
            consumer.commit()
        broker.kill()
        broker.restart()
        producer.send("t", b"two").get(PATIENCE_S)
        producer.close()
        with KafkaConsumer(**settings) as consumer:
            assert consumer.committed(partition) == 1


def test_a_killed_broker_breaks_its_connections_and_its_port_refuses() -> None:
    with Broker() as broker, socket.create_connection((broker.host, broker.port), PATIENCE_S) as connection:
        broker.kill()
        with suppress(ConnectionResetError):  # of one that was not accepted yet
            assert connection.recv(1) == b""
        assert not broker.is_running
        with socket.socket() as probe:
            assert probe.connect_ex((broker.host, broker.port)) != 0
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind((broker.host, broker.port))


def test_a_kill_leaves_no_mark_of_a_clean_stop_and_a_restart_does(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        mark = broker.data_dir / ".kafka_cleanshutdown"
        broker.kill()
        assert not mark.exists()
        broker.restart()
    assert mark.exists()


def test_a_paused_broker_answers_nothing_and_goes_on() -> None:
    with Broker() as broker, WireClient((broker.host, broker.port)) as client:
        broker.create_topic("t")
        broker.pause()
        paused = broker.is_paused
        client.send(fetch_request("t", 0), 12)
        with client.patience(UNANSWERED_S), pytest.raises(TimeoutError):
            client.receive_payload()
        with WireClient((broker.host, broker.port)) as late:  # the kernel takes the connection
            late.send(fetch_request("t", 0), 12)
            broker.resume()
            assert (paused, broker.is_paused) == (True, False)
            for waiting in (client, late):
                assert waiting.receive().responses[0].partitions[0].error_code == 0
        assert write(broker, "t", b"v") == 0


@pytest.mark.parametrize("fault", [Broker.kill, Broker.pause, Broker.restart, killed, killed_while_paused])
def test_nothing_is_left_after_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Callable[[Broker], None]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    new_threads = NewThreads()
    with Broker(security="SASL_PLAINTEXT") as broker:
        address = (broker.host, broker.port)
        broker.create_topic("t")
        fault(broker)
        assert len(list(tmp_path.iterdir())) == 2
    assert not list(tmp_path.iterdir())
    assert not new_threads()
    with socket.socket() as port:
        port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        port.bind(address)
        port.listen()


_NEVER_STOPPED = """
from pybroker.testing import Broker

broker = Broker().start()
print(broker.data_dir)
broker.kill()
"""


def test_what_a_killed_broker_keeps_ends_with_the_interpreter() -> None:
    command = [sys.executable, "-c", _NEVER_STOPPED]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert (done.returncode, done.stderr) == (0, "")
    assert not Path(done.stdout.strip()).exists()


@pytest.mark.parametrize("what", [Broker.kill, Broker.pause, Broker.resume, Broker.restart])
def test_a_broker_that_does_not_run_has_no_faults(what: Callable[[Broker], None]) -> None:
    broker = Broker()
    with pytest.raises(AssertionError, match="not"):
        what(broker)
    with broker:
        pass
    with pytest.raises(AssertionError, match="not"):
        what(broker)


def test_users_and_keys_outlive_a_kill() -> None:
    with Broker(security="SASL_SSL") as broker:
        settings = broker.client_settings("kafka-python")
        broker.kill()
        broker.restart()
        assert broker.client_settings("kafka-python") == settings
        with KafkaProducer(**settings) as producer:
            assert producer.send("t", b"v").get(PATIENCE_S).offset == 0


def test_all_listeners_keep_their_ports() -> None:
    settings = {"listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT", "inter.broker.listener.name": "A"}
    with Broker(settings, listen="A://127.0.0.1:0,B://127.0.0.1:0") as broker:
        server = broker._server
        assert server is not None
        before = server.endpoints
        broker.kill()
        for endpoint in before:
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((endpoint.host, endpoint.port))
        broker.restart()
        assert broker._server is not None
        assert broker._server.endpoints == before


def test_the_port_that_is_kept_is_the_bound_one_and_not_that_of_a_proxy() -> None:
    with Broker({"advertised.listeners": "PLAINTEXT://localhost:19"}) as broker:
        assert broker._server is not None
        [[bound]] = broker._server.bound
        broker.kill()
        assert broker.bootstrap == "localhost:19"
        broker.restart()
        assert broker._server.bound == [[bound]]


def ended_by_itself(broker: Broker) -> None:
    """As where its last log dir fails."""
    life = broker._life
    assert life is not None
    life.call_soon(life._stopping.set)
    life._thread.join(PATIENCE_S)


def test_a_broker_that_ended_by_itself_does_not_run_and_can_be_started_again() -> None:
    with Broker(security="SASL_PLAINTEXT") as broker:
        broker.create_topic("t")
        before = broker.bootstrap
        ended_by_itself(broker)
        assert not broker.is_running
        assert broker.bootstrap == before
        for what in (Broker.kill, Broker.pause, Broker.resume):
            with pytest.raises(AssertionError, match="is not"):
                what(broker)
        assert not broker.is_paused
        broker.restart()
        assert broker.bootstrap == before
        with pytest.raises(ValueError, match="already exists"):
            broker.create_topic("t")


def test_a_broker_that_ended_by_itself_leaves_nothing_after_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Broker() as broker:
        ended_by_itself(broker)
    assert list(tmp_path.iterdir()) == []


def test_a_fork_of_a_paused_brokers_process_only_forgets_it() -> None:
    program = """
        import os
        from pybroker.testing import Broker

        with Broker() as broker:
            broker.pause()
            child = os.fork()
            if child == 0:
                broker.stop()
                os._exit(broker.is_paused)
            assert os.waitpid(child, 0)[1] == 0
            broker.resume()
            broker.create_topic("t")
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, timeout=PATIENCE_S)


def test_a_broker_is_stopped_while_a_thread_restarts_it() -> None:
    new_threads = NewThreads()
    errors: list[BaseException] = []

    def restart_for_ever() -> None:
        try:
            while True:
                broker.restart()
                restarted.set()
        except BaseException as error:
            errors.append(error)

    restarted = threading.Event()
    with Broker() as broker:
        threads = [threading.Thread(target=restart_for_ever) for _ in range(2)]
        for thread in threads:
            thread.start()
        assert restarted.wait(PATIENCE_S)
    for thread in threads:
        thread.join(PATIENCE_S)
    assert len(errors) == 2
    assert all(str(error).startswith("the broker has not been started") for error in errors)
    assert not new_threads()
