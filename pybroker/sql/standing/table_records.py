"""A standing query over tables: their rows, joined and grouped, as records of a table.

A table's row changes and goes.  So each row of the query is a record by its table's key.  What the query leaves out is
a record without a value, whether the new table had the key or not.

Owns the steps; joins and groups are the pipeline's.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from pybroker.pipeline.streams.columns import LEFT, RIGHT
from pybroker.pipeline.streams.foreign_key_join import join_foreign_key
from pybroker.pipeline.streams.jobs import Topics
from pybroker.pipeline.streams.regrouping import regroup
from pybroker.pipeline.streams.table_join import join_tables
from pybroker.sql.standing.source_rows import joined_key, table_of
from pybroker.sql.standing.standing_plans import SourcePlan, SparkPlan, TableJoin, TableQuery
from pybroker.sql.standing.written_records import key_of, value_of


def records_of_table(plan: SparkPlan, query: TableQuery, topics: Topics) -> DataFrame:
    """The records of the new table; raises ValueError for what the query or the schema cannot mean."""
    rows = _with_sides(_joined(plan, topics))
    if query.group:
        rows = regroup(rows, query.group, sums=dict(query.sums), lists=dict(query.lists), told=dict(query.told))
        columns = {name: F.col("key").getField(name) for name in plan.key}
        kinds = rows.schema["key"].dataType
        assert isinstance(kinds, StructType)
    else:
        columns, kinds = {"key": F.col("key")}, rows.schema
    found = rows.select(key_of(columns, kinds).alias("key"), F.expr(plan.sql).alias("row"))
    kind = found.schema["row"].dataType
    assert isinstance(kind, StructType)
    fields = {name: F.col("row").getField(name) for name in kind.names}
    value = value_of(fields, kind, plan.key, plan.value, is_there=F.col("row").isNotNull())
    return found.select("key", value.alias("value"))


def _joined(plan: SparkPlan, topics: Topics) -> DataFrame:
    """One table, whose value has a field for each topic that the query names, with the row of that."""
    first, *others = plan.sources
    table = _side(topics, first)
    for number, (join, source) in enumerate(zip(plan.joins, others, strict=True), 1):
        table = _join(table, [each.alias for each in plan.sources[:number]], join, _side(topics, source), source.alias)
    return table


def _side(topics: Topics, source: SourcePlan) -> DataFrame:
    found = table_of(topics.stream(source.topic), source)
    row = F.struct(F.col("value").alias(source.alias))
    return found.withColumn("value", F.when(F.col("value").isNotNull(), row))


def _join(table: DataFrame, aliases: list[str], join: TableJoin, other: DataFrame, alias: str) -> DataFrame:
    own, others = LEFT, RIGHT
    if join.key:
        rows = _with_sides(table)
        found = join_foreign_key(rows, other, joined_key(rows, join), how="left" if join.how == "left" else "inner")
    elif join.how == "right":
        own, others = RIGHT, LEFT
        found = join_tables(other, table, how="left")
    else:
        found = join_tables(table, other, how=join.how)
    value = F.col("value")
    sides = [*(_field(value.getField(own), each) for each in aliases), _field(value.getField(others), alias)]
    return found.withColumn("value", F.when(value.isNotNull(), F.struct(*sides)))


def _field(of: Column, name: str) -> Column:
    return of.getField(name).alias(name)


def _with_sides(table: DataFrame) -> DataFrame:
    """The table with each topic's row in a column by the name that the query has for it."""
    return table.select("*", "value.*")
