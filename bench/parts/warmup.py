"""The warm-up before a part measures: a JVM compiles what is hot, both fill their caches."""

from __future__ import annotations

from dataclasses import asdict, replace

from bench import cold_load
from bench.contestants import Contestant, topic
from bench.context import Context
from bench.raw_load import Job
from bench.subprocesses import Generator, raw_load

# A JVM's throughput rises for about this long; afterwards its CPU time is the broker's, not the compiler's.
SECONDS = 6.0
LARGE_REQUESTS = 1500


def warm_up(context: Context, brokers: dict[str, Contestant]) -> None:
    """Load each broker for a while with requests of both kinds."""
    for broker in brokers.values():
        with topic(broker, 8) as name:
            tiny = Job(broker.bootstrap, name, connections=8, in_flight=5, seconds=SECONDS, warmup_seconds=0)
            raw_load(tiny)
            large = replace(tiny, records=1000, record_bytes=1000, in_flight=2, seconds=10.0, requests=LARGE_REQUESTS)
            raw_load(large)
            for _ in range(2):
                job = cold_load.Job(broker.bootstrap, name, large.connections, 10**9, seconds=2.0)
                Generator("bench.cold_load", asdict(job)).outcome()
    context.say(f"{context.part:>10}  warmed up")
