"""How the parts of Spark are run: a process a query, formats in alternating order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib.util import find_spec

from bench.context import Context, settle
from bench.spark_load import Job, SparkOutcome
from bench.subprocesses import Generator


def alternate_formats(context: Context, formats: Sequence[str]) -> Iterator[Sequence[str]]:
    """The formats, once a round, in alternating order; raises ``RuntimeError`` without Spark."""
    if find_spec("pyspark") is None:
        raise RuntimeError("Spark is not installed: run scripts/spark-setup")
    for number in range(context.fewer_rounds):
        settle()
        yield formats if number % 2 == 0 else formats[::-1]


def outcome_of(job: Job) -> SparkOutcome:
    """Run a query in a Spark of its own."""
    return SparkOutcome(**Generator.of_module("bench.spark_load", asdict(job)).outcome())


def seconds_of(job: Job) -> float:
    """Run a query in a Spark of its own; returns its seconds."""
    return outcome_of(job).seconds
