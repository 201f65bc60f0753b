"""``pybroker produce`` hears what becomes of each record, whatever happens to its report or its input."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError

from pybroker.cli.commands.produce import RecordsLost, Sender, settled
from pybroker.cli.records.record_format import NewRecord
from pybroker.cli.terminal.failure import CommandFailed
from pybroker.cli.terminal.output import Output


class Message:
    """What the client reports of a record that was sent."""

    def __init__(self, offset: int, value: bytes) -> None:
        self._offset = offset
        self._value = value

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return self._value


class Client:
    """A producer that acknowledges all records but those whose value is ``lost``, when it is polled."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes, Callable[[Any, Message], None]]] = []
        self.told = 0

    def __len__(self) -> int:
        return len(self.sent) - self.told

    def produce(self, _topic: str, value: bytes, _key: bytes | None, *, on_delivery: Any, **_fields: Any) -> None:
        self.sent.append((value, on_delivery))

    def poll(self, _timeout_s: float) -> None:
        while len(self):
            value, on_delivery = self.sent[self.told]
            error = KafkaError(KafkaError.INVALID_RECORD) if value == b"lost" else None
            on_delivery(error, Message(self.told, value))
            self.told += 1

    flush = poll

    def purge(self) -> None:
        pass


class ClosedPipe(io.BytesIO):
    def write(self, _data: Any) -> int:
        raise BrokenPipeError


class FullDisk(io.BytesIO):
    def write(self, _data: Any) -> int:
        raise OSError(28, "No space left on device")


class Held(io.BytesIO):
    """A stream whose bytes count once they are flushed."""

    def __init__(self) -> None:
        super().__init__()
        self.flushed = b""

    def flush(self) -> None:
        self.flushed = self.getvalue()


def send(sender: Sender, *values: bytes, failing_with: Exception | None = None) -> None:
    """As the command does, which polls now and then."""
    with settled(sender):
        for value in values:
            sender.send(NewRecord(value))
        if failing_with is not None:
            raise failing_with
        sender.finish()


def test_records_are_sent_on_where_the_reader_of_the_report_is_gone() -> None:
    sender = Sender(Client(), "t", Output(stream=ClosedPipe()))
    send(sender, b"a", b"b", b"c")
    assert sender.acknowledged == 3


@pytest.mark.parametrize("stream", [ClosedPipe(), FullDisk()])
def test_a_lost_record_is_told_where_the_report_cannot_be_printed(stream: io.BytesIO) -> None:
    sender = Sender(Client(), "t", Output(stream=stream))
    with pytest.raises(CommandFailed, match="1 of 2 records were not acknowledged"):
        send(sender, b"a", b"lost")


def test_a_lost_record_does_not_hide_why_the_command_ended() -> None:
    sender = Sender(Client(), "t", None)
    with pytest.raises(CommandFailed) as caught:
        send(sender, b"lost", failing_with=CommandFailed("line 2: no JSON"))
    reason, lost = str(caught.value).splitlines()
    assert reason == "line 2: no JSON"
    assert lost.startswith("record 1: INVALID_RECORD")


def test_a_lost_record_ends_the_command_at_the_next_poll() -> None:
    sender = Sender(Client(), "t", None)
    sender.send(NewRecord(b"lost"))
    with pytest.raises(RecordsLost):
        sender.poll(0)


def test_the_report_is_not_held_back_while_no_line_comes() -> None:
    held = Held()
    sender = Sender(Client(), "t", Output(stream=held))
    sender.send(NewRecord(b"a"))
    sender.poll(0, flushes=True)
    assert held.flushed == b"t\t0\t0\n"
