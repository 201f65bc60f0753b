"""How texts spell numbers, truth values and bytes: the same for the queries of all engines.

Owns the patterns, which RE2 and Java read alike, and which need no quotes of SQL inside.  Casts of engines take more:
``0x1F`` and ``1_000`` are numbers to one of them, and ``1d`` is one to another.  A whole text has to match.  Pure.

Invariant: no two parts of a pattern can share the digits of a text: Java would try all ways to part a long one.
"""

from __future__ import annotations

from typing import Final

# A number in place of a time: milliseconds, or days in place of a date, as ksqlDB writes them.
COUNT: Final = "-?[0-9]+"
INTEGER: Final = "[ \\t\\r\\n]*[+-]?[0-9]+[ \\t\\r\\n]*"
DECIMAL: Final = "[ \\t\\r\\n]*[+-]?([0-9]+([.][0-9]*)?|[.][0-9]+)([eE][+-]?[0-9]+)?[ \\t\\r\\n]*"
FLOAT: Final = f"{DECIMAL}|(?i)[+-]?(nan|inf|infinity)"
BOOLEAN: Final = "(?i)t|true|f|false|y|yes|n|no|1|0"
BASE64: Final = "([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"
MS_PER_DAY: Final = 86_400_000
# Days since 1970 of the years 1 to 9999: ``20260131`` is a date without dashes, and no number of them.
DAY_MIN: Final = -719_162
DAY_MAX: Final = 2_932_896
