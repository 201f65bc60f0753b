"""The search for inputs, by Atheris (libFuzzer for Python): run as a process for one target, for so long.

``python -m fuzz.engine TARGET CORPUS [option of libFuzzer]…``; what it finds lies beside the corpus.
"""

from __future__ import annotations

import sys

import atheris  # type: ignore[import-not-found, import-untyped, unused-ignore]  # scripts/fuzz installs it

with atheris.instrument_imports(include=["pybroker_protocol", "pybroker.security", "pybroker.config.jaas"]):
    from fuzz.targets import TARGETS


def main() -> None:
    target = sys.argv.pop(1)
    atheris.Setup(sys.argv, TARGETS[target].run)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
