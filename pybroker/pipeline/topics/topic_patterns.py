"""Regular expressions of Java's (java.util.regex.Pattern) as Python's, for the names of topics alone.

Owns the translation for ``subscribePattern``, whose values are Java's with Spark's connector.  Many of them mean
something else to Python without an error, such as ``[a-z&&[^x]]``.  A topic's name has 65 characters to choose from:
each class becomes the set of those that it has, and a letter whose case is ignored becomes two.

Invariant: what is not understood is refused; a pattern is never read otherwise than Java reads it.
"""

import re
import string
import unicodedata
from collections.abc import Callable

_LETTERS = frozenset(string.ascii_letters)
_DIGITS = frozenset(string.digits)
# Kafka's Topic.LEGAL_CHARS.
LEGAL = _LETTERS | _DIGITS | frozenset("._-")
_NONE: frozenset[str] = frozenset()

_OF_ESCAPES = {"d": _DIGITS, "w": LEGAL - set(".-"), "s": _NONE, "h": _NONE, "v": _NONE}
_LOWER, _UPPER = frozenset(string.ascii_lowercase), frozenset(string.ascii_uppercase)
_OF_PROPERTIES = {
    "ASCII": LEGAL,
    "Alnum": _LETTERS | _DIGITS,
    "Alpha": _LETTERS,
    "Blank": _NONE,
    "Cntrl": _NONE,
    "Digit": _DIGITS,
    "Graph": LEGAL,
    "IsAlphabetic": _LETTERS,
    "IsDigit": _DIGITS,
    "IsLatin": _LETTERS,
    "IsLetter": _LETTERS,
    "IsLowercase": _LOWER,
    "IsPunctuation": frozenset("._-"),
    "IsUppercase": _UPPER,
    "Lower": _LOWER,
    "Print": LEGAL,
    "Punct": frozenset("._-"),
    "Space": _NONE,
    "Upper": _UPPER,
    "XDigit": frozenset(string.hexdigits),
}
_CATEGORY = re.compile(r"L[ultmo]?|M[nce]?|N[dlo]?|P[cdseifo]?|S[mcko]?|Z[slp]?|C[cfosn]?")

_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_NUMBER = re.compile(
    r"x(?P<hex>[0-9a-fA-F]{2})|x\{(?P<long>[0-9a-fA-F]+)\}|u(?P<utf16>[0-9a-fA-F]{4})|0(?P<octal>[0-3]?[0-7]{1,2})"
)
_PROPERTY = re.compile(r"[pP](?:\{(?P<name>\w+)\}|(?P<letter>\w))")
_REPETITION = re.compile(r"\{\d+(?:,\d*)?\}")
_OPENING = re.compile(
    r"\((?:\?(?:(?P<kind>[:=!>]|<[=!])|<(?P<name>[A-Za-z][A-Za-z0-9]*)>|"
    r"(?P<flags>[A-Za-z]*(?:-[A-Za-z]*)?)(?P<end>[:)])))?"
)
_QUOTED = re.compile(r"(?P<escape>\\[^Q])|\\Q(?P<text>.*?)(?:\\E|\Z)", re.DOTALL)
# What can only concern ends of lines, or characters that no name has, makes no difference to names.
_FLAGS_WITHOUT_EFFECT = frozenset("dmsuU")
_NOTHING = r"[^\s\S]"


def translated(pattern: str) -> str:
    """The expression by which `re.search` finds the topics that Java's ``pattern`` finds; raises ValueError."""
    found = _Translation(pattern).whole()
    try:
        re.compile(found)
    except re.error as error:
        raise _refused(pattern, str(error)) from error
    return found


def _refused(pattern: str, why: str) -> ValueError:
    return ValueError(f"the regular expression {pattern!r} is none of Java's that can be read here: {why}")


def _quoted(found: re.Match[str]) -> str:
    return found["escape"] or re.sub(r"([^0-9A-Za-z])", r"\\\1", found["text"])


