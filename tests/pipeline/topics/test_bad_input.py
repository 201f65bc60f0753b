"""What ought not to happen to topics, queries and disks, and what a query says and does then.  Starts a JVM.

Needs what `scripts/spark-setup` installs; without it these tests fail, and do not skip.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from harness.waiting import wait_until

from pybroker import pipeline
from tests.pipeline.topics.tables import Tables

pytestmark = pytest.mark.jvm(needs="spark")


def numbers(count: range) -> list[bytes | None]:
    return [str(number).encode() for number in count]


def ended(query: Any) -> str:
    """What ended a query; raises TimeoutError where it goes on."""
    wait_until(lambda: not query.isActive, "the end of the query", 60)
    return str(query.exception())


@contextmanager
def running(tables: Tables, source: str, target: str, group: str | None = None, **options: str) -> Iterator[Any]:
    """A query that goes on until it is stopped; it writes by the name ``group``, if any."""
    rows = tables.read_stream("pybroker", source, **options).select("value")
    query = tables.start_running(rows, topic=target, **({} if group is None else {"transactionGroup": group}))
    try:
        yield query
    finally:
        query.stop()


def test_a_topic_made_anew_under_a_running_query_is_read_where_loss_is_allowed_or_ends_it(tables: Tables) -> None:
    source, strict, patient = tables.topic(), tables.topic(), tables.topic()
    tables.fill(source, numbers(range(4)))
    anew = numbers(range(10, 16))
    with running(tables, source, strict) as query, running(tables, source, patient, failOnDataLoss="false"):
        for target in (strict, patient):
            tables.wait_for(target, numbers(range(4)))
        tables.make_anew(source, anew)
        # A look between the two finds none of that name.
        assert re.search(
            f"{source}-[01] was made anew|no such topic: {source}|{source}-[01] has no leader", ended(query)
        )
        tables.wait_for(patient, numbers(range(4)) + anew)


@pytest.mark.parametrize("size", [900_000, 1_500_000])
def test_a_record_too_large_stops_the_query_and_nothing_of_its_micro_batch_is_seen(tables: Tables, size: int) -> None:
    """Refused by the broker, or by the client before it is sent; once it may pass, the query goes on."""
    source, target = tables.topic(), tables.topic(partitions=1)
    tables.configure(target, "max.message.bytes", "100000")
    tables.fill(source, numbers(range(4)))

    def run(**options: str) -> Any:
        rows = tables.read_stream("pybroker", source).selectExpr(f"rpad(string(value), {size}, '.') AS value")
        return tables.start(rows, "large", topic=target, **options)

    said = ended(run())
    assert re.search(f"a record for {target} was refused: .*Broker: Message size too large", said)
    assert "max.message.bytes and the option kafka.message.max.bytes bound it" in said
    assert tables.values(target) == []
    tables.configure(target, "max.message.bytes", "2000000")
    assert run(**{"kafka.message.max.bytes": "2000000"}).awaitTermination(60)
    assert [value.rstrip(".") for value in tables.values(target)] == ["0", "1", "2", "3"]


def test_nulls_and_tombstones_stay_what_they_are(tables: Tables) -> None:
    source, target = tables.topic(), tables.topic(partitions=1)
    tables.fill(source, [b"a", None, b"", None])
    rows = tables.read_stream("pybroker", source).selectExpr("if(key = 'k3', null, key) AS key", "value")
    assert tables.start(rows, "nulls", topic=target).awaitTermination(60)
    found = {(row.key, row.value) for row in tables.read("kafka", target).collect()}
    assert found == {(b"k0", b"a"), (b"k1", None), (b"k2", b""), (None, None)}


class NoText(str):
    """A header's key as kafka-python sends it: bytes that are no UTF-8, which brokers and Java's clients let pass."""

    def encode(self, *how: str) -> bytes:
        return b"\xff"


def test_a_headers_key_that_is_no_utf8_is_told_with_its_record_and_passed_over_without_headers(tables: Tables) -> None:
    from kafka import KafkaProducer

    source, target = tables.topic(partitions=1), tables.topic()
    producer = KafkaProducer(bootstrap_servers=tables.bootstrap)
    for headers in ([("trace", b"1")], [(NoText("trace"), b"2")]):
        producer.send(source, b"tea", headers=headers)
    producer.close()

    def run(**options: str) -> Any:
        return tables.start(tables.read_stream("pybroker", source, **options).select("value"), "headers", topic=target)

    query = run(includeHeaders="true")
    ended(query)
    told = pipeline.what_ended(query) or ""
    assert f"the record of {source}-0 at offset 1 has a header whose key is no UTF-8; with includeHeaders=false" in told
    assert run().awaitTermination(60)
    assert tables.values(target) == ["tea", "tea"]


def test_the_second_of_two_queries_of_one_name_is_told_in_one_line(tables: Tables) -> None:
    source, target, name = tables.topic(), tables.topic(), f"name-{uuid4()}"
    tables.fill(source, numbers(range(4)))

    def run(checkpoint: str) -> Any:
        rows = tables.read_stream("pybroker", source).select("value")
        return tables.start(rows, checkpoint, topic=target, transactionGroup=name)

    assert run("first").awaitTermination(60)
    query = run("second")
    (line,) = [line for line in ended(query).splitlines() if "NameTaken" in line and "another query" in line][:1]
    assert f"has written by the name {name} (until its micro-batch 0): give this one a transactionGroup" in line
    assert tables.values(target) == ["0", "1", "2", "3"]


@pytest.mark.parametrize("at_once", [False, True], ids=["one-after-the-other", "at-once"])
def test_of_two_running_queries_of_one_name_one_goes_on_and_the_other_is_told(tables: Tables, at_once: bool) -> None:
    """Started one after the other it is the first that goes on."""
    source, target, name = tables.topic(), tables.topic(), f"name-{uuid4()}"
    tables.fill(source, numbers(range(4)))
    with running(tables, source, target, group=name) as first:
        if not at_once:
            tables.wait_for(target, numbers(range(4)))
        with running(tables, source, target, group=name) as second:
            wait_until(lambda: not (first.isActive and second.isActive), "the end of one of them", 60)
            told = pipeline.what_ended(second if first.isActive else first)
            assert at_once or first.isActive
            assert re.search(f"NameTaken: another query, .*, has written by the name {name} ", told or "")
            tables.fill(source, numbers(range(4, 8)))
            tables.wait_for(target, numbers(range(8)))


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="a small disk is mounted by root on Linux")
def test_a_full_disk_at_the_checkpoint_stops_the_query_and_nothing_is_lost(tables: Tables) -> None:
    source, target = tables.topic(), tables.topic()
    tables.fill(source, numbers(range(10)))
    disk = tables.checkpoint("small")
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", disk], check=True)
    try:
        assert _run_on(tables, source, target).awaitTermination(60)
        filler = _fill_disk(disk)
        tables.fill(source, numbers(range(10, 20)))
        assert "No space left on device" in ended(_run_on(tables, source, target))
        filler.unlink()
        assert _run_on(tables, source, target).awaitTermination(60)
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)
    assert tables.values(target) == sorted(str(number) for number in range(20))


def _run_on(tables: Tables, source: str, target: str) -> Any:
    return tables.start(tables.read_stream("pybroker", source).select("value"), "small", topic=target)


def _fill_disk(disk: Path) -> Path:
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return filler
