"""Run one scenario against both brokers and judge what they answered.

Owns: running the two sides side by side, aligning their transcripts, and sorting differences into meant and unmeant.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from harness.broker_cluster import BrokerCluster

from comparator.broker import Broker, Step
from comparator.cluster import Cluster
from comparator.cluster_differences import CLUSTER_MEANT
from comparator.diff import Difference, differences
from comparator.differences import ANSWERED_AS, MEANT, AnsweredAs, Meant
from comparator.encoding import Tree
from comparator.normalize import ClusterNormalizer, Normalizer
from comparator.registry import Scenario

Address = tuple[str, int]


@dataclass(frozen=True)
class Judged:
    """One difference, where it was seen, and the entry that means it, if any."""

    scenario: str
    step: str
    difference: Difference
    meant: Meant | None


@dataclass(frozen=True)
class Exchange:
    """One request that both brokers were sent, Kafka's reply to it, and in what the two replies differ."""

    step: Step
    judged: tuple[Judged, ...]


@dataclass
class Result:
    """What a scenario brought: the requests that were compared, and what went wrong beside them."""

    scenario: str
    exchanges: list[Exchange] = field(default_factory=list)
    failures: list[Judged] = field(default_factory=list)
    followed: set[AnsweredAs] = field(default_factory=set)

    @property
    def judged(self) -> list[Judged]:
        """Every difference, in the order in which they were seen."""
        return [*self.failures, *(judged for exchange in self.exchanges for judged in exchange.judged)]

    @property
    def unmeant(self) -> list[Judged]:
        return [judged for judged in self.judged if judged.meant is None]

    @property
    def used(self) -> set[Meant]:
        return {judged.meant for judged in self.judged if judged.meant is not None}


def compare(scenario: Scenario, kafka: Address, ours: Address, meant: Sequence[Meant] = MEANT) -> Result:
    """Run the scenario against both brokers at the same time and compare step by step."""
    kafka_side, our_side = _side_by_side(scenario, (Broker(kafka).opened, Broker(ours).opened))
    return judge(scenario, kafka_side, our_side, meant)


def compare_clusters(scenario: Scenario, kafka: BrokerCluster[Any], ours: BrokerCluster[Any]) -> Result:
    """The same of two clusters, whose brokers have the same ids."""
    kafka_side, our_side = _side_by_side(scenario, (Cluster(kafka).opened, Cluster(ours).opened))
    return judge(scenario, kafka_side, our_side, CLUSTER_MEANT, ClusterNormalizer)


@dataclass(frozen=True)
class Transcript:
    """The recorded exchanges with one broker, and what ended them early, if anything did."""

    steps: list[Step]
    failure: str | None


Opened = Callable[[], AbstractContextManager[Broker | Cluster]]


def _side_by_side(scenario: Scenario, sides: tuple[Opened, Opened]) -> tuple[Transcript, Transcript]:
    with ThreadPoolExecutor(max_workers=2) as threads:
        kafka_side, our_side = threads.map(lambda opened: transcript(scenario, opened), sides)
    return kafka_side, our_side


def transcript(scenario: Scenario, opened: Opened) -> Transcript:
    failure = None
    with opened() as asked:
        try:
            scenario.run(asked)
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            failure = f"{type(error).__name__}: {error} ({place.filename.rpartition('/')[2]}:{place.lineno})"
    return Transcript(asked.steps, failure)


def judge(
    scenario: Scenario,
    kafka_side: Transcript,
    our_side: Transcript,
    meant: Sequence[Meant] = MEANT,
    normalizer: type[Normalizer] = Normalizer,
) -> Result:
    """What the two sides of one scenario differ in."""
    result = Result(scenario.name)

    def fail(step: str, *difference: Tree) -> None:
        result.failures.append(Judged(scenario.name, step, Difference(*difference), None))

    for name, side in (("Kafka", kafka_side), ("pybroker", our_side)):
        if side.failure is not None:
            fail("the end", f"{name} stopped", side.failure, "")
    kafka_symbols, our_symbols = normalizer(), normalizer()
    examples: dict[tuple[str, int, str], Tree] = {}
    for kafka_step, our_step in zip(kafka_side.steps, our_side.steps, strict=False):
        if kafka_step.title != our_step.title:
            fail(kafka_step.title, "step", kafka_step.title, our_step.title)
            return result
        requests = Pair(kafka_symbols.normalize(kafka_step.request), our_symbols.normalize(our_step.request))
        replies = Pair(kafka_symbols.normalize(kafka_step.reply), our_symbols.normalize(our_step.reply))
        examples[kafka_step.api, kafka_step.version, kafka_step.note] = replies.kafka
        judged = [_judge(scenario, kafka_step, each, meant) for each in _differences(requests, replies)]
        for rule in ANSWERED_AS:
            if rule.covers(scenario.name, kafka_step.note):
                result.followed.add(rule)
                # An example that was not asked is a KeyError: the rule has to go.
                example = examples[kafka_step.api, kafka_step.version, rule.example]
                judged += _unlike(example, rule, scenario, kafka_step, replies.ours)
        result.exchanges.append(Exchange(kafka_step, tuple(judged)))
    if len(kafka_side.steps) != len(our_side.steps):
        fail("the end", "steps", len(kafka_side.steps), len(our_side.steps))
    return result


class Pair(NamedTuple):
    """What was sent to both, or came from both, with symbols."""

    kafka: Tree
    ours: Tree


def _differences(requests: Pair, replies: Pair) -> Iterator[Difference]:
    """What differs in one step.  Requests are compared too: they must be the same but for symbols."""
    yield from (_below("request.", each) for each in differences(*requests))
    yield from differences(*replies)


def _unlike(example: Tree, rule: AnsweredAs, scenario: Scenario, step: Step, ours: Tree) -> Iterator[Judged]:
    """Where Kafka fails, in what our answer differs from Kafka's to the example; none of that is meant."""
    for each in differences(example, ours):
        yield Judged(scenario.name, step.title, _below(f"as in {rule.example!r}: ", each), None)


def _judge(scenario: Scenario, step: Step, difference: Difference, meant: Sequence[Meant]) -> Judged:
    covering = next((entry for entry in meant if entry.covers(scenario.name, step.title, difference)), None)
    return Judged(scenario.name, step.title, difference, covering)


def _below(prefix: str, difference: Difference) -> Difference:
    return difference._replace(path=f"{prefix}{difference.path}")


def stale(
    results: Sequence[Result], meant: Sequence[Meant] = MEANT, rules: Sequence[AnsweredAs] = ANSWERED_AS
) -> list[Meant | AnsweredAs]:
    """Entries that covered nothing: the difference is gone, so the entry has to go, too."""
    used: set[Tree] = set().union(*(result.used | result.followed for result in results)) if results else set()
    entries: list[Meant | AnsweredAs] = [*meant, *rules]
    return [entry for entry in entries if entry not in used]
