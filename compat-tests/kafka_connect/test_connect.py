"""A cluster of Kafka Connect on three brokers with TLS, logins and ACLs, as ``docs/connect.md`` sets it up.

Its two workers and the brokers are killed while lines of a file and changes of a PostgreSQL are copied, exactly once.
All tests share one Connect cluster; each has connectors of its own, and finds everything alive.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from harness.waiting import PATIENCE_S, wait_until

from examples.tour.postgres import DATABASE, SUPERUSER, Postgres, own_postgres
from kafka_connect.jars import CONNECT_PAGE, JARS_OF_PAGES
from kafka_connect.processes import PageProcess
from kafka_connect.reader import Reader
from kafka_connect.topics import leader_of, records_of
from pybroker.security.client_access import ClientAccess

pytestmark = [pytest.mark.jvm(needs="connect"), pytest.mark.timeout(400)]

SQL_PORT, BROKER_PORTS, WORKER_PORTS = "5432", ("9093", "9094", "9095"), ("8083", "8084")
LINES = (1_000, 5_000, 10_000, 15_000, 20_000)
REQUEST_S = 5.0


class Connect:
    """The page's cluster, read as far as it has workers."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.brokers: list[PageProcess] = reader.processes[: len(BROKER_PORTS)]
        self.workers: list[PageProcess] = reader.processes[len(BROKER_PORTS) :]
        self.addresses = [f"127.0.0.1:{reader.ports[port]}" for port in WORKER_PORTS]
        self.access = ClientAccess(
            ",".join(f"127.0.0.1:{reader.ports[port]}" for port in BROKER_PORTS),
            "SASL_SSL",
            ca=reader.directory / "certificates" / "ca.pem",
            mechanism="SCRAM-SHA-512",
            user="admin",
            password="change-me",
        )

    def path(self, name: str) -> Path:
        return self.reader.directory / name

    def kill_worker_of(self, connector: str) -> PageProcess:
        """Kill the worker that has the connector's task."""
        (task,) = self._status(connector)["tasks"]
        worker = self.workers[self.addresses.index(task["worker_id"])]
        worker.kill()
        return worker

    def wait_until_running(self, connector: str) -> None:
        """Wait until the task runs on a worker that is alive."""

        def runs() -> bool:
            tasks = self._status(connector).get("tasks", [])
            alive = [each for each, worker in zip(self.addresses, self.workers, strict=True) if worker.is_running]
            return [task["state"] for task in tasks if task["worker_id"] in alive] == ["RUNNING"]

        wait_until(runs, f"a task of {connector} that runs")

    def _status(self, connector: str) -> dict[str, Any]:
        """Of a worker that answers; empty where none does now."""
        for address, worker in zip(self.addresses, self.workers, strict=True):
            if not worker.is_running:
                continue
            try:
                with urlopen(f"http://{address}/connectors/{connector}/status", timeout=REQUEST_S) as reply:
                    found: dict[str, Any] = json.load(reply)
                    return found
            except (URLError, TimeoutError):
                continue
        return {}


@pytest.fixture(scope="module")
def connect(tmp_path_factory: pytest.TempPathFactory, postgres: Postgres, commands: Path) -> Iterator[Connect]:
    instead = {**JARS_OF_PAGES, SQL_PORT: str(postgres.port)}
    reader = Reader(CONNECT_PAGE, tmp_path_factory.mktemp("connect"), instead, commands)
    reader.environment |= {
        "PGHOST": "127.0.0.1",
        "PGPORT": str(postgres.port),
        "PGUSER": SUPERUSER,
        "PGDATABASE": DATABASE,
        "PGPASSWORD": postgres.password,
    }
    try:
        reader.read("Brokers", "User and rights of the workers", "Workers")
        yield Connect(reader)
    finally:
        reader.kill()


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with own_postgres({"wal_level": "logical"}) as server:
        yield server


@pytest.fixture(autouse=True)
def everything_runs(connect: Connect) -> None:
    """What an earlier test has killed is started again."""
    killed = [process for process in connect.reader.processes if not process.is_running]
    for process in killed:
        process.start()
    for process in killed:
        process.wait_until_ready()


# --- files -----------------------------------------------------------------------------------------------------------


def append_lines(source: Path, last: int) -> None:
    """Each line is its number, from 1 on."""
    present = len(source.read_text().splitlines())
    with source.open("a") as file:
        file.writelines(f"{number}\n" for number in range(present + 1, last + 1))


