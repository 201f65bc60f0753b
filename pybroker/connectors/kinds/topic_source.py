"""TopicSource: records of topics of another cluster, or this one, each exactly once.

The checkpoint has the offsets, and no group of the cluster that is read is touched.
"""

from __future__ import annotations

from pybroker.connectors.kinds.connector_runs import Run, Work
from pybroker.connectors.kinds.sink_queries import Reading, start_reading
from pybroker.connectors.kinds.topic_sink import encoding, other_cluster, writing


def start(work: Work) -> Run:
    """Start it; raises what is wrong."""
    read = Reading(
        other_cluster(work),
        work.value("source.topics") or [],
        work.value("source.topics.regex"),
        work.value("consumer.override.auto.offset.reset"),
        None,
    )
    encode = encoding(work, work.value("key.fields"))
    return start_reading(work, read, writing(work, work.cluster), takes_tombstones=True, encode=encode)
