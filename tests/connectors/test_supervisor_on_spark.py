"""A supervisor as a process, with Spark, a broker and PostgreSQL: what arrives is counted against what was sent.

Starts JVMs; needs what `scripts/spark-setup` installs.  All tests share one supervisor, which costs seconds to start.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from harness.waiting import wait_until

from tests.connectors.bulk_server import BulkServer
from tests.connectors.supervisor_world import SCHEMA, World, values

pytestmark = [
    pytest.mark.jvm(needs="spark"),
    pytest.mark.timeout(600),
]


def arrive(folder: Path, name: str, lines: list[str]) -> None:
    """A file that is there whole."""
    folder.mkdir(exist_ok=True)
    made = folder.parent / f".{name}"
    made.write_text("".join(f"{line}\n" for line in lines))
    made.rename(folder / name)


def test_rows_of_files_are_in_a_table_once_though_the_supervisor_is_killed_half_way(world: World) -> None:
    folder = world.directory / "in"
    world.broker.create_topic("orders", partitions=2)
    for part in range(5):
        arrive(folder, f"{part}.csv", [f"{part * 500 + row},n,{row}" for row in range(500)])
    world.put(
        "lines",
        **{"connector.class": "FileSource", "path": str(folder), "format": "csv", "schema": SCHEMA},
        **{"topic": "orders", "key.fields": "id", "max.files.per.batch": "1", "poll.interval.ms": "100"},
    )
    # Without a key in the table a row that was written twice would be there twice.
    world.put("rows", **world.sink("orders", "orders", **{"max.records.per.batch": "300"}))

    def count() -> int:
        return int((world.sql("SELECT count(*) FROM orders") or ["0"])[0])

    wait_until(lambda: count() > 0, "rows in the table")
    world.kill()
    for part in range(5, 8):
        arrive(folder, f"{part}.csv", [f"{part * 500 + row},n,{row}" for row in range(500)])
    world.start()
    wait_until(lambda: count() >= 4_000, "all rows in the table")
    assert world.sql("SELECT count(*), count(DISTINCT id), min(id), max(id) FROM orders") == ["4000|4000|0|3999"]
    sent = [json.loads(message.value())["id"] for message in values(world, "orders")]
    assert sorted(sent) == list(range(4_000))
    assert not world.sql("SELECT tablename FROM pg_tables WHERE tablename LIKE '%staging%'")


def test_a_poison_record_ends_a_sink_or_is_a_dead_letter_with_its_reason(world: World) -> None:
    from confluent_kafka import Producer

    world.broker.create_topic("poisoned")
    producer = Producer({"bootstrap.servers": world.broker.bootstrap})
    for value in ('{"id":1}', "no json", '{"id":2}'):
        producer.produce("poisoned", value, "k")
    producer.flush()
    sink = world.sink("poisoned", "poisoned", **{"errors.restarts.max": "0"})
    world.put("strict", **sink)
    wait_until(lambda: world.state("strict") == "FAILED", "a failed sink")
    assert "poisoned-0 at offset 1: value: is no JSON" in world.status("strict")["tasks"][0]["trace"]
    letters = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "dead"}
    world.put("strict", **sink, **letters)
    wait_until(lambda: world.sql("SELECT id FROM poisoned ORDER BY id") == ["1", "2"], "the good rows")
    (letter,) = values(world, "dead")
    headers = {name: value.decode() for name, value in letter.headers()}
    assert (letter.key(), letter.value()) == (b"k", b"no json")
    assert headers["__connect.errors.exception.message"] == "value: is no JSON"
    assert (headers["__connect.errors.topic"], headers["__connect.errors.offset"]) == ("poisoned", "1")


def test_rows_are_replaced_and_deleted_by_key_and_a_table_is_widened(world: World) -> None:
    from confluent_kafka import Producer

    world.broker.create_topic("customers")
    producer = Producer({"bootstrap.servers": world.broker.bootstrap})

    def send(**rows: str | None) -> None:
        for key, value in rows.items():
            producer.produce("customers", value, key)
        producer.flush()

    keyed = {"insert.mode": "upsert", "pk.mode": "record_key", "pk.fields": "customer", "delete.enabled": "true"}
    send(ann='{"name":"Ann"}', bob='{"name":"Bob"}', cid='{"name":"Cid"}')
    send(ann='{"name":"Anna"}', bob=None)
    world.put("people", **{**world.sink("people", "customers", **keyed), "value.converter.schema": "name string"})
    read = "SELECT customer, name FROM people ORDER BY customer"
    wait_until(lambda: world.sql(read) == ["ann|Anna", "cid|Cid"], "the rows")
    wider = {"value.converter.schema": "name string, cents bigint", "auto.evolve": "true"}
    world.put("people", **{**world.sink("people", "customers", **keyed), **wider})
    send(cid='{"name":"Cid","cents":5}')
    wait_until(lambda: world.sql("SELECT cents FROM people WHERE customer = 'cid'") == ["5"], "the new column")
    assert world.sql(read) == ["ann|Anna", "cid|Cid"]


@pytest.mark.parametrize(("topic", "named"), [("again", "topics"), ("once-more", "topics.regex")])
def test_a_stopped_sink_goes_on_where_its_offsets_are_set(world: World, topic: str, named: str) -> None:
    world.broker.create_topic(topic)
    world.send(topic, *(json.dumps({"id": number}) for number in range(4)))
    table = topic.replace("-", "_")
    config = {name: text for name, text in world.sink(table, topic).items() if name != "topics"}
    world.put(topic, **config, **{named: topic})
    read = f"SELECT id, count(*) FROM {table} GROUP BY id ORDER BY id"
    wait_until(lambda: world.sql(read) == ["0|1", "1|1", "2|1", "3|1"], "the rows")

    def offsets() -> list[Any]:
        return list(world.client.ask("GET", "connectors", topic, "offsets")["offsets"])

    wait_until(lambda: [each["offset"]["kafka_offset"] for each in offsets()] == [4], "the offset")
    world.client.ask("PUT", "connectors", topic, "stop")
    wait_until(lambda: world.state(topic) == "STOPPED", "a stopped sink")
    body = {"offsets": [{**offsets()[0], "offset": {"kafka_offset": 2}}]}
    world.client.ask("PATCH", "connectors", topic, "offsets", body=body)
    world.client.ask("PUT", "connectors", topic, "resume")
    wait_until(lambda: world.sql(read) == ["0|1", "1|1", "2|2", "3|2"], "the rows again")


def test_a_database_that_is_away_is_waited_for(world: World) -> None:
    from confluent_kafka import Producer

    world.broker.create_topic("away")
    producer = Producer({"bootstrap.servers": world.broker.bootstrap})
    world.put("away", **world.sink("away", "away"))
    producer.produce("away", '{"id":1}')
    producer.flush()
    wait_until(lambda: world.sql("SELECT id FROM away") == ["1"], "the first row")
    world.postgres.stop()
    producer.produce("away", '{"id":2}')
    producer.flush()
    log = world.directory / "supervisor.log"
    wait_until(lambda: "away: The database does not answer" in log.read_text(), "an outage")
    world.postgres.start()
    wait_until(lambda: world.sql("SELECT id FROM away ORDER BY id") == ["1", "2"], "both rows")
    assert world.state("away") == "RUNNING"


def test_new_rows_of_a_table_are_records_once_by_an_incrementing_column(world: World) -> None:
    world.sql("CREATE TABLE visits (id serial PRIMARY KEY, who text, more json DEFAULT E'{\\n\"a\": 1}')")
    world.sql("INSERT INTO visits (who) SELECT E'a\\n' || n FROM generate_series(1, 500) n")
    world.broker.create_topic("visits")
    counted = {"incrementing.column.name": "id", "batch.max.rows": "90"}
    world.put("visits", **world.source("visits", table="visits", **counted))
    wait_until(lambda: len(values(world, "visits")) >= 500, "the first rows")
    world.client.ask("PUT", "connectors", "visits", "stop")
    wait_until(lambda: world.state("visits") == "STOPPED", "a stopped source")
    offsets = world.client.ask("GET", "connectors", "visits", "offsets")["offsets"]
    assert offsets == [{"partition": {"table": "visits"}, "offset": {"incrementing": "500"}}]
    world.sql("INSERT INTO visits (who) SELECT 'b' FROM generate_series(1, 100)")
    world.client.ask("PUT", "connectors", "visits", "resume")
    wait_until(lambda: len(values(world, "visits")) >= 600, "the next rows")
    found = values(world, "visits")
    assert [int(each.key()) for each in found] == list(range(1, 601))
    assert json.loads(found[0].value()) == {"id": 1, "who": "a\n1", "more": {"a": 1}}


def test_changed_rows_are_records_by_their_time(world: World) -> None:
    world.sql("CREATE TABLE prices (id int PRIMARY KEY, cents int, changed timestamptz)")
    world.sql("INSERT INTO prices SELECT n, n, now() FROM generate_series(1, 5) n")
    world.broker.create_topic("prices")
    # More rows have one time than are taken at once.
    timed = {"mode": "timestamp", "timestamp.column.name": "changed", "batch.max.rows": "2"}
    world.put("prices", **world.source("prices", table="prices", **timed))
    wait_until(lambda: len(values(world, "prices")) >= 5, "the first rows")
    world.sql("UPDATE prices SET cents = 7, changed = now() WHERE id = 3")
    wait_until(lambda: len(values(world, "prices")) >= 6, "the changed row")
    assert [int(each.key()) for each in values(world, "prices")][5:] == [3]


def test_a_query_that_the_database_refuses_is_the_reason_of_the_failure(world: World) -> None:
    world.put("wrong", **world.source("wrong", table="no_such_table", **{"incrementing.column.name": "id"}))
    wait_until(lambda: world.state("wrong") == "FAILED", "a failed source")
    assert 'relation "no_such_table" does not exist' in world.status("wrong")["tasks"][0]["trace"]


def test_rows_of_a_delta_table_are_there_once_though_a_supervisor_is_killed(world: World) -> None:
    from confluent_kafka import Producer

    world.broker.create_topic("lake")
    table = world.directory / "lake"
    producer = Producer({"bootstrap.servers": world.broker.bootstrap})

    def send(first: int, last: int) -> None:
        for number in range(first, last + 1):
            producer.produce("lake", json.dumps({"id": number, "name": f"n{number % 2}"}))
        producer.flush()

    def rows() -> list[str]:
        """By the table's own log: the files that were added, by their partition, and how many records each has."""
        added: dict[str, int] = {}
        for entry in sorted((table / "_delta_log").glob("*.json")):
            for line in entry.read_text().splitlines():
                action = json.loads(line)
                if "add" in action:
                    added[action["add"]["path"]] = json.loads(action["add"]["stats"])["numRecords"]
        return [f"{path.partition('/')[0]}:{count}" for path, count in added.items()]

    def count() -> int:
        return sum(int(each.partition(":")[2]) for each in rows())

    send(1, 300)
    config = {"connector.class": "DeltaSink", "topics": "lake", "path": str(table), "partition.fields": "name"}
    config |= {"value.converter.schema": SCHEMA, "max.records.per.batch": "100", "poll.interval.ms": "50"}
    world.put("lake", **config)
    wait_until(lambda: count() > 0, "the first rows")
    world.kill()
    send(301, 500)
    world.start()
    wait_until(lambda: count() >= 500, "all rows")
    wait_until(lambda: world.state("lake") == "RUNNING", "the sink runs")
    assert count() == 500
    assert {each.partition(":")[0] for each in rows()} == {"name=n0", "name=n1"}


def test_documents_replace_themselves_and_a_server_that_is_away_is_waited_for(world: World) -> None:
    from confluent_kafka import Producer

    world.broker.create_topic("documents")
    producer = Producer({"bootstrap.servers": world.broker.bootstrap})
    for key, value in (("a", '{"id":1}'), ("b", '{"id":2}'), ("a", '{"id":3}'), ("b", None)):
        producer.produce("documents", value, key)
    producer.flush()
    with BulkServer(busy=2) as server:
        config = {"connector.class": "HttpSink", "topics": "documents", "url": server.url, "id.mode": "key"}
        world.put("documents", **config, **{"value.converter.schema": "id bigint", "index": "of-${topic}"})
        wait_until(lambda: server.documents == {("of-documents", "a"): {"id": 3}}, "the documents")
        assert server.asked >= 3


def test_no_secret_is_in_the_log_or_in_replies(world: World) -> None:
    world.put("told", **world.sink("told", "told"))
    wait_until(lambda: world.state("told") in ("RUNNING", "FAILED"), "a sink that was started")
    told = json.dumps(world.client.ask("GET", "connectors", expand="info"))
    assert world.postgres.password not in told + (world.directory / "supervisor.log").read_text()
