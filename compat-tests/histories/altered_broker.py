"""pybroker with a wall clock that can be set: ``python -m histories.altered_broker CLOCK MISTAKE serve ...``.

CLOCK is a file with the seconds by which this broker's wall clock is ahead of the machine's; the monotonic one is left
alone, because no machine's ever jumps.  MISTAKE is one of ``mistakes``, or ``none``.  libfaketime would do the same to
any program, but breaks ``time.sleep`` of Python 3.11 and later.
"""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from pathlib import Path

from mutants.import_hook import install

from histories.mistakes import MISTAKES

NO_MISTAKE = "none"
LOOKS_EVERY_S = 0.2


class Clock:
    """Stands in for ``time.time`` and ``time.time_ns``."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._real_ns = time.time_ns
        self._ahead_ns = 0
        self._looks_at = 0.0

    def time_ns(self) -> int:
        if (now := time.monotonic()) >= self._looks_at:
            self._looks_at = now + LOOKS_EVERY_S
            with suppress(FileNotFoundError, ValueError):
                self._ahead_ns = int(self._path.read_text()) * 1_000_000_000
        return self._real_ns() + self._ahead_ns

    def time(self) -> float:
        return self.time_ns() / 1e9


def main() -> None:
    clock, mistake = Clock(Path(sys.argv.pop(1))), sys.argv.pop(1)
    time.time, time.time_ns = clock.time, clock.time_ns
    if mistake != NO_MISTAKE:
        install(MISTAKES[mistake])
    # Only now, because a module that is imported already cannot be altered.
    from pybroker.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
