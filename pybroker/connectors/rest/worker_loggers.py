"""Levels of a supervisor's loggers, told and set while it runs (KIP-495).

Owns what a namespace is, and when a level was set.  Levels are those of this process alone, and are gone with it.
Which loggers there are, `pybroker.config.loggers` says: those of libraries stay as they are, because at their lowest
levels some tell secrets.

Counterpart in Kafka: ``Loggers``.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from pybroker.config.loggers import LEVELS, ROOT, level_name, loggers_of_pybroker


class WorkerLoggers:
    """The loggers, and when each one was changed."""

    def __init__(self) -> None:
        self._changed_ms: dict[str, int] = {}

    def levels(self) -> dict[str, dict[str, Any]]:
        """The loggers that have a level of their own, and the root."""
        return {
            name: self._told(name, logger)
            for name, logger in sorted(loggers_of_pybroker().items())
            if logger.level != logging.NOTSET or name == ROOT
        }

    def level(self, name: str) -> dict[str, Any] | None:
        """The level that a logger goes by; None where it is not there."""
        logger = loggers_of_pybroker().get(name)
        return None if logger is None else self._told(name, logger)

    def set_level(self, namespace: str, level: str) -> list[str]:
        """The loggers of a namespace, or all below the root, which have the level now; none where there is none."""
        if namespace in logging.Logger.manager.loggerDict:
            logging.getLogger(namespace)  # of a package, so that modules that come later have its level
        changed = {
            name: logger
            for name, logger in loggers_of_pybroker().items()
            if namespace in (ROOT, name) or name.startswith(f"{namespace}.")
        }
        for name, logger in changed.items():
            logger.setLevel(LEVELS[level])
            self._changed_ms[name] = time.time_ns() // 1_000_000
        return sorted(changed)

    def _told(self, name: str, logger: logging.Logger) -> dict[str, Any]:
        return {"level": level_name(logger.getEffectiveLevel()), "last_modified": self._changed_ms.get(name)}
