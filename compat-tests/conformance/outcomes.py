"""A pytest plugin: what became of every test of the suite, as JSON for the report.

Owns: which client, scenario and parameter a test is about, its outcome, its reason and its time, whichever process of
pytest-xdist ran it; ``.cache/results/scenarios.json`` at the end of the run.  ``scripts/conformance`` loads it always.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from types import FrameType
from typing import Any, NoReturn

import pytest
from _pytest.compat import NOTSET
from harness import results

PART = "scenarios"
# Why clients could not be built, as JSON by name; set by ``scripts/conformance``.
BUILDS_FAILED = "PYBROKER_CONFORMANCE_BUILDS_FAILED"
# Under which a report carries the identity of its test from the process that ran it.
PROPERTY = "conformance"
PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
# Begun and never reported as ended: a run that was broken off does not pass.
UNFINISHED = "unfinished"
# What a failure says, cut from the front: the assertion stands at the end.
REASON_CHARACTERS_MAX = 2_000


@dataclass(slots=True)
class Outcome:
    """A test; ``client`` is ``None`` for one that no client of the suite is asked in."""

    module: str
    scenario: str
    client: str | None = None
    parameter: str = ""
    outcome: str = UNFINISHED
    reason: str = ""
    seconds: float = 0.0

    def add(self, report: pytest.TestReport) -> None:
        """Take one of set-up, call and tear-down into account; a failure outweighs all else."""
        self.seconds += report.duration
        if report.failed:
            self.outcome, self.reason = FAILED, failure_of(report)
        elif report.skipped:
            self.outcome, self.reason = SKIPPED, skip_reason(report)
        elif report.when == "call" and self.outcome == UNFINISHED:
            self.outcome = PASSED


@dataclass(slots=True, eq=False)  # pytest keeps its plugins in sets
class Collector:
    """Gathers outcomes in the process that controls the run."""

    started: float = field(default_factory=time.time)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    subjects: dict[str, Any] = field(default_factory=dict)

    def pytest_sessionstart(self) -> None:
        """Before the tests, which may leave a broker in any state."""
        # Imported by the process that controls the run alone: it brings every client library.
        from conformance import subjects

        self.subjects = subjects.all_facts()
        for client, reason in json.loads(os.environ.get(BUILDS_FAILED, "{}")).items():
            self.outcomes[f"build of {client}"] = build_failure(client, reason)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        outcome = self.outcomes.get(report.nodeid)
        if outcome is None:
            told = dict(report.user_properties).get(PROPERTY)
            outcome = Outcome(**told) if isinstance(told, dict) else nameless(report.nodeid)
            self.outcomes[report.nodeid] = outcome
        outcome.add(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A module that cannot be collected is a failure, not an absence."""
        if report.failed:
            outcome = nameless(report.nodeid)
            outcome.outcome, outcome.reason = FAILED, failure_of(report)
            self.outcomes[report.nodeid] = outcome

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if exitstatus == pytest.ExitCode.OK:
            exitstatus = session.exitstatus = exit_code(outcome.outcome for outcome in self.outcomes.values())
        content = {
            **self.subjects,
            "started": self.started,
            "seconds": time.time() - self.started,
            "exit_status": int(exitstatus),
            "outcomes": [asdict(outcome) for outcome in self.outcomes.values()],
        }
        results.write(PART, content)


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Collector(), "conformance-outcomes")
    if threading.current_thread() is threading.main_thread():
        before = signal.signal(signal.SIGTERM, interrupt)
        config.add_cleanup(lambda: _restore(before))


def _restore(handler: Any) -> None:
    signal.signal(signal.SIGTERM, handler)


def interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    """SIGTERM as the one exception that ends a session and tears its fixtures down; once, not amid that."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def pytest_itemcollected(item: pytest.Item) -> None:
    """Reports carry the properties of their item, from one process to another too."""
    item.user_properties.append((PROPERTY, identity(item)))


def identity(item: pytest.Item) -> dict[str, str | None]:
    """Module, scenario, client and parameter of a test."""
    found = dict(getattr(getattr(item, "callspec", None), "params", {}))
    # What no client of the run has a form for is one test, skipped, whose parameters are not set.
    parameters = {name: value for name, value in found.items() if value is not NOTSET}
    client = parameters.pop("client", None) or parameters.pop("library", None)
    plain = all(isinstance(value, str | int | float | bool | None) for value in parameters.values())
    return {
        "module": item.path.stem,
        "scenario": getattr(item, "originalname", item.name),
        "client": client,
        "parameter": ", ".join(map(str, parameters.values())) if plain else getattr(item, "callspec").id,  # noqa: B009
    }


def nameless(nodeid: str) -> Outcome:
    """What is known of a test that was never reported by the process that ran it: it died, or could not begin."""
    path, _, rest = nodeid.partition("::")
    return Outcome(path.rpartition("/")[2].removesuffix(".py"), rest or "(collection)")


def build_failure(client: str, reason: str) -> Outcome:
    """A client that was to be asked and could not be built has failed, whatever its tests say."""
    return Outcome("test_builds", "test_client_is_built", client, outcome=FAILED, reason=cut(reason))


def exit_code(outcomes: Iterable[str]) -> pytest.ExitCode:
    """Of a session in which no test failed: a build may have, and a run of skips alone is none."""
    found = set(outcomes)
    if FAILED in found:
        return pytest.ExitCode.TESTS_FAILED
    return pytest.ExitCode.NO_TESTS_COLLECTED if found == {SKIPPED} else pytest.ExitCode.OK


def failure_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    """The end of what a failure prints."""
    return cut(report.longreprtext)


def cut(failure: str) -> str:
    """As much as is kept."""
    text = failure.strip()
    return text if len(text) <= REASON_CHARACTERS_MAX else f"…{text[-REASON_CHARACTERS_MAX:]}"


def skip_reason(report: pytest.TestReport) -> str:
    """Why a test was skipped, without pytest's own word for it."""
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    return getattr(report, "wasxfail", "")
