"""The bars: what pybroker must reach, against Apache Kafka or the floor in the same run, or alone.  Pure.

Owns: the loads as rows, each with its bar where there is one, and their judgement over the rounds of a run.  A bar is
judged on the median; the lowest and the highest round stand beside it.  Every load that is measured has its row,
whoever wins it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from statistics import median

from bench.contestants import FLOOR, KAFKA, PYBROKER
from bench.measurements import Measurements, Metric, ratio_text


class Kind(Enum):
    """What is compared with the bar: the ratio to Kafka or to the floor, round by round, or pybroker's own figure."""

    RATIO_AT_LEAST = "≥ {limit:g}× Kafka"
    RATIO_AT_MOST = "≤ {limit:g}× Kafka"
    FLOOR_AT_LEAST = "≥ {limit:g} of the floor"
    AT_MOST = "≤ {limit:g} {unit}"
    AT_LEAST = "≥ {limit:g} {unit}"


OTHERS = {Kind.RATIO_AT_LEAST: KAFKA, Kind.RATIO_AT_MOST: KAFKA, Kind.FLOOR_AT_LEAST: FLOOR}
# The figure of a row, by its kind; the ratio to Kafka counts up where more is better and down where less is.
SHOWN: dict[Kind, Callable[[float, str], str]] = {
    Kind.RATIO_AT_LEAST: lambda value, _: f"{ratio_text(value)}×",
    Kind.RATIO_AT_MOST: lambda value, _: f"{ratio_text(value)}×",
    Kind.FLOOR_AT_LEAST: lambda value, _: ratio_text(value),
    Kind.AT_MOST: lambda value, unit: f"{value:.3g} {unit}",
    Kind.AT_LEAST: lambda value, unit: f"{value:.3g} {unit}",
}
MORE_IS_BETTER = (Kind.RATIO_AT_LEAST, Kind.FLOOR_AT_LEAST, Kind.AT_LEAST)
OWN_FIGURES = (Kind.AT_MOST, Kind.AT_LEAST)


@dataclass(frozen=True, slots=True)
class Bar:
    """One load's row; without a ``limit`` it has no judgement.  ``is_headline`` rows stand in the README.

    Those are chosen by what people ask first (rate, latency, large batches, a stock client, start, memory), and not by
    who wins them.
    """

    what: str
    part: str
    metric: str
    kind: Kind
    limit: float | None
    is_headline: bool = False

    def values(self, metric: Metric | None) -> list[float]:
        """What is held against the bar, one value a round; none when it was not measured."""
        if metric is None:
            return []
        if (other := OTHERS.get(self.kind)) is not None:
            return metric.ratios(PYBROKER, other)
        return metric.samples.get(PYBROKER, [])

    def place(self, metric: Metric) -> float | None:
        """Where the bar lies among the metric's figures; ``None`` without one, or without what it is a share of."""
        if self.limit is None or (other := OTHERS.get(self.kind)) is None:
            return self.limit
        theirs = metric.median(other)
        return None if theirs is None else self.limit * theirs

    def wanted(self, unit: str) -> str:
        """The bar in words; nothing where there is none."""
        return "" if self.limit is None else self.kind.value.format(limit=self.limit, unit=unit).strip()

    def is_met(self, value: float) -> bool | None:
        """Whether a value reaches the bar; ``None`` where there is none."""
        if self.limit is None:
            return None
        return value >= self.limit if self.kind in MORE_IS_BETTER else value <= self.limit


