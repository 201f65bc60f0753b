"""Connectors killed half way, and their sources and targets away: what arrives is counted against what was sent.

Starts JVMs; needs what `scripts/spark-setup` installs.  All tests share one supervisor, which costs seconds to start.
"""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from harness.waiting import PATIENCE_S, wait_until

from tests.connectors.bulk_server import BulkServer
from tests.connectors.http_items import Server
from tests.connectors.supervisor_world import SCHEMA, World, values

pytestmark = [
    pytest.mark.jvm(needs="spark"),
    pytest.mark.timeout(600),
]

ONCE = {"errors.restarts.max": "0"}
OFTEN = {"poll.interval.ms": "50"}
HTTP = {"records.path": "data.items", "offset.field": "id", "offset.parameter": "after", "key.fields": "id"}


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def rows(first: int, end: int) -> list[str]:
    return [json.dumps({"id": each, "name": f"n{each}"}) for each in range(first, end)]


def ids(world: World, topic: str) -> list[int]:
    return [json.loads(each.value())["id"] for each in values(world, topic)]


def has(world: World, topic: str, count: int) -> bool:
    return len(values(world, topic)) >= count


def log(world: World) -> str:
    return (world.directory / "supervisor.log").read_text()


@pytest.mark.slow
def test_connectors_that_are_killed_half_way_go_on_and_each_record_is_there_once(world: World, server: Server) -> None:
    """A source of each kind that is asked, and sinks that write while they die: one kill for all of them."""
    for topic in ("documents", "counted", "given", "copied", "copy"):
        world.broker.create_topic(topic)
    world.send("documents", *rows(0, 400))
    world.send("copied", *rows(0, 5_000))
    world.sql("CREATE TABLE counted (id serial PRIMARY KEY, name text)")
    world.sql("INSERT INTO counted (name) SELECT 'a' FROM generate_series(1, 4000)")
    server.items = [{"id": each} for each in range(1, 301)]
    opened = threading.Event()

    def page(items: list[Any]) -> bytes:
        """Ten items; those in the middle are given when the source was killed and has come back."""
        if items and items[0]["id"] > 100:
            opened.wait()
        return json.dumps({"data": {"items": items[:10]}}).encode()

    server.answer = page
    counted = world.source("counted", table="counted", **{"incrementing.column.name": "id"})
    copied = {**OFTEN, "connector.class": "TopicSink", "topics": "copied", "topic": "copy"}
    with BulkServer(holds_after=150) as bulk:
        documents = {**OFTEN, "connector.class": "HttpSink", "topics": "documents", "url": bulk.url}
        documents |= {"value.converter.schema": SCHEMA, "batch.size": "50", "max.records.per.batch": "100"}
        try:
            world.put("documents", **documents)
            assert bulk.waits.wait(PATIENCE_S), "documents are under way"
            world.put(
                "given", **{**OFTEN, **HTTP, "connector.class": "HttpSource", "topic": "given", "url": server.url}
            )
            wait_until(partial(has, world, "given", 100), "the first values")
            world.put("copied", **copied, **{"max.records.per.batch": "100"})
            wait_until(partial(has, world, "copy", 1), "the first copies")
            world.put("counted", **counted, **{"batch.max.rows": "10"})
            wait_until(partial(has, world, "counted", 1), "the first rows")
            world.kill()
        finally:
            opened.set()
            bulk.answers.set()
        assert 0 < len(ids(world, "counted")) < 4_000
        assert 0 < len(ids(world, "copy")) < 5_000
        assert len(ids(world, "given")) == 100
        assert 0 < len(bulk.documents) < 400
        world.start()
        world.put("copied", **copied)
        world.put("counted", **counted)
        for topic, count in (("given", 300), ("counted", 4_000), ("copy", 5_000)):
            wait_until(partial(has, world, topic, count), f"all records of {topic}")
        wait_until(lambda: len(bulk.documents) >= 400, "all documents")
        assert Counter(each["id"] for each in bulk.documents.values()) == Counter(range(400))
        assert bulk.taken > 400, "what was under way is sent again, and replaces itself"
    assert ids(world, "given") == list(range(1, 301))
    assert ids(world, "counted") == list(range(1, 4_001))
    assert ids(world, "copy") == list(range(5_000))


