"""StandingQuery: a query of `pybroker sql`, which reads topics and writes one.

Each record is written exactly once for readers of committed records.  A query keeps state beside its place, so that a
new checkpoint begins at the beginning of the topics, whatever its group says.
"""

from __future__ import annotations

import json
from typing import Final

from pybroker.connectors.kinds.connector_runs import Run, Work
from pybroker.pipeline.streams.jobs import BrokerTopics
from pybroker.sql.standing.standing_plans import plan_read
from pybroker.sql.standing.standing_runs import start_standing

_BOOTSTRAP: Final = "kafka.bootstrap.servers"


def start(work: Work) -> Run:
    """Start it, or go on at its checkpoint; raises what Spark says of the plan."""
    options = {name: value for name, value in work.cluster.items() if name != _BOOTSTRAP}
    options["startingOffsets"] = work.value("consumer.override.auto.offset.reset").lower()
    options["maxOffsetsPerTrigger"] = str(work.value("max.records.per.batch"))
    topics = BrokerTopics(work.spark, work.cluster[_BOOTSTRAP], options)
    plan = plan_read(json.loads(work.value("plan")))
    return start_standing(
        plan,
        work.value("topic"),
        topics,
        work.directory,
        name=work.name,
        interval=work.interval,
        group=work.group,
    )
