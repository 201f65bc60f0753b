"""The workload and its faults: what is planned, what the command answers, and a run against pybroker."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from harness.broker_probe import refusing_port
from harness.child_process import ChildProcess
from harness.pybroker_process import PybrokerProcess
from harness.waiting import PATIENCE_S, wait_until
from hypothesis import given, settings
from hypothesis import strategies as st

from histories.checker import check
from histories.history import Client, Event, read_events
from histories.nemesis import SEND_A_CLIENT_AWAY, OneBroker, plan
from histories.secure import SecureBroker
from histories.tests.model import Model
from histories.tests.plants import lost_write
from histories.workload import BROKER_PROPERTIES, CAST, LIBRDKAFKA, SECURE_CAST, Part, Workload
from pybroker.security.client_access import ClientAccess


@given(seed=st.integers(), seconds=st.floats(1, 1_000), kills=st.integers(0, 50))
@settings(database=None, deadline=None)
def test_faults_of_the_broker_leave_the_ends_of_a_run_alone(seed: int, seconds: float, kills: int) -> None:
    faults = plan(Random(seed), seconds, kills)
    assert Counter(fault.kind for fault in faults)["kill"] == kills
    assert faults == sorted(faults)
    assert all(0.1 * seconds <= fault.at_s <= 0.9 * seconds + 1e-6 for fault in faults)


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """What ``scripts/histories`` does."""
    return subprocess.run(
        [sys.executable, "-m", "histories", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def judged(events: list[Event], path: Path) -> subprocess.CompletedProcess[str]:
    """What ``scripts/histories --check`` says of a history."""
    fields = ("time", "process", "type", "kind", "value")
    path.write_text("".join(json.dumps(dict(zip(fields, event, strict=True))) + "\n" for event in events))
    return command("--check", str(path))


def test_the_command_exits_with_1_for_a_finding_and_shows_it(tmp_path: Path) -> None:
    events = Model(1).events
    broken = lost_write(events, Random(1))
    assert broken is not None
    clean, found = judged(events, tmp_path / "clean"), judged(broken, tmp_path / "broken")
    assert (clean.returncode, clean.stderr) == (0, "")
    assert "FOUND" not in clean.stdout
    assert found.returncode == 1
    assert [line.split()[:3] for line in found.stdout.splitlines() if "FOUND" in line] == [["lost-write", "1", "FOUND"]]


@pytest.mark.parametrize(
    "content",
    [
        None,
        "",
        "{",
        "{}\n",
        "[]\n",
        "1\n",
        '{"time": "now", "process": 1, "type": "ok", "kind": "poll", "value": null}\n',
    ],
    ids=["missing", "empty", "cut off", "no event", "a list", "a number", "a time that is none"],
)
def test_a_file_that_is_no_history_is_told_from_an_anomaly(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "foreign"
    if content is not None:
        path.write_text(content)
    refused = command("--check", str(path))
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"scripts/histories: {path} is no history: ")
    assert len(refused.stderr.splitlines()) == 1


def test_no_broker_is_told_from_an_anomaly() -> None:
    with refusing_port() as port:
        for bootstrap, reason in (
            ("nowhere", "'nowhere' is not HOST:PORT"),
            ("nowhere:", "'nowhere:' is not HOST:PORT"),
            ("localhost:65536", "'localhost:65536' is not HOST:PORT"),
            (f"127.0.0.1:{port}", f"no broker answers at 127.0.0.1:{port}"),
        ):
            refused = command("--bootstrap", bootstrap)
            assert (refused.returncode, refused.stderr) == (2, f"scripts/histories: {reason}\n")


def test_sigterm_ends_the_broker_and_the_clients_too(tmp_path: Path) -> None:
    environment = {"TMPDIR": str(tmp_path)}
    run = ChildProcess([sys.executable, "-m", "histories", "--seconds", "60"], tmp_path / "log", environment)
    try:
        # Some of the clients are there, and others not yet: a run is as likely to be ended then.
        wait_until(lambda: len(list(tmp_path.glob("histories-*/*.log"))) > 1, "the first clients are started")
        children = descendants(run.pid)
        assert len(children) > 1
        assert run.terminate(60) == 128 + signal.SIGTERM
        assert [pid for pid in children if Path(f"/proc/{pid}").exists()] == []
        assert list(tmp_path.glob("histories-*")) == []
    finally:
        run.kill()


INTERRUPTED = """
import os, signal
from harness.termination import exit_on_sigterm, not_interrupted
exit_on_sigterm()
try:
    with not_interrupted():
        os.kill(os.getpid(), signal.SIGTERM)
        print("whole")
    print("never")
finally:
    os.kill(os.getpid(), signal.SIGTERM)
    print("ended")
"""


def test_sigterm_waits_for_the_end_of_what_it_must_not_interrupt() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (128 + signal.SIGTERM, "whole\nended\n", "")


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, and theirs."""
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return children + [further for child in children for further in descendants(child)]


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
    workload = Workload(
        tmp_path, ClientAccess("nowhere:1"), OneBroker(None, 0), seconds=1, seed=1, workers=[(part, worker)]
    )
    monkeypatch.setattr(workload, "_start_worker", lambda _: worker)
    try:
        wait_until(lambda: worker.log_path.read_bytes() == b"ready\n", "the worker is ready")
        workload._trouble_a_client(SEND_A_CLIENT_AWAY)
        wait_until(lambda: worker.exit_code is not None, "the worker has gone")
        if exit_code:
            with pytest.raises(RuntimeError, match="exited with 3"):
                workload._replace_those_that_went()
        else:
            workload._replace_those_that_went()
    finally:
        worker.kill()
        workload._journal.close()


@pytest.mark.slow
@pytest.mark.parametrize("is_secure", [False, True], ids=["plain", "with logins that end"])
def test_a_history_with_kills_has_no_anomaly(tmp_path: Path, is_secure: bool) -> None:
    secure = SecureBroker(tmp_path / "broker", BROKER_PROPERTIES) if is_secure else None
    with secure.process if secure else PybrokerProcess(tmp_path / "broker", BROKER_PROPERTIES) as broker:
        if secure:
            secure.grant()
        access = secure.access if secure else ClientAccess(broker.bootstrap)
        cast = SECURE_CAST if secure else CAST
        history = Workload(tmp_path, access, OneBroker(broker, 3), seconds=12, seed=20, cast=cast).run()
    report = check(read_events(history))
    assert report.anomalies == {}, f"{report.examples}; the history is {history}"
    # A run in which nothing happened proves nothing.
    happened = report.statistics
    assert happened["kills of the broker"] == 3
    assert happened["transactions committed"] > 0
    assert happened["transactions aborted"] > 0
    assert happened["commits"] > 0
    assert happened["records read to the end"] >= happened["writes acknowledged"] > 0