@dataclass(frozen=True, slots=True)
class Verdict:
    """A row with what each round is held against the bar with; no rounds when it was not measured."""

    bar: Bar
    unit: str
    rounds: tuple[float, ...]

    @property
    def value(self) -> float | None:
        """The median of the rounds, by which the bar is judged."""
        return median(self.rounds) if self.rounds else None

    @property
    def met(self) -> bool | None:
        """Whether the bar is met; ``None`` without one, or when it was not measured."""
        return None if self.value is None else self.bar.is_met(self.value)

    @property
    def figure(self) -> str:
        """The median in words."""
        return "not measured" if self.value is None else SHOWN[self.bar.kind](self.value, self.unit)

    @property
    def spread(self) -> str:
        """From the lowest round to the highest; nothing of a single one."""
        if len(self.rounds) < 2:
            return ""
        show = "{:.3g}".format if self.bar.kind in OWN_FIGURES else ratio_text
        return f"{show(min(self.rounds))}–{show(max(self.rounds))}"

    @property
    def wanted(self) -> str:
        """The bar in words; nothing where there is none."""
        return self.bar.wanted(self.unit)

    @property
    def ahead(self) -> str | None:
        """The broker that wins this load, by the median; ``None`` where they are not compared."""
        if self.value is None or OTHERS.get(self.bar.kind) != KAFKA:
            return None
        more_is_better = self.bar.kind is Kind.RATIO_AT_LEAST
        return PYBROKER if self.value == 1 or (self.value > 1) == more_is_better else KAFKA


SHAPES = ("1×1", "8×1", "8×5")
LATENCY_RATES = ("20 %", "50 %")
# "No more time": nearly all of it is waited for, by both brokers alike (sessions, heartbeats, the pause between two
# assignments), and the phases of those waits alone make a few hundredths.
GROUP_LIMIT = 1.05
# "No slower": nearly all of it is Spark's own time, and differs by some hundredths from run to run.
SPARK_LIMIT = 1.05
ALL_ASKED_FOR = "20,000 partitions all asked for after kill -9"


def connections(count: int) -> str:
    """So many, in words."""
    return f"{count} connection{'s' * (count > 1)}"


def _tiny() -> list[Bar]:
    at_least = {"1×1": (2, None), "8×1": (2.5, 0.45), "8×5": (3.5, 0.45)}
    rows = [
        row
        for shape in SHAPES
        for row in (
            Bar(
                f"tiny requests, {shape}",
                "tiny",
                f"{shape} requests",
                Kind.RATIO_AT_LEAST,
                at_least[shape][0],
                is_headline=shape != "1×1",
            ),
            Bar(
                f"tiny requests, {shape}, share of the floor",
                "tiny",
                f"{shape} requests",
                Kind.FLOOR_AT_LEAST,
                at_least[shape][1],
            ),
            Bar(f"tiny requests, {shape}, p99", "tiny", f"{shape} p99", Kind.RATIO_AT_MOST, None),
            Bar(f"tiny requests, {shape}, CPU", "tiny", f"{shape} CPU", Kind.RATIO_AT_MOST, None),
        )
    ]
    return rows


def _latency() -> list[Bar]:
    limits = {("produce", "p99"): 0.3, ("produce", "p99.9"): 1, ("end-to-end", "p99"): 0.4, ("end-to-end", "p99.9"): 1}
    return [
        Bar(
            f"{what} {share} at {rate} of Kafka's rate",
            "latency",
            f"{rate} {what} {share}",
            Kind.RATIO_AT_MOST,
            limit,
            is_headline=(rate, what, share) == ("50 %", "end-to-end", "p99"),
        )
        for rate in LATENCY_RATES
        for (what, share), limit in limits.items()
    ]


