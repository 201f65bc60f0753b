"""The transaction coordinator: producers with transactional ids, both protocols, fencing, time-outs, listing."""

from __future__ import annotations

import time
from typing import Any

from comparator.broker import Broker
from comparator.registry import scenario

TRANSACTION = 1
TOPIC = 2
TIMEOUT_MS = 60_000
CONCURRENT_TRANSACTIONS = 51
COORDINATOR_NOT_READY = (14, 15, 16)
V1, V2 = 4, 5  # the last version of EndTxn of the first protocol, the first of the second


def prepare(broker: Broker, *transactional_ids: str) -> None:
    """Wait until the ids' coordinator is known, has loaded their partitions, and has producer ids to give but 0."""

    def gives_ids() -> bool:
        given = broker.quietly("InitProducerId", 4, transactional_id=None, transaction_timeout_ms=TIMEOUT_MS)
        return bool(given["error_code"] == 0 and given["producer_id"] > 0)

    def answers() -> bool:
        for transactional_id in transactional_ids:
            if broker.quietly("FindCoordinator", 3, key=transactional_id, key_type=TRANSACTION)["error_code"] != 0:
                return False
        described = broker.quietly("DescribeTransactions", 0, transactional_ids=list(transactional_ids))
        return all(found["error_code"] not in COORDINATOR_NOT_READY for found in described["transaction_states"])

    broker.wait_until(gives_ids, "producer ids")
    broker.wait_until(answers, f"the coordinators of {transactional_ids}")


def init(broker: Broker, version: int, note: str, transactional_id: str | None, **more: Any) -> Any:
    fields = {"transactional_id": transactional_id, "transaction_timeout_ms": TIMEOUT_MS, **more}
    return broker.call("InitProducerId", version, note, **fields)


def topics(*partitions: tuple[str, int]) -> list[dict[str, Any]]:
    return [{"name": name, "partitions": [index]} for name, index in partitions]


def add(
    broker: Broker, version: int, note: str, transactional_id: str, producer: Any, wanted: Any, verify: bool = False
) -> Any:
    producer_id, epoch = producer["producer_id"], producer["producer_epoch"]
    if version < 4:
        names = ("transactional_id", "producer_id", "producer_epoch", "topics")
        values = (transactional_id, producer_id, epoch, wanted)
        fields = {f"v3_and_below_{name}": value for name, value in zip(names, values, strict=True)}
        return broker.call("AddPartitionsToTxn", version, note, **fields)
    transaction = {
        "transactional_id": transactional_id,
        "producer_id": producer_id,
        "producer_epoch": epoch,
        "verify_only": verify,
        "topics": wanted,
    }
    return broker.call("AddPartitionsToTxn", version, note, transactions=[transaction])


def end(broker: Broker, version: int, note: str, transactional_id: str, producer: Any, committed: bool = True) -> Any:
    """End it; the markers are written when this returns."""
    who = {"producer_id": producer["producer_id"], "producer_epoch": producer["producer_epoch"]}
    reply = broker.call("EndTxn", version, note, transactional_id=transactional_id, committed=committed, **who)
    settle(broker, transactional_id)
    return reply


def settle(broker: Broker, transactional_id: str) -> None:
    def is_settled() -> bool:
        (found,) = broker.quietly("DescribeTransactions", 0, transactional_ids=[transactional_id])["transaction_states"]
        return not found["transaction_state"].startswith("Prepare")

    broker.wait_until(is_settled, f"the end of the transaction of {transactional_id}")


def describe(broker: Broker, note: str, *transactional_ids: str) -> Any:
    return broker.call("DescribeTransactions", 0, note, transactional_ids=list(transactional_ids))


def after(producer: Any, reply: Any) -> Any:
    """With what a client of the second protocol goes on."""
    return reply if reply["error_code"] == 0 else producer


