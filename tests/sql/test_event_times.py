"""Times of records that a column says: what a declaration may name, and what questions and plans make of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from pybroker.sql.standing.standing_plans import plan_read
from tests.sql.fake_cluster import NOON_MS
from tests.sql.test_standing_statements import World

PATTERN = "timestamp_format='yyyy-MM-dd''T''HH:mm:ssX'"


@pytest.fixture
def world() -> Iterator[World]:
    found = World()
    yield found
    found.engine.close()


@pytest.mark.parametrize(
    ("column", "options", "values"),
    [
        ("VARCHAR", PATTERN, ["2020-05-04T01:00:00Z", "2020-05-04T04:00:00+02"]),
        ("VARCHAR", "", ["2020-05-04 01:00:00", "2020-05-04T02:00:00"]),
        ("BIGINT", "", [1_588_554_000_000, 1_588_557_600_000]),
        ("TIMESTAMP", "", ["2020-05-04 01:00:00", "2020-05-04 02:00:00"]),
        ("TIMESTAMP", "", ["2020-05-04T03:00:00+02:00", "2020-05-04T01:30:00-00:30"]),
        ("VARCHAR", "", ["2020-05-04T03:00:00+02:00", "2020-05-04 02:00:00Z"]),
    ],
)
def test_time_of_a_record_is_what_its_column_says(world: World, column: str, options: str, values: list[Any]) -> None:
    world.cluster.produce("s", [{"ts": each, "v": number} for number, each in enumerate(values)])
    also = f", {options}" if options else ""
    world.ask(f"CREATE STREAM s (ts {column}, v INT) WITH (topic='s', format='json', timestamp='TS'{also})")
    rows = [{"v": 0, "_timestamp": "2020-05-04 01:00:00.000"}, {"v": 1, "_timestamp": "2020-05-04 02:00:00.000"}]
    assert world.ask("SELECT v, _timestamp FROM s") == rows
    assert world.ask("SELECT v FROM s WHERE _timestamp > '2020-05-04 01:30:00'") == [{"v": 1}]
    assert world.ask("SET 'auto.offset.reset' = 'earliest'; SELECT v, _timestamp FROM s EMIT CHANGES LIMIT 2") == rows


def test_record_whose_time_is_none_does_not_fit_where_its_time_is_asked_for(world: World) -> None:
    world.cluster.produce("s", [{"ts": "x"}, {"ts": None}, {"ts": "2020-05-04 01:00:00"}])
    world.ask("CREATE STREAM s (ts VARCHAR) WITH (topic='s', format='json', timestamp='ts')")
    assert world.ask("SELECT count(*) AS n, max(_timestamp) AS t FROM s") == [{"n": 1, "t": "2020-05-04 01:00:00.000"}]
    assert (
        world.remarks[-1]
        == "2 records do not fit and were left out; the first: s partition 0 offset 0: ts is no time: x"
    )
    assert world.ask("SELECT count(*) AS n FROM s") == [{"n": 3}]


def test_row_that_deletes_has_the_time_of_its_record(world: World) -> None:
    world.cluster.produce("t", [{"ts": 0}, None], keys=["a", "b"])
    world.ask("CREATE STREAM t (ts BIGINT) WITH (topic='t', format='json', timestamp='ts')")
    assert world.ask("SELECT epoch_ms(_timestamp) AS t FROM t ORDER BY _offset") == [{"t": 0}, {"t": NOON_MS + 1}]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("timestamp='tss'", "s: timestamp names a column, and there is no tss; ts?"),
        ("timestamp='k'", "s: timestamp is a column of the value, a timestamp, a text or a BIGINT of ms"),
        ("timestamp='d'", "s: timestamp is a column of the value, a timestamp, a text or a BIGINT of ms"),
        ("timestamp='n', timestamp_format='yyyy'", "timestamp_format is for texts, and n is BIGINT"),
        ("timestamp_format='yyyy'", "timestamp_format is that of a column, which timestamp names"),
        ("key='x'", "s has no column x"),
    ],
)
def test_option_that_names_no_time_is_refused(world: World, options: str, why: str) -> None:
    columns = "k VARCHAR KEY, ts VARCHAR, n BIGINT, d DOUBLE"
    assert why in world.refusal(f"CREATE STREAM s ({columns}) WITH (topic='s', format='json', partitions=1, {options})")


def test_standing_query_reads_the_column_of_the_time_and_its_stream_has_the_option(world: World) -> None:
    declared = f"topic='s', format='json', partitions=1, timestamp='ts', {PATTERN}"
    world.ask(f"CREATE STREAM s (ts VARCHAR, v INT) WITH ({declared})")
    world.ask("CREATE TABLE counted AS SELECT v, count(*) AS n FROM s WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY v")
    (source,) = plan_read(json.loads(world.supervisor.configs["counted"]["plan"])).sources
    assert [each.name for each in source.columns] == ["v", "_timestamp", "_offset", "ts"]
    assert source.options == {"timestamp": "ts", "timestamp_format": "yyyy-MM-dd'T'HH:mm:ssX"}
    world.ask(f"CREATE STREAM again WITH (timestamp='ts', {PATTERN}) AS SELECT * FROM s")
    world.cluster.produce("again", [{"ts": "2020-05-04T01:00:00Z", "v": 1}])
    assert world.ask("SELECT ROWTIME FROM again") == [{"ROWTIME": 1_588_554_000_000}]
    told = world.refusal("CREATE STREAM wrong WITH (timestamp='tss') AS SELECT * FROM s")
    assert "there is no tss; ts?" in told


def test_inserted_record_has_the_time_that_is_said(world: World) -> None:
    world.ask("CREATE STREAM s (v INT) WITH (topic='s', format='json', partitions=1)")
    world.ask("INSERT INTO s (ROWTIME, v) VALUES (1588554000000, 1)")
    world.ask("INSERT INTO s (v, _timestamp) VALUES (2, '2020-05-04 02:00:00'), (3, NULL)")
    assert world.ask("SELECT v, ROWTIME FROM s WHERE v < 3") == [
        {"v": 1, "ROWTIME": 1_588_554_000_000},
        {"v": 2, "ROWTIME": 1_588_557_600_000},
    ]
    assert world.refusal("INSERT INTO s (ROWTIME, _timestamp, v) VALUES (1, NULL, 1)") == "a record has one time"
    assert world.refusal("INSERT INTO s (ROWTIME, v) VALUES (-1, 1)") == "a record has a time from 1970 on"
