"""``pybroker transactions`` with real transactions and with some that hang, against both brokers."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from harness.apache_kafka import ApacheKafka
from harness.waiting import wait_until

from pybroker.cli.requests.hanging_transactions import OpenTransaction, hanging, long_open
from pybroker.cli.requests.partition_leaders import Partition
from pybroker.cli.requests.transaction_requests import Listing, Transaction
from pybroker.cli.requests.transaction_requests import Producer as RememberedProducer
from pybroker.testing import Broker
from pybroker_protocol.record_codec import build_batch
from tests.broker.wire_client import WireClient, produce_request
from tests.cli.command import CommandLine

HOUR_MS = 3_600_000
WAIT_S = 30.0


@pytest.fixture(scope="module", params=["pybroker", pytest.param("kafka", marks=pytest.mark.jvm)])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker that believes a produce request that says it is part of a transaction: so transactions hang."""
    settings = {"transaction.partition.verification.enable": "false"}
    if request.param == "pybroker":
        with Broker(settings=settings) as broker:
            yield broker.bootstrap
    else:
        with ApacheKafka(tmp_path_factory.mktemp("kafka") / "data", properties=settings) as kafka:
            yield kafka.bootstrap


@pytest.fixture
def cli(bootstrap: str) -> CommandLine:
    return CommandLine(bootstrap)


@pytest.fixture
def topic(cli: CommandLine, name: str) -> str:
    cli.ok("topics", "create", name, "-p", "2")
    return name


def connect(bootstrap: str) -> WireClient:
    """A raw connection."""
    host, _, port = bootstrap.rpartition(":")
    return WireClient((host, int(port)))


@pytest.fixture
def producer(bootstrap: str, topic: str) -> Iterator[Producer]:
    """A producer with a transaction open in partition 1; its transactional id is the topic's name."""
    made = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    made.init_transactions()
    made.begin_transaction()
    made.produce(topic, b"open", partition=1)
    assert made.flush(WAIT_S) == 0
    yield made
    made.purge()


def write_hanging(bootstrap: str, topic: str, *, producer_id: int = 4242, age_ms: int = HOUR_MS) -> None:
    """A transactional batch in partition 0 that no coordinator knows of."""
    timestamp_ms = int(time.time() * 1000) - age_ms
    batch = build_batch(
        [(b"k", b"hanging")],
        timestamp_ms=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=3,
        base_sequence=0,
        is_transactional=True,
    )
    request = produce_request(topic, batch)
    request.transactional_id = "lost"
    with connect(bootstrap) as wire:
        assert wire.ask(request, 9).responses[0].partition_responses[0].error_code == 0


def test_transactional_ids_are_listed_by_state_producer_age_and_pattern(
    cli: CommandLine, topic: str, producer: Producer
) -> None:
    [listed] = cli.json("transactions", "list", "--pattern", topic)
    assert (listed["transactional_id"], listed["coordinator"], listed["state"]) == (topic, 1, "Ongoing")
    by_producer = ("--pattern", topic, "--producer-id", str(listed["producer_id"]))
    assert cli.json("transactions", "list", "--state", "ongoing", *by_producer) == [listed]
    for nothing in (
        ("--state", "Empty"),
        ("--producer-id", "987654"),
        ("--running-longer-than", "1h"),
    ):
        assert cli.json("transactions", "list", "--pattern", topic, *nothing) == [], nothing


def test_filters_that_nobody_understands_fail(cli: CommandLine) -> None:
    for arguments, exit_code, reason in (
        (("--state", "Sleeping"), 2, b"'Sleeping'"),
        (("--pattern", "["), 1, b"INVALID_REGULAR_EXPRESSION"),
        (("--producer-id", "x"), 2, b"number"),
        (("--running-longer-than", "soon"), 2, b"soon"),
    ):
        finished = cli.run("transactions", "list", *arguments)
        assert finished.returncode == exit_code, arguments
        assert reason in finished.stderr


def test_a_transaction_is_described_with_its_partitions_and_one_that_is_missing_fails_after_it(
    cli: CommandLine, topic: str, producer: Producer
) -> None:
    finished = cli.run("transactions", "describe", topic, f"{topic}-missing", "--json")
    assert finished.returncode == 1
    told = "TRANSACTIONAL_ID_NOT_FOUND: The transactional id does not exist."
    assert finished.stderr.decode() == f"pybroker: transaction {topic}-missing: {told}\n"
    [described] = json.loads(finished.stdout)
    assert (described["state"], described["partitions"]) == ("Ongoing", [f"{topic}-1"])
    assert described["timeout_ms"] == 60_000
    assert 0 <= described["open_for_ms"] < HOUR_MS
    producer.abort_transaction(WAIT_S)
    wait_until(lambda: cli.json("transactions", "describe", topic)[0]["state"] == "CompleteAbort", "the abort is done")
    [described] = cli.json("transactions", "describe", topic)
    assert (described["partitions"], described["open_for_ms"]) == ([], None)


def test_producers_are_described_by_partition(cli: CommandLine, bootstrap: str, topic: str, producer: Producer) -> None:
    producer.commit_transaction(WAIT_S)
    write_hanging(bootstrap, topic)
    hung, ended = cli.json("transactions", "describe-producers", topic)
    assert (hung["partition"], hung["producer_id"], hung["producer_epoch"], hung["last_sequence"]) == (0, 4242, 3, 0)
    assert (hung["coordinator_epoch"], hung["txn_start_offset"]) == (-1, 0)
    assert (ended["partition"], ended["txn_start_offset"]) == (1, None)
    assert cli.json("transactions", "describe-producers", f"{topic}:1", "--open") == []
    missing = cli.run("transactions", "describe-producers", f"{topic}:0,7")
    assert missing.returncode == 1
    told = "UNKNOWN_TOPIC_OR_PARTITION: The cluster has no such topic or partition."
    assert missing.stderr.decode() == f"pybroker: {topic}-7: {told}\n"


