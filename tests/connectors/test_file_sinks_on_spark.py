"""FileSink in a supervisor with Spark and a broker: what other readers find is counted against what was sent.

Starts JVMs; needs what `scripts/spark-setup` installs.  All tests share one supervisor, which costs seconds to start.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from harness.waiting import wait_until

from tests.connectors.supervisor_world import World, values

pytestmark = [
    pytest.mark.jvm(needs="spark"),
    pytest.mark.timeout(600),
]

NOON = datetime(2026, 8, 1, 12, tzinfo=UTC)
SINK = {"connector.class": "FileSink", "poll.interval.ms": "50", "rotate.interval.ms": "200"}


def rows(directory: Path) -> list[int]:
    """The identities of all rows, as DuckDB finds them."""
    import duckdb

    if not any(directory.rglob("*.parquet")):
        return []
    found = duckdb.execute(f"SELECT id FROM read_parquet('{directory}/**/*.parquet')").fetchall()
    return [each[0] for each in found]


def is_staged(states: Path) -> bool:
    """Whether a sink's last state has staged rows; a file may be of a micro-batch that a stop still takes back."""
    written = [each for each in states.glob("*") if each.name.isdecimal()]
    if not written:
        return False
    last = max(written, key=lambda each: int(each.name))
    return bool(json.loads(last.read_text())["staged"])


def lines(directory: Path, ending: str) -> list[str]:
    return sorted(line for each in directory.rglob(f"*{ending}") for line in each.read_text().splitlines())


def test_rows_of_parquet_files_are_there_once_though_the_supervisor_is_killed_half_way(world: World) -> None:
    import pandas as pd

    topic, directory = "lake", world.directory / "lake"
    world.broker.create_topic(topic, partitions=2)

    def send(first: int, end: int) -> None:
        for hour in range(3):
            at_ms = int((NOON + timedelta(hours=hour)).timestamp() * 1_000)
            of_hour = [json.dumps({"id": each, "name": f"n{each}"}) for each in range(first, end) if each % 3 == hour]
            world.send(topic, *of_hour, timestamp=at_ms)

    send(0, 600)
    config = {**SINK, "topics": topic, "path": str(directory), "partition.by": "hour", "max.records.per.batch": "100"}
    world.put("lake", **config, **{"value.converter.schema": "id bigint, name string"})
    wait_until(lambda: rows(directory), "the first files")
    world.kill()
    assert len(set(rows(directory))) == len(rows(directory))
    send(600, 1_000)
    world.start()

    def are_all_there() -> bool:
        found = rows(directory)
        assert len(set(found)) == len(found)
        return len(found) >= 1_000

    wait_until(are_all_there, "all rows")
    assert sorted(rows(directory)) == list(range(1_000))
    frame = pd.read_parquet(directory)
    assert sorted(frame["id"]) == list(range(1_000))
    assert {(str(day), int(hour)) for day, hour in zip(frame["day"], frame["hour"], strict=True)} == {
        ("2026-08-01", hour) for hour in (12, 13, 14)
    }
    assert all(int(each) % 3 == int(hour) - 12 for each, hour in zip(frame["id"], frame["hour"], strict=True))


def test_what_is_staged_is_seen_when_the_sink_is_stopped(world: World) -> None:
    directory = world.directory / "waiting"
    world.broker.create_topic("waiting")
    world.send("waiting", '{"id": 1}', '{"id": 2}')
    config = {**SINK, "topics": "waiting", "path": str(directory), "value.converter.schema": "id bigint"}
    world.put("waiting", **(config | {"rotate.interval.ms": "3600000"}))
    states = directory / "_pybroker" / "waiting" / "log"
    wait_until(lambda: is_staged(states), "a micro-batch that is staged, and noted")
    assert rows(directory) == []
    world.client.ask("PUT", "connectors", "waiting", "stop")
    wait_until(lambda: sorted(rows(directory)) == [1, 2], "the rows")


