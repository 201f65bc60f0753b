"""Standing queries from `pybroker sql` to a supervisor that is a process with Spark, and back by questions.

Starts JVMs; needs what `scripts/spark-setup` installs.  The tests share the supervisors, which cost seconds to start.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from harness.child_process import ChildProcess
from harness.waiting import PATIENCE_S, wait_until

from pybroker.connectors.rest.rest_client import ReplyRefused, RestClient
from pybroker.testing import Broker
from tests.cli.command import CommandLine
from tests.connectors.supervisor_world import url_of, works

pytestmark = [
    pytest.mark.jvm(needs="spark"),
    pytest.mark.timeout(1200),
]

# A JVM that starts beside others may take minutes on a busy machine.
SPARK_PATIENCE_S = 3 * PATIENCE_S


class Supervisor:
    """A process, and the way to ask it."""

    def __init__(self, broker: Broker, directory: Path, name: str) -> None:
        command = [sys.executable, "-m", "pybroker", "connect", "serve", "--bootstrap", broker.bootstrap]
        command += ["--listen", "127.0.0.1:0", "--data", str(directory / "checkpoints"), "--master", "local[2,4]"]
        self.process = ChildProcess(command, directory / f"{name}.log")
        self.url = url_of(self.process)
        self.client = RestClient(self.url)

    def runs(self, name: str) -> bool:
        """Whether this supervisor, and no other one, has started a query."""
        try:
            status: dict[str, Any] = self.client.ask("GET", "connectors", name, "status")
        except ReplyRefused:
            return False
        tasks = status["tasks"]
        return bool(tasks) and tasks[0]["state"] == "RUNNING" and self.url.endswith(str(tasks[0]["worker_id"]))


class World:
    """A broker, and the supervisors of which one works."""

    def __init__(self, broker: Broker, directory: Path) -> None:
        self.broker, self.directory = broker, directory
        self.cli = CommandLine(broker.bootstrap)
        self.supervisors: list[Supervisor] = []

    def start(self) -> Supervisor:
        self.supervisors.append(Supervisor(self.broker, self.directory, f"supervisor-{len(self.supervisors)}"))
        return self.supervisors[-1]

    def sql(self, text: str) -> list[dict[str, Any]]:
        url = self.supervisors[-1].url
        return [json.loads(line) for line in self.cli.lines("sql", "--json", "--url", url, "-e", text)]

    def send(self, topic: str, first: int) -> None:
        lines = "".join(f'{{"id": {n}, "who": "{"abc"[n % 3]}", "amount": {n}}}\n' for n in range(first, first + 50))
        self.cli.ok("produce", topic, stdin=lines.encode())


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with Broker() as broker:
        made = World(broker, tmp_path_factory.mktemp("standing"))
        wait_until(partial(works, made.start().client), "a supervisor that works")
        yield made
        *others, last = made.supervisors
        for each in others:
            each.process.kill()
        assert last.process.terminate(PATIENCE_S) == 0, last.process.log_tail()


def test_query_outlives_its_supervisor_and_rests_while_it_is_paused(world: World) -> None:
    world.broker.create_topic("orders", partitions=2)
    question = "SELECT who, count(*) AS n, sum(amount) AS total FROM orders GROUP BY who ORDER BY who"

    def is_as_asked() -> bool:
        """Whether the table is what the question over all records answers."""
        return world.sql("SELECT * FROM totals ORDER BY who") == world.sql(question)

    world.send("orders", 0)
    world.sql("CREATE TABLE totals AS SELECT who, count(*) AS n, sum(amount) AS total FROM orders GROUP BY who")
    wait_until(is_as_asked, "the first rows", SPARK_PATIENCE_S)
    killed, following = world.supervisors[-1], world.start()
    killed.process.kill()
    world.send("orders", 50)
    wait_until(lambda: following.runs("totals"), "the query runs again", SPARK_PATIENCE_S)
    wait_until(is_as_asked, "the rows of another supervisor", SPARK_PATIENCE_S)
    world.sql("PAUSE totals")
    assert [(row["query"], row["state"]) for row in world.sql("SHOW QUERIES")] == [("totals", "PAUSED")]
    world.send("orders", 100)
    assert not is_as_asked()
    world.sql("RESUME totals")
    wait_until(is_as_asked, "the rows of the pause", SPARK_PATIENCE_S)
    wait_until(lambda: world.sql("SHOW QUERIES")[0]["lag"] == 0, "nothing that is unread")
    world.sql("DROP TABLE totals DELETE TOPIC")
    assert world.sql("SHOW QUERIES") == []
    assert "totals" not in [row["table"] for row in world.sql("SHOW TABLES")]


def test_first_steps_of_ksqldb_lead_to_the_same_rows(world: World) -> None:
    """Its quick start, as the page on ksqlDB has it."""
    world.sql(
        "CREATE STREAM riderLocations (profileId VARCHAR, latitude DOUBLE, longitude DOUBLE) "
        "WITH (kafka_topic='locations', value_format='json', partitions=1)"
    )
    world.sql(
        "CREATE TABLE currentLocation AS SELECT profileId, LATEST_BY_OFFSET(latitude) AS la, "
        "LATEST_BY_OFFSET(longitude) AS lo FROM riderLocations GROUP BY profileId EMIT CHANGES"
    )
    world.sql(
        "INSERT INTO riderLocations (profileId, latitude, longitude) VALUES ('c2309eec', 37.7877, -122.4205), "
        "('18f4ea86', 37.3903, -122.0643), ('4ab5cbad', 37.3952, -122.0813), ('8b6eae59', 37.3944, -122.0813), "
        "('4a7c7b41', 37.4049, -122.0822), ('4ddad000', 37.7857, -122.4011)"
    )
    world.sql(
        "CREATE TABLE ridersNearMountainView AS SELECT ROUND(GEO_DISTANCE(la, lo, 37.4133, -122.1162), -1) "
        "AS distanceInMiles, COLLECT_LIST(profileId) AS riders, COUNT(*) AS count FROM currentLocation "
        "GROUP BY ROUND(GEO_DISTANCE(la, lo, 37.4133, -122.1162), -1)"
    )
    near = (
        "SELECT distanceInMiles AS distance, len(riders) AS riders, count AS n FROM ridersNearMountainView "
        "ORDER BY distance"
    )
    rows = [{"distance": at, "riders": n, "n": n} for at, n in ((0.0, 3), (10.0, 1), (50.0, 2))]
    wait_until(lambda: world.sql(near) == rows, "all riders", SPARK_PATIENCE_S)
    world.sql(
        "INSERT INTO riderLocations (profileId, latitude, longitude) VALUES ('4ddad000', 37.3952, -122.0813), "
        "('c2309eec', 37.3944, -122.0813)"
    )
    rows = [{"distance": at, "riders": n, "n": n} for at, n in ((0.0, 5), (10.0, 1))]
    wait_until(lambda: world.sql(near) == rows, "riders that have come near", SPARK_PATIENCE_S)
    world.sql(
        "CREATE STREAM near AS SELECT profileId FROM riderLocations WHERE "
        "GEO_DISTANCE(latitude, longitude, 37.4133, -122.1162) <= 5 PARTITION BY profileId"
    )
    world.sql("INSERT INTO near SELECT 'far ' || profileId AS profileId FROM riderLocations WHERE latitude > 37.7")
    wait_until(lambda: len(world.sql("SELECT * FROM near")) == 7, "near and far", SPARK_PATIENCE_S)
    world.sql("TERMINATE ALL")
    assert world.sql("SHOW QUERIES") == []


def test_query_that_spark_refuses_says_why_and_leaves_nothing(world: World) -> None:
    world.broker.create_topic("words")
    world.cli.ok("produce", "words", stdin=b'{"word": "a"}\n')
    world.sql("CREATE STREAM fine AS SELECT word FROM words")
    # Then Spark is there, and the next statement need not wait for it.
    wait_until(lambda: world.supervisors[-1].runs("fine"), "a query that runs", SPARK_PATIENCE_S)
    url = world.supervisors[-1].url
    wrong = "CREATE STREAM wrong AS SELECT word FROM words QUALIFY row_number() OVER (ORDER BY word) = 1"
    done = world.cli.run("sql", "--url", url, "-e", wrong)
    assert done.returncode == 1
    assert "the query wrong could not be started" in done.stderr.decode()
    assert "window" in done.stderr.decode().lower()
    assert [row["query"] for row in world.sql("SHOW QUERIES")] == ["fine"]
    world.sql("DROP STREAM fine")
    assert "wrong" not in [row["stream"] for row in world.sql("SHOW STREAMS")]


def test_table_is_replaced_by_a_query_that_runs_and_by_no_other(world: World) -> None:
    world.broker.create_topic("sales", partitions=2)
    world.send("sales", 0)
    question = "SELECT who, count(*) AS n FROM sales GROUP BY who"
    world.sql(f"CREATE TABLE sold AS {question}")

    def has_rows() -> bool:
        return world.sql("SELECT * FROM sold ORDER BY who") == world.sql(f"{question} ORDER BY who")

    wait_until(has_rows, "the first rows", SPARK_PATIENCE_S)
    url = world.supervisors[-1].url
    wrong = f"CREATE OR REPLACE TABLE sold AS {question} QUALIFY row_number() OVER (ORDER BY who) = 1"
    done = world.cli.run("sql", "--url", url, "-e", wrong)
    assert done.returncode == 1
    assert "the former query is started again" in done.stderr.decode()
    assert has_rows()
    world.send("sales", 50)
    wait_until(has_rows, "rows of the former query", SPARK_PATIENCE_S)
    world.sql("CREATE OR REPLACE TABLE sold AS SELECT id % 2 AS odd, count(*) AS n FROM sales GROUP BY 1")
    rows = [{"_key": "0", "n": 50}, {"_key": "1", "n": 50}]
    wait_until(lambda: world.sql("SELECT _key, n FROM sold ORDER BY _key") == rows, "new rows alone", SPARK_PATIENCE_S)
    world.sql("DROP TABLE sold")


def test_stream_meets_the_rows_of_a_table_and_is_written_as_avro(world: World) -> None:
    for topic in ("deliveries", "towns"):
        world.broker.create_topic(topic, partitions=2)
    world.cli.ok(
        "produce", "towns", "-K", "\t", stdin=b'a\t{"town": "Ulm"}\nb\t{"town": "Bonn"}\nb\t{"town": "Jena"}\n'
    )
    world.send("deliveries", 0)
    world.sql("CREATE TABLE towns (town VARCHAR) WITH (topic='towns', format='json')")
    world.sql(
        "CREATE STREAM delivered WITH (format='avro') AS SELECT d.id, d.who, t.town FROM deliveries d "
        "LEFT JOIN towns t ON d.who = t._key PARTITION BY d.id"
    )
    counts = "SELECT count(*) AS n FROM delivered"
    wait_until(lambda: world.sql(counts) == [{"n": 50}], "the first rows", SPARK_PATIENCE_S)
    world.send("deliveries", 50)
    wait_until(lambda: world.sql(counts) == [{"n": 100}], "all rows", SPARK_PATIENCE_S)
    rows = (
        "SELECT who, town, count(*) AS n, count(DISTINCT id) AS ids FROM delivered WHERE id >= 50 GROUP BY who, town "
        "ORDER BY who"
    )
    assert world.sql(rows) == [
        {"who": "a", "town": "Ulm", "n": 17, "ids": 17},
        {"who": "b", "town": "Jena", "n": 16, "ids": 16},
        {"who": "c", "town": None, "n": 17, "ids": 17},
    ]
    world.sql("DROP STREAM delivered; DROP TABLE towns")


@pytest.mark.slow
def test_aggregation_that_is_killed_ten_times_is_what_the_question_answers(world: World) -> None:
    world.broker.create_topic("events", partitions=2)
    world.send("events", 0)
    world.sql("CREATE TABLE counted AS SELECT who, count(*) AS n, sum(amount) AS total FROM events GROUP BY who")
    question = "SELECT who, count(*) AS n, sum(amount) AS total FROM events GROUP BY who ORDER BY who"
    for number in range(1, 11):
        following = world.start()
        world.send("events", 50 * number)
        # Half of them while a micro-batch may be under way.
        if number % 2:
            wait_until(lambda: world.sql("SELECT count(*) AS n FROM counted")[0]["n"] > 0, "rows", SPARK_PATIENCE_S)
        world.supervisors[-2].process.kill()
        wait_until(partial(following.runs, "counted"), "the query runs again", SPARK_PATIENCE_S)
    rows = "SELECT * FROM counted ORDER BY who"
    wait_until(lambda: world.sql(rows) == world.sql(question), "all rows", SPARK_PATIENCE_S)
    world.sql("DROP TABLE counted")
