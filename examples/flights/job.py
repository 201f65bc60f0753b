"""The Structured Streaming job: flights in, delays per carrier and origin and day out, to a topic and to Parquet.

Runs as a process of its own (`python -m examples.flights.job --help`), processes what the topic holds at its
start in micro-batches, and ends. It may be killed at any moment: started again on the same checkpoint it goes on.
What it tells, it tells in JSON lines on stdout: one per micro-batch, and a last one with what the Parquet files hold.

Guarantees: the Kafka sink is at-least-once, so after a crash the topic may hold a result twice. Results are therefore
keyed by window, carrier and origin, and a reader lets the last one win. A Parquet directory belongs to one micro-batch
and is overwritten when that batch is repeated, so that the files hold every result once.
"""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from examples.flights.delays import ALLOWED_LATENESS, LATE_FROM_MINUTES, WINDOW, WINDOW_OFFSET, Delays
from examples.flights.job_options import LOCAL_MASTER, JobOptions
from pybroker.pipeline.spark_session import session, short_lived

FLIGHT = StructType(
    [
        StructField("carrier", StringType()),
        StructField("flight", IntegerType()),
        StructField("origin", StringType()),
        StructField("destination", StringType()),
        StructField("departure_delay_minutes", IntegerType()),
        StructField("arrival_delay_minutes", IntegerType()),
    ]
)
OBSERVATION = "flights"  # the name of the metrics that Spark counts while it reads
POLL_SECONDS = 1
CELL_COLUMNS = ("window_start", "carrier", "origin")


