"""Records that a cluster refuses: too large, without a key for a compacted topic, or for a topic that is gone.

They are tried in transactions that are aborted, by the driver, which holds the micro-batch for that long.  The others
are written then, each a batch of its own: together they may be too large, too.

Owns when a failed write is looked into; what a record's refusal is `pipeline.topics.record_refusals` says.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pybroker.connectors.kinds.connector_runs import Work
from pybroker.connectors.kinds.record_forms import PLACE
from pybroker.connectors.kinds.refused_records import Refusal, SearchEnded
from pybroker.pipeline.topics.client_calls import NoAnswer
from pybroker.pipeline.topics.record_refusals import refused_records
from pybroker.pipeline.topics.rows import records as producer_records
from pybroker.pipeline.topics.sink_options import read_sink_options

ONE_BY_ONE: Final = {"kafka.batch.num.messages": "1"}
# What a task that a refused record has ended raises.  Where an earlier run has committed the others of its rows, it
# finds that it had fewer.
_RAISED: Final = re.compile(r"\b(?:NotDelivered|KafkaException|RowsChanged): ")

_log = logging.getLogger(__name__)
_TOO_LARGE: Final = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE).str()


def is_of_records(error: Exception) -> bool:
    """Whether it may be for its records that a write has failed."""
    return _RAISED.search(str(error)) is not None


def is_of_batches(error: Exception) -> bool:
    """Whether records that are not refused may have been too large together."""
    return _TOO_LARGE in str(error)


def refused_by(work: Work, cluster: Mapping[str, str], records: DataFrame) -> list[Refusal]:
    """Which records, that have their place beside them, a cluster refuses, by their places.

    None where it cannot be asked; raises SearchEnded where the connector is to stop.
    """
    found: pa.Table = records.toArrow()
    sent = [each for batch in found.drop_columns(list(PLACE)).to_batches() for each in producer_records(batch, None)]
    places = found.select(list(PLACE)).to_pylist()
    refused: dict[tuple[str, int, int], Refusal] = {}
    try:
        for at, reason in refused_records(read_sink_options(cluster).client, f"{work.group}-trial", sent):
            if work.ends.is_set():
                raise SearchEnded("the connector stops while refused records are searched")
            origin, partition, offset = (places[at][name] for name in PLACE)
            refused.setdefault((origin, partition, offset), Refusal.by_target(origin, partition, offset, reason))
    except (KafkaException, NoAnswer) as error:
        _log.warning("%s: which records are refused is not known: %s", work.name, error)
        return []
    return [refused[place] for place in sorted(refused)]


def without(records: DataFrame, refused: Sequence[Refusal]) -> DataFrame:
    """The others, in the same partitions of Spark's: a task that has committed finds the rows that it had."""
    columns: dict[str, Any] = {
        "_origin": [each.topic for each in refused],
        "_partition": [each.partition for each in refused],
        "_offset": [each.offset for each in refused],
    }
    ddl = "_origin string, _partition bigint, _offset bigint"
    places = records.sparkSession.createDataFrame(pa.table(columns), ddl)
    return records.join(F.broadcast(places), list(PLACE), "left_anti")
