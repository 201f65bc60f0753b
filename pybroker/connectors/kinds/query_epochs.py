"""Records of a micro-batch as an epoch of its query: written to topics once, however often it comes."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame

from pybroker.pipeline.topics.writers import QUERY_PROPERTY


def query_of(rows: DataFrame) -> str:
    """The id of the query whose micro-batch the rows are; a checkpoint that was made anew has another one."""
    return rows.sparkSession.sparkContext.getLocalProperty(QUERY_PROPERTY) or ""


def write_once(records: DataFrame, cluster: Mapping[str, str], group: str, epoch: int, **options: str) -> None:
    """Write records to topics of a cluster; ``group`` is the transactional ids' beginning, of one query alone."""
    given = {**cluster, "transactionGroup": group, "epoch": str(epoch), **options}
    records.write.format("pybroker").options(**given).mode("append").save()
