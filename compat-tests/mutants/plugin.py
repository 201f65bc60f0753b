"""The pytest plugin that puts a mutant into a run and writes down what became of it (``-p mutants.plugin``).

Owns: the report of one run: which tests failed, and of what; which changed modules were never imported; what the
broker logged as an error of its own.  It judges nothing (``verdict`` does).
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from mutants.catalogue import by_name
from mutants.import_hook import MutantFinder, install
from mutants.plugin_names import MUTANT, REPORT

# What a broker says when one of its own functions failed, and what its loop does.
_LOGGERS = ("pybroker", "asyncio")


class _Errors(logging.Handler):
    """Collects what is logged as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        raised = "" if record.exc_info is None or record.exc_info[1] is None else f": {record.exc_info[1]!r}"
        self.messages.append(record.getMessage() + raised)


class MutantRun:
    """One pytest session with a mutant in it."""

    def __init__(self, finder: MutantFinder, report: Path) -> None:
        self._finder = finder
        self._report = report
        self._errors = _Errors()
        self._outcomes: dict[str, dict[str, Any]] = {}
        for name in _LOGGERS:
            logging.getLogger(name).addHandler(self._errors)

    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        """Notes what a test raised, and where; the report itself is pytest's."""
        if call.excinfo is not None and not call.excinfo.errisinstance(pytest.skip.Exception):
            kinds = [kind.__name__ for kind in call.excinfo.type.mro()]
            self._outcomes[item.nodeid] = {"when": call.when, "kinds": kinds}
        elif call.when == "call":
            self._outcomes.setdefault(item.nodeid, {"when": "call", "kinds": []})

    def pytest_sessionfinish(self) -> None:
        never = sorted(self._finder.modules - self._finder.imported)
        found = {"outcomes": self._outcomes, "never_imported": never, "broker_errors": self._errors.messages}
        self._report.write_text(json.dumps(found))


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(MutantRun(_FINDER, Path(os.environ[REPORT])))


# At import, which is before pytest loads any other plugin or test.
_FINDER = install(by_name(os.environ[MUTANT]))
