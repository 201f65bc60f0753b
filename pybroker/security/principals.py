"""From the name in a certificate to a principal: ``ssl.principal.mapping.rules``.

Owns: the syntax of the rules, and what they make of a name.  Owns no certificate (``certificates``).

Counterpart in Kafka: ``SslPrincipalMapper``.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_RULE: Final = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER: Final = re.compile(rf"\s*({_RULE})\s*(?:,\s*|$)")
_PARSER: Final = re.compile(_RULE)
_REFERENCE: Final = re.compile(r"\\(.)|\$(\d+)", re.DOTALL)


class RuleError(ValueError):
    """A rule that cannot be read, or does not compile."""


class NoMatchingRule(Exception):
    """No rule fits a name: it lets no client in."""


class _Rule(NamedTuple):
    """One rule; without a pattern it is DEFAULT: the whole name."""

    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    case: str = ""


class PrincipalMapper:
    """The rules of one listener.  Raises RuleError."""

    def __init__(self, text: str) -> None:
        self._rules = [rule for part in _parts(text) if (rule := _parsed(part)) is not None]

    def name_of(self, distinguished_name: str) -> str:
        """The principal's name, by the first rule that fits all of it; NoMatchingRule."""
        for rule in self._rules:
            if rule.pattern is None:
                return distinguished_name
            match = rule.pattern.fullmatch(distinguished_name)
            if match is not None:
                name = _replaced(rule.replacement, match)
                return name.lower() if rule.case == "L" else name.upper() if rule.case == "U" else name
        raise NoMatchingRule("no rule of ssl.principal.mapping.rules fits the name of its certificate")


def _parts(text: str) -> list[str]:
    return [match[1] for match in _SPLITTER.finditer(text.strip())]


def _parsed(part: str) -> _Rule | None:
    match = _PARSER.fullmatch(part)
    if match is None or match[5]:
        raise RuleError(f"Invalid rule: `{part}`")
    if match[1] is not None:
        return _Rule()
    if match[2] is None:
        return None  # empty ones are passed over
    try:
        return _Rule(re.compile(match[2]), match[3], match[4])
    except re.error as error:
        raise RuleError(f"Invalid rule: `{part}` ({error})") from error


def _replaced(replacement: str, match: re.Match[str]) -> str:
    """Java's ``$1``; one that names no group is text."""

    def group(reference: re.Match[str]) -> str:
        if reference[1] is not None:
            return reference[1]
        digits = reference[2]
        groups = match.re.groups
        # Of $12 without twelve groups the 2 is text, as in Java.
        used = len(digits)
        while used > 1 and int(digits[:used]) > groups:
            used -= 1
        number = int(digits[:used])
        return f"${digits}" if number > groups else (match[number] or "") + digits[used:]

    return _REFERENCE.sub(group, replacement)
