"""A client of librdkafka that a test leaves behind is found; one that nothing needs any longer ends."""

from __future__ import annotations

import sys

import pytest
from confluent_kafka import Producer

from harness.client_threads import client_threads, left_behind

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux names the threads of a process")

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}


def test_a_client_is_found_for_as_long_as_something_refers_to_it() -> None:
    before = client_threads()
    assert left_behind(before) == []
    producer = Producer(NOWHERE)
    assert "rdk:main" in left_behind(before)
    del producer
    assert left_behind(before) == []


def test_a_client_that_only_waits_for_the_garbage_collector_ends() -> None:
    before = client_threads()
    cycle: list[object] = [Producer(NOWHERE)]
    cycle.append(cycle)
    del cycle
    assert client_threads() != before
    assert left_behind(before) == []
