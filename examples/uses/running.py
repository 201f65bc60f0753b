"""Runs a use from its recorded data to what comes out: a broker, topics, a session, the job, a look at its topics.

Owns no use.  The topics of a broker that is not its own stay; all else is gone when it ends.
"""

import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeAlias

import typer
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console

from examples.feed import create_topics, produce
from examples.flights.failures import RunFailed
from examples.flights.processes import given_or_own_broker
from pybroker.pipeline.converters.decoding import HEADERS_PREFIX
from pybroker.pipeline.query_failure import reason_in
from pybroker.pipeline.records import Record
from pybroker.pipeline.spark_session import end_session, session, short_lived
from pybroker.pipeline.streams.jobs import BrokerTopics, Job, start
from pybroker.pipeline.streams.tables import latest

LOCAL_MASTER = "local[2,4]"  # a task that fails is tried again

# What the commands of all uses take.
Bootstrap: TypeAlias = Annotated[str | None, typer.Option(help="HOST:PORT; default: a broker of its own.")]
Master: TypeAlias = Annotated[str, typer.Option(help="Spark's master, such as spark://HOST:7077.")]
SHOWN_PER_TOPIC = 5
REASON = f"{HEADERS_PREFIX}message"  # of a dead letter


class Use(NamedTuple):
    """A job, where it reads, and where it writes: streams, and tables (compacted topics)."""

    job: Job
    input_topic: str
    streams: Sequence[str] = ()
    tables: Sequence[str] = ()


def run(
    use: Use,
    records: Iterable[Record],
    bootstrap: str | None,
    console: Console,
    end: Record | None = None,
    *,
    master: str = LOCAL_MASTER,
) -> None:
    """Feed ``records``, then ``end`` to every partition; run the job over them; show what came out."""
    with (
        tempfile.TemporaryDirectory(prefix="pybroker-use-") as directory,
        given_or_own_broker(bootstrap, Path(directory)) as broker,
    ):
        fed = feed(use, broker, records, end)
        console.print(f"{fed:,} records are in {use.input_topic} on {broker}.")
        spark = session(use.input_topic, master=master, settings=short_lived(master))
        try:
            process(use, spark, broker, Path(directory) / "checkpoints")
            show(use, spark, broker, console)
        finally:
            end_session(spark)


def show(use: Use, spark: SparkSession, bootstrap: str, console: Console) -> None:
    """How many records each topic has, and the newest by their timestamps, a line each; of dead letters the reason."""
    for topic, records in outcome(use, spark, bootstrap).items():
        count = records.count()
        console.print(f"\n{topic}: {count:,} {'rows' if topic in use.tables else 'records'}", highlight=False)
        newest = records.orderBy(F.desc("timestamp"), F.desc("offset")).limit(SHOWN_PER_TOPIC)
        for row in reversed(newest.select("key", "value", "headers").collect()):
            key, value, reason = _text(row.key), _text(row.value), _reason(row.headers)
            line = "  ".join(part for part in (key, value, reason and f"({reason})") if part)
            console.print(f"  {line}", markup=False, highlight=False, no_wrap=True, overflow="ellipsis")


def _text(content: bytes | bytearray | None) -> str:
    return "" if content is None else bytes(content).decode(errors="backslashreplace")


def _reason(headers: Sequence[Any] | None) -> str:
    return next((_text(header.value) for header in headers or () if header.key == REASON), "")


def feed(use: Use, bootstrap: str, records: Iterable[Record], end: Record | None = None) -> int:
    """Create the topics of a use and fill its input; returns the number of records, without the ends.

    Raises `FeedFailed`.
    """
    create_topics(bootstrap, (use.input_topic, *use.streams), use.tables)
    return produce(bootstrap, use.input_topic, records, end=end).records


def process(use: Use, spark: SparkSession, bootstrap: str, checkpoints_dir: Path) -> None:
    """Run the job over what its topic holds; raises `RunFailed` with what ended one of its queries."""
    try:
        for query in start(use.job, BrokerTopics(spark, bootstrap), checkpoints_dir, until_done=True):
            query.awaitTermination()
    except StreamingQueryException as error:
        raise RunFailed(reason_in(str(error))) from error


def outcome(use: Use, spark: SparkSession, bootstrap: str) -> Mapping[str, DataFrame]:
    """What a use has written, by topic; of a table the last record of each key that has a value."""
    topics = BrokerTopics(spark, bootstrap)
    streams = {topic: topics.batch(topic) for topic in use.streams}
    return {**streams, **{topic: latest(topics.batch(topic)) for topic in use.tables}}


def written(use: Use, spark: SparkSession, bootstrap: str) -> Mapping[str, list[tuple[str, str]]]:
    """Keys and values by topic, as text in the order of keys and offsets; of a table the last value of each key."""
    found = {}
    for topic, records in outcome(use, spark, bootstrap).items():
        rows = records.orderBy("key", "partition", "offset")
        texts = rows.selectExpr("cast(key as string)", "cast(value as string)").collect()
        found[topic] = [(row.key, row.value) for row in texts]
    return found


def end_after(last: Record, by: timedelta) -> Record:
    """What lets the last windows close: a record without a value, later than ``last`` by more than their lateness."""
    return Record(b"end", None, last.timestamp_ms + int(by / timedelta(milliseconds=1)))


def json_record(key: str, value: object, timestamp_s: float) -> Record:
    """A record with a value of JSON."""
    return Record(key.encode(), json.dumps(value, separators=(",", ":")).encode(), int(timestamp_s * 1000))
