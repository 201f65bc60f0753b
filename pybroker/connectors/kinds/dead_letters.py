"""Dead letters: what a connector passes over, as records of a topic, with the reason in Kafka Connect's headers.

Each is written exactly once, as an epoch of the query.  One that its topic refuses, too, ends the connector: Kafka's
reporter logs that and goes on, and the record is lost.

Owns the headers, and the stage, which follows from how its reason begins.  Counterpart in Kafka:
``DeadLetterQueueReporter``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pybroker.connectors.declared.common_keys import DEAD_LETTERS
from pybroker.connectors.kinds.connector_runs import Work
from pybroker.connectors.kinds.query_epochs import write_once
from pybroker.pipeline.query_failure import reason_in
from pybroker.pipeline.topics.rows import HEADERS_TYPE

# What reasons begin with: the name of a step, a side of the record, or that it was the target which refused it.
TARGET = "target"
TRANSFORMS = "transforms"

# A reason may quote the value; a dead letter must not become too large by it.
REASON_MAX: Final = 2_000
_PREFIX = "__connect.errors."


class LettersRefused(RuntimeError):
    """Dead letters cannot be written."""


def write_letters(work: Work, bad: DataFrame, place: Sequence[str], group: str, epoch: int) -> None:
    """Write records with an ``error``, a ``raw_key``, a ``raw_value`` and ``headers``, where a topic is named for them.

    ``place`` names the columns that say where each was found.  Raises `LettersRefused`.
    """
    topic: str = work.value(DEAD_LETTERS)
    if not topic:
        return
    try:
        write_once(_letters(work, bad, place), work.cluster, group, epoch, topic=topic)
    except (PySparkException, Py4JJavaError) as error:
        # Not chained: what Spark said first would be what ended the query.
        told = f"a dead letter cannot be written to {topic}, so that the connector ends: {reason_in(str(error))}"
        raise LettersRefused(told) from None


def _letters(work: Work, bad: DataFrame, place: Sequence[str]) -> DataFrame:
    headers = F.coalesce(F.col("headers"), F.array().cast(HEADERS_TYPE))
    if work.value("errors.deadletterqueue.context.headers.enable"):
        told: dict[str, Column] = {
            **{name: F.col(name).cast("string") for name in place},
            "connector.name": F.lit(work.name),
            "task.id": F.lit("0"),
            "stage": F.when(F.startswith("error", F.lit("key:")), "KEY_CONVERTER")
            .when(F.startswith("error", F.lit(f"{TRANSFORMS}:")), "TRANSFORMATION")
            .when(F.startswith("error", F.lit(f"{TARGET}:")), "TASK_PUT")
            .otherwise("VALUE_CONVERTER"),
            "exception.message": F.substring(F.col("error"), 1, REASON_MAX),
        }
        own = [
            F.struct(F.lit(_PREFIX + name).alias("key"), text.cast("binary").alias("value"))
            for name, text in told.items()
        ]
        # What is not known has no header.
        known = F.filter(F.array(*own).cast(HEADERS_TYPE), lambda each: each.getField("value").isNotNull())
        headers = F.concat(headers, known)
    return bad.select(F.col("raw_key").alias("key"), F.col("raw_value").alias("value"), headers.alias("headers"))
