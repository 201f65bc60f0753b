"""What targets refuse, in a supervisor with Spark: dead letters with the reason, and each other record arrives.

Starts JVMs; needs what `scripts/spark-setup` installs.  All tests share one supervisor, which costs seconds to start.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from harness.waiting import wait_until

from tests.connectors.bulk_server import BulkServer
from tests.connectors.supervisor_world import SCHEMA, World, values

pytestmark = [
    pytest.mark.jvm(needs="spark"),
    pytest.mark.timeout(600),
]

ONCE = {"errors.restarts.max": "0"}
OFTEN = {"poll.interval.ms": "50"}


def tolerant(name: str) -> dict[str, str]:
    return {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": f"{name}-dead"}


def letters(world: World, name: str) -> dict[tuple[str, int], tuple[str, str]]:
    """By topic and offset: the stage and the reason.  No record has two."""
    found = {}
    for message in values(world, f"{name}-dead"):
        told = {header: value.decode() for header, value in message.headers()}
        place = (told["__connect.errors.topic"], int(told["__connect.errors.offset"]))
        assert place not in found
        found[place] = (told["__connect.errors.stage"], told["__connect.errors.exception.message"])
    return found


def trace(world: World, name: str) -> str:
    wait_until(lambda: world.state(name) == "FAILED", "a failed sink")
    return str(world.status(name)["tasks"][0]["trace"])


def test_rows_that_postgresql_refuses_are_dead_letters_and_the_others_are_there_once(world: World) -> None:
    world.sql(
        "CREATE TABLE strict (id integer PRIMARY KEY, name varchar(5) NOT NULL, amount numeric CHECK (amount > 0))"
    )
    for topic in ("strict", "strict-dead"):
        world.broker.create_topic(topic)
    bad = {
        3: '{"id":3,"name":"longer","amount":1}',
        5: '{"id":3000000000,"name":"a","amount":1}',
        7: '{"id":7,"amount":1}',
        9: '{"id":9,"name":"a","amount":-1}',
        11: '{"id":1,"name":"a","amount":1}',
        13: '{"id":13,"name":"a\\u0000b","amount":1}',
    }
    world.send("strict", *(bad.get(n, json.dumps({"id": n, "name": "a", "amount": 1.5})) for n in range(40)))
    # Names of a pattern are given to another table's topic, as people do: the reason names the record's own.
    routed = {"transforms": "r", "transforms.r.type": "RegexRouter", "transforms.r.regex": ".*"}
    routed |= {"transforms.r.replacement": "elsewhere"}
    sink = world.sink("strict", "strict", **{"auto.create": "false"}, **OFTEN, **ONCE, **routed)
    world.put("strict", **sink)
    assert "the record of strict-0 at offset 3: target: value too long for type" in trace(world, "strict")
    assert world.sql("SELECT count(*) FROM strict") == ["0"]
    world.put("strict", **sink, **tolerant("strict"))
    wait_until(lambda: world.sql("SELECT count(*) FROM strict") == ["34"], "the rows")
    world.send("strict", '{"id":40,"name":"a","amount":1}', '{"id":41,"amount":1}')
    wait_until(lambda: len(letters(world, "strict")) >= 7, "the last dead letter")
    found = letters(world, "strict")
    assert sorted(found) == [("strict", each) for each in (*bad, 41)]
    assert {stage for stage, _ in found.values()} == {"TASK_PUT"}
    told = ("value too long", "integer out of range", "null value", "violates check", "duplicate key", "U+0000")
    assert all(part in found["strict", at][1] for at, part in zip(bad, told, strict=True))
    assert world.sql("SELECT count(*) FROM strict") == ["35"]
    assert not world.sql("SELECT tablename FROM pg_tables WHERE tablename LIKE '%staging%'")


def test_topics_that_have_one_table_are_all_there(world: World) -> None:
    for topic in ("north", "south"):
        world.broker.create_topic(topic)
        world.send(topic, *(json.dumps({"id": each, "name": topic}) for each in range(50)))
    world.put("both", **world.sink("both_tables", "north,south", **OFTEN))
    read = "SELECT name, count(DISTINCT id), count(*) FROM both_tables GROUP BY name ORDER BY name"
    wait_until(lambda: world.sql(read) == ["north|50|50", "south|50|50"], "the rows of both topics")


def test_lists_of_times_keep_microseconds_and_lists_of_bytes_are_bytes(world: World) -> None:
    world.sql("CREATE TABLE listed (id bigint, times timestamptz[], parts bytea[])")
    world.broker.create_topic("listed")
    world.send("listed", '{"id":1,"times":["2024-05-06T07:08:09.123456Z"],"parts":["AP8="]}')
    schema = {"value.converter.schema": "id bigint, times array<timestamp>, parts array<binary>"}
    world.put("listed", **world.sink("listed", "listed", **OFTEN, **schema))
    exact = "times[1] = '2024-05-06T07:08:09.123456Z'"
    wait_until(lambda: world.sql("SELECT count(*) FROM listed") == ["1"], "the row")
    assert world.sql(f"SELECT {exact}, encode(parts[1], 'hex') FROM listed") == ["t|00ff"]


def test_documents_that_a_server_refuses_are_dead_letters_and_the_others_are_there(world: World) -> None:
    for topic in ("documents", "documents-dead"):
        world.broker.create_topic(topic)
    names = ["poison" if each in (3, 17) else f"n{each}" for each in range(30)]
    world.send("documents", *(json.dumps({"id": each, "name": name}) for each, name in enumerate(names)))
    with BulkServer(busy=1) as server:
        config = {"connector.class": "HttpSink", "topics": "documents", "url": server.url, "batch.size": "8"}
        config |= {"value.converter.schema": SCHEMA, **OFTEN, **ONCE}
        world.put("documents", **config)
        assert "the record of documents-0 at offset 3: target: " in trace(world, "documents")
        world.put("documents", **config, **tolerant("documents"))
        wait_until(lambda: len(letters(world, "documents")) >= 2, "the dead letters")
        assert sorted(each["id"] for each in server.documents.values()) == [n for n in range(30) if n not in (3, 17)]
    found = letters(world, "documents")
    assert sorted(found) == [("documents", 3), ("documents", 17)]
    assert found["documents", 3] == (
        "TASK_PUT",
        'target: {"type": "document_parsing_exception", "reason": "poison"}',
    )


def added_to(table: Path) -> tuple[int, set[str]]:
    """How many rows a Delta table's log has, and the columns of its last schema."""
    count, columns = 0, set()
    for entry in sorted((table / "_delta_log").glob("*.json")):
        for line in entry.read_text().splitlines():
            action = json.loads(line)
            if "add" in action:
                count += json.loads(action["add"]["stats"])["numRecords"]
            if "metaData" in action:
                schema = json.loads(action["metaData"]["schemaString"])
                columns = {field["name"] for field in schema["fields"]}
    return count, columns


