"""A broker per module instead of one per run."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping

import psutil
import pytest

from pybroker.testing import Broker
from pybroker.testing import in_process_broker as in_process
from pybroker.testing.in_process_broker import Setting
from tests.cli.command import end_forked_commands

KEPT_BYTES_MAX = 64 << 20  # what a module may leave behind; less is not worth the look for it


@pytest.fixture(scope="session", autouse=True)
def forked_commands_end() -> Iterator[None]:
    """The process that client commands are forked from ends with the tests."""
    yield
    end_forked_commands()


@pytest.fixture(scope="module", autouse=True)
def no_broker_of_another_module() -> None:
    """A broker in this process ends with its module: tests patch the process's disk, count its calls and its threads.

    ``compat-tests`` share processes with these tests, so that a broker of theirs is noticed here.  It is ended, so that
    one module fails by it, and not all that come.
    """
    left = len(in_process._unended)
    in_process._end_the_rest()
    assert not left, "a broker of another module still runs"


@pytest.fixture(scope="module", autouse=True)
def freed_memory_is_given_back() -> Iterator[None]:
    """The C allocator keeps what a flood of requests has freed, and a process of tests grows to a gigabyte by it."""
    before = psutil.Process().memory_info().rss
    yield
    if psutil.Process().memory_info().rss - before > KEPT_BYTES_MAX:
        malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
        if malloc_trim is not None:
            malloc_trim(0)


@pytest.fixture(scope="module")
def pybroker(pybroker_settings: Mapping[str, Setting]) -> Iterator[Broker]:
    """The plugin's broker, which ends with the module: tests elsewhere fail the process's disk, and count its calls."""
    with Broker(pybroker_settings) as broker:
        yield broker
