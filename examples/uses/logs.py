"""Logs: this machine's package log, counted by day, and turned into the table of what is installed.

`python -m examples.uses.logs` reads /var/log/dpkg.log, which Debian's and Ubuntu's machines have; `--file`
names another one.  Three topics come out: how often each action was taken on a day (once it is over), a compacted topic
that has each installed package's version (a removed one gets a tombstone), and the lines that are no lines of such a
log.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from rich.console import Console

from examples.flights.entry import command_of
from examples.uses.running import LOCAL_MASTER, Bootstrap, Master, Use, end_after, run
from pybroker.pipeline.converters.decoding import ERROR_SUFFIX, dead_letters, decode, readable
from pybroker.pipeline.records import Record
from pybroker.pipeline.streams.jobs import Outputs, Topics

LINES, BY_DAY, INSTALLED, DEAD_LETTERS = "log-lines", "actions-by-day", "installed-packages", "log-dead-letters"

LOG = Path("/var/log/dpkg.log")
TIME_FORMAT = "%Y-%m-%d %H:%M:%S"
# Time, action, and what it is about, which differs by action.
LINE = r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) ([a-z]+) (\S+) ?(\S*) ?(\S*)$"
ALLOWED_LATENESS = "1 day"
END_AFTER = timedelta(days=3)


def lines(texts: Iterable[str]) -> Iterator[Record]:
    """Lines as records, keyed by their package; a line without a time has that of the line before it."""
    timestamp_ms = 0
    for text in texts:
        cells = text.split()
        # The log's times are those of the machine's clock.
        with suppress(ValueError):
            timestamp_ms = int(datetime.strptime(text[:19], TIME_FORMAT).astimezone().timestamp() * 1000)
        package = cells[4] if len(cells) > 4 and cells[2] == "status" else cells[3] if len(cells) > 3 else ""
        yield Record(package.encode(), text.rstrip("\n").encode(errors="surrogateescape"), timestamp_ms)


def dpkg_line(frame: DataFrame, name: str) -> DataFrame:
    """A decoder: the line's action and its words, of which `status` has state, package, version."""
    text = F.col(name).cast("string")
    words = [F.regexp_extract(text, LINE, group) for group in range(2, 6)]
    value = F.struct(
        *(word.alias(field) for word, field in zip(words, ("action", "first", "second", "third"), strict=True))
    )
    error = F.when(text.isNotNull() & ~text.rlike(LINE), F.lit("is no line of dpkg's log"))
    return frame.withColumns({f"{name}{ERROR_SUFFIX}": error, name: value})


def digest(topics: Topics) -> Outputs:
    """Counts by day, the table of installed packages, and the dead letters."""
    decoded = decode(topics.stream(LINES), dpkg_line)
    return {
        BY_DAY: _by_day(readable(decoded)),
        INSTALLED: _installed(readable(decoded)),
        DEAD_LETTERS: dead_letters(decoded),
    }


def _by_day(found: DataFrame) -> DataFrame:
    day = F.window("timestamp", "1 day").alias("day")
    counted = (
        found.withWatermark("timestamp", ALLOWED_LATENESS).groupBy(day, F.col("value.action").alias("action")).count()
    )
    key = F.concat_ws(" ", F.date_format("day.start", "yyyy-MM-dd"), "action")
    at = F.col("day.start").alias("timestamp")
    return counted.select(key.alias("key"), F.col("count").cast("string").alias("value"), at)


def _installed(found: DataFrame) -> DataFrame:
    """No shuffle: the lines of a package stay in the order of the log, which its table needs."""
    statuses = found.where("value.action = 'status' and value.first in ('installed', 'not-installed')")
    version: Column = F.when(F.col("value.first") == "installed", F.col("value.third"))
    return statuses.select(F.col("value.second").alias("key"), version.alias("value"), "timestamp")


USE = Use(digest, LINES, streams=(BY_DAY, DEAD_LETTERS), tables=(INSTALLED,))


def main(
    file: Annotated[Path, typer.Option(help="A log of dpkg's.")] = LOG,
    bootstrap: Bootstrap = None,
    master: Master = LOCAL_MASTER,
) -> None:
    """Count a package log by day, and say what is installed."""
    if not file.exists():
        raise typer.BadParameter(f"{file} is not there; --file names another log")
    with file.open(encoding="utf-8", errors="surrogateescape") as texts:
        records = list(lines(texts))
    run(USE, records, bootstrap, Console(), end_after(records[-1], END_AFTER), master=master)


if __name__ == "__main__":
    command_of(main, "job")()
