"""``scripts/fuzz``: each target for so many seconds, from what earlier runs have found; ends with 1 where one failed.

Inputs that reach further are kept in ``.cache/fuzz/<target>``; what fails is written there as ``crash-…``, and run
alone by ``--input``.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from harness.machine import machine, now_text

from fuzz.targets import TARGETS

CORPORA = Path(__file__).resolve().parents[2] / ".cache" / "fuzz"
REPORT = Path(__file__).resolve().parent / "REPORT.md"
INPUT_BYTES_MAX = 4_096
RSS_MB_MAX = 2_048
# An input that takes longer is a finding, too.
INPUT_S_MAX = 10


class Outcome(NamedTuple):
    """What a run of one target came to."""

    target: str
    seconds: int
    inputs: int
    edges: int
    kept: int
    failure: str | None


def fuzz(target: str, seconds: int) -> Outcome:
    corpus = CORPORA / target
    corpus.mkdir(parents=True, exist_ok=True)
    for seed in TARGETS[target].seeds():
        (corpus / f"seed-{sha256(seed).hexdigest()[:16]}").write_bytes(seed)
    command = [sys.executable, "-m", "fuzz.engine", target, str(corpus), f"-max_total_time={seconds}"]
    options = ["-print_final_stats=1", f"-timeout={INPUT_S_MAX}", f"-artifact_prefix={CORPORA}/{target}-"]
    bounds = [f"-max_len={INPUT_BYTES_MAX}", f"-rss_limit_mb={RSS_MB_MAX}"]
    begun = monotonic()
    run = subprocess.run([*command, *options, *bounds], capture_output=True, text=True, errors="replace", check=False)
    covered = re.findall(r"cov: (\d+) ", run.stderr)
    inputs = re.search(r"stat::number_of_executed_units:\s+(\d+)", run.stderr)
    failure = None if run.returncode == 0 else "\n".join(run.stderr.splitlines()[-40:])
    return Outcome(
        target,
        round(monotonic() - begun),
        int(inputs[1]) if inputs else 0,
        int(covered[-1]) if covered else 0,
        sum(1 for _ in corpus.iterdir()),
        failure,
    )


def report(outcomes: list[Outcome]) -> str:
    """The page's rows of these runs."""
    rows = [
        f"| {now_text()} | {each.target} | {each.seconds} | {each.inputs:,} | {each.edges} | {each.kept} "
        f"| {'nothing' if each.failure is None else 'a failure'} |"
        for each in outcomes
    ]
    return "\n".join(rows) + "\n"


HEADING = f"""# What fuzzing has found

`scripts/fuzz`, by Atheris: inputs that reach new code are kept and changed again. On {machine()}.

| when | target | seconds | inputs | edges of code | inputs kept | found |
|---|---|---:|---:|---:|---:|---|
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}; default: all")
    parser.add_argument("--seconds", type=int, default=60, help="for each (default: 60)")
    parser.add_argument("--input", type=Path, help="run this file alone, by the one target named")
    parser.add_argument("--report", action="store_true", help=f"add rows to {REPORT.name}")
    arguments = parser.parse_args()
    if unknown := set(arguments.targets) - TARGETS.keys():
        parser.error(f"unknown targets: {', '.join(sorted(unknown))}")
    if arguments.input is not None:
        if len(arguments.targets) != 1:
            parser.error("--input is for one target")
        TARGETS[arguments.targets[0]].run(arguments.input.read_bytes())
        return 0
    outcomes = [fuzz(target, arguments.seconds) for target in arguments.targets or TARGETS]
    sys.stdout.write(report(outcomes))
    if arguments.report:
        page = REPORT.read_text() if REPORT.exists() else HEADING
        REPORT.write_text(page + report(outcomes))
    for each in outcomes:
        if each.failure is not None:
            sys.stderr.write(f"\n{each.target}:\n{each.failure}\n")
    return 1 if any(each.failure is not None for each in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
