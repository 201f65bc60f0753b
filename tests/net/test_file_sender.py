"""Long records go from their file to the socket: every byte, in order, whatever becomes of the file and of the peer."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import uvloop
from harness.batches import batch
from harness.waiting import wait_until
from harness.wire import Client

from pybroker import limits
from pybroker.net import file_sender
from pybroker.net.file_sender import FileSender
from pybroker.server import BrokerServer
from pybroker.storage.files import os_file
from pybroker.storage.log.truncation import truncate_log
from pybroker.testing import Broker
from tests.broker.wire_client import WireClient, fetch_request
from tests.net.conftest import served_side, sweep

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere all records are copied")

KERNEL_BYTES = 64 << 10
RECORD_BYTES = 900_000
RECORDS = 6
SHORT_RECORD_BYTES = 100_000
ALL_BYTES = 64 << 20
FETCH_VERSION = 12


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def broker(request: pytest.FixtureRequest, no_sweep_but_ours: None) -> Iterator[Broker]:
    with Broker({"socket.send.buffer.bytes": KERNEL_BYTES}, loop_factory=request.param) as running:
        running.create_topic("t")
        with WireClient((running.host, running.port)) as client:
            for number in range(RECORDS):
                client.produce("t", batch(bytes([number]) * RECORD_BYTES))
        yield running


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How much each call has sent from a file."""
    lengths: list[int] = []

    def send_file(out: int, fd: int, offset: int, count: int) -> int:
        lengths.append(os.sendfile(out, fd, offset, count))
        return lengths[-1]

    monkeypatch.setattr(os_file, "send_file", send_file)
    return lengths


class SlowReader(Client):
    """A client whose kernel takes little of a reply that it does not read."""

    def __init__(self, broker: Broker) -> None:
        super().__init__((broker.host, broker.port))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL_BYTES)

    def ask_for_all(self) -> None:
        self.post(fetch_request("t", 0, partition_max_bytes=ALL_BYTES), version=FETCH_VERSION)

    def take(self) -> bytes:
        """A whole reply, without its length."""
        payload = self.receive_payload()
        assert payload is not None
        return bytes(payload)


@pytest.fixture
def reader(broker: Broker) -> Iterator[SlowReader]:
    client = SlowReader(broker)
    yield client
    client.close()


def expected(broker: Broker) -> bytes:
    """The records as they lie in the file."""
    [path] = (broker.data_dir / "t-0").glob("*.log")
    return path.read_bytes()


def on_the_loop(broker: Broker, act: Callable[[BrokerServer], Any]) -> Any:
    return broker._call(lambda server, done: done(act(server)))


def sender_of(broker: Broker, reader: Client) -> FileSender:
    """Of a connection whose peer has not taken all."""
    outbox = served_side(broker, reader)._outbox
    wait_until(lambda: outbox.unsent_bytes > 0, "the socket is full")
    assert outbox._file_sender is not None
    return outbox._file_sender


def has_closed(sender: FileSender) -> bool:
    return sender._socket is None


def test_long_records_are_sent_from_their_file(broker: Broker, reader: SlowReader, sent: list[int]) -> None:
    reader.ask_for_all()
    reply = reader.take()
    assert expected(broker) in reply
    assert sum(sent) >= RECORDS * RECORD_BYTES


def test_reader_alone_gets_copies_until_there_is_another(broker: Broker, reader: SlowReader, sent: list[int]) -> None:
    for _ in range(file_sender.LONE_REPLIES + 1):
        reader.ask_for_all()
        reader.take()
    assert sent
    sent.clear()
    reader.ask_for_all()
    assert expected(broker) in reader.take()
    assert not sent, "it is alone"
    other = SlowReader(broker)
    for each in (other, reader):
        each.ask_for_all()
        assert expected(broker) in each.take()
        assert sent
        sent.clear()
    other.close()


def test_replies_behind_a_long_one_keep_their_order(broker: Broker, reader: SlowReader, sent: list[int]) -> None:
    for _ in range(3):
        reader.ask_for_all()
        reader.post(fetch_request("t", RECORDS), version=FETCH_VERSION)  # at the end: an answer of some bytes
    long, short = [], []
    for _ in range(3):
        long.append(reader.take())
        short.append(reader.take())
    assert all(expected(broker) in reply for reply in long)
    assert all(len(reply) < 1_000 for reply in short)
    assert sent


def test_peer_that_takes_nothing_is_served_nothing_more_and_goes_on_when_it_takes_again(
    broker: Broker, reader: SlowReader
) -> None:
    reader.ask_for_all()
    sender, served = sender_of(broker, reader), served_side(broker, reader)
    reader.ask_for_all()
    wait_until(served.holds_whole_frame, "the second request waits")
    assert sender.unsent_bytes <= RECORDS * RECORD_BYTES + 1_000, "one reply, and not two"
    assert served.unsent_bytes >= sender.unsent_bytes
    assert all(expected(broker) in reader.take() for _ in range(2))
    wait_until(lambda: sender._socket is None, "nothing is left")
    assert sender.unsent_bytes == 0


