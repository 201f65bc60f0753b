"""Regular expressions of clients: of a KIP-848 subscription, or of transactional ids to be listed.

Owns: RE2 as their dialect, its errors in the words of Kafka's re2j, and the bounds of what one may cost.  The library
is imported at first use.

Counterpart in Kafka: ``Utils.throwIfRegularExpressionIsInvalid`` and com.google.re2j.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from types import ModuleType

# A regular expression of a subscription, in UTF-8, and what RE2 may use for it, compiled form and cache of states
# together: 16,000 instructions, which match a topic's name in some milliseconds at the very worst.  RE2's module keeps
# the 128 used last.
REGULAR_EXPRESSION_BYTES_MAX = 32 << 10
REGULAR_EXPRESSION_MEMORY_BYTES = 1 << 20

# How RE2 says what is wrong, and how Kafka's clients have heard it from re2j.
DESCRIPTIONS = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "bad repetition operator": "invalid nested repetition operator",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid repetition size": "invalid repeat count",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
    "trailing \\": "trailing backslash at end of expression",
}


class InvalidRegularExpression(Exception):
    """The text is for the client, with INVALID_REGULAR_EXPRESSION, behind the name of the field."""

    def __init__(self, pattern: str, reason: str) -> None:
        super().__init__(f"`{pattern}` is not a valid regular expression: {reason}.")


class _Matcher(Protocol):
    def fullmatch(self, text: str) -> object | None: ...


class CompiledRegex:
    """A regular expression of a client.  Matching takes time linear in the length of each name."""

    __slots__ = ("_matcher", "pattern")

    def __init__(self, pattern: str, matcher: _Matcher) -> None:
        self.pattern = pattern
        self._matcher = matcher

    def is_match(self, name: str) -> bool:
        """Whether the name matches as a whole: a matter of microseconds, or of milliseconds at the very worst."""
        return self._matcher.fullmatch(name) is not None


def compile_regex(pattern: str) -> CompiledRegex:
    """The regular expression; InvalidRegularExpression when RE2 does not take it."""
    encoded_length = len(pattern.encode())
    if encoded_length > REGULAR_EXPRESSION_BYTES_MAX:
        raise InvalidRegularExpression(
            f"{pattern[:32]}…", f"{encoded_length} bytes are more than {REGULAR_EXPRESSION_BYTES_MAX}"
        )
    re2 = _re2(pattern)
    options = re2.Options()
    options.max_mem = REGULAR_EXPRESSION_MEMORY_BYTES
    options.log_errors = False
    options.never_capture = True
    try:
        return CompiledRegex(pattern, re2.compile(pattern, options))
    except re2.error as error:
        raise InvalidRegularExpression(pattern, _description(error)) from None


def _re2(pattern: str) -> ModuleType:
    try:
        module: ModuleType = import_module("re2")
    except ImportError:
        raise InvalidRegularExpression(pattern, "this broker runs without the google-re2 package") from None
    return module


def _description(error: Exception) -> str:
    """RE2's message without the fragment that it quotes, in the words of re2j."""
    raw = error.args[0]
    message = raw.decode(errors="replace") if isinstance(raw, bytes) else str(raw)
    reason = message.split(": ", 1)[0]
    return DESCRIPTIONS.get(reason, reason)