class _Translation:
    """One pattern, read once from its beginning to its end."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._text = _QUOTED.sub(_quoted, pattern)
        self._at = 0
        self._groups = 0

    def whole(self) -> str:
        found = self._sequence(ignores_case=False)
        if self._at < len(self._text):
            raise self._refused("a parenthesis is closed that none has opened")
        return found

    def _refused(self, why: str) -> ValueError:
        return _refused(self._pattern, why)

    def _next(self) -> str:
        return self._text[self._at : self._at + 1]

    def _is_next(self, text: str) -> bool:
        return self._text.startswith(text, self._at)

    def _taken(self, expression: re.Pattern[str]) -> re.Match[str] | None:
        found = expression.match(self._text, self._at)
        if found is not None:
            self._at = found.end()
        return found

    def _sequence(self, ignores_case: bool) -> str:
        """Up to the end of the group, with its alternatives; flags in it hold to its end."""
        parts = []
        while self._next() not in ("", ")"):
            opened = self._taken(_OPENING)
            if opened is None:
                parts.append(self._atom(ignores_case))
            elif opened["end"] == ")":
                ignores_case = self._flags(opened["flags"], ignores_case)
                if self._next() in {"*", "+", "?", "{"}:
                    raise self._refused("a quantifier follows flags")
            else:
                parts.append(self._group(opened, ignores_case))
        return "".join(parts)

    def _group(self, opened: re.Match[str], ignores_case: bool) -> str:
        if opened[0] == "(" and self._next() == "?":
            raise self._refused(f"{self._text[self._at - 1 : self._at + 3]} begins no group")
        start = "(" if opened["kind"] is None else f"(?{opened['kind']}"
        if opened["end"] is not None:
            start, ignores_case = "(?:", self._flags(opened["flags"], ignores_case)
        elif opened["kind"] is None:
            self._groups += 1
        if opened["name"] is not None:
            start = f"(?P<{opened['name']}>"
        inner = self._sequence(ignores_case)
        if self._next() != ")":
            raise self._refused("a parenthesis is not closed")
        self._at += 1
        return f"{start}{inner})"

    def _flags(self, flags: str, ignores_case: bool) -> bool:
        on, _, off = flags.partition("-")
        if strange := {*on, *off} - _FLAGS_WITHOUT_EFFECT - {"i"}:
            raise self._refused(f"the flag {min(strange)} is not served")
        return "i" not in off and ("i" in on or ignores_case)

    def _atom(self, ignores_case: bool) -> str:
        """One character that is matched, or what stands between such: an anchor, a quantifier, a bar."""
        char = self._next()
        if char == "{":
            if (found := self._taken(_REPETITION)) is None:
                raise self._refused("a brace begins no repetition")
            return found[0]
        self._at += 1
        if char == "[":
            return _one_of(self._class(ignores_case))
        if char == "\\":
            return self._escape(ignores_case)
        return char if char in ".^$|*+?" else _literal(char, ignores_case)

    def _escape(self, ignores_case: bool) -> str:
        char = self._next()
        if char in ("b", "B", "A", "Z", "z"):
            self._at += 1
            if self._is_next("{"):
                raise self._refused(rf"\{char}{{ is not served")
            return r"\Z" if char in "Zz" else f"\\{char}"
        if char == "k":
            if (named := self._taken(re.compile(r"k<(\w+)>"))) is None:
                raise self._refused(r"\k names no group")
            return _reference(f"(?P={named[1]})", ignores_case)
        if char in _DIGITS - {"0"}:
            return self._numbered(ignores_case)
        found = self._escaped_set(ignores_case)
        return _literal(self._escaped_char(), ignores_case) if found is None else _one_of(found)

    def _numbered(self, ignores_case: bool) -> str:
        """A reference has as many digits as there are groups so far."""
        number = 0
        while self._next() in _DIGITS and (number == 0 or number * 10 + int(self._next()) <= self._groups):
            number = number * 10 + int(self._next())
            self._at += 1
        if number > self._groups:
            raise self._refused(f"there is no group {number} before its reference")
        return _reference(f"\\{number}", ignores_case)

    def _escaped_set(self, ignores_case: bool) -> frozenset[str] | None:
        """Of ``\\d``, ``\\p{Alpha}`` and their like; None for a single character."""
        if (found := self._taken(_PROPERTY)) is not None:
            chars = self._property(found["name"] or found["letter"])
            chars = _folded(chars) if ignores_case else chars
            return LEGAL - chars if found[0].startswith("P") else chars
        char = self._next()
        if char.lower() not in _OF_ESCAPES:
            return None
        self._at += 1
        return _OF_ESCAPES[char] if char.islower() else LEGAL - _OF_ESCAPES[char.lower()]

    def _property(self, name: str) -> frozenset[str]:
        if _CATEGORY.fullmatch(category := name.removeprefix("Is")):
            return frozenset(char for char in LEGAL if unicodedata.category(char).startswith(category))
        if name not in _OF_PROPERTIES:
            raise self._refused(rf"the property {name} is not served")
        return _OF_PROPERTIES[name]

    def _escaped_char(self) -> str:
        """Behind a backslash."""
        if (found := self._taken(_NUMBER)) is not None:
            number = int(found["octal"], 8) if found["octal"] else int(found[found.lastindex or 0], 16)
            if number > 0x10FFFF:
                raise self._refused("there is no such character")
            return chr(number)
        char = self._next()
        self._at += 1
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char == "" or (char.isascii() and char.isalnum()):
            raise self._refused(rf"\{char} is not served")
        return char

    def _class(self, ignores_case: bool) -> frozenset[str]:
        """Behind its bracket: a union, or the intersection of some; the negation is of the whole."""
        is_negated = self._is_next("^")
        self._at += is_negated
        found: frozenset[str] | None = None
        while True:
            operand = self._operand(ignores_case, is_first=found is None)
            found = operand if found is None else found & operand
            if self._next() == "]":
                self._at += 1
                return LEGAL - found if is_negated else found
            self._at += len("&&")

    def _operand(self, ignores_case: bool, *, is_first: bool) -> frozenset[str]:
        """A union of characters, ranges and classes, up to the class's end or the next ``&&``."""
        found, count, classes = _NONE, 0, 0
        while not (self._is_next("&&") or (self._is_next("]") and (count or not is_first))):
            if self._next() == "":
                raise self._refused("a bracket is not closed")
            if self._is_next("["):
                self._at += 1
                found |= self._class(ignores_case)
                classes += 1
            else:
                found |= self._range(ignores_case)
            count += 1
        # Java forgets a class there that other characters follow.
        if count == 0 or (classes and count > 1 and not (is_first and self._is_next("]"))):
            raise self._refused("parts of && are one class in brackets, or characters and ranges")
        return found

    def _range(self, ignores_case: bool) -> frozenset[str]:
        if self._is_next("\\"):
            self._at += 1
            if (found := self._escaped_set(ignores_case)) is not None:
                return found
            first = self._escaped_char()
        else:
            first = self._next()
            self._at += 1
        last = first
        if self._is_next("-") and self._text[self._at + 1 : self._at + 2] not in ("", "[", "]"):
            self._at += 1
            last = self._next()
            self._at += 1
            if last == "\\":
                last = self._escaped_char()
            if last < first:
                raise self._refused(f"{first}-{last} is no range")

        def has(char: str) -> bool:
            return first <= char <= last

        return _such_as(has, ignores_case)


def _such_as(has: Callable[[str], bool], ignores_case: bool) -> frozenset[str]:
    return frozenset(char for char in LEGAL if has(char) or (ignores_case and has(char.swapcase())))


def _folded(chars: frozenset[str]) -> frozenset[str]:
    return chars | {char.swapcase() for char in chars}


def _one_of(chars: frozenset[str]) -> str:
    return f"[{''.join(map(re.escape, sorted(chars)))}]" if chars else _NOTHING


def _literal(char: str, ignores_case: bool) -> str:
    return f"[{char}{char.swapcase()}]" if ignores_case and char in _LETTERS else re.escape(char)


def _reference(reference: str, ignores_case: bool) -> str:
    return f"(?{'i' if ignores_case else ''}:{reference})"