def _large() -> list[Bar]:
    rows: list[Bar] = []
    for count in (1, 8):
        what, metric = f"large batches, {connections(count)}", f"{count} conn"
        rows += [
            Bar(what, "large", f"{metric} produce", Kind.RATIO_AT_LEAST, 1.2, is_headline=count == 8),
            Bar(f"{what}, CPU", "large", f"{metric} CPU", Kind.RATIO_AT_MOST, 0.5),
            Bar(f"{what}, share of the floor", "large", f"{metric} produce", Kind.FLOOR_AT_LEAST, None),
        ]
    return [
        *rows,
        Bar("tiny p99 beside large batches", "large", "tiny beside 8 conn p99", Kind.RATIO_AT_MOST, 0.1),
        Bar("large batches beside tiny", "large", "8 conn beside tiny produce", Kind.RATIO_AT_LEAST, 1),
        Bar("large batches, memory taken back", "absent", "4 conn produce", Kind.RATIO_AT_LEAST, 0.95),
        Bar("large batches, memory taken back, CPU", "absent", "4 conn CPU", Kind.RATIO_AT_MOST, None),
        Bar(
            "large batches, memory taken back, share of the floor",
            "absent",
            "4 conn produce",
            Kind.FLOOR_AT_LEAST,
            None,
        ),
    ]


def _fetch() -> list[Bar]:
    return [
        *(
            Bar(f"fetches of one small batch, {shape}", "fetch", f"{shape} fetches", Kind.RATIO_AT_LEAST, limit)
            for shape, limit in (("1×1", None), ("8×1", 1.3))
        ),
        *(
            Bar(f"bulk fetch, {connections(count)}{what}", "fetch", f"{count} conn {metric}", kind, limit, is_chosen)
            for count in (1, 8)
            for what, metric, kind, limit, is_chosen in (
                ("", "fetch", Kind.RATIO_AT_LEAST, None, count == 8),
                (", CPU", "CPU", Kind.RATIO_AT_MOST, 1, False),
            )
        ),
    ]


def _clients() -> list[Bar]:
    return [
        Bar(f"{client} {what}", part, metric, kind, limit, is_headline=(part, metric) == ("librdkafka", "consume"))
        for client, part in (("librdkafka", "librdkafka"), ("Java", "java"))
        for what, metric, kind, limit in (
            ("produce", "produce", Kind.RATIO_AT_LEAST, 1),
            ("produce CPU", "produce CPU", Kind.RATIO_AT_MOST, 0.5),
            ("consume", "consume", Kind.RATIO_AT_LEAST, 1),
            ("consume CPU", "consume CPU", Kind.RATIO_AT_MOST, 0.8),
        )
    ]


def _coordinators() -> list[Bar]:
    commits = {"1×1": 2, "8×1": 1.5, "8×5": 2}
    return [
        *(
            Bar(f"offset commits, {shape}", "commits", f"{shape} commits", Kind.RATIO_AT_LEAST, limit)
            for shape, limit in commits.items()
        ),
        *(
            Bar(f"100 members of a {protocol} group {what}", "groups", f"{protocol} {what}", Kind.RATIO_AT_MOST, limit)
            for limit in (GROUP_LIMIT,)
            for protocol in ("classic", "consumer")
            for what in ("join", "settle")
        ),
        Bar("transactions of one record", "transactions", "transactions", Kind.RATIO_AT_LEAST, 1),
        Bar("transactions of one record, p99", "transactions", "p99", Kind.RATIO_AT_MOST, 1),
        Bar("10,000 groups of 10 partitions", "group_memory", "10,000 groups add", Kind.AT_MOST, 100),
        Bar(
            "10,000 groups of 10 partitions, loaded",
            "group_memory",
            "10,000 groups add after the start",
            Kind.AT_MOST,
            100,
        ),
        Bar("10,000 groups loaded after kill -9", "group_memory", "loaded after kill -9", Kind.AT_MOST, 5),
    ]


