"""The bars: what pybroker must reach, against Apache Kafka in the same run or alone.  Pure.

Owns: the bars as data, and their judgement over the medians of a run.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from bench.contestants import KAFKA, PYBROKER
from bench.measurements import Measurements


class Kind(Enum):
    """What is compared with the bar: the ratio to Kafka's median, or pybroker's median itself."""

    RATIO_AT_LEAST = "≥ {limit:g}× Kafka"
    RATIO_AT_MOST = "≤ {limit:g}× Kafka"
    AT_MOST = "≤ {limit:g} {unit}"


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar on one metric."""

    what: str
    part: str
    metric: str
    kind: Kind
    limit: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """A bar with its figure; ``met`` is ``None`` when it was not measured."""

    bar: Bar
    wanted: str
    figure: str
    met: bool | None


LATENCY_RATES = ("20 %", "50 %")
# "No more time": nearly all of it is waited for, by both brokers alike (sessions, heartbeats, the pause between two
# assignments), and the phases of those waits alone make a few hundredths.
GROUP_LIMIT = 1.05

BARS: tuple[Bar, ...] = (
    *(
        Bar(f"tiny requests, {shape}", "tiny", f"{shape} requests", Kind.RATIO_AT_LEAST, 2)
        for shape in ("1×1", "8×1", "8×5")
    ),
    *(
        Bar(f"produce p99 at {rate} of Kafka's rate", "latency", f"{rate} produce p99", Kind.RATIO_AT_MOST, 0.5)
        for rate in LATENCY_RATES
    ),
    *(
        Bar(f"end-to-end p99 at {rate} of Kafka's rate", "latency", f"{rate} end-to-end p99", Kind.RATIO_AT_MOST, 0.5)
        for rate in LATENCY_RATES
    ),
    *(Bar(f"large batches, {n} connection(s)", "large", f"{n} conn produce", Kind.RATIO_AT_LEAST, 1) for n in (1, 8)),
    *(
        Bar(f"large batches, {n} connection(s), CPU", "large", f"{n} conn CPU", Kind.RATIO_AT_MOST, 0.65)
        for n in (1, 8)
    ),
    Bar("tiny p99 beside large batches", "large", "tiny beside 8 conn p99", Kind.RATIO_AT_MOST, 0.2),
    Bar("librdkafka produce", "librdkafka", "produce", Kind.RATIO_AT_LEAST, 1),
    Bar("librdkafka produce CPU", "librdkafka", "produce CPU", Kind.RATIO_AT_MOST, 0.65),
    Bar("librdkafka consume", "librdkafka", "consume", Kind.RATIO_AT_LEAST, 1),
    Bar("librdkafka consume CPU", "librdkafka", "consume CPU", Kind.RATIO_AT_MOST, 1),
    Bar("Java produce", "java", "produce", Kind.RATIO_AT_LEAST, 1),
    Bar("Java produce CPU", "java", "produce CPU", Kind.RATIO_AT_MOST, 0.65),
    Bar("Java consume", "java", "consume", Kind.RATIO_AT_LEAST, 1),
    Bar("Java consume CPU", "java", "consume CPU", Kind.RATIO_AT_MOST, 1),
    Bar("ready from exec", "startup", "ready", Kind.AT_MOST, 300),
    Bar("in process, once imported", "startup", "in-process start", Kind.AT_MOST, 20),
    Bar("in process, first with imports", "startup", "in-process first start", Kind.AT_MOST, 300),
    Bar("in process, close", "startup", "in-process close", Kind.AT_MOST, 20),
    Bar("idle RSS", "memory", "idle RSS", Kind.AT_MOST, 60),
    Bar("1,000 idle connections", "memory", "1,000 connections add", Kind.AT_MOST, 30),
    Bar("10,000 partitions start", "memory", "10,000 partitions start", Kind.AT_MOST, 5),
    Bar("10,000 partitions idle", "memory", "10,000 partitions RssAnon", Kind.AT_MOST, 150),
    Bar("tail p99 beside a cold reader, against without", "cold", "tail p99 factor", Kind.AT_MOST, 2),
    *(
        Bar(f"offset commits, {shape}", "commits", f"{shape} commits", Kind.RATIO_AT_LEAST, 2)
        for shape in ("1×1", "8×5")
    ),
    *(
        Bar(
            f"100 members of a {protocol} group {what}", "groups", f"{protocol} {what}", Kind.RATIO_AT_MOST, GROUP_LIMIT
        )
        for protocol in ("classic", "consumer")
        for what in ("join", "settle")
    ),
    Bar("transactions of one record", "transactions", "transactions", Kind.RATIO_AT_LEAST, 1),
    Bar("transactions of one record, p99", "transactions", "p99", Kind.RATIO_AT_MOST, 1),
    Bar("10,000 groups of 10 partitions", "group_memory", "10,000 groups add", Kind.AT_MOST, 100),
    Bar(
        "10,000 groups of 10 partitions, loaded", "group_memory", "10,000 groups add after the start", Kind.AT_MOST, 100
    ),
    Bar("10,000 groups loaded after kill -9", "group_memory", "loaded after kill -9", Kind.AT_MOST, 5),
    Bar("produce p99 while 2 GB are compacted, against without", "compaction", "produce p99 factor", Kind.AT_MOST, 1.5),
    Bar("growth over five minutes of mixed load", "growth", "RssAnon growth", Kind.AT_MOST, 5),
)


def judge(measurements: Measurements) -> list[Verdict]:
    """Every bar with its figure, in order."""
    return [judge_bar(bar, measurements) for bar in BARS]


def judge_bar(bar: Bar, measurements: Measurements) -> Verdict:
    """One bar against the medians."""
    metric = measurements.get(bar.part, bar.metric)
    wanted = bar.kind.value.format(limit=bar.limit, unit=metric.unit if metric else "")
    if metric is None:
        return Verdict(bar, wanted.strip(), "not measured", None)
    if bar.kind is Kind.AT_MOST:
        value = metric.median(PYBROKER)
        figure = "not measured" if value is None else f"{value:.3g} {metric.unit}"
    else:
        value = metric.ratio(PYBROKER, KAFKA)
        figure = "not measured" if value is None else f"{value:.2f}×"
    if value is None:
        return Verdict(bar, wanted, figure, None)
    return Verdict(bar, wanted, figure, value >= bar.limit if bar.kind is Kind.RATIO_AT_LEAST else value <= bar.limit)
