"""What Spark's parts read, and what they hold a window's output against."""

from __future__ import annotations

import json
from collections import Counter

from confluent_kafka.admin import AdminClient, ConfigResource
from harness.waiting import PATIENCE_S

from bench.spark_topics import BEGIN_MS, DEVICES, MINUTE_MS, events, fill_events, readings_by_minute, written_readings
from pybroker.testing import Broker


def test_events_come_in_the_order_of_their_time_from_all_devices() -> None:
    found = [json.loads(event.value or b"") for event in events(1_000)]
    assert [event["at_ms"] for event in found] == [BEGIN_MS + number for number in range(1_000)]
    assert len({event["device"] for event in found}) == DEVICES


def test_minutes_count_that_are_over_by_the_watermark() -> None:
    assert not readings_by_minute(2 * MINUTE_MS, MINUTE_MS), "the watermark is a moment before the first minute's end"
    first_minute = readings_by_minute(2 * MINUTE_MS + 1, MINUTE_MS)
    assert first_minute == Counter({f"device-{number}@{BEGIN_MS}": MINUTE_MS // DEVICES for number in range(DEVICES)})


def test_what_is_written_twice_counts_twice() -> None:
    record = ("device-1@0", '{"readings": 3, "mean": 1.5}')
    assert written_readings([record, record]) == Counter({"device-1@0": 6})


def test_events_stay_however_long_a_part_takes() -> None:
    """Their time is that of the events, which retention goes by."""
    with Broker() as broker:
        fill_events(broker.bootstrap, "events", 10)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        (described,) = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, "events")]).values()
        assert described.result(PATIENCE_S)["retention.ms"].value == "-1"
