"""What every test of the project shares: Hypothesis' profile, the JVM's skip rule, the leak check, and Spark."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import psutil
import pytest
from harness import apache_kafka, connect_jars, zookeeper
from harness.client_threads import client_threads, kept_by_the_library, left_behind, referred_to_by
from harness.spark_sessions import SparkSessions
from harness.time_outs import marked_time_out_s
from hypothesis import HealthCheck, settings

pytest_plugins = ["harness.hung_tests"]

LEAK_GRACE_S = 5.0
RERUN_TEXT_MAX = 8_000

# No deadline: a shared machine stalls now and then.  No database: a test run leaves no files behind.
settings.register_profile("fast", deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", settings.get_profile("fast"), max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))

# A shell ignores the interrupt of what it starts in the background, and every process below inherits that: commands
# that tests interrupt would not end.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage while 16,000 tests are found, and never look through what was found: each look costs a second.

    What collecting needs, nearly all stays until the end of the run.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that start a JVM are skipped, with the reason, where there is none or its jars are missing.

    They need Kafka's, or those of ``pytest.mark.jvm(needs="zookeeper")`` or "connect"; those of Spark fail where it is
    missing.
    Files of tests that say that they take longest come first, in random order else: no run waits for one that began
    last.
    """
    longest: dict[Path, float] = {}
    for item in items:
        longest[item.path] = max(marked_time_out_s(item) or 0.0, longest.get(item.path, 0.0))
    items.sort(key=lambda item: -longest[item.path])
    reasons = {
        "kafka": apache_kafka.missing_requirement(),
        "zookeeper": zookeeper.missing_requirement(),
        "connect": connect_jars.missing_requirement(),
        "spark": None,
    }
    for item in items:
        marker = item.get_closest_marker("jvm")
        reason = None if marker is None else reasons[marker.kwargs.get("needs", "kafka")]
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say why tests failed that passed when they ran once more: those are to be mended, too."""
    for report in terminalreporter.stats.get("rerun", ()):
        terminalreporter.section(f"RERUN {report.nodeid}", sep="_")
        terminalreporter.line(report.longreprtext[-RERUN_TEXT_MAX:])
        terminalreporter.line(report.capstderr[-RERUN_TEXT_MAX:])


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    """Fail the session when a test leaves a thread or a child process behind.

    It is set up before every other fixture, so it is torn down after them; what is just about to end is waited for.
    """
    threads_before = set(threading.enumerate())
    children_before = set(psutil.Process().children())
    yield
    deadline = time.monotonic() + LEAK_GRACE_S
    while leaks := _leaks(threads_before, children_before):
        assert time.monotonic() < deadline, f"left behind by the tests of this session: {leaks}"
        time.sleep(0.05)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Let go of what a module's last test was given: its fixtures would be referred to until after the module's end."""
    if isinstance(item, pytest.Function) and (nextitem is None or nextitem.path != item.path):
        item.funcargs.clear()


@pytest.fixture(scope="module", autouse=True)
def no_client_outlives_its_module() -> Iterator[None]:
    """Fail where a client of librdkafka is left behind: it tries to reach its broker, and says so, until the run ends.

    One that only waits for the garbage collector ends here.
    """
    before = client_threads()
    yield
    deadline = time.monotonic() + LEAK_GRACE_S
    while threads := left_behind(before):
        if time.monotonic() > deadline:
            calls = [thread.name for thread in threading.enumerate()]
            left = f"{sorted(threads)}, {referred_to_by()}, beside threads {calls}"
            assert kept_by_the_library(), f"clients of librdkafka are left: {left}"
            break
        time.sleep(0.05)


@pytest.fixture(scope="session")
def spark_sessions() -> Iterator[SparkSessions]:
    """The session of Spark that the tests of a process share."""
    sessions = SparkSessions()
    yield sessions
    sessions.end()


def _leaks(threads_before: set[threading.Thread], children_before: set[psutil.Process]) -> list[str]:
    threads = [f"thread {thread.name}" for thread in threading.enumerate() if thread not in threads_before]
    children = [f"process {child.pid}" for child in psutil.Process().children() if child not in children_before]
    return threads + children
