"""Standing queries in a supervisor that is a process with Spark: what they write is what the question answers.

Starts JVMs; needs what `scripts/spark-setup` installs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.child_process import ChildProcess
from harness.waiting import PATIENCE_S, wait_until

from pybroker.connectors.rest.rest_client import ReplyRefused, RestClient
from pybroker.sql.catalog import Column, Format, Relation
from pybroker.sql.spark_plans import spark_plan
from pybroker.sql.standing_plans import topics_of
from pybroker.sql.statements import CreateAs, statements
from pybroker.testing import Broker
from tests.cli.command import CommandLine

pytestmark = [pytest.mark.jvm(needs="spark"), pytest.mark.timeout(1200)]

# A JVM that starts beside others may take minutes on a busy machine.
SPARK_PATIENCE_S = 3 * PATIENCE_S
COLUMNS = (Column("id", "BIGINT", "id"), Column("who", "VARCHAR", "who"), Column("amount", "DOUBLE", "amount"))


class Supervisor:
    """A process, and the way to ask it."""

    def __init__(self, broker: Broker, directory: Path, name: str) -> None:
        self.log = directory / f"{name}.log"
        command = [sys.executable, "-m", "pybroker", "connect", "serve", "--bootstrap", broker.bootstrap]
        command += ["--listen", "127.0.0.1:0", "--data", str(directory / "checkpoints"), "--master", "local[2,4]"]
        self.process = ChildProcess(command, self.log)
        wait_until(self._address, "a supervisor's line")
        self.client = RestClient(self._address())

    def _address(self) -> str:
        assert self.process.exit_code is None, self.process.log_tail()
        _, ready, rest = self.log.read_text().partition("pybroker connect ready on ")
        return rest.partition("\n")[0] if ready and "\n" in rest else ""

    def works(self) -> bool:
        try:
            self.client.ask("GET", "connectors")
        except ReplyRefused:
            return False
        return True

    def runs_since(self, name: str) -> bool:
        """Whether this supervisor, and none before it, has started a query."""
        status = self.client.ask("GET", "connectors", name, "status")
        worker = str(status["connector"]["worker_id"])
        return self.state(name) == "RUNNING" and self._address().endswith(worker)

    def state(self, name: str) -> str:
        """Of the task, or of the connector where it has none."""
        status: dict[str, Any] = self.client.ask("GET", "connectors", name, "status")
        found = (status["tasks"] or [status["connector"]])[0]
        return f"{found['state']} {found.get('trace', '')}".strip()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as made:
        yield made


def query(text: str) -> dict[str, str]:
    """The declaration of a standing query."""
    (found,) = statements(text)
    assert isinstance(found, CreateAs)
    plan = spark_plan(
        found.name, found.kind, found.select, lambda each: Relation(each.name, each.name, Format.JSON, COLUMNS)
    )
    return {
        "connector.class": "StandingQuery",
        "topics": ",".join(topics_of(plan)),
        "topic": found.name,
        "statement": text,
        "plan": json.dumps(plan.document()),
        "poll.interval.ms": "50",
    }


def test_query_outlives_its_supervisors_and_rests_when_it_is_paused(broker: Broker, tmp_path: Path) -> None:
    cli = CommandLine(broker.bootstrap)
    for name in ("orders", "totals"):
        broker.create_topic(name, partitions=2)
    asked = "SELECT who, count(*) AS n, sum(amount) AS total FROM orders GROUP BY who ORDER BY who"
    declared = "CREATE TABLE totals (who VARCHAR, n BIGINT, total DOUBLE) WITH (format='json')"
    table = f"{declared}; SELECT who, n, total FROM totals ORDER BY who"

    def send(first: int) -> None:
        lines = "".join(f'{{"id": {n}, "who": "{"abc"[n % 3]}", "amount": {n}}}\n' for n in range(first, first + 50))
        cli.ok("produce", "orders", stdin=lines.encode())

    def is_as_asked() -> bool:
        return cli.lines("sql", "--json", "-e", table) == cli.lines("sql", "--json", "-e", asked)

    first = Supervisor(broker, tmp_path, "first")
    wait_until(first.works, "the first supervisor works")
    second = Supervisor(broker, tmp_path, "second")
    try:
        send(0)
        config = query("CREATE TABLE totals AS SELECT who, count(*) AS n, sum(amount) AS total FROM orders GROUP BY who")
        first.client.ask("PUT", "connectors", "totals", "config", body=config)
        wait_until(lambda: first.state("totals") == "RUNNING", "the query runs", SPARK_PATIENCE_S)
        wait_until(is_as_asked, "the first rows")
        first.process.kill()
        send(50)
        wait_until(second.works, "the second supervisor works")
        wait_until(lambda: second.runs_since("totals"), "the query runs again", SPARK_PATIENCE_S)
        wait_until(is_as_asked, "the rows go on")
        second.client.ask("PUT", "connectors", "totals", "pause")
        wait_until(lambda: second.state("totals") == "PAUSED", "a paused query")
        send(100)
        assert not is_as_asked()
        second.client.ask("PUT", "connectors", "totals", "resume")
        wait_until(is_as_asked, "the rows of the pause")
        offsets = second.client.ask("GET", "connectors", "totals", "offsets")["offsets"]
        assert {each["partition"]["kafka_topic"] for each in offsets} == {"orders"}
        second.client.ask("DELETE", "connectors", "totals")
        assert second.client.ask("GET", "connectors") == []
    finally:
        first.process.kill()
        assert second.process.terminate(PATIENCE_S) == 0, second.process.log_tail()
