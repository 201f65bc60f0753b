"""Tells of a test that fails when it fails: a plugin of pytest for stages that run for half an hour.

pytest tells at the end of a session alone why tests failed, and not at all where the session is ended before.

    pytest -p harness.failures_at_once ...
"""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Teller(config))


class _Teller:
    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # A test that runs again has an outcome of its own: "rerun".
        if report.outcome in ("passed", "skipped"):
            return
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if terminal is not None:
            terminal.write_sep("_", f"{report.outcome} in {report.when}: {report.nodeid}")
            terminal.write_line(report.longreprtext)