def test_a_server_whose_port_is_closed_is_waited_for_and_gets_each_document(world: World) -> None:
    world.broker.create_topic("away")
    world.send("away", *rows(0, 50))
    with BulkServer() as first:
        config = {**OFTEN, **ONCE, "connector.class": "HttpSink", "topics": "away", "url": first.url}
        world.put("away", **config, **{"value.converter.schema": SCHEMA})
        wait_until(lambda: len(first.documents) == 50, "the first documents")
    world.send("away", *rows(50, 100))
    wait_until(lambda: f"away: {first.url}/_bulk: does not answer" in log(world), "an outage")
    with BulkServer(before=first) as second:
        wait_until(lambda: len(second.documents) == 100, "all documents")
        assert sorted(each["id"] for each in second.documents.values()) == list(range(100))
        assert world.state("away") == "RUNNING"
        world.delete_all()


def test_a_database_that_goes_and_comes_is_read_on_by_a_query_and_each_row_is_a_record_once(world: World) -> None:
    world.sql("CREATE TABLE visits (id serial PRIMARY KEY, shop int)")
    world.sql("INSERT INTO visits (shop) SELECT n % 2 FROM generate_series(1, 100) n")
    world.broker.create_topic("visits")
    query = "SELECT id, shop, id * 2 AS twice FROM visits WHERE shop = 1"
    config = world.source("visits", query=query, **{"incrementing.column.name": "id", **ONCE})
    world.put("visits", **config)
    wait_until(lambda: len(values(world, "visits")) >= 50, "the first rows")
    world.postgres.stop()
    wait_until(lambda: "visits: The database does not answer" in log(world), "an outage")
    world.postgres.start()
    world.sql("INSERT INTO visits (shop) SELECT n % 2 FROM generate_series(1, 100) n")
    wait_until(lambda: len(values(world, "visits")) >= 100, "the rows behind the outage")
    found = [json.loads(each.value()) for each in values(world, "visits")]
    assert found == [{"id": each, "shop": 1, "twice": 2 * each} for each in range(1, 200, 2)]
    assert world.state("visits") == "RUNNING"
    world.sql("ALTER TABLE visits ADD COLUMN who text DEFAULT 'a'")
    world.put("visits", **{**config, "query": query.replace("id * 2 AS twice", "who")})
    world.sql("INSERT INTO visits (shop) VALUES (1)")
    wait_until(lambda: len(values(world, "visits")) >= 101, "the row of another query")
    found = [json.loads(each.value()) for each in values(world, "visits")]
    assert [each["id"] for each in found] == [*range(1, 200, 2), 201]
    assert found[-1] == {"id": 201, "shop": 1, "who": "a"}


def arrive(folder: Path, name: str, content: str | bytes) -> None:
    """A file that is there whole."""
    folder.mkdir(exist_ok=True)
    made = folder.parent / f".{name}"
    made.write_bytes(content.encode() if isinstance(content, str) else content)
    made.rename(folder / name)


def files(world: World, name: str, form: str, **more: str) -> dict[str, str]:
    world.broker.create_topic(name)
    settings = {"connector.class": "FileSource", "path": str(world.directory / name), "format": form, "topic": name}
    return {**OFTEN, **ONCE, **settings, **({} if form == "text" else {"schema": "id bigint, name string"}), **more}


def parquet(path: Path) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"id": pa.array([1, 2], pa.int64()), "name": ["a", None]}), path)
    return path.read_bytes()


@pytest.mark.parametrize("form", ["json", "csv", "text", "parquet"])
def test_rows_of_files_of_each_form_are_records(world: World, form: str) -> None:
    found = [{"id": 1, "name": "a"}, {"id": 2, "name": None}]
    content: dict[str, str | bytes] = {
        "json": '{"id":1,"name":"a"}\n{"id":2}\n',
        "csv": "id;name\n1;a\n2;\n",
        "text": "a line\n\u00e9\n",
        "parquet": parquet(world.directory / "made.parquet"),
    }
    folder = world.directory / form
    arrive(folder, f"first.{form}", content[form])
    world.put(form, **files(world, form, form, header="true", delimiter=";"))
    wait_until(lambda: len(values(world, form)) >= 2, "the records")
    expected = [{"value": "a line"}, {"value": "\u00e9"}] if form == "text" else found
    assert [json.loads(each.value()) for each in values(world, form)] == expected