def test_a_hanging_transaction_is_found_and_aborted_and_read_committed_consumers_move_on(
    cli: CommandLine, bootstrap: str, topic: str, producer: Producer
) -> None:
    write_hanging(bootstrap, topic)
    with connect(bootstrap) as wire:
        after = build_batch([(b"k", b"after")], timestamp_ms=0)
        assert wire.produce(topic, after).error_code == 0
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": topic,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    reader.assign([TopicPartition(topic, 0, 0)])
    blocked = reader.poll(WAIT_S)
    assert blocked is not None
    assert blocked.error() is not None  # the end of what is stable, with two records before the end of the log

    found = cli.json("transactions", "find-hanging", "-t", topic, "--max-transaction-timeout", "30m")
    assert [(each["partition"], each["producer_id"], each["txn_start_offset"]) for each in found] == [(0, 4242, 0)]
    assert found[0]["open_for_ms"] >= HOUR_MS
    everywhere = cli.run("transactions", "find-hanging")
    assert everywhere.returncode == 0
    assert f"{topic}\t0\t4242\t3\t" in everywhere.stdout.decode()
    assert f"pybroker transactions abort --bootstrap {bootstrap} --topic " in everywhere.stderr.decode()
    # Other tests of this broker may have left hanging transactions that come before this one.
    assert re.search(r" --topic \S+ --partition \d+ --start-offset \d+$", everywhere.stderr.decode().strip())
    assert cli.json("transactions", "find-hanging", "-t", topic, "--max-transaction-timeout", "2h") == []

    where = ("transactions", "abort", "-t", topic, "-p", "0", "--start-offset")
    assert cli.run(*where, "1").returncode == 1
    [aborted] = cli.json(*where, "0")
    assert (aborted["producer_id"], aborted["status"]) == (4242, "aborted")
    moved = reader.poll(WAIT_S)
    assert moved is not None
    assert (moved.error(), moved.value()) == (None, b"after")
    reader.close()
    assert cli.json("transactions", "find-hanging", "-t", topic) == []
    assert cli.run(*where, "0").returncode == 1


def test_an_old_transaction_that_its_coordinator_knows_does_not_hang(
    cli: CommandLine, topic: str, producer: Producer
) -> None:
    [known] = cli.json("transactions", "describe-producers", f"{topic}:1", "--open")
    assert known["txn_start_offset"] == 0
    assert cli.json("transactions", "find-hanging", "-t", topic, "--max-transaction-timeout", "0") == []


def test_a_terminated_transaction_is_aborted_and_its_producer_fenced(
    cli: CommandLine, topic: str, producer: Producer
) -> None:
    [before] = cli.json("transactions", "describe", topic)
    [ended] = cli.json("transactions", "terminate", topic)
    assert (ended["previous_state"], ended["status"]) == ("Ongoing", "terminated")
    assert ended["producer_epoch"] > before["producer_epoch"]
    [after] = cli.json("transactions", "describe", topic)
    assert (after["partitions"], after["timeout_ms"]) == ([], before["timeout_ms"])
    with pytest.raises(KafkaException):
        producer.commit_transaction(WAIT_S)
    assert cli.ok("consume", topic, "--exit", "--isolation", "read_committed") == b""
    assert cli.ok("consume", topic, "--exit", "--isolation", "read_uncommitted") == b"open\n"


def test_terminating_an_unknown_id_does_not_make_it(cli: CommandLine, name: str) -> None:
    for _ in range(2):
        finished = cli.run("transactions", "terminate", name)
        assert finished.returncode == 1
        assert b"TRANSACTIONAL_ID_NOT_FOUND" in finished.stderr


PARTITION = Partition("t", 0)
OTHER = Partition("t", 1)


def remembered(producer_id: int, last_timestamp: int, start: int | None) -> RememberedProducer:
    return RememberedProducer(producer_id, 0, -1, 0, last_timestamp, start)


def transaction(transactional_id: str, partitions: list[Partition]) -> Transaction:
    return Transaction(transactional_id, 1, 7, 0, "Ongoing", 60_000, 0, partitions)


def test_only_open_transactions_older_than_any_time_out_are_candidates() -> None:
    producers = {PARTITION: [remembered(1, 0, 5), remembered(2, 0, None), remembered(3, 500, 9)]}
    assert long_open(producers, 1000, 500) == [OpenTransaction(PARTITION, remembered(1, 0, 5))]
    assert long_open(producers, 1000, 1000) == []


@pytest.mark.parametrize(
    ("listings", "described", "hangs"),
    [
        ([], {}, True),
        ([Listing("a", 1, 7, "Ongoing")], {"a": 105}, True),
        ([Listing("a", 1, 7, "Ongoing")], {"a": transaction("a", [OTHER])}, True),
        ([Listing("a", 1, 7, "Ongoing")], {"a": transaction("a", [OTHER, PARTITION])}, False),
        ([Listing("b", 1, 8, "Ongoing")], {"b": transaction("b", [PARTITION])}, True),
    ],
    ids=["unknown producer", "id is gone", "another partition", "known", "another producer"],
)
def test_what_no_coordinator_knows_of_hangs(
    listings: list[Listing], described: dict[str, Transaction | int], hangs: bool
) -> None:
    candidate = OpenTransaction(PARTITION, remembered(7, 0, 5))
    assert hanging([candidate], listings, described) == ([candidate] if hangs else [])
