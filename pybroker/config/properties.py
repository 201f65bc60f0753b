"""Reads a ``server.properties`` file: Java's properties syntax.

Owns: the syntax alone (comments, separators, continuation lines, escapes); a repeated key's last value wins.
Owns no meaning of any key.

Counterpart: ``java.util.Properties.load``.
"""

from __future__ import annotations

from collections.abc import Iterator

_BLANKS = " \t\f"
_SEPARATORS = "=:"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_UNICODE_DIGITS = 4


def parse_properties(text: str) -> dict[str, str]:
    """The keys and values of ``text``, in order; raises ``ValueError`` for a malformed ``\\uXXXX`` escape."""
    properties: dict[str, str] = {}
    for line in _logical_lines(text):
        key_end = _key_end(line)
        rest = line[key_end:].lstrip(_BLANKS)
        if rest[:1] in tuple(_SEPARATORS):
            rest = rest[1:].lstrip(_BLANKS)
        properties[_unescape(line[:key_end])] = _unescape(rest)
    return properties


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments and blanks, each joined with those that continue it."""
    pending: str | None = None
    # Only these three end a line in Java; str.splitlines would also split at form feeds and Unicode separators.
    for natural in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        line = natural.lstrip(_BLANKS)
        if pending is None:
            if not line or line[0] in "#!":
                continue
            pending = ""
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
        else:
            yield pending + line
            pending = None
    if pending is not None:
        yield pending


def _key_end(line: str) -> int:
    """Index after the key: at the first separator or blank that no backslash escapes."""
    index = 0
    while index < len(line):
        if line[index] == "\\":
            index += 2
            continue
        if line[index] in _SEPARATORS or line[index] in _BLANKS:
            return index
        index += 1
    return len(line)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    index = 0
    while index < len(text):
        character = text[index]
        index += 1
        if character != "\\" or index >= len(text):
            parts.append(character if character != "\\" else "")
            continue
        escaped = text[index]
        index += 1
        if escaped != "u":
            # A backslash before any other character just goes away.
            parts.append(_ESCAPES.get(escaped, escaped))
            continue
        digits = text[index : index + _UNICODE_DIGITS]
        if len(digits) != _UNICODE_DIGITS or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
            raise ValueError("malformed \\uXXXX escape")
        parts.append(chr(int(digits, 16)))
        index += _UNICODE_DIGITS
    # Characters outside the basic plane are written as two escapes, a UTF-16 surrogate pair.
    return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
