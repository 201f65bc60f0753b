"""The lake from end to end: a table of PostgreSQL, a topic, a standing query, Parquet files, a chart, and the check.

Owns the order of things and what people see of it.  What is typed is pybroker's own commands, which are shown.  All
that a run writes, but its output and the topics of a broker that is not its own, is gone when it ends.
"""

import json
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from time import monotonic, sleep
from typing import NamedTuple

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from examples import feed
from examples.flights.failures import RunFailed
from examples.flights.processes import PYBROKER, given_or_own_broker, own_supervisor
from examples.lake import declared, flights
from examples.lake.answers import Answer, Lake, answer_of_lines, check, total
from examples.lake.chart import draw
from examples.lake.declared import DECLARATIONS, DELAYS, FLIGHTS, QUESTION, STANDING, STREAM
from examples.tour.postgres import SUPERUSER, Postgres, own_postgres
from pybroker.connectors.rest.rest_client import ReplyRefused, RestClient

MASTER = "local[2,4]"  # a task that fails is tried again
LAKE, CHART = "flights", "delays.png"
# `FileSink` keeps its log there: a folder that has it is a lake.
LAKE_MARK = "_pybroker"
COMMAND_WITHIN_S = 180.0
# For how long nothing may arrive anywhere: Spark starts meanwhile.
ARRIVES_WITHIN_S = 300.0
# Each look starts a command, which Spark's start is to have processors beside.
LOOK_S = 1.0
ARRIVE = ("in the topic", "in the standing table", "in the lake")


class LakeOptions(NamedTuple):
    """What a run does; without a ``bootstrap`` it starts a broker of its own."""

    bootstrap: str | None = None
    days: int = 7
    output_dir: Path = Path("lake-output")
    master: str = MASTER


class LakeFailed(RunFailed):
    """A command was refused, or flights did not arrive."""


def run(options: LakeOptions, console: Console) -> None:
    """Run the demo; raises `AnswersDiffer`, `LakeFailed`, and what stopped a process of it."""
    began = monotonic()
    rows = flights.rows(options.days)
    with tempfile.TemporaryDirectory(prefix="pybroker-lake-") as directory:
        work_dir = Path(directory)
        with given_or_own_broker(options.bootstrap, work_dir) as bootstrap, own_postgres() as postgres:
            console.rule("1. A broker, and a table in PostgreSQL")
            parts = _Run(bootstrap, postgres, work_dir, rows, console)
            parts.fill_the_first_half()
            console.rule("2. Connectors and a standing query are declared")
            worker, connectors = parts.write_files()
            serve = ["--bootstrap", bootstrap, "--worker", str(worker), "--master", options.master]
            with own_supervisor(serve, work_dir) as url:
                parts.declare(url, connectors)
                console.rule("3. The table grows, and all of it follows")
                parts.fill_the_rest()
                parts.wait_until_all_arrived(url)
            console.rule("4. One question, four answers")
            answers = parts.answers()
        console.print(compared(answers))
        check(answers)
        console.print(f"All four are the same in each of {len(answers['the lake'])} rows.", markup=False)
        console.rule("5. A chart of the lake")
        _leave(parts.lake, work_dir, options.output_dir, console)
    console.print(f"The demo took {monotonic() - began:.0f} s.")