def test_a_column_that_is_new_is_refused_or_taken(world: World) -> None:
    import duckdb

    directory = world.directory / "wider"
    world.broker.create_topic("wider")
    config = {**SINK, "topics": "wider", "path": str(directory), "errors.restarts.max": "0"}
    world.put("wider", **config, **{"value.converter.schema": "id bigint"})
    world.send("wider", '{"id": 1}')
    wait_until(lambda: rows(directory) == [1], "the first row")
    config["value.converter.schema"] = "id bigint, name string"
    world.put("wider", **config)
    world.send("wider", '{"id": 2, "name": "b"}')
    wait_until(lambda: world.state("wider") == "FAILED", "a refused column")
    assert "no column name, and auto.evolve is false" in world.status("wider")["tasks"][0]["trace"]
    world.put("wider", **config, **{"auto.evolve": "true"})
    wait_until(lambda: sorted(rows(directory)) == [1, 2], "the second row")
    read = f"SELECT id, name FROM read_parquet('{directory}/**/*.parquet', union_by_name=true) ORDER BY id"
    assert duckdb.execute(read).fetchall() == [(1, None), (2, "b")]


def test_a_directory_that_is_away_ends_the_sink_until_it_is_back(world: World) -> None:
    directory, elsewhere = world.directory / "mounted", world.directory / "elsewhere"
    world.broker.create_topic("mounted")
    config = {**SINK, "topics": "mounted", "path": str(directory), "value.converter.schema": "id bigint"}
    world.put("mounted", **config, **{"errors.restarts.backoff.ms": "100", "errors.restarts.max": "-1"})
    world.send("mounted", '{"id": 1}')
    wait_until(lambda: rows(directory) == [1], "the first row")
    directory.rename(elsewhere)
    world.send("mounted", '{"id": 2}')
    log = world.directory / "supervisor.log"
    wait_until(lambda: f"{directory} does not have what the connector has written" in log.read_text(), "an outage")
    assert not directory.exists()
    elsewhere.rename(directory)
    wait_until(lambda: sorted(rows(directory)) == [1, 2], "both rows")


def test_a_poison_record_is_a_dead_letter_and_the_others_are_lines_of_json(world: World) -> None:
    directory = world.directory / "lines"
    world.broker.create_topic("lines")
    world.send("lines", '{"id": 1}', "no json", '{"id": 2, "name": "é\\n"}')
    config = {**SINK, "topics": "lines", "path": str(directory), "format": "json", "partition.by": "none"}
    config |= {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "lines-dead"}
    world.put("lines", **config, **{"value.converter.schema": "id bigint, name string"})
    expected = ['{"id":1,"name":null}', '{"id":2,"name":"é\\n"}']
    wait_until(lambda: lines(directory, ".json") == expected, "the lines")
    (letter,) = values(world, "lines-dead")
    assert letter.value() == b"no json"


@pytest.mark.parametrize(
    ("form", "more", "ending", "expected"),
    [
        ("csv", {"header": "true", "delimiter": ";"}, ".csv", ["1;a b", '2;"it\'s; so"', "id;name"]),
        (
            "text",
            {"transforms": "t", "transforms.t.type": "sql", "transforms.t.select": "name"},
            ".txt",
            ["a b", "it's; so"],
        ),
    ],
)
def test_rows_are_lines(world: World, form: str, more: dict[str, str], ending: str, expected: list[str]) -> None:
    directory = world.directory / form
    world.broker.create_topic(form)
    world.send(form, '{"id": 1, "name": "a b"}', '{"id": 2, "name": "it\'s; so"}')
    config = {**SINK, "topics": form, "path": str(directory), "format": form, "partition.by": "none", **more}
    world.put(form, **config, **{"value.converter.schema": "id bigint, name string"})
    wait_until(lambda: lines(directory, ending) == expected, "the lines")
