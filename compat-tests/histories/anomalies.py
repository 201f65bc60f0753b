"""The anomalies that the checker knows, and what it says of a history.

Owns: names and meanings.  The vocabulary is that of Jepsen's workload for Kafka where it has a word.

Not every phenomenon is a fault.  Kafka isolates readers from transactions that are open or aborted; it does not isolate
writes, and no reader takes a snapshot of several partitions.  So cycles of writes alone (G0) are ordinary, and so would
be cycles with one anti-dependency (G-single), which are not looked for.  What is wrong with writes can be seen in one
partition, because a partition is linearizable and linearizability is local: ``nonmonotonic-send``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

ANOMALIES = {
    "lost-write": "an acknowledged write is not there",
    "torn-transaction": "some of a committed transaction's writes are there, others are not",
    "aborted-read": "a read of what was aborted, or was refused for good",
    "precommitted-read": "a reader of committed data was given a write before its commit was asked for",
    "unwritten-read": "a read of what nobody wrote",
    "duplicate": "one write lies at two offsets",
    "misplaced": "a write lies elsewhere than its acknowledgement said",
    "offset-overlap": "two writes at one offset",
    "offset-gap": "an offset that holds neither a record nor the end of a transaction",
    "nonmonotonic-send": "a write lies before one that was there when it began",
    "nonmonotonic-poll": "a reader went back, or was given a record twice, without a rebalance or a seek",
    "poll-skip": "a reader was not given a record between two others",
    "lost-commit": "a group went back behind offsets whose commit was acknowledged",
    "skipped-start": "a reader began beyond records that it was to be given first",
    "unasked-commit": "a group stands at an offset that nobody has asked to commit",
    "processed-twice": "two committed transactions of a group consumed the same record",
    "processed-never": "a group's transactions have committed offsets past a record that none of them consumed",
    "stuck": "after everything else a transaction, a partition or a group's offsets do not come to an end",
    "served-beyond-session": "a connection was served whose login was over, and which had not logged in anew",
    "G1c": "transactions read from each other in a circle",
    "nothing-done": "of all that clients of one role have tried, nothing was done",
}
PHENOMENA = {
    "G0": "transactions whose writes interleave: Kafka does not isolate writes",
    "retried-write": "a write that lies there twice: its producer, without idempotence, had reason to send it again",
}
EXAMPLES_MAX = 5


@dataclass(slots=True)
class Report:
    """How often each kind was found, with the first examples of it, and how much was looked at."""

    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[str]] = field(default_factory=dict)
    statistics: dict[str, int] = field(default_factory=dict)

    def add(self, kind: str, example: str) -> None:
        assert kind in ANOMALIES or kind in PHENOMENA, kind
        self.counts[kind] = self.counts.get(kind, 0) + 1
        examples = self.examples.setdefault(kind, [])
        if len(examples) < EXAMPLES_MAX:
            examples.append(example)

    @property
    def anomalies(self) -> dict[str, int]:
        """What must not be: how often, by kind."""
        return {kind: count for kind, count in self.counts.items() if kind in ANOMALIES}

    def as_json(self) -> dict[str, Any]:
        return {
            "valid": not self.anomalies,
            "anomalies": {kind: self.counts.get(kind, 0) for kind in ANOMALIES},
            "phenomena": {kind: self.counts.get(kind, 0) for kind in PHENOMENA},
            "examples": self.examples,
            "statistics": self.statistics,
        }
