"""Finds unusual hours by a state of its own: what is usual at an airport at a time of day, learnt as the year goes on.

Owns the state and the arithmetic.  Of each airport and hour of the clock it keeps mean and variance of the delay, both
weighted so that the past fades.  An hour's delay is compared with them before it changes them.  Hours come once each
and in order: a window's closing sees to that from one micro-batch to the next, and `handleInputRows` within one.
Instants are microseconds on the way through Python, whose side of Spark gives times by the machine's zone.
"""

from collections.abc import Iterator
from math import sqrt
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

# A day counts a tenth; two weeks are learnt before anything is said.
WEIGHT = 0.1
DAYS_LEARNT_MIN = 14
# Fewer flights than these say little of an hour.
DEPARTED_MIN = 5
# Where delays hardly ever differ, minutes would be sensations.
DEVIATION_MIN_MINUTES = 5.0
UNUSUAL_FROM_DEVIATIONS = 4.0

NOT_JUDGED: dict[str, Any] = {"usual_minutes": None, "deviations": None, "unusual": False}
COUNTED = ("origin", "hour_us", "flights", "departed", "delay_sum_minutes", "came_late")

STATE = "days int, mean double, variance double"
OUTPUT = """
origin string, hour_us bigint, flights bigint, departed bigint, delay_sum_minutes bigint, came_late bigint,
usual_minutes double, deviations double, unusual boolean
"""


class Usual(NamedTuple):
    """What is usual: the mean and the variance of an hour's mean delay, in minutes, over so many days."""

    days: int = 0
    mean: float = 0.0
    variance: float = 0.0

    def deviations(self, delay: float) -> float | None:
        """How far a delay is from what is usual, in standard deviations; None as long as too little is known."""
        if self.days < DAYS_LEARNT_MIN:
            return None
        return (delay - self.mean) / max(sqrt(self.variance), DEVIATION_MIN_MINUTES)

    def learnt(self, delay: float) -> "Usual":
        """With one more day."""
        if self.days == 0:
            return Usual(1, delay, 0.0)
        difference = delay - self.mean
        step = WEIGHT * difference
        return Usual(self.days + 1, self.mean + step, (1 - WEIGHT) * (self.variance + difference * step))


def watch(hours: DataFrame) -> DataFrame:
    """Hours with ``usual_minutes``, ``deviations`` and ``unusual``: `OUTPUT`, with ``hour_start`` as an instant.

    ``hours`` has ``origin``, ``clock_hour``, ``hour_start`` and counts.  An hour with too few departures is not judged.
    """
    rows = hours.withColumn("hour_us", F.unix_micros("hour_start")).drop("hour_start")
    judged = rows.groupBy("origin", "clock_hour").transformWithState(UnusualHours(), OUTPUT, "append", "none")
    return judged.withColumn("hour_start", F.timestamp_micros("hour_us")).drop("hour_us")


class UnusualHours(StatefulProcessor):
    """Of an airport and an hour of the clock: what is usual."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """See StatefulProcessor."""
        self._state = handle.getValueState("usual", STATE)

    def handleInputRows(self, key: tuple[Any, ...], rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """See StatefulProcessor."""
        known = self._state.get()
        usual = Usual(*known) if known else Usual()
        for row in sorted(rows, key=lambda row: row.hour_us):
            judged = NOT_JUDGED
            if row.departed >= DEPARTED_MIN:
                delay = row.delay_sum_minutes / row.departed
                deviations = usual.deviations(delay)
                judged = {
                    "usual_minutes": usual.mean if usual.days else None,
                    "deviations": deviations,
                    "unusual": deviations is not None and deviations >= UNUSUAL_FROM_DEVIATIONS,
                }
                usual = usual.learnt(delay)
            yield Row(**{name: row[name] for name in COUNTED}, **judged)
        self._state.update(tuple(usual))

    def close(self) -> None:
        """Nothing is open."""
