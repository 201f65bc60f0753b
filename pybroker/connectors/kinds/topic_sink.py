"""TopicSink: records of topics as records of others, of this cluster or another one, each exactly once.

A micro-batch's rows are transactions of Spark's tasks, whose marks are in the cluster that is written (``writers``).

Owns the way from flat rows to records of another topic, for `topic_source`, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pybroker.connectors.kinds.connector_runs import Run, Work
from pybroker.connectors.kinds.record_forms import records_of
from pybroker.connectors.kinds.refused_records import Change
from pybroker.connectors.kinds.sink_queries import Write, epoch_options, start_sink
from pybroker.pipeline.topics.librdkafka_settings import CLIENT_PREFIX

_PREFIX = "cluster."


def start(work: Work) -> Run:
    """Start it; raises what is wrong."""
    return start_sink(work, writing(work, other_cluster(work)), takes_tombstones=True, encode=encoding(work, ()))


def other_cluster(work: Work) -> Mapping[str, str]:
    """The options of the cluster that the connector names, or of its own."""
    named = {
        f"{CLIENT_PREFIX}{name.removeprefix(_PREFIX)}": text
        for name, text in work.config.items()
        if name.startswith(_PREFIX)
    }
    return named if f"{CLIENT_PREFIX}bootstrap.servers" in named else work.cluster


def encoding(work: Work, key_fields: Sequence[str]) -> Change:
    """What makes records of flat rows."""
    topic: str = work.value("topic")
    keeps = bool(work.value("keep.partitions"))

    def encode(rows: DataFrame) -> DataFrame:
        named = rows.withColumn("_topic", F.lit(topic)) if topic else rows
        return records_of(named, work.forms, key_fields, keeps_partitions=keeps)

    return encode


def writing(work: Work, cluster: Mapping[str, str]) -> Write:
    """What writes a micro-batch's records to a cluster; one that comes again is passed over by its tasks' marks."""

    def write(records: DataFrame, epoch: int) -> None:
        options = {**cluster, **epoch_options(records, f"{work.group}-rows", epoch)}
        records.write.format("pybroker").options(**options).mode("append").save()

    return write
