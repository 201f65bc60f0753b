"""The warm-up before a part measures: a JVM compiles what is hot, both fill their caches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace

from bench import cold_load
from bench.contestants import Contestant, topic
from bench.context import Context
from bench.raw_load import Job
from bench.subprocesses import Generator, raw_load

# One run of a load while it warms up.
SECONDS = 2.0
# A JVM is warm once so many runs in a row were not faster than the best before by a twentieth: half a minute of small
# requests, in which it becomes five times as fast.
NOTABLY_FASTER = 1.05
RUNS_IN_VAIN = 3
RUNS_MAX = 20
LARGE_REQUESTS = 1500


def warm_up(context: Context, brokers: dict[str, Contestant]) -> dict[str, float]:
    """Load each broker for a while with requests of both kinds; the highest rate of small ones of each."""
    return {name: _warm_up_one(context, name, broker) for name, broker in brokers.items()}


def highest_rate(context: Context, name: str, rate_of_a_run: Callable[[], float]) -> float:
    """Run a load until it has not become faster for a while; its highest rate."""
    highest, runs_in_vain = 0.0, 0
    for _ in range(RUNS_MAX):
        rate = rate_of_a_run()
        runs_in_vain = 0 if rate > highest * NOTABLY_FASTER else runs_in_vain + 1
        highest = max(highest, rate)
        if runs_in_vain == RUNS_IN_VAIN:
            break
    context.say(f"{context.part:>10}  {name:<9} warm: {highest:,.0f} 1/s")
    return highest


def _warm_up_one(context: Context, name: str, broker: Contestant) -> float:
    with topic(broker, 8) as topic_name:
        tiny = Job(broker.bootstrap, topic_name, connections=8, in_flight=5, seconds=SECONDS, warmup_seconds=0)
        highest = highest_rate(context, name, lambda: raw_load(tiny).requests_per_second)
        large = replace(tiny, records=1000, record_bytes=1000, in_flight=2, seconds=10.0, requests=LARGE_REQUESTS)
        raw_load(large)
        for _ in range(2):
            job = cold_load.Job(broker.bootstrap, topic_name, large.connections, 10**9, seconds=2.0)
            Generator("bench.cold_load", asdict(job)).outcome()
    return highest
