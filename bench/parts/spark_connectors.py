"""A supervisor's connectors: rows of files into a table of PostgreSQL, and the memory of five that run at once.

Broker, supervisor and PostgreSQL share the machine.  The rate is that of all rows from when their files appear until
the table has them, once a smaller load has run; each row has to be there once.  The memory is the supervisor's, with
all processes that it started, at its highest while three connectors and two standing queries have work.  The processor
time of a row is that of broker, supervisor and PostgreSQL together.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from harness.child_process import ChildProcess
from harness.waiting import wait_until

from bench.contestants import PYBROKER
from bench.context import Context, settle
from bench.parts.spark_sql import COMMAND
from bench.process_stats import cpu_seconds, proportional_mb
from bench.wire import Client
from examples.tour.postgres import DATABASE, SUPERUSER, Postgres, own_postgres, program
from pybroker.connectors.rest.rest_client import ReplyRefused, RestClient

ROWS = 400_000
ROWS_PER_FILE = 20_000
# A micro-batch of the source is then what the sink takes at a time, and both work at once.
FILES_PER_BATCH = 5
PARTITIONS = 2
COMES_WITHIN_S = 240.0

TOPIC, TABLE = "bench_rows", "bench_rows"
SCHEMA = "id bigint, customer string, cents bigint, ordered date"
PROVIDERS = (
    "config.providers=file\nconfig.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider\n"
)
QUERIES = (
    f"CREATE STREAM bench_dear AS SELECT id, customer, cents FROM {TOPIC} WHERE cents > 900 PARTITION BY id",
    f"CREATE TABLE bench_totals AS SELECT customer, count(*) AS n, sum(cents) AS cents FROM {TOPIC} GROUP BY customer",
)
_PAUSE_S = 0.2


def run(context: Context) -> None:
    """The rate in every round, in one supervisor; then its memory."""
    with (
        context.running_one(PYBROKER) as broker,
        own_postgres() as postgres,
        supervising(context.root / "connect", broker.bootstrap, postgres) as supervisor,
    ):
        with Client(broker.bootstrap) as client:
            client.create_topic(TOPIC, PARTITIONS)
        supervisor.put("rows-of-files", supervisor.source())
        supervisor.put("rows-to-table", supervisor.sink())
        supervisor.seconds_of(ROWS // 2)
        for _ in range(context.fewer_rounds):
            settle()
            pids = (broker.pid, supervisor.process.pid, *(each.pid for each in psutil.Process().children()))
            before_s = whole_cpu_seconds(pids)
            to_topic_s, to_table_s = supervisor.seconds_of(ROWS)
            cpu_s = whole_cpu_seconds(pids) - before_s
            context.add("files to table CPU", "µs/row", PYBROKER, 1e6 * cpu_s / ROWS)
            context.add("files to topic", "rows/s", PYBROKER, ROWS / to_topic_s)
            context.add("files to table", "rows/s", PYBROKER, ROWS / to_table_s)
        measure_memory(context, supervisor, broker.bootstrap)


def whole_cpu_seconds(pids: Iterable[int]) -> float:
    """The processor time of processes and all that they have started, each once."""
    tree = {each for pid in pids for each in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True))}
    found = 0.0
    for each in tree:
        with suppress(psutil.NoSuchProcess):
            found += cpu_seconds(each.pid)
    return found


def measure_memory(context: Context, supervisor: Supervising, bootstrap: str) -> None:
    """The highest while all have work, and what is left of it at rest."""
    supervisor.put("rows-to-lines", supervisor.lines())
    command = [str(COMMAND), "sql", "--url", supervisor.url, *(word for each in QUERIES for word in ("-e", each))]
    environment = {**os.environ, "PYBROKER_BOOTSTRAP": bootstrap}
    subprocess.run(command, env=environment, check=True, timeout=COMES_WITHIN_S, capture_output=True)
    names = ("rows-to-lines", "bench_dear", "bench_totals")
    wait_until(lambda: all(map(supervisor.is_running, names)), "all five", COMES_WITHIN_S)
    supervisor.seconds_of(ROWS, watched=True)
    with Client(bootstrap) as client:
        end = sum(client.end_offsets(TOPIC, range(PARTITIONS)).values())
    wait_until(lambda: supervisor.has_read_to(end), "all records processed by all", COMES_WITHIN_S)
    context.add("five at work PSS", "MB", PYBROKER, supervisor.highest_pss_mb)
    context.add("five at work RSS", "MB", PYBROKER, supervisor.highest_rss_mb)
    for name in (*names, "rows-of-files", "rows-to-table"):
        if not supervisor.is_running(name):
            raise RuntimeError(f"{name} does not run any more")


@dataclass(slots=True)
class Supervising:
    """A supervisor's process, and what has come of its connectors."""

    process: ChildProcess
    url: str
    bootstrap: str
    directory: Path
    postgres: Postgres
    client: RestClient
    rows: int = 0
    files: int = 0
    highest_pss_mb: float = 0.0
    highest_rss_mb: float = 0.0
    environment: dict[str, str] = field(default_factory=dict)

    def put(self, name: str, config: dict[str, str]) -> None:
        """Declare a connector."""
        self.client.ask("PUT", "connectors", name, "config", body=config)

    def is_running(self, name: str) -> bool:
        """Whether a connector's task runs; raises ``RuntimeError`` with the reason where it failed."""
        tasks = self.client.ask("GET", "connectors", name, "status")["tasks"]
        for task in tasks:
            if task["state"] == "FAILED":
                raise RuntimeError(f"{name}: {task['trace']}")
        return bool(tasks) and all(task["state"] == "RUNNING" for task in tasks)

    def has_read_to(self, end: int) -> bool:
        """Whether the sink of lines and the queries are at this sum of the partitions' ends; RuntimeError as above."""
        for name in ("rows-to-lines", "bench_dear", "bench_totals"):
            if not self.is_running(name):
                return False
            offsets = self.client.ask("GET", "connectors", name, "offsets")["offsets"]
            if sum(each["offset"]["kafka_offset"] for each in offsets) < end:
                return False
        return True

    def source(self) -> dict[str, str]:
        """Files to the topic."""
        return {
            "connector.class": "FileSource",
            "path": str(self.directory / "in"),
            "format": "csv",
            "schema": SCHEMA,
            "topic": TOPIC,
            "key.fields": "id",
            "max.files.per.batch": str(FILES_PER_BATCH),
            "poll.interval.ms": "100",
        }

    def sink(self) -> dict[str, str]:
        """The topic to the table."""
        return {
            "connector.class": "JdbcSink",
            "topics": TOPIC,
            "table.name.format": TABLE,
            "value.converter.schema": SCHEMA,
            "connection.url": self.postgres.jdbc_url,
            "connection.user": SUPERUSER,
            "connection.password": f"${{file:{self.directory / 'secret.properties'}:password}}",
            "auto.create": "true",
            "poll.interval.ms": "100",
        }

    def lines(self) -> dict[str, str]:
        """The topic to other files."""
        return {
            "connector.class": "FileSink",
            "topics": TOPIC,
            "path": str(self.directory / "out"),
            "format": "json",
            "value.converter.schema": SCHEMA,
            "poll.interval.ms": "100",
        }

    def seconds_of(self, rows: int, *, watched: bool = False) -> tuple[float, float]:
        """Seconds from when the files of so many new rows appear until the topic has them, and the table, empty before.

        Raises ``TimeoutError``.  ``watched``: how much memory there is meanwhile is looked at, which takes its time.
        """
        assert rows % ROWS_PER_FILE == 0, "files are whole"
        self.sql(f"TRUNCATE {TABLE}")
        made = [self._file(number) for number in range(self.rows, self.rows + rows, ROWS_PER_FILE)]
        self.rows += rows
        behind, to_topic_s = self._end() + rows, 0.0
        started_s = time.perf_counter()
        for path in made:
            path.rename(self.directory / "in" / path.name)
        while (come := self._count()) < rows:
            if time.perf_counter() - started_s > COMES_WITHIN_S:
                raise TimeoutError(f"{come} of {rows} rows have come; {self.process.log_tail()}")
            if not to_topic_s and self._end() >= behind:
                to_topic_s = time.perf_counter() - started_s
            if watched:
                self._look_at_memory()
            time.sleep(_PAUSE_S)
        seconds = time.perf_counter() - started_s
        if self.sql(f"SELECT count(*), count(DISTINCT id) FROM {TABLE}") != f"{rows}|{rows}":
            raise RuntimeError("a row is in the table more than once")
        return to_topic_s or seconds, seconds

    def _end(self) -> int:
        """The sum of the ends of the topic's partitions, which count the ends of transactions, too."""
        with Client(self.bootstrap) as client:
            return sum(client.end_offsets(TOPIC, range(PARTITIONS)).values())

    def sql(self, query: str) -> str:
        """What psql says of it."""
        command = [str(program("psql")), "-At", "-c", query]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=60, check=False)
        return done.stdout.strip()

    def _count(self) -> int:
        return int(self.sql(f"SELECT count(*) FROM {TABLE}") or 0)

    def _file(self, first: int) -> Path:
        path = self.directory / f"{first}.csv"
        rows = range(first, first + ROWS_PER_FILE)
        path.write_text(
            "".join(f"{n},customer-{n % 1_000},{n % 997},2026-01-{1 + n % 28:02}\n" for n in rows), encoding="utf-8"
        )
        return path

    def _look_at_memory(self) -> None:
        pss = rss = 0.0
        root = psutil.Process(self.process.pid)
        for each in (root, *root.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                pss += proportional_mb(each.pid)
                rss += each.memory_info().rss / 2**20
        self.highest_pss_mb = max(self.highest_pss_mb, pss)
        self.highest_rss_mb = max(self.highest_rss_mb, rss)


@contextmanager
def supervising(directory: Path, bootstrap: str, postgres: Postgres) -> Iterator[Supervising]:
    """A supervisor with Spark on two cores, which ends with the block."""
    for path in (directory, directory / "in"):
        path.mkdir()
    (directory / "worker.properties").write_text(PROVIDERS)
    (directory / "secret.properties").write_text(f"password={postgres.password}\n")
    command = [str(COMMAND), "connect", "serve", "--worker", str(directory / "worker.properties")]
    command += ["--bootstrap", bootstrap, "--listen", "127.0.0.1:0", "--data", str(directory / "checkpoints")]
    log = directory / "supervisor.log"
    process = ChildProcess([*command, "--master", "local[2,4]"], log)
    try:

        def address() -> str:
            if process.exit_code is not None:
                raise RuntimeError(process.log_tail())
            _, _, rest = log.read_text().partition("pybroker connect ready on ")
            return rest.partition("\n")[0] if "\n" in rest else ""

        wait_until(address, "the supervisor's line", COMES_WITHIN_S)
        client = RestClient(address())

        def works() -> bool:
            with suppress(ReplyRefused):
                client.ask("GET", "connectors")
                return True
            return False

        wait_until(works, "a supervisor that works", COMES_WITHIN_S)
        made = Supervising(process, address(), bootstrap, directory, postgres, client)
        made.environment = {**os.environ, "PGHOST": "127.0.0.1", "PGPORT": str(postgres.port), "PGUSER": SUPERUSER}
        made.environment |= {"PGDATABASE": DATABASE, "PGPASSWORD": postgres.password}
        yield made
    finally:
        process.terminate(60)
