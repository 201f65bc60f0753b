"""The chapters of the tour behind the first: each runs its queries to the end of the topics, then proves its answer.

Owns where answers go, and that each is the batch's; what is asked is `jobs`', what people see is `tour`'s.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple, Protocol

import pandas as pd
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from examples import feed
from examples.flights import dataset
from examples.flights.failures import RunFailed
from examples.tour import check, jobs, topics
from examples.tour.postgres import Postgres
from examples.tour.topics import AIRPORTS, DEAD_LETTERS, DEPARTURES, ENRICHED, PLANES, WEATHER
from pybroker.pipeline.progress import processed_offsets
from pybroker.pipeline.query_failure import reason_in
from pybroker.pipeline.records import Record
from pybroker.pipeline.streams.jobs import BrokerTopics, keep_state_in_rocksdb, start
from pybroker.pipeline.upserts import Table, upsert_into

MICRO_BATCHES = 4
POLL_SECONDS = 1
OUTAGE_SEEN_WITHIN_S = 60.0

# What a source now and then sends; none of it may stop a job, or get lost.
MALFORMED = (
    b"{not JSON",
    b'{"carrier": "UA", "flight": 1545}',
    b'{"scheduled": "2013-01-01T10:15:00Z", "flight": "x"}',
)

HOURS = Table(
    "hours",
    {
        "origin": "text",
        "hour_start": "timestamptz",
        "flights": "bigint",
        "departed": "bigint",
        "delay_sum_minutes": "bigint",
        "came_late": "bigint",
        "usual_minutes": "double precision",
        "deviations": "double precision",
        "unusual": "boolean",
    },
    ("origin", "hour_start"),
)
BY_WEATHER = Table(
    "by_weather",
    {"origin": "text", "weather": "text", "flights": "bigint", "departed": "bigint", "delay_sum_minutes": "bigint"},
    ("origin", "weather"),
)


class ChapterFailed(RunFailed):
    """A query ended, or its answer is not the batch's."""


class ShowDone(Protocol):
    """Shows how far something is, of the total of its bar, and what is under way."""

    def __call__(self, done: int, doing: str = "") -> None: ...


class Shown(Protocol):
    """Where a chapter shows what it does."""

    def bar(self, what: str, total: int) -> ShowDone:
        """A bar of progress; the function that is returned sets how far it is."""
        ...

    def say(self, line: str) -> None:
        """A line for people."""
        ...


