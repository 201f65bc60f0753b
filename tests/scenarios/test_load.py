"""What is told of clients at work: a load that could not fail would show nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer
from harness.waiting import PATIENCE_S

from pybroker.testing import Broker

from . import load
from .load import PARTITIONS, TOPIC, Load, check_log

WRITTEN = {b"%d" % number for number in range(10)}


@contextmanager
def log_with(*more: bytes, without: bytes = b"") -> Iterator[str]:
    """A broker with what was written, and with more behind it; all in the last partition, which has an order."""
    with Broker() as broker:
        broker.create_topic(TOPIC, partitions=PARTITIONS)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for value in (*sorted(WRITTEN - {without}), *more):
            producer.produce(TOPIC, value, partition=PARTITIONS - 1)
        assert producer.flush(PATIENCE_S) == 0
        yield broker.bootstrap


def test_a_log_with_each_record_once_is_a_good_one() -> None:
    with log_with() as bootstrap:
        check_log(bootstrap, WRITTEN)


def test_a_record_that_lies_there_twice_is_told_also_where_the_second_one_is_the_last_of_all() -> None:
    with log_with(b"0") as bootstrap, pytest.raises(AssertionError, match="doubled"):
        check_log(bootstrap, WRITTEN)


def test_a_record_that_nobody_wrote_is_told_also_where_it_is_the_last_of_all() -> None:
    with log_with(b"of a stranger") as bootstrap, pytest.raises(AssertionError, match="nobody wrote it"):
        check_log(bootstrap, WRITTEN)


def test_a_record_that_is_not_there_is_told() -> None:
    with log_with(without=b"3") as bootstrap, pytest.raises(AssertionError, match="lost"):
        check_log(bootstrap, WRITTEN)


def test_a_producer_that_does_not_end_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "PATIENCE_S", 0)
    running, ending = Load("127.0.0.1:1"), threading.Event()
    stuck = threading.Thread(target=ending.wait, name="a producer", daemon=True)
    stuck.start()
    running._producers, running._consumers = [stuck], []
    with pytest.raises(AssertionError, match="a producer did not end"):
        running.__exit__(KeyboardInterrupt)
    ending.set()
    stuck.join()
