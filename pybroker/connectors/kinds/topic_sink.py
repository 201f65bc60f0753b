"""TopicSink: records of topics as records of others, of this cluster or another one, each exactly once.

A micro-batch's rows are transactions of Spark's tasks, whose marks are in the cluster that is written (``writers``).
Where the cluster refuses a record, the tasks without one may have committed: they find that when the others are written
without it.  A micro-batch that comes again finds the same records refused.

Owns the way from flat rows to records of another topic, for `topic_source`, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import uuid4

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pybroker.connectors.kinds.connector_runs import RecordRefused, Run, Work
from pybroker.connectors.kinds.query_epochs import query_of, write_once
from pybroker.connectors.kinds.record_forms import PLACE, records_of
from pybroker.connectors.kinds.refused_by_topics import ONE_BY_ONE, is_of_batches, is_of_records, refused_by, without
from pybroker.connectors.kinds.refused_records import Change, Refusal
from pybroker.connectors.kinds.sink_queries import Write, start_sink
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
    """What makes records of flat rows, with the place of each."""
    topic: str = work.value("topic")
    keeps = bool(work.value("keep.partitions"))

    def encode(rows: DataFrame) -> DataFrame:
        named = rows.withColumn("_topic", F.lit(topic)) if topic else rows
        return records_of(named, work.forms, key_fields, keeps_partitions=keeps, keeps_place=True)

    return encode


def writing(work: Work, cluster: Mapping[str, str]) -> Write:
    """What writes a micro-batch's records to a cluster; one that comes again is passed over by its tasks' marks."""
    more: dict[str, str] = {}

    def write(records: DataFrame, epoch: int) -> list[Refusal]:
        group, save = f"{work.group}-rows-{query_of(records)}", uuid4().hex
        try:
            write_once(records.drop(*PLACE), cluster, group, epoch, save=save, **more)
        except (PySparkException, Py4JJavaError) as error:
            if not is_of_records(error):
                raise
            refused = refused_by(work, cluster, records)
            if refused and not work.tolerates_errors:
                # Not chained: what Spark said first would be what ended the query.
                raise RecordRefused(str(refused[0])) from None
            if not refused:
                if more or not is_of_batches(error):
                    raise
                more.update(ONE_BY_ONE)  # also for what comes
            rest = without(records, refused) if refused else records
            write_once(rest.drop(*PLACE), cluster, group, epoch, save=save, **ONE_BY_ONE)
            return refused
        return []

    return write
