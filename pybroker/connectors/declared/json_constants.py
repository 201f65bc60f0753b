"""Constants that Python's reader of JSON takes and JSON has not: NaN and both infinities.

Owns their refusal.  Pure.
"""

from __future__ import annotations

from typing import NoReturn


def refuse_constant(constant: str) -> NoReturn:
    """For ``parse_constant`` of ``json.loads``; raises ValueError."""
    raise ValueError(f"{constant} is no number of JSON")
