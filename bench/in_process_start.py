"""Starts and closes the in-process broker, and starts a cluster, in a fresh interpreter; prints milliseconds as JSON.

``python -m bench.in_process_start``.  The first start includes the imports; the others are what a test run pays.
"""

from __future__ import annotations

import json
import sys
import time

REPEATS = 10
BROKERS = 3


def milliseconds_since(started: float) -> float:
    """Milliseconds since a moment of ``time.perf_counter``."""
    return (time.perf_counter() - started) * 1000


def main() -> None:
    """Measure the first start and the median of the others; of a cluster's starts, too."""
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
    outcome = {"first": first_start_ms, "start": sorted(starts)[middle], "close": sorted(stops)[middle]}
    json.dump({**outcome, "cluster": sorted(cluster_starts())[middle]}, sys.stdout)


def cluster_starts() -> list[float]:
    """Milliseconds till three brokers serve and know each other; the start with the imports does not count."""
    from pybroker.testing import Cluster

    with Cluster(brokers=BROKERS):
        pass
    starts = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        with Cluster(brokers=BROKERS):
            starts.append(milliseconds_since(started))
    return starts


if __name__ == "__main__":
    main()
