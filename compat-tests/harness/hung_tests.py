"""A test that outlives its time-out ends its process, with the stack of each thread: a plugin of pytest.

Owns: the second time-out of each test.  pytest-timeout's own raises an error in the main thread; an event loop may take
it for the error of one callback, and uvloop does: a run of tests stood still for an hour.  And that such a run fails:
pytest-rerunfailures lets a test run once more whose process ended; where no process is left for it, it and those
behind it would be forgotten.
Does not own: the first time-out (pytest-timeout).
"""

from __future__ import annotations

import faulthandler
import os
import sys
import time
from collections.abc import Generator
from contextlib import suppress
from typing import Any

import pytest

from harness.time_outs import marked_time_out_s

GRACE_S = 60.0  # from the first time-out to the second: the test's fixtures end meanwhile
SLACK_S = 30.0
_stderr = pytest.StashKey[int]()
_waits_until = pytest.StashKey[float]()  # when the process ends, in seconds of the monotonic clock
_crashed = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--hung-after", type=float, default=GRACE_S, metavar="SECONDS", help="beyond a test's time-out")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Keep the descriptor of stderr that is not captured, once each test's output is."""
    capture = config.pluginmanager.getplugin("capturemanager")
    config.stash[_waits_until] = 0.0
    with capture.global_and_fixture_disabled():
        config.stash[_stderr] = os.dup(sys.__stderr__.fileno() if sys.__stderr__ else 2)


def pytest_unconfigure(config: pytest.Config) -> None:
    os.close(config.stash[_stderr])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Begin to wait; a test that runs once more gets its time once more."""
    config = item.config
    if (patience := _time_out_s(item)) <= 0:
        _wait_no_more(config)
        return
    now, limit = time.monotonic(), patience + config.getoption("--hung-after")
    # Each beginning costs a thread: one waits a little longer, and so for the tests behind its own, too.
    if not now + limit <= config.stash[_waits_until] <= now + limit + SLACK_S:
        faulthandler.dump_traceback_later(limit + SLACK_S, file=config.stash[_stderr], exit=True)
        config.stash[_waits_until] = now + limit + SLACK_S


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """Wait no more where no test follows at once."""
    try:
        return (yield)
    finally:
        if nextitem is None:
            _wait_no_more(item.config)


def _wait_no_more(config: pytest.Config) -> None:
    faulthandler.cancel_dump_traceback_later()
    config.stash[_waits_until] = 0.0


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object | None) -> None:
    """A process of pytest-xdist's has ended, with an error where it was not to end."""
    if error is not None:
        node.config.stash[_crashed] = True


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.stash.get(_crashed, False) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _time_out_s(item: pytest.Item) -> float:
    """How long the test may take, in seconds; 0 where it may take for ever."""
    marked = marked_time_out_s(item)
    if marked is not None:
        return marked
    given = item.config.getoption("--timeout", None)
    if given is None:
        with suppress(ValueError):  # there is no such setting where pytest-timeout is left out
            given = item.config.getini("timeout")
    return float(given or 0)
