"""``python -m pybroker``: the command line where the environment's scripts are not on the path."""

from __future__ import annotations

from pybroker.cli.main import main

if __name__ == "__main__":
    main()