def _cluster_produce() -> list[Bar]:
    part = "cluster_produce"
    return [
        *(
            row
            for shape in ("8×1", "8×5")
            for row in (
                Bar(f"three replicas, tiny requests, {shape}", part, f"{shape} requests", Kind.RATIO_AT_LEAST, 1.2),
                Bar(f"three replicas, tiny requests, {shape}, p99", part, f"{shape} p99", Kind.RATIO_AT_MOST, 0.5),
                Bar(f"three replicas, tiny requests, {shape}, CPU", part, f"{shape} CPU", Kind.RATIO_AT_MOST, None),
            )
        ),
        Bar("three replicas, fixed rate of 1 KB, p99", part, "fixed rate p99", Kind.RATIO_AT_MOST, 0.5),
        Bar("three replicas, fixed rate of 1 KB, CPU", part, "fixed rate CPU", Kind.RATIO_AT_MOST, None),
        Bar("three replicas, large batches", part, "large produce", Kind.RATIO_AT_LEAST, 1.2),
        Bar("three replicas, large batches, p99", part, "large p99", Kind.RATIO_AT_MOST, 0.5),
        Bar("three replicas, large batches, CPU", part, "large CPU", Kind.RATIO_AT_MOST, None),
        *(
            Bar(f"three brokers, {when}, {what}", part, f"{when} {what}", Kind.RATIO_AT_MOST, 0.2)
            for when in ("idle", "loaded")
            for what in ("RSS", "PSS", "RssAnon")
        ),
    ]


def _cluster_others() -> list[Bar]:
    catch_up, rest, workers = "cluster_catch_up", "cluster_rest", "cluster_workers"
    return [
        Bar("2 GB behind, catch-up", catch_up, "catch-up", Kind.RATIO_AT_LEAST, 1.2),
        Bar("2 GB behind, restart to in sync", catch_up, "restart to in sync", Kind.RATIO_AT_MOST, None),
        Bar("2 GB behind, clients' p99 meanwhile", catch_up, "beside p99", Kind.RATIO_AT_MOST, 0.5),
        Bar("1,000 partitions × 3 at rest, CPU", rest, "1,000 partitions CPU", Kind.RATIO_AT_MOST, 0.5),
        *(
            Bar(f"1,000 partitions × 3 at rest, {what}", rest, f"1,000 partitions {what}", Kind.RATIO_AT_MOST, 0.2)
            for what in ("RSS", "PSS", "RssAnon")
        ),
        Bar("two busy processes against one", workers, "two busy processes by one", Kind.AT_LEAST, None),
        *(
            Bar(f"two workers, {load}", workers, f"{load}, 2 workers", Kind.RATIO_AT_LEAST, None)
            for load in ("8×1", "8×5", "8×1 fetches", "8×1 commits")
        ),
        *(
            Bar(f"two workers against one, {shape}, {what}", workers, f"{shape} {what} of two by one", kind, limit)
            for shape in ("8×1", "8×5")
            for what, kind, limit in (("capacity", Kind.AT_LEAST, 1.5), ("rate", Kind.AT_LEAST, None))
        ),
    ]


def _security() -> list[Bar]:
    return [
        *(
            row
            for what in ("produce", "consume")
            for row in (
                Bar(f"TLS, large batches, {what}", "tls", what, Kind.RATIO_AT_LEAST, 1),
                Bar(f"TLS, large batches, {what}, CPU", "tls", f"{what} CPU", Kind.RATIO_AT_MOST, 1),
            )
        ),
        Bar("TLS, tiny requests, 8×1", "tls", "8×1 requests", Kind.RATIO_AT_LEAST, 2),
        Bar("TLS, tiny requests, 8×1, p99", "tls", "8×1 p99", Kind.RATIO_AT_MOST, None),
        Bar("TLS, tiny requests, 8×1, CPU", "tls", "8×1 CPU", Kind.RATIO_AT_MOST, None),
        Bar("TLS, full handshakes", "tls", "handshakes", Kind.RATIO_AT_LEAST, 1),
        Bar("TLS, full handshakes, CPU", "tls", "handshakes CPU", Kind.RATIO_AT_MOST, None),
        *(
            Bar(
                f"1,000 ACLs, tiny requests, {shape}, × of the CPU without",
                "authorizer",
                f"{shape} CPU of 1,000 ACLs by none",
                Kind.AT_MOST,
                1.1,
            )
            for shape in SHAPES
        ),
        *(
            Bar(f"quotas, {what} in a minute, {bound}", "quotas", f"{what}, of the quota", kind, limit)
            for what in ("produced", "fetched")
            for bound, kind, limit in (("not less", Kind.AT_LEAST, 95), ("not more", Kind.AT_MOST, 105))
        ),
        Bar(
            "quotas, another client's p99, × of that alone",
            "quotas",
            "p99 of another client, beside them by alone",
            Kind.AT_MOST,
            1.2,
        ),
        Bar(
            "quotas, another client's p99, × of that beside clients of a second broker",
            "quotas",
            "p99 of another client, beside them by they at a second broker",
            Kind.AT_MOST,
            None,
        ),
    ]


