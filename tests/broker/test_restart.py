"""What a broker's own restart changes, and what it leaves alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness.batches import batch

from pybroker.net.socket_server import SocketServer
from pybroker.testing import Broker
from pybroker_protocol.messages.metadata import MetadataRequest
from tests.broker.wire_client import WireClient


def leader_epoch(broker: Broker, topic: str) -> int:
    with WireClient((broker.host, broker.port)) as client:
        reply = client.ask(MetadataRequest(topics=None), 9)
    (found,) = (entry for entry in reply.topics if entry.name == topic)
    (partition,) = found.partitions
    return int(partition.leader_epoch)


def write_once(data_dir: Path) -> None:
    with Broker(data_dir=data_dir) as broker:
        broker.create_topic("t")
        with WireClient((broker.host, broker.port)) as client:
            client.produce("t", batch(b"v"))


def test_leader_epochs_stay_over_clean_restarts(tmp_path: Path) -> None:
    write_once(tmp_path)
    for _ in range(2):
        with Broker(data_dir=tmp_path) as broker:
            assert leader_epoch(broker, "t") == 0


def test_leader_epochs_grow_when_the_mark_of_a_clean_stop_is_missing(tmp_path: Path) -> None:
    write_once(tmp_path)
    (tmp_path / ".kafka_cleanshutdown").unlink()
    with Broker(data_dir=tmp_path) as broker:
        assert leader_epoch(broker, "t") == 1


def test_start_that_fails_after_taking_the_mark_puts_it_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_once(tmp_path)
    mark = (tmp_path / ".kafka_cleanshutdown").read_bytes()

    async def refuse(*_address: object) -> None:
        raise OSError("no address is free")

    monkeypatch.setattr(SocketServer, "listen", refuse)
    with pytest.raises(OSError, match="no address is free"):
        Broker(data_dir=tmp_path).start()
    assert (tmp_path / ".kafka_cleanshutdown").read_bytes() == mark