def test_replies_that_wait_behind_others_hold_the_connection_up_too(broker: Broker, reader: SlowReader) -> None:
    broker.create_topic("short")
    with WireClient((broker.host, broker.port)) as client:
        client.produce("short", batch(b"a" * SHORT_RECORD_BYTES))
    served, asked = served_side(broker, reader), 0
    while not served.holds_whole_frame() and asked < 100:
        reader.post(fetch_request("short", 0, partition_max_bytes=ALL_BYTES), version=FETCH_VERSION)
        asked += 1
        time.sleep(0.02)  # each is served by itself
    assert served.holds_whole_frame(), f"it serves on, with {served.unsent_bytes} bytes unsent"
    assert served.unsent_bytes <= limits.UNSENT_BYTES + 2 * SHORT_RECORD_BYTES
    assert all(len(reader.take()) > SHORT_RECORD_BYTES for _ in range(asked))


def test_peer_that_takes_nothing_for_too_long_is_closed(broker: Broker, reader: SlowReader) -> None:
    reader.ask_for_all()
    sender = sender_of(broker, reader)
    sweep(broker, 3)
    wait_until(partial(has_closed, sender), "its socket is closed")
    assert sender.unsent_bytes == 0


def test_file_that_is_closed_or_cut_meanwhile_is_sent_to_its_end(broker: Broker, reader: SlowReader) -> None:
    whole = expected(broker)
    reader.ask_for_all()
    sender_of(broker, reader)

    def cut(server: BrokerServer) -> None:
        assert server._logs is not None
        [log] = [log for log in server._logs.logs() if log.path.name == "t-0"]
        assert log.opened is not None
        log.opened.segments[-1].cut(RECORD_BYTES // 2)

    on_the_loop(broker, cut)
    assert whole in reader.take()


def test_log_that_is_cut_and_goes_on_changes_nothing_that_the_kernel_has_yet_to_deliver(
    broker: Broker, reader: SlowReader, sent: list[int]
) -> None:
    broker.create_topic("cut")
    with WireClient((broker.host, broker.port)) as client:
        for _ in range(2):
            client.produce("cut", batch(b"a" * SHORT_RECORD_BYTES))
    [path] = (broker.data_dir / "cut-0").glob("*.log")
    whole = path.read_bytes()
    reader.post(fetch_request("cut", 0, partition_max_bytes=ALL_BYTES), version=FETCH_VERSION)
    wait_until(lambda: sum(sent) == len(whole), "the kernel has it all")
    wait_until(lambda: served_side(broker, reader).unsent_bytes == 0, "and the broker nothing of it")

    def cut(server: BrokerServer) -> None:
        assert server._logs is not None
        [log] = [log for log in server._logs.logs() if log.path.name == "cut-0"]
        assert log.opened is not None
        truncate_log(log.opened, 1)

    on_the_loop(broker, cut)
    with WireClient((broker.host, broker.port)) as client:
        client.produce("cut", batch(b"b" * SHORT_RECORD_BYTES))
    assert path.read_bytes().count(b"b") >= SHORT_RECORD_BYTES
    assert whole in reader.take()


def test_connection_that_is_closed_sends_what_it_has_begun(broker: Broker, reader: SlowReader) -> None:
    reader.ask_for_all()
    sender_of(broker, reader)
    reader.send_raw(b"\xff\xff\xff\xff")  # no frame: the connection is refused
    assert expected(broker) in reader.take()
    assert reader.receive_payload() is None


def test_peer_that_sends_nothing_more_gets_the_rest(broker: Broker, reader: SlowReader) -> None:
    reader.ask_for_all()
    sender = sender_of(broker, reader)
    reader._socket.shutdown(socket.SHUT_WR)
    wait_until(partial(has_closed, sender), "the rest goes by the transport")
    assert expected(broker) in reader.take()
    assert reader.receive_payload() is None


def test_peer_that_goes_leaves_no_descriptor(broker: Broker) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        reader = SlowReader(broker)
        reader.ask_for_all()
        sender = sender_of(broker, reader)
        reader.close()
        wait_until(partial(has_closed, sender), "its socket is closed")
    wait_until(lambda: len(os.listdir("/proc/self/fd")) <= before + 1, "no descriptor is left")


def test_without_a_free_descriptor_records_are_copied(
    broker: Broker, reader: SlowReader, sent: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_is_free(_self: FileSender) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(FileSender, "_open", none_is_free)
    reader.ask_for_all()
    assert expected(broker) in reader.take()
    assert not sent


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOSYS, errno.EPERM])
def test_file_that_cannot_be_sent_from_is_copied(
    broker: Broker, reader: SlowReader, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(*_: int) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os_file, "send_file", refuse)
    for _ in range(2):
        reader.ask_for_all()
        assert expected(broker) in reader.take()


def test_loop_that_can_wait_for_no_more_has_the_transport_send_the_rest(broker: Broker, reader: SlowReader) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    class FullLoop:
        """Whose kernel has no place for one more descriptor to wait for."""

        add_writer = staticmethod(refuse)

        def remove_writer(self, _socket: object) -> bool:
            return False

    open_it = FileSender._open

    def open_on_full_loop(self: FileSender) -> None:
        open_it(self)
        self._loop = FullLoop()  # type: ignore[assignment]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FileSender, "_open", open_on_full_loop)
        for _ in range(2):
            reader.ask_for_all()
            with reader.patience(5):
                assert expected(broker) in reader.take()


def test_other_connections_are_served_while_one_takes_much(
    broker: Broker, reader: SlowReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_sender, "SENT_AT_ONCE_BYTES", 1_000)
    reader.ask_for_all()
    with WireClient((broker.host, broker.port)) as other:
        other.produce("t", batch(b"x"))
    assert len(reader.take()) > RECORDS * RECORD_BYTES
