"""A client of librdkafka that a test leaves behind is found; one that nothing needs any longer ends."""

from __future__ import annotations

import os
import sys
import threading

import pytest
from confluent_kafka import Producer

from harness.client_threads import client_threads, hanging_calls, left_behind, referred_to_by
from harness.waiting import PATIENCE_S, wait_until
from pybroker.pipeline.topics.client_calls import NoAnswer, answered
from pybroker.testing import Broker

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux names the threads of a process")

TASKS = "/proc/self/task"
NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}


def test_a_client_is_found_for_as_long_as_something_refers_to_it() -> None:
    before = client_threads()
    assert not left_behind(before)
    producer = Producer(NOWHERE)
    assert len(left_behind(before)) == 1
    del producer
    assert not left_behind(before)


def test_a_client_that_only_waits_for_the_garbage_collector_ends() -> None:
    before = client_threads()
    cycle: list[object] = [Producer(NOWHERE)]
    cycle.append(cycle)
    del cycle
    assert client_threads() != before
    assert not left_behind(before)


def test_a_client_that_was_there_may_come_to_know_more_brokers() -> None:
    with Broker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        threads, before = set(os.listdir(TASKS)), client_threads()
        producer.produce("topic", b"value")
        assert producer.flush(PATIENCE_S) == 0
        assert set(os.listdir(TASKS)) - threads
        assert not left_behind(before)
        del producer


def test_who_keeps_a_client_is_named() -> None:
    class Keeper:
        def __init__(self) -> None:
            self.producer = Producer(NOWHERE)

    keeper = Keeper()
    (chain,) = (each for each in referred_to_by() if "Keeper" in each)
    assert chain.startswith("Producer <- ")
    assert "list" not in chain, keeper


def test_a_call_that_does_not_come_back_is_named_for_as_long_as_it_hangs() -> None:
    let_go = threading.Event()

    def call() -> None:
        let_go.wait(PATIENCE_S)

    with pytest.raises(NoAnswer):
        answered(call, within_s=0.01)
    assert hanging_calls() == ["librdkafka call"]
    let_go.set()
    wait_until(lambda: not hanging_calls(), "it comes back")
