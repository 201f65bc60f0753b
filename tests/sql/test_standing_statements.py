"""Statements about standing queries and declarations that last, over a cluster and a supervisor in memory."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_writer

from pybroker.sql.questions.engine import Engine
from pybroker.sql.questions.row_output import OutputForm
from pybroker.sql.relations.cluster_port import Written
from pybroker.sql.session import Session
from pybroker.sql.sql_errors import Interrupted, SqlError
from pybroker.sql.standing import hosted_queries
from pybroker.sql.standing.standing_plans import plan_read
from tests.sql.fake_cluster import FakeChanges, FakeCluster
from tests.sql.fake_supervisor import FakeSupervisor
from tests.sql.test_row_output import Sheet

ORDERS = [{"id": number, "amount": number * 10.0, "who": "ab"[number % 2]} for number in range(6)]
TOTALS = "CREATE TABLE totals AS SELECT who, count(*) AS n, sum(amount) AS total FROM orders GROUP BY who"


class World:
    """Sessions of one cluster and one supervisor."""

    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.changes = FakeChanges(self.cluster)
        self.supervisor = FakeSupervisor()
        self.engine = Engine("256MB")
        self.remarks: list[str] = []
        self.sheet = Sheet()
        self.session = self.new_session()

    def new_session(self) -> Session:
        return Session(
            self.cluster,
            self.cluster.connect,
            self.engine,
            self.sheet,
            self.remarks.append,
            changes=self.changes,
            supervisor=self.supervisor,
            output=OutputForm.JSON,
        )

    def ask(self, text: str, session: Session | None = None) -> list[dict[str, Any]]:
        self.sheet.written.seek(0)
        self.sheet.written.truncate()
        (session or self.session).run(text)
        return [json.loads(line) for line in self.sheet.written.getvalue().splitlines()]

    def refusal(self, text: str, session: Session | None = None) -> str:
        with pytest.raises(SqlError) as caught:
            (session or self.session).run(text)
        return str(caught.value)


@pytest.fixture
def world() -> Iterator[World]:
    found = World()
    found.cluster.produce("orders", ORDERS[:3])
    found.cluster.produce("orders", ORDERS[3:], partition=1)
    yield found
    found.engine.close()


# --- declarations ----------------------------------------------------------------------------------------------------


def test_declaration_is_seen_by_another_session_until_it_is_dropped(world: World) -> None:
    world.ask("CREATE STREAM o (who VARCHAR, amount INT) WITH (topic='orders', format='json')")
    assert world.changes.settings["sql-declarations"] == {"cleanup.policy": "compact"}
    other = world.new_session()
    assert world.ask("SHOW STREAMS", other) == [{"stream": "o", "topic": "orders", "format": "json", "query": None}]
    assert world.ask("SELECT sum(amount) AS total FROM O", other) == [{"total": 150}]
    world.ask("DROP STREAM o")
    assert world.ask("SHOW STREAMS", other) == []
    assert "there is no topic o" in world.refusal("SELECT * FROM o", other)


def test_declaration_that_is_temporary_is_the_session_s_alone(world: World) -> None:
    world.ask("CREATE TEMP STREAM o (who VARCHAR) WITH (topic='orders', format='json')")
    assert [row["stream"] for row in world.ask("SHOW STREAMS")] == ["o"]
    assert world.ask("SHOW STREAMS", world.new_session()) == []
    assert "sql-declarations" not in world.cluster.logs


def test_declaration_makes_its_topic_where_partitions_are_said(world: World) -> None:
    world.ask("CREATE STREAM s (a INT) WITH (kafka_topic='made', value_format='json', partitions=3, retention_ms=1000)")
    assert world.cluster.partitions("made") == [0, 1, 2]
    assert world.changes.settings["made"] == {"retention.ms": "1000"}
    told = world.refusal("CREATE STREAM t (a INT) WITH (topic='made', format='json', partitions=2)")
    assert told == "the topic made has 3 partitions, not 2"
    same = "CREATE OR REPLACE STREAM s (a INT) WITH (topic='made', format='json', partitions=3, retention_ms={})"
    world.ask(same.format(1000))
    assert "the topic made has retention.ms=1000" in world.refusal(same.format(2000))
    assert "PARTITIONS=1 makes one" in world.refusal("CREATE STREAM t (a INT) WITH (topic='xyz', format='json')")


def test_declaration_whose_name_is_taken_makes_no_topic(world: World) -> None:
    world.ask("CREATE STREAM s (a INT) WITH (topic='orders', format='json')")
    world.ask("CREATE STREAM q AS SELECT id FROM orders")
    there = set(world.cluster.topics())
    for text, why in (
        ("CREATE STREAM s (a INT) WITH (topic='made', format='json', partitions=1)", "is declared already"),
        ("CREATE STREAM q (id INT) WITH (topic='made', format='json', partitions=1)", "is made by the query"),
        (
            "CREATE OR REPLACE STREAM q (id INT) WITH (topic='made', format='json', partitions=1)",
            "is made by the query",
        ),
    ):
        assert why in world.refusal(text)
        assert set(world.cluster.topics()) == there


def test_declarations_that_cannot_be_read_do_not_end_a_question(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: object) -> None:
        raise RuntimeError("not authorized")

    world.changes.create_topic("sql-declarations", 1, None, {})
    monkeypatch.setattr(world.session.kept, "refresh", lambda *_: refused(None))
    assert world.ask("SELECT count(*) AS n FROM orders; SELECT count(*) AS n FROM orders") == [{"n": 6}] * 2
    assert world.remarks == ["declarations in sql-declarations are not read: not authorized"]


DECLARED = "CREATE STREAM o (who VARCHAR) WITH (topic='orders', format='json')"


def test_topic_that_would_lose_declarations_gets_none(world: World) -> None:
    world.changes.create_topic("sql-declarations", 1, None, {"cleanup.policy": "delete"})
    told = "sql-declarations would lose declarations: it has cleanup.policy=delete"
    assert [world.refusal(text) for text in (DECLARED, TOTALS)] == [told] * 2
    assert (world.changes.written, world.supervisor.configs) == ([], {})


def test_topic_of_several_partitions_keeps_no_declarations_and_a_question_says_so(world: World) -> None:
    world.changes.create_topic("sql-declarations", 3, None, {"cleanup.policy": "compact"})
    told = "sql-declarations keeps declarations: it must have one partition, and has 3"
    assert world.refusal(DECLARED) == told
    assert world.changes.written == []
    assert world.ask("SELECT count(*) AS n FROM orders", world.new_session()) == [{"n": 6}]
    assert world.remarks == [f"declarations in sql-declarations are not read: {told}"] * 2


def test_declarations_are_kept_where_settings_may_not_be_seen(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise RuntimeError("not authorized")

    world.changes.create_topic("sql-declarations", 1, None, {})
    monkeypatch.setattr(world.changes, "difference", refused)
    world.ask(DECLARED)
    world.ask("DROP STREAM o")
    told = "whether the settings of sql-declarations let declarations last is not known: not authorized"
    assert [each for each in world.remarks if "not known" in each] == [told]


def test_declaration_has_its_schema_inside(world: World, tmp_path: Path) -> None:
    file = tmp_path / "user.avsc"
    schema = {"type": "record", "name": "User", "fields": [{"name": "id", "type": "long"}]}
    file.write_text(json.dumps(schema))
    value = io.BytesIO()
    schemaless_writer(value, parse_schema(schema), {"id": 7})
    world.cluster.produce("users", [value.getvalue()])
    world.ask(f"CREATE STREAM users WITH (format='avro', schema='{file}')")
    file.unlink()
    assert world.ask("SELECT id FROM users", world.new_session()) == [{"id": 7}]
    world.ask("CREATE STREAM ids AS SELECT id FROM users")
    plan = plan_read(json.loads(world.supervisor.configs["ids"]["plan"]))
    assert json.loads(plan.sources[0].options["schema"]) == schema


# --- standing queries ------------------------------------------------------------------------------------------------


def test_query_is_a_connector_and_its_table_is_declared(world: World) -> None:
    world.ask(TOTALS)
    config = world.supervisor.configs["totals"]
    assert (config["connector.class"], config["topics"], config["topic"]) == ("StandingQuery", "orders", "totals")
    assert config["statement"] == TOTALS
    assert config["consumer.override.auto.offset.reset"] == "earliest"
    assert plan_read(json.loads(config["plan"])).key == ("who",)
    assert world.cluster.partitions("totals") == [0, 1]
    assert world.changes.settings["totals"] == {"cleanup.policy": "compact"}
    columns = world.ask("DESCRIBE totals", world.new_session())[:3]
    assert [(row["column"], row["type"]) for row in columns] == [
        ("who", "VARCHAR"),
        ("n", "BIGINT"),
        ("total", "DOUBLE"),
    ]


def test_table_of_a_query_has_the_last_row_of_each_key(world: World) -> None:
    world.ask(TOTALS)
    rows = [{"who": "a", "n": 1, "total": 0.0}, {"who": "b", "n": 1, "total": 1.0}, {"who": "a", "n": 2, "total": 4.0}]
    world.cluster.produce("totals", rows, keys=["a", "b", "a"])
    assert world.ask("SELECT n, total FROM totals WHERE who = 'a'", world.new_session()) == [{"n": 2, "total": 4.0}]


def test_query_over_what_a_query_makes_knows_its_columns_before_the_first_record(world: World) -> None:
    world.ask("CREATE STREAM big AS SELECT id, upper(who) AS up FROM orders WHERE amount > 10 PARTITION BY id")
    world.ask("CREATE TABLE ups AS SELECT up, latest_by_offset(id) AS last FROM big GROUP BY up")
    plan = plan_read(json.loads(world.supervisor.configs["ups"]["plan"]))
    assert [(each.name, each.type) for each in plan.sources[0].columns][:2] == [("id", "BIGINT"), ("up", "STRING")]


def test_window_s_edges_are_columns_of_the_table(world: World) -> None:
    world.ask("CREATE TABLE w AS SELECT who, count(*) AS n FROM orders WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY who")
    world.ask(
        "CREATE TABLE v AS SELECT who, WINDOWSTART AS at, count(*) AS n FROM orders WINDOW TUMBLING (SIZE 1 HOUR) "
        "GROUP BY who"
    )
    assert [row["column"] for row in world.ask("DESCRIBE w")[:4]] == ["who", "n", "window_start", "window_end"]
    assert [row["column"] for row in world.ask("DESCRIBE v")[:4]] == ["who", "at", "n", "window_end"]


def test_new_queries_begin_where_the_session_says(world: World) -> None:
    world.ask(f"SET 'auto.offset.reset' = 'latest'; {TOTALS}")
    assert world.supervisor.configs["totals"]["consumer.override.auto.offset.reset"] == "latest"
    assert world.supervisor.configs["totals"]["statement"] == TOTALS


def test_query_that_does_not_start_leaves_nothing(world: World) -> None:
    world.supervisor.failures["totals"] = "AnalysisException: no\n at java"
    assert world.refusal(TOTALS) == "the query totals could not be started: AnalysisException: no"
    assert world.supervisor.configs == {}
    assert world.ask("SHOW TABLES", world.new_session()) == []


def test_key_of_the_rows_has_to_be_that_of_what_they_are_written_to(world: World) -> None:
    for name, columns in (
        ("cities", "name VARCHAR PRIMARY KEY, n BIGINT"),
        ("people", "id VARCHAR PRIMARY KEY, c INT"),
    ):
        world.ask(f"CREATE TABLE {name} ({columns}) WITH (topic='{name}', format='json', partitions=1)")
    told = "the key of cities is name, and the key of the query's rows is "
    assert world.refusal("INSERT INTO cities SELECT 'a' AS name, c AS n FROM people") == told + "that of their table"
    world.ask("CREATE STREAM names (name VARCHAR KEY, n INT) WITH (topic='names', format='json', partitions=1)")
    rows = "INSERT INTO names SELECT who AS name, id AS n FROM orders PARTITION BY id"
    assert world.refusal(rows) == told.replace("cities", "names") + "n"
    world.ask("INSERT INTO cities SELECT id AS name, c AS n FROM people")
    world.ask("INSERT INTO cities SELECT 'c' || c AS name, count(*) AS n FROM people GROUP BY 1")
    assert sorted(world.supervisor.configs) == ["insert_cities_1", "insert_cities_2"]
    assert "the rows of a table change" in world.refusal("INSERT INTO orders SELECT id FROM people")


def test_rows_are_inserted_into_what_is_declared_by_its_key(world: World) -> None:
    world.ask("CREATE STREAM names (who VARCHAR KEY, id BIGINT) WITH (topic='names', format='json', partitions=1)")
    world.ask("INSERT INTO names SELECT who, id FROM orders WHERE id > 1")
    world.ask("INSERT INTO names SELECT who, id FROM orders WHERE id < 1")
    assert sorted(world.supervisor.configs) == ["insert_names_1", "insert_names_2"]
    config = world.supervisor.configs["insert_names_1"]
    assert (config["topic"], plan_read(json.loads(config["plan"])).key) == ("names", ("who",))
    assert world.refusal("INSERT INTO names SELECT who AS wo FROM orders") == "names has no column wo; who?"


def test_rows_are_written_as_avro_by_a_schema_that_is_made_of_the_columns(world: World) -> None:
    text = TOTALS.replace("totals AS", "totals WITH (format='avro') AS").replace("sum(amount)", "sum(id)")
    world.ask(text)
    value = plan_read(json.loads(world.supervisor.configs["totals"]["plan"])).value
    assert value.format == "avro"
    schema = json.loads(value.options["schema"])
    assert (schema["name"], [each["name"] for each in schema["fields"]]) == ("totals", ["who", "n", "total"])
    assert [each["type"] for each in schema["fields"]] == [["null", "string"], ["null", "long"], ["null", "long"]]
    written = io.BytesIO()
    schemaless_writer(written, parse_schema(schema), {"who": "a", "n": 2, "total": None})
    world.cluster.produce("totals", [written.getvalue()], keys=["a"])
    assert world.ask("SELECT * FROM totals", world.new_session()) == [{"who": "a", "n": 2, "total": None}]


def test_rows_are_written_as_protobuf_by_a_message_that_is_made_of_the_columns(world: World) -> None:
    world.ask("CREATE STREAM big WITH (value_format='PROTOBUF') AS SELECT id, who FROM orders WHERE amount > 10")
    value = plan_read(json.loads(world.supervisor.configs["big"]["plan"])).value
    assert (value.format, value.options["message"]) == ("protobuf", "big")
    assert [(row["column"], row["type"]) for row in world.ask("DESCRIBE big", world.new_session())[:2]] == [
        ("id", "BIGINT"),
        ("who", "VARCHAR"),
    ]
    # Field 1, 7, and field 2, of one byte.
    world.cluster.produce("big", [b"\x08\x07\x12\x01b"])
    assert world.ask("SELECT id, who FROM big", world.new_session()) == [{"id": 7, "who": "b"}]


def test_rows_have_to_be_what_a_given_schema_names(world: World, tmp_path: Path) -> None:
    file = tmp_path / "user.avsc"
    fields = [{"name": "ID", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": None}]
    file.write_text(json.dumps({"type": "record", "name": "User", "fields": fields}))
    options = f"WITH (format='avro', schema='{file}')"
    world.ask(f"CREATE STREAM a {options} AS SELECT id FROM orders")
    assert [row["column"] for row in world.ask("DESCRIBE a")[:2]] == ["ID", "note"]
    world.ask(f"CREATE STREAM k {options} AS SELECT id, who FROM orders PARTITION BY who")
    text = f"CREATE STREAM b {options} AS SELECT id, 'x' AS noet FROM orders"
    assert world.refusal(text) == "the schema has no field noet; note?"
    told = "the schema has a field ID without a default, and SELECT has none of it"
    assert world.refusal(f"CREATE STREAM b {options} AS SELECT 'x' AS note FROM orders") == told
    world.ask("INSERT INTO a SELECT id, who AS note FROM orders")
    value = plan_read(json.loads(world.supervisor.configs["insert_a_1"]["plan"])).value
    assert json.loads(value.options["schema"])["name"] == "User"
    assert world.refusal("INSERT INTO a SELECT who AS note FROM orders") == told
    world.cluster.produce("headed", [b""])
    world.ask(f"CREATE STREAM headed WITH (format='avro', schema='{file}', registry_header='true')")
    assert "registry_header=ID says which schema's is written" in world.refusal(
        "INSERT INTO headed SELECT id FROM orders"
    )


def test_queries_are_shown_with_what_they_have_not_read(world: World) -> None:
    world.ask(TOTALS)
    shown = {"query": "totals", "state": "RUNNING", "reads": "orders", "writes": "totals", "lag": None, "reason": None}
    assert world.ask("SHOW QUERIES") == [shown]
    world.supervisor.offsets["totals"] = {("orders", 0): 3, ("orders", 1): 1}
    assert world.ask("SHOW QUERIES") == [{**shown, "lag": 2}]


def test_query_says_which_records_it_leaves_out_unless_it_is_to_stop_at_one(world: World) -> None:
    world.ask(TOTALS)
    world.supervisor.remarks["totals"] = "records that do not fit: 1 of orders"
    assert [row["reason"] for row in world.ask("SHOW QUERIES")] == ["records that do not fit: 1 of orders"]
    assert not plan_read(json.loads(world.supervisor.configs["totals"]["plan"])).sources[0].stops
    world.ask("SET misfits = 'stop'; CREATE STREAM strict AS SELECT who FROM orders")
    assert plan_read(json.loads(world.supervisor.configs["strict"]["plan"])).sources[0].stops


def test_query_rests_goes_on_and_is_ended_by_its_name(world: World) -> None:
    world.ask(TOTALS)
    world.ask("PAUSE Totals")
    assert world.ask("SHOW QUERIES")[0]["state"] == "PAUSED"
    world.ask("RESUME ALL")
    assert world.ask("SHOW QUERIES")[0]["state"] == "RUNNING"
    assert world.refusal("TERMINATE total") == "there is no query total; totals?"
    world.ask("TERMINATE totals")
    assert world.supervisor.configs == {}
    assert [row["table"] for row in world.ask("SHOW TABLES")] == ["totals"]


def test_drop_ends_the_query_that_made_it_unless_another_one_needs_it(world: World) -> None:
    world.ask("CREATE STREAM big AS SELECT id, who FROM orders WHERE amount > 10")
    world.ask("CREATE TABLE counts AS SELECT who, count(*) AS n FROM big GROUP BY who")
    assert world.refusal("DROP STREAM big") == "the query counts reads big: TERMINATE counts first"
    assert world.refusal("DROP STREAM counts") == "counts is a table: DROP TABLE counts"
    world.ask("DROP TABLE counts DELETE TOPIC; DROP STREAM big")
    assert world.supervisor.configs == {}
    assert (world.cluster.partitions("counts"), world.cluster.partitions("big")) == (None, [0, 1])


def test_name_is_taken_until_it_is_replaced(world: World) -> None:
    world.ask(TOTALS)
    assert "totals is made by the query totals" in world.refusal(TOTALS)
    assert "totals is made by the query totals" in world.refusal("CREATE STREAM totals WITH (topic='orders')")
    world.ask(TOTALS.replace("TABLE totals", "TABLE IF NOT EXISTS totals"))
    world.ask(TOTALS.replace("CREATE", "CREATE OR REPLACE").replace("sum(", "max("))
    assert "MAX" in world.supervisor.configs["totals"]["plan"]


def test_table_that_is_replaced_loses_the_rows_of_its_former_query(world: World) -> None:
    """They may have keys that the new query never tells; the former one is at rest then."""
    world.ask(TOTALS)
    rows = [{"who": who, "n": 1, "total": 1.0} for who in "abc"]
    world.cluster.produce("totals", [*rows[:2], None], keys=["a", "b", "b"])
    world.cluster.produce("totals", rows[2:], keys=["c"], partition=1)
    world.ask("CREATE OR REPLACE TABLE totals AS SELECT id, count(*) AS n FROM orders GROUP BY id")
    deleted = [records for topic, records in world.changes.written if topic == "totals"]
    assert [sorted(each) for each in deleted] == [[Written(b"a", None), Written(b"c", None)]]
    assert "2 rows of the former query are deleted from totals" in world.remarks
    assert (world.supervisor.paused, world.supervisor.states["totals"]) == (["totals"] * 2, "RUNNING")


def test_row_that_the_new_query_has_told_stays_when_those_of_the_former_one_are_deleted(world: World) -> None:
    world.ask(TOTALS)
    world.cluster.produce("totals", [{"n": 1}, {"n": 1}], keys=["a", "b"])
    world.supervisor.on_start = lambda: world.cluster.produce("totals", [{"n": 2}, None], keys=["a", "c"])
    world.ask(TOTALS.replace("CREATE", "CREATE OR REPLACE"))
    assert [records for topic, records in world.changes.written if topic == "totals"] == [[Written(b"b", None)]]


@pytest.mark.parametrize("is_refused_at_once", [True, False])
def test_table_whose_new_query_does_not_run_has_its_rows_and_its_former_query(
    world: World, is_refused_at_once: bool
) -> None:
    world.ask(TOTALS)
    former = world.supervisor.configs["totals"]
    world.cluster.produce("totals", [{"who": "a", "n": 1, "total": 1.0}], keys=["a"])
    if is_refused_at_once:
        world.supervisor.refusals = ["no more connectors"]
        told = "no more connectors"
    else:
        world.supervisor.failures["totals"] = "AnalysisException: no"
        told = "the query totals could not be started: AnalysisException: no; the former query is started again"
    assert world.refusal("CREATE OR REPLACE TABLE totals AS SELECT id, count(*) AS n FROM orders GROUP BY id") == told
    assert world.supervisor.configs == {"totals": former}
    world.supervisor.failures.clear()
    assert world.ask("SELECT * FROM totals", world.new_session()) == [{"who": "a", "n": 1, "total": 1.0}]


@pytest.mark.parametrize("is_temporary", [True, False])
def test_declaration_that_a_query_would_replace_is_there_again_where_the_query_does_not_run(
    world: World, is_temporary: bool
) -> None:
    world.cluster.produce("big", [{"who": "a"}])
    declared = "(who VARCHAR) WITH (topic='big', format='json')"
    world.ask(f"CREATE {'TEMP ' if is_temporary else ''}STREAM big {declared}")
    world.supervisor.failures["big"] = "AnalysisException: no"
    assert "AnalysisException: no" in world.refusal("CREATE OR REPLACE STREAM big AS SELECT id FROM orders")
    (shown,) = world.ask("SHOW STREAMS")
    assert (shown["stream"], shown["query"]) == ("big", None)
    assert world.ask("SHOW STREAMS", world.new_session()) == ([] if is_temporary else [shown])


def test_stream_whose_new_query_does_not_run_is_not_written_a_second_time(world: World) -> None:
    big = "CREATE STREAM big AS SELECT id FROM orders"
    world.ask(big)
    world.supervisor.failures["big"] = "AnalysisException: no"
    told = world.refusal("CREATE OR REPLACE STREAM big AS SELECT who FROM orders")
    assert told.endswith(f"; the former query is ended, for its stream would have its records twice: {big}")
    assert world.supervisor.configs == {}
    assert [row["column"] for row in world.ask("DESCRIBE big", world.new_session())[:1]] == ["id"]


def test_query_that_does_not_come_to_rest_is_not_replaced(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosted_queries, "PATIENCE_S", 0.0)
    world.ask(TOTALS)
    world.cluster.produce("totals", [{"who": "a"}], keys=["a"])
    config = world.supervisor.configs["totals"]
    world.supervisor.is_restless = True
    told = "the query totals does not come to rest: it is RUNNING after 0 s"
    assert world.refusal(TOTALS.replace("CREATE", "CREATE OR REPLACE").replace("sum(", "max(")) == told
    assert world.refusal("PAUSE totals") == told
    assert world.supervisor.configs == {"totals": config}
    assert [topic for topic, _ in world.changes.written if topic == "totals"] == []


def test_replacement_that_is_interrupted_leaves_the_former_query(world: World) -> None:
    world.ask(TOTALS)
    config = world.supervisor.configs["totals"]
    world.supervisor.is_slow = True
    replaced = TOTALS.replace("CREATE", "CREATE OR REPLACE").replace("count(*) AS n", "count(*) AS m")
    with pytest.raises(Interrupted):
        world.session.run(replaced, lambda: True)
    assert world.supervisor.configs == {"totals": config}
    assert [row["column"] for row in world.ask("DESCRIBE totals", world.new_session())[:2]] == ["who", "n"]


def test_query_that_failed_comes_to_rest(world: World) -> None:
    """Its supervisor may start it again at any time."""
    world.ask(TOTALS)
    world.supervisor.states["totals"] = "FAILED"
    world.ask(TOTALS.replace("CREATE", "CREATE OR REPLACE").replace("sum(", "max("))
    assert world.supervisor.paused == ["totals"]
    assert "MAX" in world.supervisor.configs["totals"]["plan"]


def test_table_that_others_write_is_not_replaced(world: World) -> None:
    world.ask(TOTALS)
    world.cluster.produce("more", ORDERS)
    world.ask("INSERT INTO totals SELECT who, count(*) AS n FROM more GROUP BY who")
    told = "the query insert_totals_1 writes totals, too: TERMINATE insert_totals_1 first"
    assert world.refusal(TOTALS.replace("CREATE", "CREATE OR REPLACE")) == told
    assert world.supervisor.states["totals"] == "RUNNING"


def test_stream_that_is_replaced_keeps_its_records(world: World) -> None:
    world.ask("CREATE STREAM big AS SELECT id FROM orders PARTITION BY id")
    world.cluster.produce("big", [{"id": 1}], keys=["1"])
    world.ask("CREATE OR REPLACE STREAM big AS SELECT id FROM orders WHERE id > 1 PARTITION BY id")
    assert [topic for topic, _ in world.changes.written if topic == "big"] == []


def test_table_in_a_topic_that_has_rows_says_so(world: World) -> None:
    world.cluster.produce("totals", [{"who": "z"}], keys=["z"])
    world.ask(TOTALS)
    assert world.remarks[0] == "the topic totals has records already, and the rows among them stay in the table totals"


def test_explain_shows_what_spark_would_run(world: World) -> None:
    (row,) = world.ask(f"EXPLAIN {TOTALS}")
    assert (row["engine"], row["topic"], row["key"], row["rows"]) == ("spark", "orders", "who", "at each change")
    assert row["sql"].startswith("SELECT who, COUNT(*) AS n")
    assert world.supervisor.configs == {}
    world.ask(TOTALS)
    assert world.ask("EXPLAIN totals") == [
        {"query": "totals", "engine": "spark", "state": "RUNNING", "statement": TOTALS}
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("CREATE STREAM s AS SELECT amuont FROM orders", "there is no column amuont; amount?"),
        ("CREATE STREAM s AS SELECT id FROM ordrs", "there is no topic ordrs; orders?"),
        (
            "CREATE STREAM s WITH (formt='json') AS SELECT id FROM orders",
            "there is no option formt of CREATE STREAM AS",
        ),
        (
            "CREATE STREAM s WITH (kafka_topic='a', topic='b') AS SELECT id FROM orders",
            "topic is given twice, once by the name that ksqlDB has for it",
        ),
        (
            "CREATE STREAM s WITH (format='csv') AS SELECT id FROM orders",
            "a standing query writes json, avro, protobuf, not csv",
        ),
        ("CREATE STREAM s WITH (schema='a.avsc') AS SELECT id FROM orders", "schema is no option of format json"),
        (
            "CREATE STREAM s WITH (format='avro', schema='/no/file.avsc') AS SELECT id FROM orders",
            "s: [Errno 2] No such file",
        ),
        (
            "CREATE STREAM s WITH (format='avro') AS SELECT id AS \"the id\" FROM orders",
            "'the id' is no name of a field",
        ),
        (
            "CREATE STREAM s WITH (format='protobuf') AS SELECT id::DECIMAL(9, 2) AS d FROM orders",
            "d: Protobuf has no type for decimal128(9, 2)",
        ),
        ("CREATE STREAM s AS SELECT no_such(id) AS x FROM orders", "no_such does not exist"),
        (
            "CREATE TABLE t AS SELECT who, sum(id > 1) AS x FROM orders GROUP BY who",
            "sum(id > 1) takes numbers, and id > 1 is BOOLEAN: CAST it to one",
        ),
        (
            "CREATE TABLE t AS SELECT who, mean(id > 1) AS x FROM orders GROUP BY who",
            "mean(id > 1) takes numbers, and id > 1 is BOOLEAN: CAST it to one",
        ),
        (
            "CREATE TABLE t AS SELECT who, avg(_timestamp) AS x FROM orders GROUP BY who",
            "avg(_timestamp) takes numbers, and _timestamp is TIMESTAMP: CAST it to one",
        ),
        (
            "CREATE TABLE t AS SELECT who, sum(Who) FILTER (WHERE id > 1) AS x FROM orders GROUP BY who",
            "takes numbers, and Who is VARCHAR: CAST it to one",
        ),
        (
            "CREATE TABLE t AS SELECT who, max(MAP {'a': id}) AS x FROM orders GROUP BY who",
            "takes what has an order, and MAP {'a': id} is MAP(VARCHAR, BIGINT)",
        ),
        (
            "CREATE TABLE t AS SELECT who, collect_set(MAP {'a': id}) AS x FROM orders GROUP BY who",
            "takes what can be compared, and MAP {'a': id} is MAP(VARCHAR, BIGINT)",
        ),
        (
            "CREATE STREAM s AS SELECT id, NULL AS x FROM orders",
            "x is NULL or has one inside, without a type: CAST(NULL AS VARCHAR) has one",
        ),
        ("CREATE STREAM s AS SELECT id, [] AS x FROM orders", "x is NULL or has one inside, without a type"),
        ("CREATE STREAM s AS SELECT id, {'a': NULL} AS x FROM orders", "x is NULL or has one inside, without a type"),
        ("INSERT INTO others SELECT id, NULL AS x FROM orders", "x is NULL or has one inside, without a type"),
        ("CREATE STREAM s AS SELECT CAST('12:00' AS TIME) AS x FROM orders", "x is TIME, and Spark has no times of a"),
        (
            "CREATE STREAM s AS SELECT list_sum([id]) AS x FROM orders",
            "has no function list_sum, in whose place list_reduce(l, lambda a, b: a + b) may stand",
        ),
        ("CREATE STREAM s AS SELECT jaccard(who, 'a') AS x FROM orders", "Spark, which runs standing queries, has no"),
        (
            "CREATE STREAM s AS SELECT list_extract(who, 1) AS x FROM orders",
            "list_extract(who, 1) takes a list, and who is a text: substr has its characters",
        ),
        (
            "CREATE STREAM s AS SELECT regexp_replace(who, 'a', 'b', 'i') AS x FROM orders",
            "a standing query replaces all matches, and regexp_replace says so by 'gi'",
        ),
        ("CREATE STREAM orders AS SELECT id FROM orders", "the query reads orders, and would write it"),
        ("INSERT INTO orders SELECT id FROM orders", "the query reads orders, and would write it"),
        ("PAUSE a", "there is no query a"),
        ("CREATE TEMP STREAM s AS SELECT id FROM orders", "it is not temporary"),
        ("EXPLAIN CREATE STREAM s (a INT) WITH (topic='orders')", "a declaration runs nothing"),
        ("DROP STREAM o", "o is not declared"),
    ],
)
def test_what_is_wrong_with_a_standing_query_is_said_before_it_runs(world: World, text: str, told: str) -> None:
    world.cluster.produce("others", ORDERS)
    assert told in world.refusal(text)
    assert world.supervisor.configs == {}


@pytest.mark.parametrize(
    ("expression", "spark"),
    [
        ("len(string_split(who, ','))", "SIZE("),
        ("length([id, 1])", "SIZE(ARRAY(id, 1))"),
        ("len(who)", "LENGTH(who)"),
        ("list_extract([id, 1], 1)", "TRY_ELEMENT_AT(ARRAY(id, 1), 1)"),
        ("epoch_ms(_timestamp)", "UNIX_MILLIS(CAST(_timestamp AS TIMESTAMP))"),
        ("epoch_ms(id)", "TIMESTAMP_MILLIS(id)"),
        ("CAST(NULL AS VARCHAR)", "CAST(NULL AS STRING)"),
        ("list_reduce([id, 1], lambda a, b: a + b)", "AGGREGATE(SLICE(ARRAY(id, 1), 2, GREATEST(SIZE(ARRAY(id, 1))"),
        ("list_reduce([id], lambda a, b: a + b, 1)", "AGGREGATE(ARRAY(id), 1, (a, b) -> a + b)"),
    ],
)
def test_function_of_lists_is_that_of_spark_s(world: World, expression: str, spark: str) -> None:
    world.ask(f"CREATE STREAM s AS SELECT {expression} AS x FROM orders PARTITION BY {expression}")
    plan = plan_read(json.loads(world.supervisor.configs["s"]["plan"]))
    assert plan.sql.startswith(f"SELECT {spark}")
    assert plan.key == ("x",)


def test_names_come_out_as_they_are_declared(world: World) -> None:
    """Of a stream, of a table and of a question; a name of SELECT's own stays."""
    world.cluster.produce("people", [{"City": "Bonn"}], keys=["k"])
    world.ask("CREATE TABLE people (City VARCHAR) WITH (topic='people', format='json')")
    world.ask("CREATE STREAM s AS SELECT WHO, ID AS Number FROM orders")
    world.ask("CREATE TABLE t AS SELECT CITY, city AS TOWN FROM people")
    for name, columns in (("s", ["who", "Number"]), ("t", ["City", "TOWN"])):
        assert [row["column"] for row in world.ask(f"DESCRIBE {name}")[:2]] == columns
        sql = plan_read(json.loads(world.supervisor.configs[name]["plan"])).sql
        assert all(each in sql for each in columns)
    assert world.ask("SELECT CITY, city AS TOWN FROM people") == [{"City": "Bonn", "TOWN": "Bonn"}]
    assert list(world.ask("SELECT WHO, ID AS Number FROM orders LIMIT 1")[0]) == ["who", "Number"]


def test_statements_without_a_supervisor_say_so(world: World) -> None:
    world.supervisor.is_away = True
    for text in (TOTALS, "SHOW QUERIES", "PAUSE a", "INSERT INTO orders SELECT * FROM orders"):
        assert world.refusal(text) == "standing queries need a supervisor"
    world.ask("CREATE STREAM o WITH (topic='orders'); DROP STREAM o")
