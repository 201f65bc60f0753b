"""Where lines stand in files: Spark's readers of CSV and JSON tell a line's file and its text, and not its number.

Owns the search, by reading a file from its beginning.  Lines end as Spark's readers have it.  Where a file is not read
by ``file:``, is packed, or is large, there is no number.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

# The search is done by threads that others wait for.
_BYTES_MAX: Final = 64 << 20
# The names' ends by which Hadoop's codecs, and Spark with them, unpack a file.
_PACKED: Final = frozenset({".gz", ".bz2", ".deflate", ".lz4", ".snappy", ".zst"})
# Of one text, which may stand in a file any number of times.
_NUMBERS_MAX: Final = 10


def can_be_searched(file: str) -> bool:
    """Whether lines of the file may be found, as far as its name and its size say."""
    path = _path_of(file)
    if urlsplit(file).scheme != "file" or path.suffix in _PACKED:
        return False
    try:
        return path.stat().st_size <= _BYTES_MAX
    except OSError:
        return False


def numbers_of(file: str, texts: Collection[str], *, has_header: bool = False) -> Mapping[str, Sequence[int]]:
    """The numbers of the lines that have one of the texts, from 1 on, by text; the first ones of each.

    ``file`` is as Spark names it.  A header is no line that is searched for.
    """
    found: dict[str, list[int]] = {}
    if not can_be_searched(file):
        return {}
    try:
        with _path_of(file).open(encoding="utf-8", errors="replace") as lines:
            for number, line in enumerate(lines, 1):
                text = line.removesuffix("\n")
                if text in texts and not (has_header and number == 1):
                    numbers = found.setdefault(text, [])
                    if len(numbers) < _NUMBERS_MAX:
                        numbers.append(number)
    except OSError:
        return {}
    return found


def _path_of(file: str) -> Path:
    return Path(unquote(urlsplit(file).path))
