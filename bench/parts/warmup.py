"""The warm-up before a part measures: a JVM compiles what is hot, both fill their caches."""

from __future__ import annotations

from collections.abc import Callable

from bench.contestants import Contestant, topic
from bench.context import Context
from bench.loads import Extent, Fetch, Produce

# One run of a load while it warms up.
SECONDS = 2.0
# A JVM is warm once so many runs in a row were not faster than the best before by a twentieth: half a minute of small
# requests, in which it becomes five times as fast.
NOTABLY_FASTER = 1.05
RUNS_IN_VAIN = 3
RUNS_MAX = 20
LARGE_REQUESTS = 1500
CONNECTIONS = 8


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
    with topic(broker, CONNECTIONS) as topic_name:
        extent = Extent(SECONDS, warmup_seconds=0)
        tiny = Produce(broker.bootstrap, topic_name, connections=CONNECTIONS, in_flight=5, extent=extent)
        highest = highest_rate(context, name, lambda: tiny.run().requests_per_second)
        extent = Extent(10.0, warmup_seconds=0, requests=LARGE_REQUESTS)
        Produce(broker.bootstrap, topic_name, 1000, 900, CONNECTIONS, in_flight=2, extent=extent).run()
        for connections in (1, CONNECTIONS):
            Fetch(broker.bootstrap, topic_name, CONNECTIONS, connections, extent=Extent(SECONDS, 0)).run()
    return highest
