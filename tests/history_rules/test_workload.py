"""The workload and its faults: what is planned, what the command answers, and a run against pybroker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from child_process import ChildProcess
from histories.checker import check
from histories.history import Client, Event, read_events
from histories.nemesis import plan
from histories.workload import BROKER_PROPERTIES, LIBRDKAFKA, Part, Workload
from hypothesis import given, settings
from hypothesis import strategies as st
from pybroker_process import PybrokerProcess

from tests.broker.conftest import eventually
from tests.history_rules.model import Model
from tests.history_rules.plants import lost_write
from tests.source_tree import ROOT


@given(seed=st.integers(), seconds=st.floats(1, 1_000), kills=st.integers(0, 50))
@settings(database=None, deadline=None)
def test_faults_of_the_broker_leave_the_ends_of_a_run_alone(seed: int, seconds: float, kills: int) -> None:
    faults = plan(Random(seed), seconds, kills)
    assert Counter(fault.kind for fault in faults)["kill"] == kills
    assert faults == sorted(faults)
    assert all(0.1 * seconds <= fault.at_s <= 0.9 * seconds + 1e-6 for fault in faults)


def judged(events: list[Event], path: Path) -> subprocess.CompletedProcess[str]:
    """What ``scripts/histories --check`` says of a history."""
    fields = ("time", "process", "type", "kind", "value")
    path.write_text("".join(json.dumps(dict(zip(fields, event, strict=True))) + "\n" for event in events))
    return subprocess.run(
        [sys.executable, "-m", "histories", "--check", str(path)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "compat-tests")},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_the_command_exits_with_1_for_a_finding_and_shows_it(tmp_path: Path) -> None:
    events = Model(1).events
    broken = lost_write(events, Random(1))
    assert broken is not None
    clean, found = judged(events, tmp_path / "clean"), judged(broken, tmp_path / "broken")
    assert (clean.returncode, clean.stderr) == (0, "")
    assert "FOUND" not in clean.stdout
    assert found.returncode == 1
    assert [line.split()[:3] for line in found.stdout.splitlines() if "FOUND" in line] == [["lost-write", "1", "FOUND"]]


# Ends at SIGTERM with the code that it is given.
WORKER = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(int(sys.argv[1])))
print("ready", flush=True)
signal.pause()
"""


@pytest.mark.parametrize("exit_code", [0, 3])
def test_a_client_that_is_sent_away_must_end_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exit_code: int
) -> None:
    worker = ChildProcess([sys.executable, "-c", WORKER, str(exit_code)], tmp_path / "worker.log")
    part = Part("produce", Client(LIBRDKAFKA), can_go=True)
    workload = Workload(tmp_path, "nowhere:1", None, seconds=1, kills=0, seed=1, workers=[(part, worker)])
    monkeypatch.setattr(workload, "_start_worker", lambda _: worker)
    try:
        eventually(lambda: worker.log_path.read_bytes() == b"ready\n", "the worker is ready")
        if exit_code:
            with pytest.raises(RuntimeError, match="exited with 3"):
                workload._trouble_a_client("send a client away")
        else:
            workload._trouble_a_client("send a client away")
    finally:
        worker.kill()
        workload._journal.close()


@pytest.mark.slow
def test_a_history_with_kills_has_no_anomaly(tmp_path: Path) -> None:
    with PybrokerProcess(tmp_path / "broker", BROKER_PROPERTIES) as broker:
        history = Workload(tmp_path, broker.bootstrap, broker, seconds=20, kills=3, seed=20).run()
    report = check(read_events(history))
    assert report.anomalies == {}, f"{report.examples}; the history is {history}"
    # A run in which nothing happened proves nothing.
    happened = report.statistics
    assert happened["kills of the broker"] == 3
    assert happened["transactions committed"] > 0
    assert happened["transactions aborted"] > 0
    assert happened["commits"] > 0
    assert happened["records read to the end"] >= happened["writes acknowledged"] > 0