@scenario
def finding_the_coordinator_in_every_version(broker: Broker) -> None:
    prepare(broker, "found")
    for version in broker.versions("FindCoordinator"):
        if version >= 1:
            keys = {"key": "found", "coordinator_keys": ["found", "found-too", ""]}
            broker.call("FindCoordinator", version, "transactional ids", key_type=TRANSACTION, **keys)


@scenario
def the_internal_topic(broker: Broker) -> None:
    prepare(broker, "internal")
    name = "__transaction_state"
    broker.call("Metadata", 12, topics=[{"name": name}], allow_auto_topic_creation=False)
    asked = [{"resource_type": TOPIC, "resource_name": name, "configuration_keys": None}]
    broker.call("DescribeConfigs", 4, resources=asked, include_synonyms=True)
    producer = init(broker, 5, "begin", "internal")
    add(broker, 3, "itself as part of a transaction", "internal", producer, topics((name, 0)))
    end(broker, V1, "commit", "internal", producer)


@scenario
def beginning_in_every_version(broker: Broker) -> None:
    for version in broker.versions("InitProducerId"):
        name = f"begin-{version}"
        prepare(broker, name)
        first = init(broker, version, "new", name)
        again = init(broker, version, "again", name)
        for timeout_ms in (0, -1, 900_000, 900_001):
            init(broker, version, f"timeout {timeout_ms}", name, transaction_timeout_ms=timeout_ms)
        init(broker, version, "an empty id", "")
        if version < 3:
            continue
        latest = init(broker, version, "the latest", name)
        for note, producer_id, epoch in (
            ("goes on", latest["producer_id"], latest["producer_epoch"]),
            ("goes on, repeated", latest["producer_id"], latest["producer_epoch"]),
            ("goes on, an earlier epoch", again["producer_id"], again["producer_epoch"]),
            ("goes on, a later epoch", first["producer_id"], 100),
            ("goes on, another producer", first["producer_id"] + 100_000, 0),
            ("a producer id without an epoch", first["producer_id"], -1),
            ("an epoch without a producer id", -1, 0),
        ):
            init(broker, version, note, name, producer_id=producer_id, producer_epoch=epoch)
        prepare(broker, f"{name}-unknown")
        init(broker, version, "goes on, an unknown id", f"{name}-unknown", producer_id=987_654, producer_epoch=4)
        init(broker, version, "idempotent with an epoch", None, producer_id=987_654, producer_epoch=4)
        describe(broker, "in the end", name, f"{name}-unknown")


@scenario
def the_first_protocol_in_every_version(broker: Broker) -> None:
    broker.prepare_topic("txn-first", partitions=3)
    for version in range(V1 + 1):
        adding, name = min(version, 3), f"first-{version}"
        prepare(broker, name)
        producer = init(broker, min(version, 5), "begin", name)
        end(broker, version, "nothing in it, commit", name, producer)
        end(broker, version, "nothing in it, abort", name, producer, committed=False)
        add(broker, adding, "a partition", name, producer, topics(("txn-first", 0)))
        add(broker, adding, "the same and another", name, producer, topics(("txn-first", 0), ("txn-first", 1)))
        describe(broker, "open", name)
        end(broker, version, "commit", name, producer)
        describe(broker, "committed", name)
        end(broker, version, "commit again", name, producer)
        end(broker, version, "abort what is committed", name, producer, committed=False)
        add(broker, adding, "the next transaction", name, producer, topics(("txn-first", 2)))
        end(broker, version, "abort", name, producer, committed=False)
        describe(broker, "aborted", name)
        end(broker, version, "abort again", name, producer, committed=False)
        end(broker, version, "commit what is aborted", name, producer)
        add(broker, adding, "no partitions", name, producer, [])
        describe(broker, "open without partitions", name)
        end(broker, version, "commit no partitions", name, producer)
        describe(broker, "committed without partitions", name)


