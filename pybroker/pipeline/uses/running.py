"""Runs a use from its recorded data to what comes out: a broker, topics, a session, the job, a look at its topics.

Owns no use.  The topics of a broker that is not its own stay; all else is gone when it ends.
"""

import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated, NamedTuple, TypeAlias

import typer
from pyspark.sql import SparkSession
from rich.console import Console

from pybroker.pipeline.feed import FeedFailed, create_topics, produce
from pybroker.pipeline.flights.processes import given_or_own_broker
from pybroker.pipeline.records import Record
from pybroker.pipeline.spark_session import end_session, session, short_lived
from pybroker.pipeline.streams.jobs import BrokerTopics, Job, start
from pybroker.pipeline.streams.tables import latest

LOCAL_MASTER = "local[2,4]"  # a task that fails is tried again

# What the commands of all uses take.
Bootstrap: TypeAlias = Annotated[str | None, typer.Option(help="HOST:PORT; default: a broker of its own.")]
Master: TypeAlias = Annotated[str, typer.Option(help="Spark's master, such as spark://HOST:7077.")]
SHOWN_PER_TOPIC = 5


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
    """Feed ``records``, then ``end`` to every partition; run the job over them; show what came out.

    Ends the command by a line where the topics are there already, or a broker does not take the records.
    """
    with (
        tempfile.TemporaryDirectory(prefix="pybroker-use-") as directory,
        given_or_own_broker(bootstrap, Path(directory)) as broker,
    ):
        try:
            fed = feed(use, broker, records, end)
        except FeedFailed as error:
            console.print(f"Nothing is fed: {error}", style="red", markup=False)
            raise typer.Exit(1) from error
        console.print(f"{fed:,} records are in {use.input_topic} on {broker}.")
        spark = session(use.input_topic, master=master, settings=short_lived(master), connector=False)
        try:
            process(use, spark, broker, Path(directory) / "checkpoints")
            for topic, told in written(use, spark, broker).items():
                console.print(f"\n{topic}: {len(told):,} records" + (", the last:" if told else ""))
                for key, value in told[-SHOWN_PER_TOPIC:]:
                    console.print(f"  {key}  {value}", markup=False, highlight=False)
        finally:
            end_session(spark)


def feed(use: Use, bootstrap: str, records: Iterable[Record], end: Record | None = None) -> int:
    """Create the topics of a use and fill its input; returns the number of records.  Raises `FeedFailed`."""
    create_topics(bootstrap, (use.input_topic, *use.streams), use.tables)
    return produce(bootstrap, use.input_topic, records, end=end)


def process(use: Use, spark: SparkSession, bootstrap: str, checkpoints_dir: Path) -> None:
    """Run the job over what its topic holds; raises what ends one of its queries."""
    for query in start(use.job, BrokerTopics(spark, bootstrap), checkpoints_dir, until_done=True):
        query.awaitTermination()


def written(use: Use, spark: SparkSession, bootstrap: str) -> Mapping[str, list[tuple[str, str]]]:
    """Keys and values by topic, as text in the order of keys and offsets; of a table the last value of each key."""
    topics = BrokerTopics(spark, bootstrap)
    found = {}
    for topic in (*use.streams, *use.tables):
        records = topics.batch(topic)
        rows = (latest(records) if topic in use.tables else records).orderBy("key", "partition", "offset")
        texts = rows.selectExpr("cast(key as string)", "cast(value as string)").collect()
        found[topic] = [(row.key, row.value) for row in texts]
    return found


def end_after(last: Record, by: timedelta) -> Record:
    """What lets the last windows close: a record without a value, later than ``last`` by more than their lateness."""
    return Record(b"end", None, last.timestamp_ms + int(by / timedelta(milliseconds=1)))


def json_record(key: str, value: object, timestamp_s: float) -> Record:
    """A record with a value of JSON."""
    return Record(key.encode(), json.dumps(value, separators=(",", ":")).encode(), int(timestamp_s * 1000))
