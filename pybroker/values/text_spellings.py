"""How texts spell counts and bytes: the same for the queries of all engines.

Owns the patterns, which RE2 and Java read alike, and which need no quotes of SQL inside.  A whole text has to match.
Pure.
"""

from __future__ import annotations

from typing import Final

# A number in place of a time: milliseconds, or days in place of a date, as ksqlDB writes them.
COUNT: Final = "-?[0-9]+"
BASE64: Final = "([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"
MS_PER_DAY: Final = 86_400_000
