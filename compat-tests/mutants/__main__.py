"""``python -m mutants``: see ``scripts/mutants``."""

from __future__ import annotations

import sys

from mutants.run import main

if __name__ == "__main__":
    sys.exit(main())
