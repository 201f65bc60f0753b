"""A broker alone in the test's process: killed, paused and restarted on its port with its data."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
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
