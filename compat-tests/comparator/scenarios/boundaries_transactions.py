"""The ends of every field of the requests of transactions."""

from __future__ import annotations

from typing import Any

from comparator.boundaries import vary
from comparator.broker import Broker
from comparator.encoding import Tree
from comparator.registry import scenario
from comparator.scenarios.boundaries_groups import wait_for_all_coordinators
from comparator.scenarios.transactional_data import NAMES_TOPICS_BY_ID
from comparator.scenarios.transactions import TIMEOUT_MS, prepare, topics

FIRST_VERSION_OF_MANY = 4  # AddPartitionsToTxn


def prepare_all(broker: Broker) -> None:
    """Have every partition of the coordinator's topic loaded; the names of two digits fall into all of them."""
    prepare(broker, *(f"ends-{number:02}" for number in range(100)))


def quiet_producer(broker: Broker, transactional_id: str) -> dict[str, Any]:
    """A new producer, whose transaction has not begun."""
    asked = {"transactional_id": transactional_id, "transaction_timeout_ms": TIMEOUT_MS}
    reply = broker.quietly("InitProducerId", 5, **asked)
    assert reply["error_code"] == 0, reply
    return {
        "transactional_id": transactional_id,
        "producer_id": reply["producer_id"],
        "producer_epoch": reply["producer_epoch"],
    }


def quiet_transaction(broker: Broker, transactional_id: str, topic: str) -> dict[str, Any]:
    """A new producer with an open transaction in one partition."""
    producer = quiet_producer(broker, transactional_id)
    fields = {f"v3_and_below_{name}": value for name, value in producer.items()}
    broker.quietly("AddPartitionsToTxn", 3, **fields, v3_and_below_topics=topics((topic, 0)))
    return producer


@scenario
def init_producer_id(broker: Broker) -> None:
    prepare_all(broker)

    def ordinary(_version: int, name: str) -> Tree:
        return {"transactional_id": name, "transaction_timeout_ms": TIMEOUT_MS}

    vary(broker, "InitProducerId", ordinary)


@scenario
def go_on_with_a_producer_id(broker: Broker) -> None:
    prepare_all(broker)

    def ordinary(_version: int, name: str) -> Tree:
        return {**quiet_producer(broker, name), "transaction_timeout_ms": TIMEOUT_MS}

    vary(broker, "InitProducerId", ordinary, label="goes-on")


@scenario
def add_partitions_to_txn(broker: Broker) -> None:
    broker.prepare_topic("ends-txn")
    prepare_all(broker)

    def ordinary(version: int, name: str) -> Tree:
        fields = {**quiet_producer(broker, name), "topics": topics(("ends-txn", 0))}
        if version < FIRST_VERSION_OF_MANY:
            return {f"v3_and_below_{name}": value for name, value in fields.items()}
        return {"transactions": [{**fields, "verify_only": False}]}

    left_out = {"transactions: empty": "Kafka never answers; transactions.no_transactions_at_all asks so"}
    vary(broker, "AddPartitionsToTxn", ordinary, leave_out=left_out)


@scenario
def add_offsets_to_txn(broker: Broker) -> None:
    prepare_all(broker)
    wait_for_all_coordinators(broker)
    vary(
        broker,
        "AddOffsetsToTxn",
        lambda _version, name: {**quiet_producer(broker, name), "group_id": "ends-txn-group"},
    )


@scenario
def txn_offset_commit(broker: Broker) -> None:
    topic_id = broker.prepare_topic("ends-txn-offsets")
    prepare_all(broker)
    wait_for_all_coordinators(broker)

    def ordinary(version: int, name: str) -> Tree:
        producer = quiet_producer(broker, name)
        group = f"{name}-group"
        topic = {"topic_id": topic_id} if version >= NAMES_TOPICS_BY_ID else {"name": "ends-txn-offsets"}
        broker.quietly("AddOffsetsToTxn", 3, **producer, group_id=group)
        partitions = [{"partition_index": 0, "committed_offset": 5, "committed_metadata": "m"}]
        return {**producer, "group_id": group, "topics": [{**topic, "partitions": partitions}]}

    vary(broker, "TxnOffsetCommit", ordinary)


@scenario
def end_txn(broker: Broker) -> None:
    broker.prepare_topic("ends-txn-ended")
    prepare_all(broker)

    def ordinary(_version: int, name: str) -> Tree:
        return {**quiet_transaction(broker, name, "ends-txn-ended"), "committed": True}

    vary(broker, "EndTxn", ordinary)


@scenario
def write_txn_markers(broker: Broker) -> None:
    broker.prepare_topic("ends-marked")
    prepare_all(broker)

    def ordinary(_version: int, name: str) -> Tree:
        producer = quiet_producer(broker, name)
        marker = {
            "producer_id": producer["producer_id"],
            "producer_epoch": 0,
            "transaction_result": True,
            "topics": [{"name": "ends-marked", "partition_indexes": [0]}],
            "coordinator_epoch": 0,
        }
        return {"markers": [marker]}

    unanswered = "Kafka never answers; transactional_data.one_partition_marked_twice asks so"
    left_out = {"*.topics: twice": unanswered, "*.partition_indexes: twice": unanswered}
    vary(broker, "WriteTxnMarkers", ordinary, leave_out=left_out)


@scenario
def describe_transactions(broker: Broker) -> None:
    broker.prepare_topic("ends-txn-described")
    prepare_all(broker)
    quiet_transaction(broker, "ends-described", "ends-txn-described")
    vary(broker, "DescribeTransactions", lambda _version, _name: {"transactional_ids": ["ends-described"]})


@scenario
def list_transactions(broker: Broker) -> None:
    broker.prepare_topic("ends-txn-listed")
    prepare_all(broker)
    producer = quiet_transaction(broker, "ends-listed", "ends-txn-listed")

    def ordinary(_version: int, _name: str) -> Tree:
        filters = {"state_filters": ["Ongoing"], "producer_id_filters": [producer["producer_id"]]}
        return {**filters, "transactional_id_pattern": "ends-.*"}

    def of_this_scenario(reply: Tree) -> Tree:
        found = [each for each in reply["transaction_states"] if each["transactional_id"] == "ends-listed"]
        return {**reply, "transaction_states": found}

    vary(broker, "ListTransactions", ordinary, narrow=of_this_scenario)