class _Run:
    """The parts of one run."""

    def __init__(
        self, bootstrap: str, postgres: Postgres, work_dir: Path, rows: list[flights.Cells], console: Console
    ) -> None:
        self._bootstrap, self._postgres, self._work_dir = bootstrap, postgres, work_dir
        self._rows, self._half, self._console = rows, len(rows) // 2, console
        self._lake_dir = work_dir / LAKE
        self.lake = Lake(self._lake_dir)

    def fill_the_first_half(self) -> None:
        """The topic, and a table with half of the flights."""
        feed.create_topics(self._bootstrap, [FLIGHTS], [])
        self._say(f"The broker is at {self._bootstrap}, and has an empty topic {FLIGHTS}.")
        self._postgres.sql(flights.CREATE)
        self._postgres.sql(flights.COPY, flights.as_csv(self._rows[: self._half]))
        self._say(f"PostgreSQL has a table with {self._half:,} of {len(self._rows):,} flights that left New York.")

    def fill_the_rest(self) -> None:
        """The other half of the flights."""
        self._postgres.sql(flights.COPY, flights.as_csv(self._rows[self._half :]))
        self._say(f"The other {len(self._rows) - self._half:,} flights are inserted into PostgreSQL.")

    def write_files(self) -> tuple[Path, Path]:
        """See `declared.write_files`."""
        postgres = self._postgres
        return declared.write_files(self._work_dir, postgres.jdbc_url, SUPERUSER, postgres.password, self._lake_dir)

    def declare(self, url: str, connectors: Path) -> None:
        """Have the supervisor run all of it."""
        self._say(f"A supervisor of connectors answers at {url}.  It starts Spark with the first connector.")
        self._say("JdbcSource brings rows of the table to the topic, and FileSink writes its records as Parquet:")
        self._shown("connect", "create", str(connectors), "--url", url)
        self._say("A standing query counts flights and adds up delays, from now on:")
        self._shown("sql", *self._sql_options(), "--url", url, "-e", f"{STREAM};\n{STANDING}")

    def wait_until_all_arrived(self, url: str) -> None:
        """Return when the topic, the standing table and the lake have all flights; raises `LakeFailed`."""
        wanted, client = len(self._rows), RestClient(url)
        columns = (TextColumn("{task.description:<24}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self._console) as progress:
            bars = [progress.add_task(where, total=wanted) for where in ARRIVE]
            found: tuple[int, ...] = ()
            deadline = monotonic() + ARRIVES_WITHIN_S
            while min(found, default=0) < wanted:
                before, found = found, self._arrived()
                for bar, count in zip(bars, found, strict=True):
                    progress.update(bar, completed=min(count, wanted))
                if found != before:
                    deadline = monotonic() + ARRIVES_WITHIN_S
                elif reasons := _reasons(client):
                    raise LakeFailed(reasons)
                elif monotonic() > deadline:
                    raise LakeFailed(f"of {wanted} flights too few arrived {', '.join(ARRIVE)}: {found}")
                sleep(LOOK_S)

    def answers(self) -> dict[str, Answer]:
        """Of all four, by their names."""
        asked = QUESTION.format(flights=FLIGHTS)
        self._say(asked)
        options = ("--json", *self._sql_options())
        in_postgres = self._postgres.sql(f"SELECT row_to_json(answer) FROM ({asked}) AS answer")
        return {
            "PostgreSQL": answer_of_lines(in_postgres),
            "the topic": answer_of_lines(self._command("sql", *options, "-e", asked).stdout.splitlines()),
            "the standing table": answer_of_lines(
                self._command("sql", *options, "-e", f"SELECT * FROM {DELAYS}").stdout.splitlines()
            ),
            "the lake": self.lake.answer(),
        }

    def _arrived(self) -> tuple[int, ...]:
        """How many flights there are in each of `ARRIVE`."""
        asked = f"SELECT count(*) AS n FROM {FLIGHTS}; SELECT coalesce(sum(flights), 0) AS n FROM {DELAYS}"
        lines = self._command("sql", "--json", *self._sql_options(), "-e", asked).stdout.splitlines()
        return (*(int(json.loads(line)["n"]) for line in lines), self.lake.rows())

    def _sql_options(self) -> tuple[str, ...]:
        return ("--bootstrap", self._bootstrap, "--declarations", DECLARATIONS)

    def _shown(self, *arguments: str) -> None:
        """Run a command that people see, with what it says on standard error."""
        self._say(f"$ pybroker {shlex.join(arguments)}")
        for line in self._command(*arguments).stderr.splitlines():
            self._say(f"  {line}")

    def _command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
        command = [PYBROKER, *arguments]
        try:
            done = subprocess.run(
                command, stdin=nothing, stdout=pipe, stderr=pipe, text=True, timeout=COMMAND_WITHIN_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise LakeFailed(f"pybroker {arguments[0]} did not end within {COMMAND_WITHIN_S:.0f} s") from None
        if done.returncode != 0:
            raise LakeFailed(f"pybroker {arguments[0]} ended with {done.returncode}: {done.stderr.strip()}")
        return done

    def _say(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


def _reasons(client: RestClient) -> str:
    """Why connectors failed; nothing where all run.  Raises `LakeFailed` for a supervisor that does not answer."""
    try:
        found = client.ask("GET", "connectors", expand="status")
    except ReplyRefused as error:
        raise LakeFailed(f"the supervisor: {error}") from None
    failed = {
        name: str(task.get("trace") or "its log says why").splitlines()[0]
        for name, each in found.items()
        for task in each["status"]["tasks"]
        if task["state"] == "FAILED"
    }
    return "; ".join(f"{name} failed: {reason}" for name, reason in failed.items())


def compared(answers: Mapping[str, Answer]) -> Table:
    """What each of them says of all rows together."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in ("Asked", "Rows", "Flights", "Departed", "Mean delay"):
        table.add_column(name, justify="left" if name == "Asked" else "right", no_wrap=True)
    for name, answer in answers.items():
        whole = total(answer)
        mean = f"{(whole.delay_minutes or 0) / whole.departed:z.2f} min" if whole.departed else ""
        table.add_row(name, f"{len(answer)}", f"{whole.flights:,}", f"{whole.departed:,}", mean)
    return table


def _leave(lake: Lake, work_dir: Path, output_dir: Path, console: Console) -> None:
    """Leave the chart and the lake, in place of those of an earlier run."""
    output_dir.mkdir(parents=True, exist_ok=True)
    files = len(lake.files())
    draw(lake.answer(), lake.days(), output_dir / CHART)
    target = output_dir / LAKE
    if (target / LAKE_MARK).exists():
        shutil.rmtree(target)
    shutil.move(work_dir / LAKE, target)
    told = f"See {output_dir / CHART}; the lake is {target}, with {files} Parquet files in folders by day."
    console.print(told, markup=False, soft_wrap=True)
