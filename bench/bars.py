"""The bars: what pybroker must reach, against Apache Kafka in the same run or alone.  Pure.

Owns: the bars as data, and their judgement over the medians of a run.  Many stand twice: as they were set first, and as
they were raised when the first were met.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from bench.contestants import KAFKA, PYBROKER
from bench.measurements import Measurements, Metric, ratio_text


class Kind(Enum):
    """What is compared with the bar: the ratio to Kafka's median, or pybroker's median itself."""

    RATIO_AT_LEAST = "≥ {limit:g}× Kafka"
    RATIO_AT_MOST = "≤ {limit:g}× Kafka"
    AT_MOST = "≤ {limit:g} {unit}"


@dataclass(frozen=True, slots=True)
class Bar:
    """One metric's bar as it was set first, as it was raised, or both."""

    what: str
    part: str
    metric: str
    kind: Kind
    first: float | None
    raised: float | None = None

    @property
    def limit(self) -> float:
        """The bar that counts now."""
        limit = self.first if self.raised is None else self.raised
        assert limit is not None, self.what
        return limit

    def value(self, metric: Metric | None) -> float | None:
        """What is held against the bar; ``None`` when it was not measured."""
        if metric is None:
            return None
        return metric.median(PYBROKER) if self.kind is Kind.AT_MOST else metric.ratio(PYBROKER, KAFKA)

    def place(self, metric: Metric) -> float | None:
        """Where the bar lies among the metric's figures; ``None`` where Kafka, of which it is a share, has none."""
        if self.kind is Kind.AT_MOST:
            return self.limit
        theirs = metric.median(KAFKA)
        return None if theirs is None else self.limit * theirs

    def wanted(self, limit: float, unit: str = "") -> str:
        """A limit in words."""
        return self.kind.value.format(limit=limit, unit=unit).strip()

    def is_met(self, limit: float, value: float) -> bool:
        """Whether a value reaches a limit."""
        return value >= limit if self.kind is Kind.RATIO_AT_LEAST else value <= limit


@dataclass(frozen=True, slots=True)
class Judgement:
    """A limit in words; ``met`` is ``None`` when it was not measured."""

    wanted: str
    met: bool | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """A bar with its figure, judged as it was set first and as it was raised."""

    bar: Bar
    figure: str
    first: Judgement | None
    raised: Judgement | None

    @property
    def now(self) -> Judgement:
        """The judgement that counts now."""
        judgement = self.raised or self.first
        assert judgement is not None, self.bar.what
        return judgement


LATENCY_RATES = ("20 %", "50 %")
# "No more time": nearly all of it is waited for, by both brokers alike (sessions, heartbeats, the pause between two
# assignments), and the phases of those waits alone make a few hundredths.
GROUP_LIMIT = 1.05
# "No slower": nearly all of it is Spark's own time, and differs by some hundredths from run to run.
SPARK_LIMIT = 1.05

BARS: tuple[Bar, ...] = (
    *(
        Bar(f"tiny requests, {shape}", "tiny", f"{shape} requests", Kind.RATIO_AT_LEAST, 2, 3)
        for shape in ("1×1", "8×1", "8×5")
    ),
    *(
        Bar(
            f"{what} {share} at {rate} of Kafka's rate",
            "latency",
            f"{rate} {what} {share}",
            Kind.RATIO_AT_MOST,
            *limits,
        )
        for what in ("produce", "end-to-end")
        for rate in LATENCY_RATES
        for share, limits in (("p99", (0.5, 0.4)), ("p99.9", (None, 1)))
    ),
    *(
        Bar(f"large batches, {n} connection(s)", "large", f"{n} conn produce", Kind.RATIO_AT_LEAST, 1, 1.1)
        for n in (1, 8)
    ),
    *(
        Bar(f"large batches, {n} connection(s), CPU", "large", f"{n} conn CPU", Kind.RATIO_AT_MOST, 0.65, 0.5)
        for n in (1, 8)
    ),
    Bar("tiny p99 beside large batches", "large", "tiny beside 8 conn p99", Kind.RATIO_AT_MOST, 0.2, 0.1),
    *(
        Bar(f"{client} {what}", part, metric, kind, *limits)
        for client, part in (("librdkafka", "librdkafka"), ("Java", "java"))
        for what, metric, kind, limits in (
            ("produce", "produce", Kind.RATIO_AT_LEAST, (1, 1)),
            ("produce CPU", "produce CPU", Kind.RATIO_AT_MOST, (0.65, 0.5)),
            ("consume", "consume", Kind.RATIO_AT_LEAST, (1, 1)),
            ("consume CPU", "consume CPU", Kind.RATIO_AT_MOST, (1, 0.8)),
        )
    ),
    *(
        Bar(f"200 partitions, 50 producers, 50 consumers, {what}", "many", what, Kind.RATIO_AT_MOST, None, 0.5)
        for what in ("produce p99", "end-to-end p99")
    ),
    Bar("Spark's job over the flights", "spark", "job", Kind.RATIO_AT_MOST, None, SPARK_LIMIT),
    Bar("ready from exec", "startup", "ready", Kind.AT_MOST, 300),
    Bar("in process, once imported", "startup", "in-process start", Kind.AT_MOST, 20),
    Bar("in process, first with imports", "startup", "in-process first start", Kind.AT_MOST, 300),
    Bar("in process, close", "startup", "in-process close", Kind.AT_MOST, 20),
    Bar("idle RSS", "memory", "idle RSS", Kind.AT_MOST, 60),
    Bar("1,000 idle connections", "memory", "1,000 connections add", Kind.AT_MOST, 30),
    Bar("10,000 partitions start", "memory", "10,000 partitions start", Kind.AT_MOST, 5),
    Bar("20,000 partitions after kill -9", "recovery", "20,000 partitions start after kill -9", Kind.AT_MOST, 2),
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
    value = bar.value(metric)
    unit = metric.unit if metric else ""
    if value is None:
        figure = "not measured"
    else:
        figure = f"{value:.3g} {unit}" if bar.kind is Kind.AT_MOST else f"{ratio_text(value)}×"

    def judged(limit: float | None) -> Judgement | None:
        if limit is None:
            return None
        return Judgement(bar.wanted(limit, unit), None if value is None else bar.is_met(limit, value))

    return Verdict(bar, figure, judged(bar.first), judged(bar.raised))
