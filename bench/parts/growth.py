"""Growth: memory over minutes of mixed load, after the first minute has filled every cache and pool."""

from __future__ import annotations

import time
from statistics import median

from bench.contestants import PYBROKER, Contestant, topic
from bench.context import Context
from bench.loads import Extent, Latency, Produce
from bench.parts.large import LARGE_RECORD_BYTES, RECORDS
from bench.process_stats import memory

ROUND_S = 5.0
TAIL_RATE = 2000
RETENTION = {"retention.bytes": "200000000", "segment.bytes": "100000000"}


def run(context: Context) -> None:
    """pybroker alone, if it is measured at all: rounds of tiny, large and tail load, and topics that come and go."""
    if PYBROKER not in context.brokers:
        return
    with context.running_one(PYBROKER) as broker:
        samples = []
        for _ in range(max(6, int(context.volume.growth_seconds / ROUND_S))):
            samples.append(one_round(broker))
            context.add("RssAnon", "MB", PYBROKER, samples[-1])
    # A fifth at each end: the first rounds warm up, and single samples jump with whatever is in flight.
    fifth = max(1, len(samples) // 5)
    early, late = median(samples[fifth : 2 * fifth]), median(samples[-fifth:])
    context.add("RssAnon after a fifth", "MB", PYBROKER, early)
    context.add("RssAnon at the end", "MB", PYBROKER, late)
    context.add("RssAnon growth", "MB", PYBROKER, late - early)


def one_round(broker: Contestant) -> float:
    """One round of everything; returns RssAnon in MB afterwards."""
    ends = time.monotonic() + ROUND_S
    with topic(broker, 4, RETENTION) as name:
        extent = Extent(seconds=1.0, warmup_seconds=0)
        Produce(broker.bootstrap, name, connections=4, in_flight=5, extent=extent).run()
        extent = Extent(seconds=1.0, warmup_seconds=0, requests=500)
        Produce(broker.bootstrap, name, RECORDS, LARGE_RECORD_BYTES, connections=4, in_flight=2, extent=extent).run()
    with topic(broker, 4) as name:
        Latency(broker.bootstrap, name, TAIL_RATE, connections=4, seconds=1.0, warmup_seconds=0.2).run()
    time.sleep(max(0.0, ends - time.monotonic()))
    return memory(broker.pid).anon_mb
