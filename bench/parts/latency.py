"""Latency at fixed rates, which are shares of what Kafka can do at most: produce, and from produce to consume."""

from __future__ import annotations

from functools import partial

from bench.contestants import KAFKA, Contestant, topic
from bench.context import Context
from bench.latency_load import Job, Outcome
from bench.parts.warmup import warm_up
from bench.subprocesses import latencies

SHARES = (0.2, 0.5)
CONNECTIONS = 8
CLIENT_CPU_SHARE_MAX = 0.9


def run(context: Context) -> None:
    """Load both at shares of the highest rate of Kafka (of what runs, if Kafka does not)."""
    with context.running() as brokers:
        rates = warm_up(context, brokers)
        name = KAFKA if KAFKA in rates else next(iter(rates))
        rate = rates[name]
        context.add("highest rate", "1/s", name, rate)
        for share in SHARES:
            context.alternate(brokers, partial(measure, context, share, share * rate))


def measure(context: Context, share: float, rate: float, name: str, broker: Contestant) -> None:
    """One rate against one broker."""
    with topic(broker, CONNECTIONS) as topic_name:
        job = Job(
            broker.bootstrap,
            topic_name,
            rate,
            connections=CONNECTIONS,
            seconds=context.volume.seconds,
            warmup_seconds=context.volume.warmup_seconds,
        )
        outcome = latencies(job)
    label = f"{share:.0%}".replace("%", " %")
    add_latencies(context, f"{label} ", name, outcome)


def add_latencies(context: Context, label: str, name: str, outcome: Outcome) -> None:
    """Add the percentiles of both latencies."""
    if outcome.client_cpu_share > CLIENT_CPU_SHARE_MAX:
        context.say(f"the generator used {outcome.client_cpu_share:.0%} of a core: these figures are its own")
    for what in ("produce", "end_to_end"):
        for shown, share in (("p50", "p50"), ("p99", "p99"), ("p99.9", "p999")):
            latency_us = getattr(outcome, f"{what}_{share}_us")
            context.add(f"{label}{what.replace('_', '-')} {shown}", "µs", name, latency_us)
