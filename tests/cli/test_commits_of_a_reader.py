"""A reader commits what it has printed, also where the first attempt is refused."""

from __future__ import annotations

import io
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from pybroker.cli.commands import reader as reader_module
from pybroker.cli.commands.reader import Reader
from pybroker.cli.connection.client_settings import Access
from pybroker.cli.connection.data_clients import Watch
from pybroker.cli.terminal.failure import CommandFailed
from pybroker.cli.terminal.output import Output


class Message:
    def error(self) -> None:
        return None

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 6

    def timestamp(self) -> tuple[int, int]:
        return (1, 0)

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return b"a"

    def headers(self) -> None:
        return None


class Client:
    """A consumer of one record, whose first commits are refused."""

    def __init__(self, refusals: int, code: int, *, of_partition: bool) -> None:
        self.committed: list[tuple[str, int, int]] = []
        self._refusals = refusals
        self._error = KafkaError(code)
        self._of_partition = of_partition

    def poll(self, _timeout_s: float) -> Message:
        return Message()

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> list[Any]:
        assert not asynchronous
        if self._refusals:
            self._refusals -= 1
            if not self._of_partition:
                raise KafkaException(self._error)
            return [Answer(each, self._error) for each in offsets]
        self.committed += [(each.topic, each.partition, each.offset) for each in offsets]
        return offsets


class Answer(NamedTuple):
    """What a broker says of a partition; the client library alone makes one with an error."""

    asked: TopicPartition
    error: KafkaError


def run(client: Client, watch: Watch | None = None) -> None:
    reader = Reader(
        client,
        watch or Watch([], Access()),
        Output(stream=io.BytesIO()),
        lambda record: record.value or b"",
        count=1,
        exit_at_end=False,
        end_timestamp_ms=None,
        until_ms=None,
        group="g",
    )
    reader.run()


@pytest.mark.parametrize("of_partition", [True, False])
@pytest.mark.parametrize("every_s", [0.0, 60.0])
def test_what_a_broker_refuses_for_a_moment_is_committed_later(
    monkeypatch: pytest.MonkeyPatch, every_s: float, of_partition: bool
) -> None:
    monkeypatch.setattr(reader_module, "COMMIT_INTERVAL_S", every_s)
    client = Client(2, KafkaError.COORDINATOR_LOAD_IN_PROGRESS, of_partition=of_partition)
    run(client)
    assert client.committed == [("t", 0, 7)]


def test_a_reader_whose_offsets_stay_uncommitted_fails() -> None:
    client = Client(1_000_000, KafkaError.GROUP_AUTHORIZATION_FAILED, of_partition=True)
    with pytest.raises(CommandFailed, match="not committed: GROUP_AUTHORIZATION_FAILED"):
        run(client)


class Brokers:
    """Brokers that answer the second time they are asked."""

    def __init__(self) -> None:
        self._answers = False

    def list_topics(self, timeout: float) -> None:
        if not self._answers:
            self._answers = True
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))


def test_what_was_printed_is_committed_where_brokers_are_back_at_the_end() -> None:
    client = Client(0, 0, of_partition=False)
    watch = Watch([], Access(is_known=False))
    watch.client = Brokers()
    watch.hear(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    run(client, watch)
    assert client.committed == [("t", 0, 7)]