@scenario
def the_second_protocol(broker: Broker) -> None:
    broker.prepare_topic("txn-second", partitions=3)
    name = "second"
    for adding in (4, 5):
        prepare(broker, name)
        producer = init(broker, 5, "begin", name)
        end(broker, V2, "nothing in it, commit", name, producer)
        producer = after(producer, end(broker, V2, "nothing in it, abort", name, producer, committed=False))
        describe(broker, "nothing aborted", name)
        wanted = topics(("txn-second", 0), ("txn-second", 1))
        add(broker, adding, "verify what is not open", name, producer, wanted, verify=True)
        add(broker, adding, "a partition", name, producer, topics(("txn-second", 0)))
        add(broker, adding, "verify both", name, producer, wanted, verify=True)
        describe(broker, "open", name)
        before, producer = producer, after(producer, end(broker, V2, "commit", name, producer))
        describe(broker, "committed", name)
        end(broker, V2, "commit, repeated", name, before)
        end(broker, V2, "abort, as if repeated", name, before, committed=False)
        end(broker, V2, "commit nothing", name, producer)
        add(broker, adding, "by the epoch before", name, before, wanted)
        add(broker, adding, "verify by the epoch before", name, before, wanted, verify=True)
        add(broker, adding, "the next transaction", name, producer, wanted)
        before, producer = producer, after(producer, end(broker, V2, "abort", name, producer, committed=False))
        describe(broker, "aborted", name)
        end(broker, V2, "abort, repeated", name, before, committed=False)
        end(broker, V2, "commit, as if repeated", name, before)
        producer = after(producer, end(broker, V2, "abort nothing", name, producer, committed=False))
        end(broker, V2, "a later epoch", name, {**producer, "producer_epoch": producer["producer_epoch"] + 1})
        init(broker, 5, "goes on with the epoch before", name, **who(before))
        init(broker, 5, "goes on", name, **who(producer))
        init(broker, 5, "goes on, repeated", name, **who(producer))


def who(producer: Any) -> dict[str, Any]:
    return {"producer_id": producer["producer_id"], "producer_epoch": producer["producer_epoch"]}


@scenario
def a_client_that_changes_to_the_second_protocol(broker: Broker) -> None:
    broker.prepare_topic("txn-changing")
    name = "changing"
    prepare(broker, name)
    producer = init(broker, 5, "begin", name)
    wanted = topics(("txn-changing", 0))
    add(broker, 3, "by the first", name, producer, wanted)
    producer = after(producer, end(broker, V2, "by the second", name, producer))
    add(broker, 5, "by the second", name, producer, wanted)
    end(broker, V1, "by the first", name, producer)
    end(broker, V1, "by the first, again", name, producer)
    describe(broker, "in the end", name)


@scenario
def bad_partitions_in_every_version(broker: Broker) -> None:
    broker.prepare_topic("txn-good", partitions=2)
    for version in broker.versions("AddPartitionsToTxn"):
        name = f"partitions-{version}"
        prepare(broker, name, f"{name}-unknown")
        producer = init(broker, 4, "begin", name)
        for note, wanted in (
            ("an unknown topic beside a good one", topics(("txn-good", 0), ("txn-none", 0))),
            ("an unknown partition beside a good one", topics(("txn-good", 0), ("txn-good", 9))),
            ("a negative partition", topics(("txn-good", -1))),
            ("a topic without partitions", [{"name": "txn-good", "partitions": []}]),
            ("a partition twice", [{"name": "txn-good", "partitions": [1, 1]}]),
        ):
            add(broker, version, note, name, producer, wanted)
        describe(broker, "what became of it", name)
        wanted = topics(("txn-good", 0), ("txn-good", 1))
        add(broker, version, "an unknown id", f"{name}-unknown", producer, wanted)
        add(broker, version, "an empty id", "", producer, wanted)
        add(broker, version, "another producer", name, {**producer, "producer_id": 987_654}, wanted)
        for epoch in (-1, 5):
            add(broker, version, f"epoch {epoch}", name, {**producer, "producer_epoch": epoch}, wanted)
        if version >= 4:
            add(broker, version, "verify an unknown topic", name, producer, topics(("txn-none", 0)), verify=True)
            add(broker, version, "verify by a stranger", f"{name}-unknown", producer, wanted, verify=True)


