"""Transactions of one record through one confluent-kafka producer: how many, how fast, at which CPU."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial

from bench.contestants import Contestant, topic
from bench.context import Context, CpuMeter
from bench.parts.warmup import SECONDS, highest_rate
from bench.subprocesses import Generator
from bench.transaction_load import Job, Outcome
from bench.wire import ADD_PARTITIONS_TO_TXN, Client


def run(context: Context) -> None:
    """The brokers that serve transactions, in alternation."""
    with context.running() as brokers:
        serving = {name: broker for name, broker in brokers.items() if serves_transactions(broker)}
        for name, broker in serving.items():
            highest_rate(context, name, partial(rate, broker))
        context.alternate(serving, partial(measure, context))


def serves_transactions(broker: Contestant) -> bool:
    """Whether the broker has a transaction coordinator."""
    with Client(broker.bootstrap) as client:
        return client.serves(ADD_PARTITIONS_TO_TXN)


def transact(broker: Contestant, seconds: float, warmup_seconds: float) -> Outcome:
    """Run a producer to its end, on a topic of its own."""
    with topic(broker, 1) as name:
        job = Job(broker.bootstrap, name, seconds, warmup_seconds)
        return Outcome(**Generator.of_module("bench.transaction_load", asdict(job)).outcome())


def rate(broker: Contestant) -> float:
    """Transactions per second in one run of the warm-up."""
    outcome = transact(broker, SECONDS, 0)
    return outcome.transactions / outcome.seconds


def measure(context: Context, name: str, broker: Contestant) -> None:
    """One broker."""
    cpu = CpuMeter(broker.pid)
    outcome = transact(broker, context.volume.seconds, context.volume.warmup_seconds)
    cpu_seconds = cpu.seconds()
    context.add("transactions", "1/s", name, outcome.transactions / outcome.seconds)
    context.add("p50", "µs", name, outcome.p50_us)
    context.add("p99", "µs", name, outcome.p99_us)
    context.add("CPU", "s/million", name, cpu_seconds / outcome.committed * 1e6)
