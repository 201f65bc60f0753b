"""The broker's loggers as a config resource: levels that can be read and set while it runs (KIP-412).

Owns: the mapping between Kafka's level names and Python's, and which loggers belong to the broker: its own,
and the authorizer's audit log.  The logger ``root`` is the parent of the broker's own loggers, ``pybroker``, never
Python's root: that is the host's.

Levels are not persisted, as in Kafka.

Counterpart in Kafka: ``LoggingController`` and ``RuntimeLoggerManager``.
"""

from __future__ import annotations

import logging
from typing import Final

from pybroker.config.resources import (
    APPEND,
    DELETE,
    DYNAMIC_BROKER_LOGGER_CONFIG,
    OPERATION_NAMES,
    SUBTRACT,
    AlterConfigOp,
    ConfigEntry,
    ConfigFailure,
)
from pybroker_protocol.errors import ErrorCode

ROOT: Final = "root"
_ROOT_LOGGER: Final = "pybroker"
AUDIT_LOGGER: Final = "kafka.authorizer.logger"
LEVELS: Final = {"TRACE": 5, "DEBUG": 10, "INFO": 20, "WARN": 30, "ERROR": 40, "FATAL": 50}


def logger_entries() -> list[ConfigEntry]:
    """Every logger of the broker with its effective level."""
    return [
        ConfigEntry(name, level_name(logger.getEffectiveLevel()), DYNAMIC_BROKER_LOGGER_CONFIG, documentation="")
        for name, logger in sorted(loggers_of_pybroker().items())
    ]


def alter_loggers(operations: tuple[AlterConfigOp, ...], validate_only: bool) -> None:
    """Set (SET) or inherit (DELETE) levels: all of them or, when one is refused (``ConfigFailure``), none."""
    loggers = loggers_of_pybroker()
    for operation in operations:
        _check(operation, loggers)
    if validate_only:
        return
    for operation in operations:
        level = LEVELS[operation.value] if operation.value and operation.kind != DELETE else logging.NOTSET
        loggers[operation.name].setLevel(level)


def _check(operation: AlterConfigOp, loggers: dict[str, logging.Logger]) -> None:
    if operation.kind in (APPEND, SUBTRACT):
        message = f"{OPERATION_NAMES[operation.kind]} operation is not allowed for the BROKER_LOGGER resource"
        raise ConfigFailure(ErrorCode.INVALID_REQUEST, message)
    if operation.kind == DELETE and operation.name == ROOT:
        message = "Removing the log level of the root logger is not allowed"
        raise ConfigFailure(ErrorCode.INVALID_REQUEST, message)
    if operation.name not in loggers:
        raise ConfigFailure(ErrorCode.INVALID_CONFIG, f"Logger {operation.name} does not exist!")
    if operation.kind != DELETE and operation.value not in LEVELS:
        message = (
            f"Cannot set the log level of {operation.name} to {operation.value} as it is not a supported log level. "
            f"Valid log levels are {', '.join(sorted(LEVELS))}"
        )
        raise ConfigFailure(ErrorCode.INVALID_CONFIG, message)


def loggers_of_pybroker() -> dict[str, logging.Logger]:
    """The broker's loggers by the names that clients use."""
    loggers = {
        name: logger
        for name, logger in logging.Logger.manager.loggerDict.items()
        if isinstance(logger, logging.Logger) and (name.startswith(f"{_ROOT_LOGGER}.") or name == AUDIT_LOGGER)
    }
    loggers[ROOT] = logging.getLogger(_ROOT_LOGGER)
    return loggers


def level_name(level: int) -> str:
    """The name of the highest of Kafka's levels that is not above ``level``."""
    return max((value, name) for name, value in LEVELS.items() if value <= max(level, LEVELS["TRACE"]))[1]
