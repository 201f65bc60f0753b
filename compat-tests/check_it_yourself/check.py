"""What a check is: a tool that is made ready once, run against one broker at a time, and read as figures.

Owns: the shape of a check and of its figures, and how much of everything a run does.  A check knows neither which make
of broker it meets nor what the other one reached.
"""

from __future__ import annotations

import re
import subprocess
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import IO, ClassVar

from confluent_kafka.admin import AdminClient, NewTopic
from harness import process_tree

RECORD_BYTES = 1000
ADMIN_TIMEOUT_S = 60.0
TIMEOUT_S = 300
# Of librdkafka, which tells of its own end on a lower level.
LOG_WARNINGS = 4


class Better(StrEnum):
    """Which of two figures is the better one; ``PASSED`` is no figure, but the tool's own word that all was right."""

    HIGHER = "higher"
    LOWER = "lower"
    PASSED = "passed"


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of one run, in ``unit``."""

    what: str
    unit: str
    value: float
    better: Better


@dataclass(frozen=True, slots=True)
class Size:
    """How much a run does.

    ``rounds``: how often each broker is measured; ``records``: of a transfer; ``latency_records``: sent one after
    another; ``verified_records``: compared one by one; ``seconds`` and ``rate`` (records/s): of what runs for a time.
    With ``warm`` each tool runs once before it is measured, because a JVM compiles what it runs often.
    """

    rounds: int
    records: int
    latency_records: int
    verified_records: int
    seconds: int
    rate: int
    warm: bool


QUICK = Size(rounds=1, records=20_000, latency_records=300, verified_records=300, seconds=3, rate=500, warm=False)
FULL = Size(
    rounds=3, records=1_000_000, latency_records=5_000, verified_records=20_000, seconds=10, rate=5_000, warm=True
)


class CheckFailed(Exception):
    """A sentence that says what a tool found wrong, or printed instead of its figures."""


@dataclass(frozen=True)
class Subject:
    """The broker that a tool is aimed at; ``directory`` is there for the tool's files, and goes with the broker."""

    bootstrap: str
    size: Size
    directory: Path

    def new_topic(self, partitions: int = 1, configs: Mapping[str, str] | None = None) -> str:
        """Create a topic, with one replica, and return its name; raises what confluent-kafka raises."""
        return self.new_topics(1, partitions, configs)[0]

    def new_topics(self, count: int, partitions: int = 1, configs: Mapping[str, str] | None = None) -> list[str]:
        """As ``new_topic``, so many."""
        prefix = f"check-{uuid.uuid4().hex[:8]}"
        names = [f"{prefix}-{number}" for number in range(count)]
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": LOG_WARNINGS})
        wanted = [NewTopic(name, partitions, 1, config=dict(configs or {})) for name in names]
        for created in admin.create_topics(wanted).values():
            created.result(ADMIN_TIMEOUT_S)
        return names


class Check(ABC):
    """One tool.  ``name`` is what ``--only`` chooses by; several checks may have the same."""

    name: ClassVar[str]
    tool: str
    # Settings that both brokers have for it, besides their defaults.
    properties: ClassVar[Mapping[str, str]] = MappingProxyType({})

    def prepare(self) -> None:  # noqa: B027 - most tools come with Kafka
        """Get or build the tool.  Raises ``ToolchainMissing``, and ``RuntimeError`` for a failed build."""

    @abstractmethod
    def run(self, subject: Subject) -> list[Figure]:
        """Run the tool to its end and read it.  Raises ``CheckFailed``, ``RuntimeError`` or ``TimeoutExpired``."""


def output_of(command: Sequence[str], into: IO[bytes] | None = None) -> str:
    """What a command printed, unless that goes ``into`` a file.

    Raises ``CheckFailed`` for another exit code than 0, and ``TimeoutExpired``.
    """
    done = process_tree.run(
        command,
        timeout=TIMEOUT_S,
        stdin=subprocess.DEVNULL,
        stdout=into or subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    printed: str = done.stdout or ""
    if done.returncode:
        said = (done.stderr + printed).strip()[-500:]
        raise CheckFailed(f"{Path(command[0]).name} exited with {done.returncode}: {said}")
    return printed


def found(pattern: re.Pattern[str], output: str, tool: str) -> re.Match[str]:
    """The last match in what a tool printed; raises ``CheckFailed`` with the end of it where there is none."""
    matches = list(pattern.finditer(output))
    if not matches:
        raise CheckFailed(f"{tool} printed no figures: {output.strip()[-500:] or 'nothing'}")
    return matches[-1]
