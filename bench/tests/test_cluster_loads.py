"""A load of a cluster goes to the leaders of its partitions; parts that differ in kind have sections of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

import bench.report
from bench import compiled
from bench.bars import BARS, Bar, Kind, judge_bar
from bench.clusters import await_in_sync, led_by
from bench.contestants import PYBROKER
from bench.loads import Extent, Latency, Produce
from bench.measurements import Measurements
from bench.report import OWN_SECTIONS, SECTIONS, RunInfo, write_markdown
from bench.wire import Client
from pybroker.testing import Cluster

PARTITIONS = 6
NOON = "2026-01-01 12:00:00 UTC"


@pytest.mark.skipif(compiled.compiler() is None, reason="the load generators need a C compiler")
def test_every_request_goes_to_the_leader_of_its_partition() -> None:
    with Cluster(brokers=3) as cluster:
        with Client(cluster.bootstrap.split(",")[0]) as client:
            client.begin_topic("t", PARTITIONS, 3)
        leaders = await_in_sync(cluster.bootstrap.split(","), "t", PARTITIONS)
        assert len(set(leaders)) == 3, "else a load that goes to one broker would pass"
        closed = Produce(leaders[0], "t", connections=PARTITIONS, extent=Extent(0.2, 0), leaders=leaders).run()
        scheduled = Latency(leaders[0], "t", 200.0, PARTITIONS, None, 0, 100, 0.2, 0, leaders).run()
        ends: dict[int, int] = {}
        for leader in set(leaders):
            with Client(leader) as client:
                ends |= client.end_offsets("t", led_by(leader, leaders))
        # The schedule begins behind one record of each partition.
        assert sum(ends.values()) == closed.acknowledged + scheduled.requests + PARTITIONS


def run_of(part: str) -> tuple[RunInfo, Measurements]:
    info = RunInfo(f"scripts/bench --only {part}", load_before=0.1, started=NOON)
    measurements = Measurements()
    info.seconds[part] = 1.0
    measurements.add(part, "requests", "1/s", PYBROKER, 1.0)
    return info, measurements


def test_a_run_writes_the_sections_that_it_measured_and_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "RESULTS.md"
    monkeypatch.setattr(bench.report, "MARKDOWN_PATH", path)
    monkeypatch.setattr(bench.report, "now_text", lambda: NOON)
    write_markdown(*run_of("tiny"))
    alone = path.read_text()
    assert not any(section.heading in alone for section in SECTIONS)
    write_markdown(*run_of("spark_read"))
    write_markdown(*run_of("cluster_rest"))
    whole = path.read_text()
    assert whole.startswith(alone)
    assert whole.index("scripts/bench --only cluster_rest") < whole.index("scripts/bench --only spark_read")
    for part in ("tiny", "cluster_rest", "spark_read"):
        write_markdown(*run_of(part))
        assert path.read_text() == whole


def test_a_bar_of_our_own_figure_may_be_a_least_one() -> None:
    measurements = Measurements()
    measurements.add("cluster_workers", "capacity", "×", PYBROKER, 1.4)
    bar = Bar("two workers", "cluster_workers", "capacity", Kind.AT_LEAST, 1.5)
    verdict = judge_bar(bar, measurements)
    assert (verdict.met, verdict.wanted, verdict.figure) == (False, "≥ 1.5 ×", "1.4 ×")


def test_every_part_with_a_section_of_its_own_has_a_bar() -> None:
    assert {bar.part for bar in BARS if bar.limit is not None} >= OWN_SECTIONS
