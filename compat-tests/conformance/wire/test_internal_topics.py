"""The coordinators' topics: made when they are first needed, with settings of their own, and topics like others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.broker_under_test import first_address, start_own_broker
from conformance.wire.asking import TIMEOUT_MS, TRANSACTION, Producer, Wire, metadata, wait_for_coordinator
from conformance.wire.test_topics import create, describe, new
from pybroker_protocol.errors import ErrorCode

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
SETTINGS = {"offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "2"}


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Wire]:
    """Asks a broker that has never been asked anything."""
    own = start_own_broker(tmp_path, SETTINGS)
    wire = Wire(first_address(own.bootstrap))
    yield wire
    wire.close()
    own.stop()


def test_internal_topics_are_made_when_they_are_first_needed(fresh: Wire) -> None:
    assert fresh.ask("Metadata", 9, topics=None)["topics"] == []
    wait_for_coordinator(fresh, "group")
    assert [found["name"] for found in fresh.ask("Metadata", 9, topics=None)["topics"]] == [OFFSETS]
    wait_for_coordinator(fresh, "transactional-id", TRANSACTION)
    for name, partitions, codec in ((OFFSETS, 3, "producer"), (TRANSACTIONS, 2, "uncompressed")):
        found = metadata(fresh, name)
        assert (len(found["partitions"]), found["is_internal"]) == (partitions, True)
        settings = describe(fresh, name, "cleanup.policy", "compression.type", "segment.bytes")
        assert {key: entry["value"] for key, entry in settings.items()} == {
            "cleanup.policy": "compact",
            "compression.type": codec,
            "segment.bytes": "104857600",
        }


def test_a_client_may_make_an_internal_topic_before_it_is_needed(fresh: Wire) -> None:
    # As many partitions as the broker would make: Apache Kafka's coordinator counts on that.
    fresh.make_topic(TRANSACTIONS, 2, cleanup_policy="compact")
    assert create(fresh, new(TRANSACTIONS, 2)) == {TRANSACTIONS: ErrorCode.TOPIC_ALREADY_EXISTS}
    assert metadata(fresh, TRANSACTIONS)["is_internal"] is True
    assert Producer(fresh, fresh.name_of(TRANSACTION)).epoch == 0
    assert delete_records(fresh, TRANSACTIONS) == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert delete_records(fresh, OFFSETS) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def delete_records(wire: Wire, topic: str) -> int:
    """DeleteRecords before the first offset of the first partition; its error code."""
    asked = [{"name": topic, "partitions": [{"partition_index": 0, "offset": 0}]}]
    (found,) = wire.ask("DeleteRecords", 2, topics=asked, timeout_ms=TIMEOUT_MS)["topics"][0]["partitions"]
    error: int = found["error_code"]
    return error
