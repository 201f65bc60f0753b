"""Rows that a Delta table does not take: no value where it wants one, a text that is too long, a CHECK that fails.

Delta refuses a write as a whole, and its error names one row, if any.  So each row is judged by what the table says of
itself.  What that leaves out, such as a type that is another one, still ends the connector.

Owns the rules, in the words of Delta's errors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField

from pybroker.connectors.kinds.record_forms import PLACE
from pybroker.connectors.kinds.refused_records import Refusal
from pybroker.pipeline.spark_names import spark_name

_REASON: Final = "_pybroker_reason"
_CHECKS: Final = "delta.constraints."
# Of a column that Spark knows as a text: the type that it was declared with.
_DECLARED: Final = "__CHAR_VARCHAR_TYPE_STRING"
_BOUNDED: Final = re.compile(r"(?:var)?char\((\d+)\)")


def judged(rows: DataFrame, path: str) -> tuple[list[Refusal], DataFrame]:
    """The records that the table refuses, by their places, and the rows of the others; all where there is no table."""
    try:
        fields = rows.sparkSession.read.format("delta").load(path).schema.fields
        (detail,) = rows.sparkSession.sql(f"DESCRIBE DETAIL delta.{spark_name(path)}").select("properties").collect()
    except AnalysisException:
        return [], rows
    known = {name.lower() for name in rows.columns}
    # A CHECK may be of a column that rows do not have, which is null then.
    missing = {each.name: F.lit(None).cast(each.dataType) for each in fields if each.name.lower() not in known}
    checks = {name: text for name, text in detail.properties.items() if name.startswith(_CHECKS)}
    reasons = [each for field in fields if field.name not in missing for each in _of_field(field)]
    reasons += [_of_check(name.removeprefix(_CHECKS), text) for name, text in checks.items()]
    if not reasons:
        return [], rows
    told = rows.withColumns(missing).withColumn(_REASON, F.coalesce(*reasons))
    refused = told.where(F.col(_REASON).isNotNull()).select(*PLACE, _REASON).orderBy(*PLACE).collect()
    rest = told.where(F.col(_REASON).isNull()).select(*(spark_name(name) for name in rows.columns))
    return [Refusal.by_target(*each) for each in refused], rest


def _of_field(field: StructField) -> Iterator[Column]:
    value = F.col(spark_name(field.name))
    if not field.nullable:
        yield F.when(value.isNull(), f"NOT NULL constraint violated for column: {field.name}")
    declared = str(field.metadata.get(_DECLARED, ""))
    if bound := _BOUNDED.fullmatch(declared):
        told = f"a text of column {field.name} exceeds {declared}"
        yield F.when(F.length(value.cast("string")) > int(bound[1]), told)


def _of_check(name: str, text: str) -> Column:
    return F.when(~F.coalesce(F.expr(text), F.lit(False)), f"CHECK constraint {name} ({text}) violated")
