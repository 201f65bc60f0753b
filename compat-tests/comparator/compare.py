"""Run one scenario against both brokers and judge what they answered.

Owns: running the two sides side by side, aligning their transcripts, and sorting differences into meant and unmeant.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from comparator.broker import Broker, Step
from comparator.diff import Difference, differences
from comparator.differences import MEANT, Meant
from comparator.normalize import Normalizer
from comparator.registry import Scenario
from comparator.wire import Tree

Address = tuple[str, int]


@dataclass(frozen=True)
class Judged:
    """One difference, where it was seen, and the entry that means it, if any."""

    scenario: str
    step: str
    difference: Difference
    meant: Meant | None


@dataclass
class Result:
    """What a scenario brought: how many replies were compared, and in what they differ."""

    scenario: str
    steps: int = 0
    judged: list[Judged] = field(default_factory=list)

    @property
    def unmeant(self) -> list[Judged]:
        return [judged for judged in self.judged if judged.meant is None]

    @property
    def used(self) -> set[Meant]:
        return {judged.meant for judged in self.judged if judged.meant is not None}


def compare(scenario: Scenario, kafka: Address, ours: Address, meant: Sequence[Meant] = MEANT) -> Result:
    """Run the scenario against both brokers at the same time and compare step by step."""
    with ThreadPoolExecutor(max_workers=2) as threads:
        kafka_side, our_side = threads.map(lambda address: _transcript(scenario, address), (kafka, ours))
    result = Result(scenario.name, steps=len(kafka_side.steps))
    for name, side in (("Kafka", kafka_side), ("pybroker", our_side)):
        if side.failure is not None:
            result.judged.append(
                Judged(scenario.name, "the end", Difference(f"{name} stopped", side.failure, ""), None)
            )
    for title, difference in _differing_steps(kafka_side.steps, our_side.steps):
        covering = next((entry for entry in meant if entry.covers(scenario.name, title, difference)), None)
        result.judged.append(Judged(scenario.name, title, difference, covering))
    return result


@dataclass(frozen=True)
class _Transcript:
    """The recorded exchanges with one broker, and what ended them early, if anything did."""

    steps: list[Step]
    failure: str | None


def _transcript(scenario: Scenario, address: Address) -> _Transcript:
    broker = Broker(address)
    failure = None
    with broker.opened():
        try:
            scenario.run(broker)
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            failure = f"{type(error).__name__}: {error} ({place.filename.rpartition('/')[2]}:{place.lineno})"
    return _Transcript(broker.steps, failure)


def _differing_steps(kafka: list[Step], ours: list[Step]) -> list[tuple[str, Difference]]:
    """Every difference with its step's title.  Requests are compared too: they must be the same but for symbols."""
    found = []
    kafka_symbols, our_symbols = Normalizer(), Normalizer()
    for kafka_step, our_step in zip(kafka, ours, strict=False):
        if kafka_step.title != our_step.title:
            found.append((kafka_step.title, Difference("step", kafka_step.title, our_step.title)))
            return found
        requests = (kafka_symbols.normalize(kafka_step.request), our_symbols.normalize(our_step.request))
        replies = (kafka_symbols.normalize(kafka_step.reply), our_symbols.normalize(our_step.reply))
        found += [(kafka_step.title, _below("request", each)) for each in differences(*requests)]
        found += [(kafka_step.title, each) for each in differences(*replies)]
    if len(kafka) != len(ours):
        found.append(("the end", Difference("steps", len(kafka), len(ours))))
    return found


def _below(prefix: str, difference: Difference) -> Difference:
    return difference._replace(path=f"{prefix}.{difference.path}")


def stale(results: Sequence[Result], meant: Sequence[Meant] = MEANT) -> list[Meant]:
    """Entries that covered nothing: the difference is gone, so the entry has to go, too."""
    used: set[Tree] = set().union(*(result.used for result in results)) if results else set()
    return [entry for entry in meant if entry not in used]
