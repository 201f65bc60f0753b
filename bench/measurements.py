"""What was measured: samples by part, metric and broker; medians and ratios.  Pure.

Owns: the numbers of one run and their JSON form.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from statistics import median
from typing import Any


def ratio_text(ratio: float) -> str:
    """Two decimals, or two digits where those would say next to nothing."""
    return f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.2g}"


@dataclass(slots=True)
class Metric:
    """One figure of one part; the samples of each broker, one per round."""

    part: str
    name: str
    unit: str
    samples: dict[str, list[float]] = field(default_factory=dict)

    def median(self, broker: str) -> float | None:
        """The median over the rounds; ``None`` when this broker was not measured."""
        samples = self.samples.get(broker)
        return median(samples) if samples else None

    def spread(self, broker: str) -> tuple[float, float] | None:
        """The lowest and the highest round; ``None`` when this broker was not measured."""
        samples = self.samples.get(broker)
        return (min(samples), max(samples)) if samples else None

    def ratios(self, broker: str, other: str) -> list[float]:
        """``broker``'s figure divided by ``other``'s, round by round: what both met at the same time drops out."""
        pairs = zip(self.samples.get(broker, ()), self.samples.get(other, ()), strict=False)
        return [mine / theirs for mine, theirs in pairs if theirs]

    def ratio(self, broker: str, other: str) -> float | None:
        """The median of ``ratios``."""
        ratios = self.ratios(broker, other)
        return median(ratios) if ratios else None


class Measurements:
    """All metrics of one run, in the order in which they came."""

    def __init__(self) -> None:
        self._metrics: dict[tuple[str, str], Metric] = {}

    def add(self, part: str, name: str, unit: str, broker: str, value: float) -> None:
        """Add one sample."""
        metric = self._metrics.setdefault((part, name), Metric(part, name, unit))
        metric.samples.setdefault(broker, []).append(value)

    def forget(self, part: str) -> None:
        """Drop the samples of a part, whose metrics keep their places for the next."""
        for metric in self:
            if metric.part == part:
                metric.samples.clear()

    def of(self, parts: Collection[str]) -> Measurements:
        """The metrics of these parts alone."""
        measurements = Measurements()
        measurements._metrics = {key: metric for key, metric in self._metrics.items() if metric.part in parts}
        return measurements

    def get(self, part: str, name: str) -> Metric | None:
        """A metric, if it was measured."""
        return self._metrics.get((part, name))

    def __iter__(self) -> Iterator[Metric]:
        return (metric for metric in self._metrics.values() if metric.samples)

    def to_json(self) -> list[dict[str, Any]]:
        """Every metric with all of its samples."""
        return [
            {"part": metric.part, "metric": metric.name, "unit": metric.unit, "samples": metric.samples}
            for metric in self
        ]

    @classmethod
    def from_json(cls, metrics: Iterable[dict[str, Any]]) -> Measurements:
        """What ``to_json`` gave."""
        measurements = cls()
        for found in metrics:
            metric = Metric(found["part"], found["metric"], found["unit"], found["samples"])
            measurements._metrics[metric.part, metric.name] = metric
        return measurements