def read_topic(spark: SparkSession, options: JobOptions) -> DataFrame:
    """The flights topic from its beginning, as the connector's records (key, value, partition, offset, timestamp …)."""
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", options.bootstrap)
    return (
        reader.option("subscribe", options.flights_topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", options.batch_records_max)
        .load()
    )


def flights(records: DataFrame) -> DataFrame:
    """Flights with their scheduled departure, which is the record's timestamp; counts the unreadable ones on the way.

    An end marker, which has no value, becomes a flight with nothing but a time; so does a value that is no flight.
    Both stay in on purpose: the optimizer moves a filter on carrier or origin below the watermark, even one that
    follows the aggregation, and there the markers would no longer move it. `known_cells` drops them at the end.
    """
    flight = F.from_json(F.col("value").cast("string"), FLIGHT)
    parsed = records.select(F.col("timestamp").alias("scheduled_departure"), "value", flight.alias("flight"))
    unreadable = F.col("value").isNotNull() & (F.col("flight.carrier").isNull() | F.col("flight.origin").isNull())
    observed = parsed.observe(OBSERVATION, F.count_if(unreadable).alias("unreadable_rows"))
    return observed.select("scheduled_departure", "flight.*")


def delays(flights: DataFrame) -> DataFrame:
    """Delays per day of scheduled departure, carrier and origin: the columns of a cell, then those of `Delays`."""
    departure_delay = F.col("departure_delay_minutes")
    day = F.window("scheduled_departure", _interval(WINDOW), startTime=_interval(WINDOW_OFFSET))
    aggregated = (
        flights.withWatermark("scheduled_departure", _interval(ALLOWED_LATENESS))
        .groupBy(day.alias("window"), "carrier", "origin")
        .agg(
            F.count(F.lit(1)).alias("flights"),
            F.count_if(departure_delay.isNull()).alias("cancelled"),
            F.count_if(departure_delay >= LATE_FROM_MINUTES).alias("late"),
            F.coalesce(F.sum(departure_delay), F.lit(0)).alias("departure_delay_sum_minutes"),
            F.max(departure_delay).alias("departure_delay_max_minutes"),
            F.count("arrival_delay_minutes").alias("arrived"),
            F.coalesce(F.sum("arrival_delay_minutes"), F.lit(0)).alias("arrival_delay_sum_minutes"),
        )
    )
    return aggregated.select(F.col("window.start").alias("window_start"), "carrier", "origin", *Delays._fields)


def known_cells(delays: DataFrame) -> DataFrame:
    """The results of flights, without those of unreadable values. For a micro-batch's results only: see `flights`."""
    return delays.dropna(subset=["carrier", "origin"])


def as_records(delays: DataFrame) -> DataFrame:
    """Results as JSON records for the Kafka sink, keyed by their cell."""
    iso_8601 = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ssXXX"}
    return delays.select(
        F.to_json(F.struct(*CELL_COLUMNS), iso_8601).alias("key"),
        F.to_json(F.struct(*CELL_COLUMNS, *Delays._fields), iso_8601).alias("value"),
    )


def _interval(duration: timedelta) -> str:
    return f"{int(duration.total_seconds())} seconds"


def write_batch(options: JobOptions) -> Callable[[DataFrame, int], None]:
    """What a micro-batch's results go through: Parquet first, then the topic, from one computation of them."""

    def write(batch: DataFrame, batch_id: int) -> None:
        results = known_cells(batch).persist()
        if not results.isEmpty():
            results.coalesce(1).write.mode("overwrite").parquet(str(options.parquet_dir / f"batch_id={batch_id}"))
            sink = as_records(results).write.format("kafka").option("kafka.bootstrap.servers", options.bootstrap)
            sink.option("topic", options.delays_topic).save()
        results.unpersist()

    return write


def start(spark: SparkSession, options: JobOptions) -> StreamingQuery:
    """Starts the query over what the topic holds now, from the checkpoint if there is one."""
    results = delays(flights(read_topic(spark, options)))
    writer = results.writeStream.outputMode("append").foreachBatch(write_batch(options))
    return writer.option("checkpointLocation", str(options.checkpoint_dir)).trigger(availableNow=True).start()


def progress_of(query: StreamingQuery) -> Iterator[dict[str, Any]]:
    """Each micro-batch of a running query once, as it is done; raises what ended the query, if it failed."""
    batch_id_told = -1
    ended = False
    while not ended:
        ended = bool(query.awaitTermination(POLL_SECONDS))
        for progress in query.recentProgress:
            if progress["batchId"] > batch_id_told:
                batch_id_told = progress["batchId"]
                yield batch_summary(progress)


def batch_summary(progress: Mapping[str, Any]) -> dict[str, Any]:
    """What of Spark's progress report matters here.

    `records_read` counts from the topic's beginning, over all runs; `late_rows` were beyond the allowed lateness,
    `unreadable_rows` were no flights: these are in no result.
    """
    (source,) = progress["sources"]
    (end_offsets,) = json.loads(source["endOffset"]).values()
    observed = progress["observedMetrics"].get(OBSERVATION)
    return {
        "batch_id": progress["batchId"],
        "records_read": sum(end_offsets.values()),
        "late_rows": sum(operator["numRowsDroppedByWatermark"] for operator in progress["stateOperators"]),
        "unreadable_rows": observed["unreadable_rows"] if observed else 0,
        "watermark": progress["eventTime"].get("watermark"),
    }


def parquet_totals(spark: SparkSession, parquet_dir: Path) -> dict[str, Any]:
    """What the Parquet files hold: the number of rows, of distinct cells, and the totals as fields of `Delays`."""
    results = spark.read.parquet(str(parquet_dir))
    sums = [F.sum(name).alias(name) for name in Delays._fields if name != "departure_delay_max_minutes"]
    maximum = F.max("departure_delay_max_minutes").alias("departure_delay_max_minutes")
    totals = results.agg(
        F.count(F.lit(1)).alias("rows"), F.count_distinct(*CELL_COLUMNS).alias("cells"), maximum, *sums
    ).first()
    assert totals is not None  # an aggregation without groups has one row
    return dict(totals.asDict())


def main(
    bootstrap: Annotated[str, typer.Option(help="HOST:PORT of a broker.")],
    checkpoint_dir: Annotated[Path, typer.Option(help="Progress and state are kept here.")],
    parquet_dir: Annotated[Path, typer.Option(help="The results as files.")],
    flights_topic: Annotated[str, typer.Option(help="Topic to read.")] = "flights",
    delays_topic: Annotated[str, typer.Option(help="Topic for the results.")] = "flight-delays",
    batch_records_max: Annotated[int, typer.Option(help="Records per micro-batch.")] = 40_000,
    master: Annotated[str, typer.Option(help="Spark's master.")] = LOCAL_MASTER,
) -> None:
    """Delays per carrier and origin and day, from a topic of flights."""
    options = JobOptions(bootstrap, flights_topic, delays_topic, parquet_dir, checkpoint_dir, batch_records_max)
    spark = session("flight-delays", master=master, settings=short_lived(master), connector=True)
    try:
        for progress in progress_of(start(spark, options)):
            _tell({"progress": progress})
        _tell({"parquet": parquet_totals(spark, parquet_dir)})
    except StreamingQueryException as error:
        # The query's whole plan follows its cause, and buries it.
        sys.stderr.write(str(error).partition("=== Streaming Query ===")[0])
        raise typer.Exit(1) from None
    finally:
        spark.stop()


def _tell(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(main)
    app()
