"""How a client command fails: one exception, one line on stderr, one exit code.

Owns: ``CommandFailed``, the exit codes, a broker's included, and the translation of librdkafka's errors into sentences.
"""

from __future__ import annotations

import sys
from enum import IntEnum
from typing import Any, Final


class ExitCode(IntEnum):
    """What scripts may rely on; 130 and 143 are the shell's codes for two signals."""

    OK = 0
    FAILED = 1
    MISUSED = 2
    INTERRUPTED = 130
    TERMINATED = 143


def exit_code_of(error: Exception) -> ExitCode:
    """Of a broker that does not start."""
    from pybroker.config.schema import WrongArgument

    return ExitCode.MISUSED if isinstance(error, WrongArgument) else ExitCode.FAILED


class CommandFailed(Exception):
    """The command could not do what it was asked; the message is for the user, without a trace."""


class OutputClosed(Exception):
    """The reader of our stdout has had enough (``pybroker consume … | head``): end quietly, as a success."""


# What brokers say where an error's name says as much.
_SAY_LITTLE: Final = (
    "Authorization failed.",
    "No Authorizer is configured.",
    "No Authorizer is configured on the broker",
)
_GIVES: Final = "which `pybroker acls add` gives."
_ADVICE: Final = {
    "TOPIC_AUTHORIZATION_FAILED": f"The user lacks a permission for the topic, {_GIVES}",
    "GROUP_AUTHORIZATION_FAILED": f"The user lacks a permission for the group, {_GIVES}",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": f"The user lacks a permission for the transactional id, {_GIVES}",
    "CLUSTER_AUTHORIZATION_FAILED": f"The user lacks a permission for the cluster, {_GIVES}",
    "SECURITY_DISABLED": "No Authorizer is configured on the broker; its setting authorizer.class.name names one.",
}


def is_expected(error: Exception) -> bool:
    """Whether ``error`` is the user's, the broker's or the system's fault; anything else is a bug of ours."""
    if isinstance(error, (CommandFailed, OSError)):
        return True
    return _is_librdkafkas(error)


def _is_librdkafkas(error: Exception) -> bool:
    """Looked up, not imported: a command that never reached the client library should not load it to fail."""
    found = sys.modules.get("confluent_kafka")
    return found is not None and isinstance(error, found.KafkaException)


def describe_error(error: Exception) -> str:
    """One line for a person: Kafka's own error name first, then what the broker or the client said of it."""
    if isinstance(error, CommandFailed):
        return str(error)
    if _is_librdkafkas(error):
        return describe_kafka_error(error.args[0])
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {reason_of(error)}"
    name = type(error).__name__
    detail = str(error).strip()
    if not detail or detail == name:
        return name
    return detail if name in detail else f"{name}: {detail}"


def reason_of(error: OSError) -> str:
    """Why the system refuses a file, as a part of a sentence."""
    if isinstance(error, FileNotFoundError):
        return "no such file"
    reason = error.strerror or str(error)
    return reason[:1].lower() + reason[1:]


def describe_kafka_error(error: Any) -> str:
    """What librdkafka tells, as a ``KafkaError``: by Kafka's name where a broker said it."""
    if error.code() > 0:
        return named_error(error.code())
    # Its own codes have an underscore in front, and stand for what Kafka's clients have by exceptions.
    return str(error.str()).removeprefix("Local: ").strip()


def named_error(code: int, message: str | None = None) -> str:
    """``NAME_OF_ERROR: message``: the broker's own message, or what the error means and what to do."""
    from pybroker_protocol.errors import ErrorCode

    meaning = next((each.message for each in ErrorCode if each == code), None)
    says_little = message is None or message in (meaning, *_SAY_LITTLE)
    text = (_ADVICE.get(describe_error_code(code)) if says_little else None) or message or meaning
    return f"{describe_error_code(code)}: {text}" if text else describe_error_code(code)


def describe_error_code(code: int) -> str:
    """The name of one of Kafka's error codes, as the protocol guide spells it."""
    from pybroker_protocol.errors import error_name

    return error_name(code)
