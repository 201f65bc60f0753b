"""``python -m mutants``: see ``scripts/mutants``."""

from __future__ import annotations

import sys

from harness.termination import exit_on_sigterm

from mutants.run import main

if __name__ == "__main__":
    exit_on_sigterm()
    sys.exit(main())
