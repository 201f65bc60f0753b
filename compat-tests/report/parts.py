"""The parts of a report: each is a command of the project, run now, and what it left behind.

Owns: which parts there are, running them one after another, and the run as one JSON document from which the page is
made.  A part's earlier results are removed before it runs, so that a page never shows figures of another run; a part
that did not run, or left nothing, says why.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from harness import process_tree, results

ROOT = Path(__file__).resolve().parents[2]
OUTPUT_LINES_KEPT = 60
FORMAT = 1

RAN, NOT_RUN = "ran", "not run"
SCENARIOS, WIRE, MUTANTS, HISTORIES, SUITES, BENCH = "scenarios", "wire", "mutants", "histories", "suites", "bench"


@dataclass(frozen=True, slots=True)
class Target:
    """The broker that is asked: pybroker, Apache Kafka, or what answers at an address; ``image``: in a container."""

    apache: bool = False
    bootstrap: str | None = None
    image: str | None = None

    @property
    def is_pybroker(self) -> bool:
        return not self.apache and self.bootstrap is None

    def arguments(self) -> list[str]:
        """As the commands take it."""
        if self.bootstrap is not None:
            return ["--bootstrap", self.bootstrap]
        return ["--apache"] if self.apache else []

    def __str__(self) -> str:
        if self.image is not None:
            return f"{self.image} in a container"
        return self.bootstrap or ("Apache Kafka" if self.apache else "pybroker")


@dataclass(frozen=True, slots=True)
class Options:
    """What is asked of whom, and further arguments for the scenarios and for the head-to-head."""

    target: Target = Target()
    scenario_arguments: tuple[str, ...] = ()
    bench_arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Part:
    """A part: what it shows, its script and arguments, whether it is about pybroker alone, and where it is found."""

    what: str
    script: str
    arguments: Callable[[Options], Sequence[str]]
    result: str
    pybroker_alone: bool = False
    prose: str | None = None


PARTS: Mapping[str, Part] = {
    SCENARIOS: Part(
        "stock clients in the same scenarios",
        "conformance",
        lambda options: [*options.target.arguments(), *options.scenario_arguments],
        result="scenarios",
    ),
    WIRE: Part(
        "replies compared with Apache Kafka's, field by field",
        "compare",
        lambda _: ["--write"],
        pybroker_alone=True,
        result="wire",
        prose="compat-tests/comparator/AGREEMENT.md",
    ),
    MUTANTS: Part("broken on purpose", "mutants", lambda _: [], pybroker_alone=True, result="mutants"),
    HISTORIES: Part(
        "concurrent clients and kills", "histories", lambda options: options.target.arguments(), result="histories"
    ),
    SUITES: Part(
        "clients' own test suites",
        "client-suites",
        lambda options: options.target.arguments(),
        result="client-suites",
        prose="compat-tests/client_suites/FINDINGS.md",
    ),
    BENCH: Part(
        "figures beside Apache Kafka's",
        "bench",
        lambda options: options.bench_arguments,
        pybroker_alone=True,
        result="bench",
    ),
}


@dataclass(slots=True)
class PartRun:
    """What became of a part in this run."""

    state: str = NOT_RUN
    reason: str = "left out"
    seconds: float = 0.0
    exit_code: int | None = None
    found: Any = None
    prose: str = ""
    output: str = ""


@dataclass(slots=True)
class Run:
    """A run of the report, as its JSON document has it."""

    command: str
    target: str
    started: str
    finished: str = ""
    parts: dict[str, PartRun] = field(default_factory=lambda: {name: PartRun() for name in PARTS})
    format: int = FORMAT

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Run:
        """Raises ``ValueError`` for a document of another format."""
        if document["format"] != FORMAT:
            raise ValueError(f"format {document['format']} is not {FORMAT}")
        return cls(**{**document, "parts": {name: PartRun(**part) for name, part in document["parts"].items()}})

    @property
    def succeeded(self) -> bool:
        """Whether every part that was started ended well."""
        return all(not part.exit_code for part in self.parts.values())


def run_parts(run: Run, names: Sequence[str], options: Options, logs: Path) -> None:
    """Run the named parts, their output to a file each in ``logs``; ``run`` is whole at any moment."""
    logs.mkdir(parents=True, exist_ok=True)
    for name in names:
        run.parts[name] = PartRun(reason="the run was cut off before its end")
    for name in PARTS:
        if name in names:
            run.parts[name] = run_part(PARTS[name], options, logs / f"{name}.log")


def run_part(part: Part, options: Options, log: Path) -> PartRun:
    """Run one part to its end, whatever that is."""
    script = ROOT / "scripts" / part.script
    if part.pybroker_alone and not options.target.is_pybroker:
        return PartRun(reason=f"scripts/{part.script} is about pybroker alone")
    if not script.exists():
        return PartRun(reason=f"there is no scripts/{part.script}")
    results.forget(part.result)
    command = [str(script), *part.arguments(options)]
    sys.stderr.write(f"scripts/{part.script}: output goes to {log}\n")
    started = time.monotonic()
    with log.open("wb") as output:
        exit_code = process_tree.run(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        ).returncode
    seconds = time.monotonic() - started
    found = results.read(part.result)
    return PartRun(
        state=RAN if found is not None else NOT_RUN,
        reason=""
        if found is not None
        else f"scripts/{part.script} ended with exit code {exit_code} and left no results",
        seconds=seconds,
        exit_code=exit_code,
        found=found,
        prose=read_prose(part),
        output=tail_of(log) if exit_code else "",
    )


def read_prose(part: Part) -> str:
    """The document that a part's command keeps beside its results."""
    path = ROOT / part.prose if part.prose else None
    return path.read_text() if path is not None and path.exists() else ""


def tail_of(log: Path) -> str:
    """The end of what a part printed."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-OUTPUT_LINES_KEPT:])