def _links() -> list[Bar]:
    part = "links"
    return [
        Bar("2 GB mirrored, against MirrorMaker 2", part, "2 GB mirrored", Kind.RATIO_AT_LEAST, 1),
        Bar("2 GB mirrored, CPU", part, "2 GB mirrored CPU", Kind.RATIO_AT_MOST, 0.25),
        Bar("2 GB mirrored, memory", part, "2 GB mirrored RssAnon", Kind.RATIO_AT_MOST, 0.1),
        Bar("a mirrored topic at rest, lag p99", part, "lag at rest p99", Kind.AT_MOST, 100),
        Bar(
            "a mirrored topic at rest, lag p99, against MirrorMaker 2",
            part,
            "lag at rest p99",
            Kind.RATIO_AT_MOST,
            None,
        ),
        Bar("5,000 mirrored partitions at rest, CPU", part, "5,000 partitions CPU", Kind.AT_MOST, 2),
        Bar(
            "5,000 mirrored partitions at rest, their source's CPU",
            part,
            "5,000 partitions source CPU",
            Kind.AT_MOST,
            None,
        ),
        Bar("1,000 mirrored partitions promoted", part, "1,000 partitions promoted", Kind.AT_MOST, 1_000),
        Bar("1,000 mirrored partitions failed over", part, "1,000 partitions failed over", Kind.AT_MOST, 1_000),
        *(
            Bar(
                f"tiny requests to a broker with a link, {shape}, × of the CPU without",
                part,
                f"{shape} CPU with a link by none",
                Kind.AT_MOST,
                limit,
            )
            for shape, limit in (("1×1", None), ("8×1", None))
        ),
    ]


def _spark() -> list[Bar]:
    read, window, restart = "spark_read", "spark_window", "spark_restart"
    against = "against the connector"
    return [
        Bar("Spark reads a topic in batch, × of the connector", read, f"read in batch, {against}", Kind.AT_LEAST, 0.5),
        Bar(
            "Spark reads a topic as a stream, × of the connector",
            read,
            f"read as a stream, {against}",
            Kind.AT_LEAST,
            0.5,
        ),
        Bar("Spark from topic to topic, × of the connector", window, f"window, {against}", Kind.AT_LEAST, 0.9),
        Bar("a stopped job of Spark processes again", restart, "restart, pybroker", Kind.AT_MOST, 3),
        Bar("the tour of a year, from start to end", "spark_tour", "tour", Kind.AT_MOST, 240),
        Bar("Spark's job over the flights", "spark", "job", Kind.RATIO_AT_MOST, SPARK_LIMIT),
        Bar("`pybroker sql`: the first row of 1 GB", "spark_sql", "first row of 1 GB, SQL", Kind.AT_MOST, 1),
        Bar(
            "`pybroker sql`: 5 million events grouped, of Spark's time",
            "spark_sql",
            "count and group, of Spark's time",
            Kind.AT_MOST,
            0.333,
        ),
        Bar("connectors: files to PostgreSQL", "spark_connectors", "files to table", Kind.AT_LEAST, 20_000),
        Bar("connectors: files to PostgreSQL, CPU", "spark_connectors", "files to table CPU", Kind.AT_MOST, None),
        Bar(
            "three connectors and two queries in one supervisor, PSS",
            "spark_connectors",
            "five at work PSS",
            Kind.AT_MOST,
            1_500,
        ),
    ]


