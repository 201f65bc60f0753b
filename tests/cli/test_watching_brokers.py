"""A reader knows when brokers are back, also over a slow link, and where the client library alone can log in."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from harness.waiting import wait_until

from pybroker.cli.connection import data_clients
from pybroker.cli.connection.client_settings import Access, parse_addresses
from pybroker.cli.connection.data_clients import Watch
from tests.scenarios.slow_link import SlowLink

GONE = KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")
UNKNOWN = Access(is_known=False)


def asked_again(watch: Watch) -> bool:
    """Whether an outage is over; asks as a reader does."""
    watch.outage()
    return not watch.is_out


def test_an_outage_ends_where_a_broker_answers_over_a_slow_link(pybroker: Any) -> None:
    with SlowLink(pybroker.bootstrap, delay_s=0.3) as link:
        watch = Watch(parse_addresses(link.hosts), Access())
        watch.hear(GONE)
        assert watch.is_out
        wait_until(lambda: asked_again(watch), "the end of the outage")


class Client:
    """A client that answers, or does not."""

    def __init__(self) -> None:
        self.answers = False

    def list_topics(self, timeout: float) -> None:
        if not self.answers:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))


def test_where_the_library_alone_can_log_in_it_is_asked_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_clients, "_ASKED_EVERY_S", 0.0)
    watch = Watch([], UNKNOWN)
    watch.client = Client()
    watch.hear(GONE)
    told = watch.outage()
    assert told is not None
    assert told[1] == "1/1 brokers are down"
    watch.client.answers = True
    assert watch.outage() is None
    assert not watch.is_out


def test_a_record_begins_the_time_without_brokers_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr(data_clients, "time", SimpleNamespace(monotonic=lambda: now_s))
    watch = Watch([], UNKNOWN)
    watch.client = Client()
    watch.hear(GONE)
    now_s = 110.0
    told = watch.outage()
    assert told is not None
    assert told[0] == 10.0
    watch.see_record()
    now_s = 112.0
    told = watch.outage()
    assert told is not None
    assert told[0] == 2.0
