"""Which times have a place in a timestamp of Arrow, Spark or DuckDB: microseconds since 1970 in 64 bits."""

from __future__ import annotations

from typing import Final

_US_MAX: Final = 2**63 - 1
TIMESTAMP_MS_MAX: Final = _US_MAX // 1_000
TIMESTAMP_S_MAX: Final = _US_MAX // 1_000_000