def test_a_delta_table_is_widened_on_request_and_a_poison_record_is_a_dead_letter(world: World) -> None:
    for topic in ("lake", "lake-dead"):
        world.broker.create_topic(topic)
    table = world.directory / "lake"
    config = {"connector.class": "DeltaSink", "topics": "lake", "path": str(table), **OFTEN, **ONCE, **tolerant("lake")}
    narrow, wide = {"value.converter.schema": "id bigint"}, {"value.converter.schema": "id bigint, name string"}
    world.send("lake", '{"id":1}', "no json", '{"id":2}')
    world.put("lake", **config, **narrow)
    wait_until(lambda: added_to(table) == (2, {"id"}), "the first rows")
    assert list(letters(world, "lake").values()) == [("VALUE_CONVERTER", "value: is no JSON")]
    world.put("lake", **config, **wide)
    world.send("lake", '{"id":3,"name":"c"}')
    assert f"table {table} has no column name, and auto.evolve is false" in trace(world, "lake")
    assert added_to(table) == (2, {"id"})
    world.put("lake", **config, **wide, **{"auto.evolve": "true"})
    wait_until(lambda: added_to(table) == (3, {"id", "name"}), "the wider row")


def delta_table(path: Path) -> None:
    """A table with rules, as Delta's log has them: columns that want a value, a bounded text, a CHECK."""
    fields = [
        {"name": "id", "type": "long", "nullable": False, "metadata": {}},
        {"name": "name", "type": "string", "nullable": True, "metadata": {"__CHAR_VARCHAR_TYPE_STRING": "varchar(5)"}},
        {"name": "amount", "type": "double", "nullable": True, "metadata": {}},
    ]
    table = {
        "id": "8d2f2b0e-6a3c-4a51-9d8e-2f1f6c1d0a11",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [],
        "configuration": {"delta.constraints.positive": "amount > 0"},
        "createdTime": 0,
    }
    actions = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 3}}, {"metaData": table}]
    (path / "_delta_log").mkdir(parents=True)
    log = path / "_delta_log" / "00000000000000000000.json"
    log.write_text("".join(f"{json.dumps(action)}\n" for action in actions))


def test_rows_that_a_delta_table_refuses_are_dead_letters_and_the_others_are_there_once(world: World) -> None:
    for topic in ("ruled", "ruled-dead"):
        world.broker.create_topic(topic)
    table = world.directory / "ruled"
    delta_table(table)
    bad = {
        3: '{"name":"a","amount":1}',
        5: '{"id":5,"name":"longer","amount":1}',
        7: '{"id":7,"name":"a","amount":-1}',
        9: '{"id":9,"name":"a"}',
    }
    world.send("ruled", *(bad.get(n, json.dumps({"id": n, "name": "a", "amount": 1.5})) for n in range(20)))
    config = {"connector.class": "DeltaSink", "topics": "ruled", "path": str(table), "value.converter.schema": SCHEMA}
    world.put("ruled", **config, **OFTEN, **ONCE)
    told = "the record of ruled-0 at offset 3: target: NOT NULL constraint violated for column: id"
    assert told in trace(world, "ruled")
    assert added_to(table)[0] == 0
    world.put("ruled", **config, **OFTEN, **ONCE, **tolerant("ruled"))
    wait_until(lambda: added_to(table)[0] == 16, "the rows")
    world.send("ruled", '{"id":20,"name":"b","amount":2}', '{"id":21,"name":"b","amount":0}')
    wait_until(lambda: len(letters(world, "ruled")) >= 5, "the last dead letter")
    found = letters(world, "ruled")
    assert sorted(found) == [("ruled", each) for each in (*bad, 21)]
    assert {stage for stage, _ in found.values()} == {"TASK_PUT"}
    reasons = ("NOT NULL constraint", "exceeds varchar(5)", "CHECK constraint positive", "CHECK constraint positive")
    assert all(part in found["ruled", at][1] for at, part in zip(bad, reasons, strict=True))
    assert added_to(table)[0] == 17
