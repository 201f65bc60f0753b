"""Tiny requests: how many Produce requests of one small record are answered, how fast, at which CPU."""

from __future__ import annotations

from functools import partial

from bench.contestants import ProduceContestant, topic
from bench.context import Context, CpuMeter
from bench.floor import Floor
from bench.loads import Extent, Outcome, Percentiles, Produce
from bench.parts.warmup import warm_up
from bench.wire import Client

SHAPES = ((1, 1), (8, 1), (8, 5))
RECORD_BYTES = 100
SHOWN_PERCENTILES = {"p50": "p50_us", "p90": "p90_us", "p99": "p99_us", "p99.9": "p999_us", "max": "max_us"}
CLIENT_CPU_SHARE_MAX = 0.9


def run(context: Context) -> None:
    """Every shape, in every round, on a fresh topic each."""
    with context.running() as brokers:
        warm_up(context, brokers)
        contestants = context.with_floor(brokers)
        for connections, in_flight in SHAPES:
            context.alternate(contestants, partial(measure, context, connections, in_flight))


def measure(context: Context, connections: int, in_flight: int, name: str, contestant: ProduceContestant) -> None:
    """One shape against one contestant."""
    with topic(contestant, connections) as topic_name:
        cpu = CpuMeter(contestant.pid)
        extent = Extent(context.volume.seconds, context.volume.warmup_seconds)
        load = Produce(contestant.bootstrap, topic_name, 1, RECORD_BYTES, connections, in_flight, extent)
        outcome = load.run()
        cpu_seconds = cpu.seconds()
        check_log(contestant, load, outcome)
    add_outcome(context, f"{connections}×{in_flight}", "requests", name, outcome, cpu_seconds)


def add_outcome(context: Context, shape: str, what: str, name: str, outcome: Outcome, cpu_seconds: float) -> None:
    """Add the rate, the latencies and the processor time of small requests, and what the generator took itself."""
    add_generator(context, shape, name, outcome.client_cpu_share)
    context.add(f"{shape} {what}", "1/s", name, outcome.requests_per_second)
    add_percentiles(context, shape, name, outcome.latency)
    context.add(f"{shape} CPU", "s/million", name, cpu_seconds / outcome.acknowledged * 1e6)


def add_percentiles(context: Context, label: str, name: str, latency: Percentiles) -> None:
    """Add all percentiles of a latency."""
    for shown, field in SHOWN_PERCENTILES.items():
        context.add(f"{label} {shown}".strip(), "µs", name, getattr(latency, field))


def add_generator(context: Context, label: str, name: str, cpu_share: float) -> None:
    """Add what the generator took of a core, and say so when it was the limit in place of the contestant."""
    context.add(f"{label} generator".strip(), "of a core", name, cpu_share)
    if cpu_share > CLIENT_CPU_SHARE_MAX:
        context.say(f"the generator used {cpu_share:.0%} of a core: these figures are its own")


def check_log(contestant: ProduceContestant, load: Produce, outcome: Outcome) -> None:
    """Raise ``RuntimeError`` unless the log holds exactly what was acknowledged."""
    if isinstance(contestant, Floor):
        written, acknowledged = contestant.stored_bytes(), outcome.acknowledged * (len(load.frames()[0]) - 4)
    else:
        with Client(contestant.bootstrap) as client:
            written = sum(client.end_offsets(load.topic, range(load.connections)).values())
        acknowledged = outcome.acknowledged * load.records
    if written != acknowledged:
        raise RuntimeError(f"{acknowledged} acknowledged, {written} in the log (records; of the floor bytes)")
