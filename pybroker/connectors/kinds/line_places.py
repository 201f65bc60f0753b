"""Where lines stand in files: Spark's readers of CSV and JSON tell a line's file and its text, and not its number.

Owns the search, by reading a file from its beginning.  Lines end as Spark's readers have it.  Where a file is not read
by ``file:``, is packed, or is very large, there is no number.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

_BYTES_MAX: Final = 1 << 30
# Of one text, which may stand in a file any number of times.
_NUMBERS_MAX: Final = 10


def numbers_of(file: str, texts: Collection[str], *, has_header: bool = False) -> Mapping[str, Sequence[int]]:
    """The numbers of the lines that have one of the texts, from 1 on, by text; the first ones of each.

    ``file`` is as Spark names it.  A header is no line that is searched for.
    """
    found: dict[str, list[int]] = {}
    parts = urlsplit(file)
    path = Path(unquote(parts.path))
    try:
        if parts.scheme != "file" or path.stat().st_size > _BYTES_MAX:
            return {}
        with path.open(encoding="utf-8", errors="replace") as lines:
            for number, line in enumerate(lines, 1):
                text = line.removesuffix("\n")
                if text in texts and not (has_header and number == 1):
                    numbers = found.setdefault(text, [])
                    if len(numbers) < _NUMBERS_MAX:
                        numbers.append(number)
    except OSError:
        return {}
    return found