@scenario
def many_transactions_in_one_request(broker: Broker) -> None:
    broker.prepare_topic("txn-many", partitions=2)
    names = ("many-1", "many-2", "many-3")
    prepare(broker, *names)
    producers = [init(broker, 5, name, name) for name in names[:2]]
    producers.append({"producer_id": 987_654, "producer_epoch": 0})
    for version in (4, 5):
        transactions = [
            {
                "transactional_id": name,
                "verify_only": name == "many-2",
                "topics": topics(("txn-many", 0), ("txn-many", 1)),
                **who(producer),
            }
            for name, producer in zip(names, producers, strict=True)
        ]
        broker.call("AddPartitionsToTxn", version, "add, verify, and a stranger", transactions=transactions)
    describe(broker, "in the end", *names)


@scenario
def no_transactions_at_all(broker: Broker) -> None:
    broker.call_in_vain("AddPartitionsToTxn", 4, "none", transactions=[])


@scenario
def offsets_in_every_version(broker: Broker) -> None:
    broker.wait_for_coordinator("txn-group")
    for version in broker.versions("AddOffsetsToTxn"):
        name = f"offsets-{version}"
        prepare(broker, name, f"{name}-unknown")
        producer = init(broker, 4, "begin", name)

        def add_offsets(
            note: str, by: Any, version: int = version, transactional_id: str = name, group: str = "txn-group"
        ) -> None:
            fields = {"transactional_id": transactional_id, "group_id": group, **who(by)}
            broker.call("AddOffsetsToTxn", version, note, **fields)

        add_offsets("of a group", producer)
        add_offsets("of the same group", producer)
        add_offsets("an empty group", producer, group="")
        describe(broker, "with offsets", name)
        add_offsets("another producer", {**producer, "producer_id": 987_654})
        add_offsets("another epoch", {**producer, "producer_epoch": 7})
        add_offsets("an unknown id", producer, transactional_id=f"{name}-unknown")
        add_offsets("an empty id", producer, transactional_id="")
        end(broker, V1, "commit", name, producer)


@scenario
def strangers_end_nothing(broker: Broker) -> None:
    broker.prepare_topic("txn-strangers")
    name = "strangers"
    prepare(broker, name, "strangers-unknown")
    init(broker, 5, "begin", name)
    producer = init(broker, 5, "again", name)
    add(broker, 3, "open", name, producer, topics(("txn-strangers", 0)))
    for version in broker.versions("EndTxn"):
        for committed in (True, False):
            for note, transactional_id, changed in (
                ("an unknown id", "strangers-unknown", {}),
                ("an empty id", "", {}),
                ("another producer", name, {"producer_id": 987_654}),
                ("an epoch before", name, {"producer_epoch": producer["producer_epoch"] - 1}),
                ("an epoch to come", name, {"producer_epoch": producer["producer_epoch"] + 1}),
                ("no epoch", name, {"producer_epoch": -1}),
            ):
                fields = {"transactional_id": transactional_id, "committed": committed, **who({**producer, **changed})}
                broker.call("EndTxn", version, f"{note}, {committed}", **fields)
    describe(broker, "still open", name)


@scenario
def a_second_producer_with_one_id(broker: Broker) -> None:
    broker.prepare_topic("txn-fenced")
    wanted = topics(("txn-fenced", 0))
    for version in range(3, 6):
        name = f"fenced-{version}"
        prepare(broker, name)
        first = init(broker, version, "first", name)
        add(broker, 3, "first opens", name, first, wanted)
        init(broker, version, "second, while it is open", name)
        settle(broker, name)
        describe(broker, "aborted for the second", name)
        second = init(broker, version, "second", name)
        for adding in (1, 2, 3):
            add(broker, adding, "first goes on", name, first, wanted)
        for ending in (1, 2, V1, V2):
            end(broker, ending, "first commits", name, first)
            end(broker, ending, "first aborts", name, first, committed=False)
        if version >= 3:
            init(broker, version, "first goes on", name, **who(first))
        add(broker, 3, "second opens", name, second, wanted)
        end(broker, V1, "second commits", name, second)
        describe(broker, "in the end", name)


