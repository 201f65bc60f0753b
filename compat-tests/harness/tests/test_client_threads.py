"""A client of librdkafka that a test leaves behind is found; one that nothing needs any longer ends."""

from __future__ import annotations

import ctypes
import os
import sys

import pytest
from confluent_kafka import KafkaException, Producer

from harness.client_threads import client_threads, kept_by_the_library, left_behind, referred_to_by
from harness.waiting import PATIENCE_S, wait_until
from pybroker.testing import Broker

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux names the threads of a process")

TASKS = "/proc/self/task"
NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}


def test_a_client_is_found_for_as_long_as_something_refers_to_it() -> None:
    before = client_threads()
    assert not left_behind(before)
    producer = Producer(NOWHERE)
    # A thread that the client's own has just started has its name for a moment.
    wait_until(lambda: len(left_behind(before)) == 1, "one client")
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


def test_an_error_that_nothing_in_python_refers_to_keeps_the_clients_of_its_traceback() -> None:
    errors: list[KafkaException] = []
    before = kept_by_the_library()  # of other tests, which fence producers

    def fail() -> None:
        try:
            raise KafkaException("fenced")
        except KafkaException as error:
            errors.append(error)

    fail()
    assert kept_by_the_library() == before, "a list refers to it"
    address = ctypes.py_object(errors[0])
    ctypes.pythonapi.Py_IncRef(address)
    del address
    lost = id(errors.pop())
    assert kept_by_the_library() == before + 1
    ctypes.pythonapi.Py_DecRef(ctypes.cast(lost, ctypes.py_object))
    assert kept_by_the_library() == before
