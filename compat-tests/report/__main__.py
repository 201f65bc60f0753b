"""``python -m report DIRECTORY``: write the page of an earlier run anew, from the document that lies there."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from report.page import DOCUMENT, write
from report.parts import Run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m report", description=(__doc__ or "").partition(": ")[2])
    parser.add_argument("directory", type=Path, help="where scripts/conformance --report has written")
    directory: Path = parser.parse_args().directory
    write(Run.from_json(json.loads((directory / DOCUMENT).read_text())), directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
