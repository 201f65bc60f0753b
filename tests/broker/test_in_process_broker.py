"""The in-process broker: starts anywhere, touches nothing of the host, leaves nothing behind."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer

from pybroker.config.schema import ConfigError
from pybroker.storage.results import StorageError
from pybroker.testing import Broker
from tests.broker.batches import batch
from tests.broker.wire_client import WireClient


def test_nothing_is_left_after_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    threads = set(threading.enumerate())
    with Broker() as broker:
        address = (broker.host, broker.port)
        broker.create_topic("t")
        with WireClient(address) as client:
            client.produce("t", batch(b"v" * 300_000))
        assert list(tmp_path.iterdir())
    assert not list(tmp_path.iterdir())
    assert set(threading.enumerate()) == threads
    with socket.socket() as probe:
        assert probe.connect_ex(address) != 0


def test_host_settings_are_not_touched() -> None:
    def state() -> tuple[object, ...]:
        return (
            [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)],
            type(asyncio.get_event_loop_policy()),
            list(logging.getLogger().handlers),
            logging.getLogger().level,
            gc.get_threshold(),
            gc.get_freeze_count(),
        )

    before = state()
    with Broker():
        assert state() == before
    assert state() == before


def test_blocking_client_on_the_callers_loop_does_not_deadlock_the_broker() -> None:
    async def scenario() -> bytes:
        async with Broker() as broker:
            producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
            producer.send("t", b"value").get(timeout=15)  # blocks this loop
            producer.close()
            consumer = KafkaConsumer("t", bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest")
            value: bytes = next(iter(consumer)).value
            consumer.close()
            return value

    assert asyncio.run(scenario()) == b"value"


def test_broker_runs_on_the_standard_loop_too() -> None:
    with Broker(loop_factory=asyncio.SelectorEventLoop) as broker:
        broker.create_topic("t")
        with WireClient((broker.host, broker.port)) as client:
            sent = batch(b"x" * 500_000)
            assert client.produce("t", sent).base_offset == 0
            data = client.fetch("t", 0, partition_max_bytes=1 << 20).responses[0].partitions[0]
            assert bytes(data.records)[16:] == sent[16:]


def test_data_survives_in_a_given_directory(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "data") as broker:
        broker.create_topic("t")
        with WireClient((broker.host, broker.port)) as client:
            client.produce("t", batch(b"kept"))
    with Broker(data_dir=tmp_path / "data") as broker, WireClient((broker.host, broker.port)) as client:
        assert client.produce("t", batch(b"next")).base_offset == 1


def test_second_broker_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path), pytest.raises(StorageError, match=r"in use|is using it|locked"):
        Broker(data_dir=tmp_path).start()


def test_unknown_setting_is_refused_and_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"num\.partitions"):
        Broker({"num.partition": "3"}).start()


def test_two_brokers_live_side_by_side() -> None:
    with Broker() as first, Broker() as second:
        assert first.port != second.port
        first.create_topic("only-here")
        with pytest.raises(ValueError, match=r"already exists"):
            first.create_topic("only-here")
        second.create_topic("only-here")


def test_plugin_imports_nothing_of_the_broker_until_a_fixture_is_used() -> None:
    code = "import sys, pybroker.testing.pytest_plugin; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    loaded = set(done.stdout.split())
    assert not loaded & {"asyncio", "uvloop", "kafka"}
    assert {name for name in loaded if name.startswith("pybroker")} == {
        "pybroker",
        "pybroker.testing",
        "pybroker.testing.pytest_plugin",
    }