class Stage(NamedTuple):
    """What all chapters stand on."""

    spark: SparkSession
    bootstrap: str
    postgres: Postgres
    work_dir: Path
    months: int
    shown: Shown

    def topics(self, records: int) -> BrokerTopics:
        """The broker's topics, of which a query reads so many records in `MICRO_BATCHES`."""
        return BrokerTopics(self.spark, self.bootstrap, {"maxOffsetsPerTrigger": str(-(-records // MICRO_BATCHES))})

    def table(self, table: Table) -> pd.DataFrame:
        """What the database has."""
        read = self.spark.read.jdbc(self.postgres.jdbc_url, table.name, properties=self.postgres.jdbc_properties)
        found: pd.DataFrame = read.select(*table.columns).toPandas()
        for name, kind in table.columns.items():
            if kind == "timestamptz":
                found[name] = found[name].dt.tz_localize("UTC")
        return found


def fill_topics(bootstrap: str, months: int, shown: Shown) -> dict[str, feed.Produced]:
    """Create and fill the four topics; returns what each has."""
    feed.create_topics(bootstrap, (DEPARTURES, WEATHER, ENRICHED, DEAD_LETTERS), (PLANES, AIRPORTS))
    departures = topics.departures(dataset.rows(months))
    malformed = [Record(b"?", value, departures[0].timestamp_ms) for value in MALFORMED]
    contents: dict[str, tuple[list[Record], Record | None]] = {
        DEPARTURES: ([*malformed, *departures], topics.end_marker("scheduled")),
        WEATHER: (topics.weather(months), topics.end_of_weather()),
        PLANES: (list(topics.planes()), None),
        AIRPORTS: (list(topics.airports()), None),
    }
    counts = {}
    for topic, (records, end) in contents.items():
        set_done = shown.bar(f"Topic {topic}", len(records) + feed.STREAM_PARTITIONS * (end is not None))
        done = _Sum(set_done)
        counts[topic] = feed.produce(bootstrap, topic, records, end=end, on_progress=done.add)
    return counts


def enrich(stage: Stage, counts: Mapping[str, feed.Produced]) -> str:
    """Departures, planes, airports and weather joined into a topic; dead letters into another."""
    read = counts[DEPARTURES].total + counts[WEATHER].total
    queries = start(jobs.enrich, stage.topics(read), stage.work_dir / "enrich", until_done=True)
    _follow(queries, stage.shown.bar("Join the four topics", read))
    letters = BrokerTopics(stage.spark, stage.bootstrap).batch(DEAD_LETTERS).collect()
    if sorted(letter.value for letter in letters) != sorted(MALFORMED):
        raise ChapterFailed(f"{len(letters)} dead letters, {len(MALFORMED)} records could not be read")
    reasons = sorted(_header(letter, "message") for letter in letters)
    return f"{len(letters)} records could not be read, and lie in {DEAD_LETTERS}: {'; '.join(reasons)}."


def keep(stage: Stage, counts: Mapping[str, feed.Produced]) -> str:
    """The topic of enriched flights into Parquet, and its delays by weather into PostgreSQL."""
    flights = counts[DEPARTURES].records - len(MALFORMED)
    enriched = jobs.enriched_flights(stage.topics(flights))
    parquet_dir = stage.work_dir / "flights"
    files = enriched.writeStream.format("parquet").option("path", str(parquet_dir))
    queries = [
        _start(files, stage.work_dir / "keep-checkpoint"),
        _upsert(stage, jobs.by_weather(enriched), BY_WEATHER, "update"),
    ]
    # Records of transactions: the topic has markers besides.
    _follow(queries, stage.shown.bar("Keep them (Parquet, PostgreSQL)", flights), by_rows=True)
    _prove("Parquet", pd.read_parquet(parquet_dir), check.enriched(stage.months), jobs.ENRICHED_COLUMNS)
    _prove("PostgreSQL", stage.table(BY_WEATHER), check.by_weather(stage.months), tuple(BY_WEATHER.columns))
    return f"{flights:,} enriched flights in Parquet, and their delays by weather in PostgreSQL, are the batch's."


def watch(stage: Stage, counts: Mapping[str, feed.Produced], *, with_outage: bool) -> str:
    """Delays by hour into PostgreSQL, with what was unusual; the database is stopped half way, and started again."""
    noticed = Event()

    def told(line: str) -> None:
        noticed.set()
        stage.shown.say(line)

    def outage() -> None:
        stage.shown.say("PostgreSQL is stopped half way.")
        stage.postgres.stop()
        noticed.wait(OUTAGE_SEEN_WITHIN_S)
        stage.postgres.start()

    read = counts[DEPARTURES].total
    query = _upsert(stage, jobs.hours(stage.topics(read)), HOURS, "append", told)
    _follow([query], stage.shown.bar("Watch the hours", read), half_way=outage if with_outage else None)
    found, expected = stage.table(HOURS), check.hours(stage.months)
    _prove("PostgreSQL", found, expected, tuple(HOURS.columns))
    late, unusual = int(found["came_late"].sum()), int(found["unusual"].sum())
    return (
        f"{len(found):,} hours in PostgreSQL are the batch's, once each. {late:,} flights were reported after "
        f"their hour had ended, and count in it; {unusual:,} hours were unusual."
    )


def _upsert(
    stage: Stage, rows: DataFrame, table: Table, mode: str, on_outage: Callable[[str], None] | None = None
) -> StreamingQuery:
    keep_state_in_rocksdb(stage.spark)
    write = upsert_into(
        table, stage.postgres.jdbc_url, stage.postgres.jdbc_properties, on_outage=on_outage or stage.shown.say
    )
    return _start(rows.writeStream.outputMode(mode).foreachBatch(write), stage.work_dir / f"{table.name}-checkpoint")


def _start(writer: Any, checkpoint_dir: Path) -> StreamingQuery:
    started: StreamingQuery = (
        writer.option("checkpointLocation", str(checkpoint_dir)).trigger(availableNow=True).start()
    )
    return started


def _follow(
    queries: list[StreamingQuery],
    show_done: ShowDone,
    *,
    by_rows: bool = False,
    half_way: Callable[[], None] | None = None,
) -> None:
    """Wait for all queries, and show how far the first is; raises `ChapterFailed` by the one line that matters."""
    try:
        for query in queries:
            while not query.awaitTermination(POLL_SECONDS):
                if half_way is not None and query.lastProgress is not None:
                    half_way()
                    half_way = None
                show_done(_done(queries[0], by_rows), _under_way(queries[0]))
        show_done(_done(queries[0], by_rows))
    except StreamingQueryException as error:
        raise ChapterFailed(reason_in(str(error))) from None
    finally:
        for query in queries:
            with suppress(Exception):
                query.stop()


def _under_way(query: StreamingQuery) -> str:
    """Which micro-batch is: the first one takes longest, and nothing else moves until it is done."""
    last = query.lastProgress
    at = 1 if last is None else last.batchId + 2
    return f"batch {at} of {MICRO_BATCHES}" if at <= MICRO_BATCHES else "last batch"


def _done(query: StreamingQuery, by_rows: bool) -> int:
    if by_rows:
        return sum(progress.numInputRows for progress in query.recentProgress)
    last = query.lastProgress
    return 0 if last is None else sum(processed_offsets(last).values())


def _prove(where: str, found: pd.DataFrame, expected: pd.DataFrame, columns: tuple[str, ...]) -> None:
    if (difference := check.difference(found, expected, columns)) is not None:
        raise ChapterFailed(f"what {where} has is not the batch's: {difference}")


def _header(letter: Any, name: str) -> str:
    return next(bytes(header.value).decode() for header in letter.headers if header.key.endswith(f".{name}"))


class _Sum:
    """Adds up what a function is told, for one that wants the sum."""

    def __init__(self, tell: Callable[[int], None]) -> None:
        self._tell = tell
        self._sum = 0

    def add(self, count: int) -> None:
        self._sum += count
        self._tell(self._sum)
