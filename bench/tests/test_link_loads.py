"""The part of links in small, by links alone: what it measures is there, and the mirror is whole."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench import compiled
from bench.contestants import PYBROKER
from bench.context import QUICK, Context
from bench.measurements import Measurements
from bench.parts import links

SMALL = {
    "MIRRORED_BYTES": 4_000_000,
    "SAMPLES": 3,
    "REST_TOPICS": 2,
    "PROMOTED_TOPICS": 1,
    "SETTLE_S": 0.0,
    "MEASURED_S": 0.1,
}
CUT_OVERS = ("1,000 partitions promoted", "1,000 partitions failed over")


@pytest.mark.skipif(compiled.compiler() is None, reason="the load generators need a C compiler")
def test_links_are_measured_without_mirrormaker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SMALL.items():
        monkeypatch.setattr(links, name, value)
    # Processor time is counted in hundredths of a second: on a busy machine a shorter load uses none of them.
    volume = replace(QUICK, rounds=1, seconds=0.5, warmup_seconds=0.1)
    context = Context([PYBROKER], volume, tmp_path, Measurements(), part="links")
    links.run(context)
    for name in ("2 GB mirrored", "lag at rest p99", "5,000 partitions CPU", *CUT_OVERS, "8×1 CPU with a link by none"):
        metric = context.measurements.get("links", name)
        assert metric is not None, name
        assert len(metric.samples[PYBROKER]) == 1
