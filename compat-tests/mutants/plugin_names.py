"""The environment variables that tell the plugin what to do; apart, because importing the plugin installs a mutant."""

from __future__ import annotations

from typing import Final

MUTANT: Final = "PYBROKER_MUTANT"
REPORT: Final = "PYBROKER_MUTANT_REPORT"
