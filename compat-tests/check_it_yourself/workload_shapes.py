"""The shapes of OpenMessaging's workloads, small: so many topics and partitions at a steady rate of 1 kB records.

The load is ``shape_load``, by confluent-kafka.  OpenMessaging's own driver is another program, so that the rows say
"shape".
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import ClassVar

from check_it_yourself.check import RECORD_BYTES, Better, Check, Figure, Subject, output_of
from check_it_yourself.shape_load import Job


class WorkloadShape(Check):
    """One shape: latencies at a rate that both brokers keep, and all records arrive."""

    name: ClassVar[str] = "openmessaging-shapes"

    def __init__(self, topics: int, partitions: int) -> None:
        self._topics, self._partitions = topics, partitions
        counted = "1 topic" if topics == 1 else f"{topics} topics"
        self.tool = f"OpenMessaging's shape {counted} × {partitions}"

    def run(self, subject: Subject) -> list[Figure]:
        job = Job(
            subject.bootstrap,
            tuple(subject.new_topics(self._topics, self._partitions)),
            subject.size.rate * subject.size.seconds,
            subject.size.rate,
            RECORD_BYTES,
        )
        module = [sys.executable, "-m", "check_it_yourself.shape_load"]
        return self.figures(output_of([*module, json.dumps(asdict(job))]))

    def figures(self, outcome: str) -> list[Figure]:
        """What ``shape_load`` printed."""
        told = json.loads(outcome)
        return [
            Figure("1 kB at a steady rate, publish p99", "ms", told["publish_p99_ms"], Better.LOWER),
            Figure("1 kB at a steady rate, end to end p99", "ms", told["end_to_end_p99_ms"], Better.LOWER),
        ]