@pytest.mark.parametrize(
    ("form", "poison"), [("json", 'no json\n{"id":3}\n'), ("csv", "3\nx,c\n"), ("parquet", "no parquet")]
)
def test_a_file_with_poison_ends_its_source_or_its_rows_are_passed_over_and_counted(
    world: World, form: str, poison: str
) -> None:
    name = f"poison-{form}"
    good: dict[str, Any] = {
        "json": '{"id":1,"name":"a"}\n',
        "csv": "1,a\n",
        "parquet": parquet(world.directory / "made.parquet"),
    }
    arrive(world.directory / name, f"good.{form}", good[form])
    config = files(world, name, form)
    world.put(name, **config)
    wait_until(lambda: values(world, name), "the records before")
    arrive(world.directory / name, f"bad.{form}", poison)
    wait_until(lambda: world.state(name) == "FAILED", "a failed source")
    trace = world.status(name)["tasks"][0]["trace"]
    assert f"while reading file file://{world.directory / name}/bad.{form}" in trace
    assert (re.search(r"; line [12] is no row$", trace) is None) == (form == "parquet")
    before = ids(world, name)
    if form == "parquet":
        return  # a file that cannot be read is no row that can be passed over
    world.put(name, **config, **{"errors.tolerance": "all"})
    count = 1 if form == "json" else 2
    wait_until(lambda: f"{name}: {count} lines are no rows and are passed over" in log(world), "what is passed over")
    assert re.search(rf"{name}: \d lines are no rows .* in file:\S*/bad\.{form}, line [12]; ", log(world))
    arrive(world.directory / name, f"last.{form}", good[form].replace("1", "9"))
    wait_until(lambda: ids(world, name)[-1] == 9, "the record behind")
    assert ids(world, name) == [*before, *([3] if form == "json" else []), 9]


@pytest.mark.parametrize(
    ("form", "row", "bad", "reason"),
    [
        ("json", '{{"id":{}}}', '{{"id":"no {}"}}', "value: does not fit the schema: id is no bigint"),
        ("csv", "{},a", "no {},b", "value: is no line of csv with the columns id bigint, name string"),
    ],
)
def test_lines_that_are_no_rows_are_dead_letters_once_though_the_supervisor_is_killed(
    world: World, form: str, row: str, bad: str, reason: str
) -> None:
    name = f"letters-{form}"
    world.broker.create_topic(f"{name}-dead")

    def arrive_rows(first: int, end: int) -> None:
        for part in range(first, end):
            numbers = range(part * 100, part * 100 + 100)
            lines = ((bad if each % 10 == 3 else row).format(each) for each in numbers)
            arrive(world.directory / name, f"{part}.{form}", "".join(f"{line}\n" for line in lines))

    arrive_rows(0, 4)
    config = files(world, name, form, **{"errors.tolerance": "all", "max.files.per.batch": "1"})
    world.put(name, **config, **{"errors.deadletterqueue.topic.name": f"{name}-dead"})
    wait_until(lambda: values(world, name), "the first records")
    world.kill()
    arrive_rows(4, 6)
    world.start()
    wait_until(lambda: len(values(world, f"{name}-dead")) >= 60 and len(values(world, name)) >= 540, "all lines")
    assert sorted(ids(world, name)) == [each for each in range(600) if each % 10 != 3]
    letters = values(world, f"{name}-dead")
    assert sorted(each.value().decode() for each in letters) == sorted(bad.format(each) for each in range(3, 600, 10))
    told = {header: text.decode() for header, text in letters[0].headers()}
    assert told["__connect.errors.file"].endswith(f"/{name}/{number_in(letters[0].value()) // 100}.{form}")
    assert told["__connect.errors.line"] == str(number_in(letters[0].value()) % 100 + 1)
    assert told["__connect.errors.stage"] == "VALUE_CONVERTER"
    assert told["__connect.errors.exception.message"].startswith(reason)
    assert told["__connect.errors.connector.name"] == name
    wait_until(lambda: "lines that are no rows: " in str(world.status(name)["tasks"][0].get("remark")), "the remark")


def test_a_long_line_that_is_no_row_is_a_dead_letter_without_its_number(world: World) -> None:
    name = "long-lines"
    world.broker.create_topic(f"{name}-dead")
    lines = ["no json", "x" * 2_000, "x" * 2_001, '{"id":1}']
    arrive(world.directory / name, "a.json", "".join(f"{line}\n" for line in lines))
    dead = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": f"{name}-dead"}
    world.put(name, **files(world, name, "json", **dead))
    wait_until(lambda: values(world, name) and len(values(world, f"{name}-dead")) >= 3, "all lines")
    headers = {each.value().decode(): dict(each.headers()) for each in values(world, f"{name}-dead")}
    assert [headers[line].get("__connect.errors.line") for line in lines[:3]] == [b"1", b"2", None]


def number_in(line: bytes) -> int:
    """Of a line that is no row."""
    (found,) = re.findall(rb"no (\d+)", line)
    return int(found)