def test_lines_of_a_file_arrive_once_though_a_worker_and_a_broker_are_killed(connect: Connect) -> None:
    source, sink = connect.path("source.txt"), connect.path("sink.txt")

    def arrived(count: int) -> None:
        wait_until(lambda: len(set(sink.read_text().splitlines())) >= count, f"{count} lines in the sink")

    connect.reader.read("Files, exactly once")
    append_lines(source, LINES[1])
    arrived(LINES[0] + 1)
    connect.kill_worker_of("file-source")
    append_lines(source, LINES[2])
    connect.brokers[leader_of(connect.access, "lines") - 1].kill()
    append_lines(source, LINES[3])
    arrived(LINES[3])
    append_lines(source, LINES[4])
    arrived(LINES[4])
    sent = source.read_text().splitlines()
    assert [record.value for record in records_of(connect.access, "lines")] == [line.encode() for line in sent]
    assert list(dict.fromkeys(sink.read_text().splitlines())) == sent


# --- Debezium --------------------------------------------------------------------------------------------------------

Rows = dict[str, dict[str, str]]
TABLES = ("customers", "orders")
# By the row's primary key; what is NULL is left out.
ROWS = """
    SELECT coalesce(json_object_agg(id, (
        SELECT json_object_agg(key, value) FROM json_each_text(row_to_json(t)) WHERE value IS NOT NULL
    )), '{}') FROM %s t
"""
# How Debezium calls what psql says that it has done.
OPERATIONS = {"INSERT": "c", "UPDATE": "u", "DELETE": "d"}
DROPPED = "name"


class Shop:
    """The tables, and how many changes of each kind they have had."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        # What the page does.
        self.changes = Counter({"r": 3, "u": 1, "d": 1})

    def run(self, *statements: str) -> str:
        """What psql prints; each statement is a transaction of its own."""
        commands = [f"--command={each}" for each in statements]
        done = subprocess.run(
            ["psql", "-A", "-t", "-v", "ON_ERROR_STOP=1", *commands],
            env={**os.environ, **self._connect.reader.environment},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        for kind, rows in re.findall(r"^(INSERT|UPDATE|DELETE)(?: 0)? (\d+)$", done.stdout, re.MULTILINE):
            self.changes[OPERATIONS[kind]] += int(rows)
        return done.stdout

    def rows(self, table: str) -> Rows:
        """What the table has, as text."""
        found: Rows = json.loads(self.run(ROWS % table))
        return found

    def replayed(self) -> tuple[dict[str, Rows], Counter[str]]:
        """What the tables come to by the events of their topics, and how many there are of each kind."""
        tables: dict[str, Rows] = {}
        kinds: Counter[str] = Counter()
        for name in TABLES:
            rows = tables[name] = {}
            for record in records_of(self._connect.access, f"shop.public.{name}"):
                assert record.key is not None
                key = str(json.loads(record.key)["id"])
                if record.value is None:
                    assert key not in rows, "the deletion stands before its tombstone"
                    continue
                event = json.loads(record.value)
                kinds[event["op"]] += 1
                rows.pop(key, None)
                if event["after"] is not None:
                    # Events of before have the column that the table no longer has.
                    row = {column: str(value) for column, value in event["after"].items() if value is not None}
                    rows[key] = {column: value for column, value in row.items() if column != DROPPED}
        return tables, kinds


def test_topics_of_debezium_replayed_give_the_tables(connect: Connect) -> None:
    connect.reader.read("Changes of PostgreSQL by Debezium")
    shop = Shop(connect)
    shop.run(
        "INSERT INTO customers SELECT id, 'customer ' || id FROM generate_series(3, 500) id",
        "UPDATE customers SET name = upper(name) WHERE id % 5 = 0",
        "DELETE FROM customers WHERE id % 7 = 0",
    )
    killed = connect.kill_worker_of("shop")
    shop.run(
        "ALTER TABLE customers ADD COLUMN city text",
        "INSERT INTO customers SELECT id, 'customer ' || id, 'Lima' FROM generate_series(1001, 1200) id",
        "UPDATE customers SET city = 'Rome' WHERE id % 10 = 1",
        "INSERT INTO orders VALUES (2, 1, 12.30), (3, 2, 0.99)",
        "UPDATE orders SET amount = 1 WHERE id = 3",
    )
    killed.start()
    connect.wait_until_running("shop")
    shop.run(
        f"ALTER TABLE customers DROP COLUMN {DROPPED}",
        "INSERT INTO customers VALUES (2000, 'Oslo')",
        "DELETE FROM customers WHERE id BETWEEN 1191 AND 1200",
    )
    wanted = {name: shop.rows(name) for name in TABLES}
    wait_until(lambda: shop.replayed()[1].total() >= shop.changes.total(), "as many events as changes")
    assert shop.replayed() == (wanted, shop.changes)
