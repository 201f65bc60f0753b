"""A small run of every part, as the parts' commands leave it."""

from __future__ import annotations

from typing import Any

from report.parts import BENCH, HISTORIES, MUTANTS, RAN, SCENARIOS, SUITES, WIRE, PartRun, Run

HOSTILE = "</td><script>alert('x | y')</script> & *so* on"
CLIENTS = ("franz-go", "kafkajs", "sarama")


def outcome(
    scenario: str,
    client: str | None,
    result: str = "passed",
    parameter: str = "",
    reason: str = "",
    module: str = "test_a",
) -> dict[str, Any]:
    """One test."""
    return {
        "module": module,
        "scenario": scenario,
        "client": client,
        "parameter": parameter,
        "outcome": result,
        "reason": reason,
        "seconds": 0.5,
    }


def scenarios() -> dict[str, Any]:
    """Three clients, of which one fails and one is not built; and a tool."""
    return {
        "broker": {
            "make": "pybroker",
            "version": "9.8.7",
            "keys": [{"key": 18, "min": 0, "max": 4}, {"key": 0, "min": 3, "max": 13}],
            "features": {"group.version": 1},
            "cluster_id": "c",
            "brokers": 1,
        },
        "clients": [{"name": name, "version": "v1", "language": "Go", "missing": None} for name in CLIENTS],
        "applications": [{"name": "streams", "version": "v4", "language": "Java", "missing": "no java"}],
        "machine": "2 × a processor",
        "python": "3.11.7",
        "commit": "0123456789",
        "started": 0.0,
        "seconds": 12.0,
        "exit_status": 1,
        "outcomes": [
            outcome("test_batches_are_read", "franz-go", parameter="gzip"),
            outcome("test_batches_are_read", "franz-go", parameter="zstd"),
            outcome("test_batches_are_read", "kafkajs", "failed", "gzip", HOSTILE),
            outcome("test_batches_are_read", "kafkajs", parameter="zstd"),
            outcome("test_batches_are_read", "sarama", "skipped", "gzip", "sarama is not built"),
            outcome("test_seeks_by_time", "franz-go", module="test_b"),
            outcome("test_seeks_by_time", "sarama", "skipped", reason="sarama is not built", module="test_b"),
            outcome("test_topic_command", None, module="test_tools"),
        ],
    }


def bench() -> dict[str, Any]:
    """Some metrics of the head-to-head: with and without bars, wide and narrow, of both and of one."""
    metrics = [
        ("tiny", "8×5 requests", "1/s", [40_000.0, 41_000.0, 39_000.0], [130_000.0, 125_000.0, 126_000.0]),
        ("tiny", "1×1 requests", "1/s", [10_000.0, 10_100.0, 9_000.0], [15_000.0, 15_100.0, 15_200.0]),
        ("tiny", "8×5 p99", "µs", [2_300.0, 2_400.0, 2_200.0], [120.0, 130.0, 110.0]),
        ("tiny", "8×5 warm-up", "s", [2.3, 2.4], [0.1, 0.2]),
        ("large", "1 conn CPU", "s/GB", [1.9, 2.0, 2.1], [0.6, 0.7, 0.5]),
        ("startup", "ready", "ms", [], [150.0, 148.0, 149.0]),
        ("growth", "RssAnon growth", "MB", [], [-0.3]),
    ]
    run = {
        "command": "scripts/bench",
        "load_before": 0.1,
        "load_after": 1.0,
        "started": "2026-01-01 00:00:00 UTC",
        "finished": "2026-01-01 00:10:00 UTC",
        "machine": "2 × a processor",
        "python": "3.11.7",
        "uvloop": "0.23.0",
        "failed": [],
    }
    return {
        "run": run,
        "metrics": [
            {
                "part": part,
                "metric": name,
                "unit": unit,
                "samples": {broker: samples for broker, samples in (("kafka", kafka), ("pybroker", ours)) if samples},
            }
            for part, name, unit, kafka, ours in metrics
        ],
    }


def wire() -> list[dict[str, Any]]:
    """Two versions of one key: one agrees, one does not."""
    row = {
        "key": 18,
        "name": "ApiVersions",
        "ordinary": 3,
        "boundary": 1,
        "invalid": 2,
        "agreed": 6,
        "meant": 0,
        "unmeant": 0,
    }
    return [{**row, "version": 0}, {**row, "version": 3, "agreed": 4, "meant": 1, "unmeant": 1}]


MUTANT_LIST = [
    {
        "name": "crc-unchecked",
        "trap": "A batch with a wrong checksum is stored.",
        "outcome": "caught",
        "caught_by": ["t/test_a.py::test_crc"],
        "seconds": 1.2,
        "attempts": [{"outcome": "unfit", "reason": "it hangs"}, {"outcome": "caught", "reason": ""}],
    },
    {
        "name": "acks-0-answered",
        "trap": "acks=0 has a reply.",
        "outcome": "survived",
        "caught_by": [],
        "seconds": 0.4,
        "attempts": [{"outcome": "survived", "reason": ""}],
    },
]
HISTORY = {
    "broker": "pybroker",
    "seconds": 60.0,
    "seed": 4,
    "valid": False,
    "anomalies": {"lost-write": 1, "duplicate": 0},
    "phenomena": {"G0": 4},
    "examples": {"lost-write": ["17 in t/0 was acknowledged and is not there"]},
    "statistics": {"operations": 1234},
}


SUITE_LIST = [
    {
        "name": "kgo",
        "version": "v1",
        "outcomes": {"TestA": "passed", "TestB": "failed", "TestC": "skipped"},
        "broken": ["TestB"],
        "unlisted": [],
    }
]


def whole_run() -> Run:
    """Every part."""
    run = Run("scripts/conformance --report", "pybroker", "then", "later")
    found = {
        SCENARIOS: scenarios(),
        WIRE: wire(),
        MUTANTS: MUTANT_LIST,
        HISTORIES: HISTORY,
        SUITES: SUITE_LIST,
        BENCH: bench(),
    }
    for name, content in found.items():
        run.parts[name] = PartRun(RAN, "", 3.0, int(name == SCENARIOS), content)
    run.parts[SUITES].prose = "# Findings\n\n| rank | what |\n|---|---|\n| 1 | TestB fails |\n"
    return run
