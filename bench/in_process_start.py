"""Starts and closes the in-process broker in a fresh interpreter; prints milliseconds as JSON.

``python -m bench.in_process_start``.  The first start includes the imports; the others are what a test run pays.
"""

from __future__ import annotations

import json
import sys
import time

REPEATS = 10


def milliseconds_since(started: float) -> float:
    """Milliseconds since a moment of ``time.perf_counter``."""
    return (time.perf_counter() - started) * 1000


def main() -> None:
    """Measure the first start and the median of the others."""
    started = time.perf_counter()
    from pybroker.testing import Broker

    broker = Broker().start()
    first_start_ms = milliseconds_since(started)
    broker.stop()
    starts, stops = [], []
    for _ in range(REPEATS):
        broker = Broker()
        started = time.perf_counter()
        broker.start()
        starts.append(milliseconds_since(started))
        started = time.perf_counter()
        broker.stop()
        stops.append(milliseconds_since(started))
    middle = REPEATS // 2
    json.dump({"first": first_start_ms, "start": sorted(starts)[middle], "close": sorted(stops)[middle]}, sys.stdout)


if __name__ == "__main__":
    main()