@scenario
def a_transaction_that_times_out(broker: Broker) -> None:
    broker.prepare_topic("txn-late")
    wanted = topics(("txn-late", 0))
    names = ("late-1", "late-2", "late-patient")
    prepare(broker, *names)
    producers = {name: init(broker, 5, name, name, transaction_timeout_ms=500) for name in names[:2]}
    producers["late-patient"] = init(broker, 5, "patient", "late-patient")
    for name, producer in producers.items():
        add(broker, 3, name, name, producer, wanted)

    def is_aborted() -> bool:
        states = broker.quietly("DescribeTransactions", 0, transactional_ids=list(names[:2]))["transaction_states"]
        return all(found["transaction_state"] == "CompleteAbort" for found in states)

    broker.wait_until(is_aborted, "the time-out")
    describe(broker, "after the time-out", *names)
    add(broker, 3, "goes on", "late-1", producers["late-1"], wanted)
    end(broker, V1, "commits by the first protocol", "late-1", producers["late-1"])
    end(broker, V1, "aborts by the first protocol", "late-1", producers["late-1"], committed=False)
    end(broker, V2, "commits by the second protocol", "late-2", producers["late-2"])
    end(broker, V2, "aborts by the second protocol", "late-2", producers["late-2"], committed=False)
    for name in names[:2]:
        init(broker, 5, "goes on after the time-out", name, **who(producers[name]))
        init(broker, 5, "begins anew", name)
    end(broker, V1, "the patient commits", "late-patient", producers["late-patient"])


@scenario
def describing_and_listing(broker: Broker) -> None:
    broker.prepare_topic("txn-listed", partitions=3)
    names = ("listed-open", "listed-done", "listed-empty")
    prepare(broker, *names, "listed-unknown")
    producers = {name: init(broker, 5, name, name) for name in names}
    for name in names[:2]:
        wanted = [{"name": "txn-listed", "partitions": [2, 0]}]
        add(broker, 3, name, name, producers[name], wanted)
    end(broker, V1, "done", "listed-done", producers["listed-done"])
    describe(broker, "all of them, some twice", *names, "listed-unknown", "", "listed-open")
    describe(broker, "none")
    ids = [producer["producer_id"] for producer in producers.values()]
    time.sleep(0.2)
    for version in broker.versions("ListTransactions"):

        def listing(note: str, version: int = version, **filters: Any) -> None:
            fields = {"state_filters": [], "producer_id_filters": ids, "duration_filter": -1, **filters}
            broker.call("ListTransactions", version, note, **fields)

        listing("by producers")
        listing("by one producer", producer_id_filters=ids[:1])
        listing("by an unknown producer", producer_id_filters=[987_654])
        for state in ("Empty", "Ongoing", "CompleteCommit", "PrepareAbort", "Dead", "PrepareEpochFence"):
            listing(f"by state {state}", state_filters=[state])
        listing("by two states", state_filters=["Empty", "Ongoing"])
        listing("by unknown states", state_filters=["ongoing", "Nonsense", "Empty"])
        listing("by unknown states alone", state_filters=["Nonsense"])
        if version >= 1:
            for duration_ms in (0, 100, 600_000, -5):
                listing(f"by duration {duration_ms}", duration_filter=duration_ms)
        if version >= 2:
            for pattern in ("listed-.*", "listed", "listed-(open|done)", "", "(", "[", "(?=a)", "\\d", "LISTED-OPEN"):
                listing(f"by pattern {pattern}", transactional_id_pattern=pattern)
            listing("by a bad pattern and an unknown state", transactional_id_pattern="(", state_filters=["Nonsense"])