BARS: tuple[Bar, ...] = (
    *_tiny(),
    *_latency(),
    *_large(),
    *_fetch(),
    *(
        Bar(f"200 partitions, 50 producers, 50 consumers, {what}", "many", what, Kind.RATIO_AT_MOST, 0.5)
        for what in ("produce p99", "end-to-end p99")
    ),
    *_clients(),
    *_coordinators(),
    Bar("compaction", "compaction", "compacted", Kind.RATIO_AT_LEAST, 0.8),
    Bar("produce p99 while 3 GB are compacted, against without", "compaction", "produce p99 factor", Kind.AT_MOST, 1.5),
    Bar("produce p99 while compacting", "compaction", "produce p99 beside the cleaner", Kind.RATIO_AT_MOST, None),
    Bar("start after kill -9, a log of 5 GB", "recovery", "start after kill -9", Kind.RATIO_AT_MOST, None),
    Bar("20,000 partitions after kill -9", "recovery", "20,000 partitions start after kill -9", Kind.AT_MOST, 2),
    Bar("20,000 partitions after kill -9, all asked for", "recovery", ALL_ASKED_FOR, Kind.AT_MOST, None),
    Bar("tail p99 beside a cold reader", "cold", "tail p99 beside a cold reader", Kind.RATIO_AT_MOST, None),
    Bar("tail p99 beside a cold reader, against without", "cold", "tail p99 factor", Kind.AT_MOST, 2),
    Bar("cold read", "cold", "cold read", Kind.RATIO_AT_LEAST, None),
    Bar("ready from exec, against Kafka", "startup", "ready", Kind.RATIO_AT_MOST, None, True),
    Bar("ready from exec", "startup", "ready", Kind.AT_MOST, 300),
    Bar("in process, once imported", "startup", "in-process start", Kind.AT_MOST, 20),
    Bar("in process, first with imports", "startup", "in-process first start", Kind.AT_MOST, 300),
    Bar("in process, close", "startup", "in-process close", Kind.AT_MOST, 20),
    Bar("in process, three brokers, once imported", "startup", "in-process start of three brokers", Kind.AT_MOST, 300),
    Bar("idle RSS, against Kafka", "memory", "idle RSS", Kind.RATIO_AT_MOST, None, True),
    Bar("idle RSS", "memory", "idle RSS", Kind.AT_MOST, 60),
    Bar("1,000 idle connections", "memory", "1,000 connections add", Kind.AT_MOST, 30),
    Bar("10,000 partitions start", "memory", "10,000 partitions start", Kind.AT_MOST, 5),
    Bar("10,000 partitions idle", "memory", "10,000 partitions RssAnon", Kind.AT_MOST, 150),
    Bar("growth over five minutes of mixed load", "growth", "RssAnon growth", Kind.AT_MOST, 5),
    *_cluster_produce(),
    *_cluster_others(),
    *_security(),
    *_links(),
    *_spark(),
)


def judge(measurements: Measurements) -> list[Verdict]:
    """Every row with its figure, in order."""
    return [judge_bar(bar, measurements) for bar in BARS]


def judge_bar(bar: Bar, measurements: Measurements) -> Verdict:
    """One row against the rounds."""
    metric = measurements.get(bar.part, bar.metric)
    return Verdict(bar, metric.unit if metric else "", tuple(bar.values(metric)))


def headlines(measurements: Measurements) -> list[Verdict]:
    """The rows of the README, those that Kafka wins among them; as far as they were measured."""
    return [each for each in judge(measurements) if each.value is not None and each.bar.is_headline]


def drawn(measurements: Measurements) -> list[Verdict]:
    """The rows of the picture: those of the README, and every other that Kafka wins."""
    return [
        each for each in judge(measurements) if each.ahead == KAFKA or (each.ahead is not None and each.bar.is_headline)
    ]
