"""A standing query as a job of the pipeline: its topics as views, Spark's SQL over them, and records out of rows.

Owns the steps, and has the pipeline join streams with tables, and tables with each other.  Runs and is tested as each
job is (``pybroker.pipeline.streams.jobs``).
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pybroker.pipeline.spark_names import spark_name
from pybroker.pipeline.streams.jobs import Job, Output, Topics
from pybroker.pipeline.streams.stream_table_join import join_stream_table
from pybroker.sql.standing.source_rows import decoded, joined_key, row_of, table_of, view_of
from pybroker.sql.standing.standing_plans import SparkPlan
from pybroker.sql.standing.table_records import records_of_table
from pybroker.sql.standing.written_records import records_of


def standing_job(plan: SparkPlan, topic: str, tables: Topics | None = None) -> Job:
    """The job that writes ``topic``; raises ValueError for a format that it does not read.

    ``tables`` is where tables are read, which begin at the beginning wherever streams do.
    """

    def job(topics: Topics) -> dict[str, Output]:
        if plan.table is not None:
            return {topic: Output(records_of_table(plan, plan.table, tables or topics))}
        if plan.joins:
            _joined(plan, topics, tables or topics).createOrReplaceTempView(plan.sources[0].view)
        for source in () if plan.joins else plan.sources:
            view_of(topics.stream(source.topic), source).createOrReplaceTempView(source.view)
        spark = topics.stream(plan.sources[0].topic).sparkSession
        rows = spark.sql(plan.sql)
        return {topic: Output(records_of(rows, plan.key, plan.value), "update" if plan.mode == "update" else "append")}

    return job


def _joined(plan: SparkPlan, topics: Topics, tables: Topics) -> DataFrame:
    """A stream's records beside the rows of tables that they meet: a column for each, with the row as a struct."""
    stream, *others = plan.sources
    found = decoded(topics.stream(stream.topic), stream).where("value is not null")
    rows = found.select(row_of(stream).alias(stream.alias), "timestamp", "partition", "offset")
    for join, source in zip(plan.joins, others, strict=True):
        table = table_of(tables.stream(source.topic), source)
        keyed = rows.withColumn("key", joined_key(rows, join))
        rows = join_stream_table(keyed, table, how="left" if join.how == "left" else "inner", into=source.alias)
        rows = rows.drop("key")
    return rows.select(*(F.col(spark_name(each.alias)) for each in plan.sources))
