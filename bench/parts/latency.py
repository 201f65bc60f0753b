"""Latency at fixed rates, which are shares of what Kafka can do at most: produce, and from produce to consume."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from bench.contestants import KAFKA, Contestant, ProduceContestant, topic
from bench.context import Context
from bench.floor import Floor
from bench.loads import Latency, LatencyOutcome
from bench.parts.tiny import add_generator, add_percentiles
from bench.parts.warmup import warm_up

SHARES = (0.2, 0.5)
CONNECTIONS = 8
# A broker that answers half of its requests later than this does not keep up: its queue grows while the load lasts.
KEEPS_UP_US = 20_000
SLOWER, SEARCHES_MAX = 0.8, 12


def run(context: Context) -> None:
    """Load both at shares of the highest rate of Kafka (of what runs, if Kafka does not).

    The floor's latency at the same rate is what the host's own jitter makes of it, with no broker at all.
    """
    with context.running() as brokers:
        rates = warm_up(context, brokers)
        name = KAFKA if KAFKA in rates else next(iter(rates))
        rate = sustained_rate(context, rates[name], brokers[name])
        context.add("highest rate", "1/s", name, rate)
        for share in SHARES:
            context.alternate(context.with_floor(brokers), partial(measure, context, share, share * rate))


def sustained_rate(context: Context, rate: float, broker: Contestant) -> float:
    """The highest rate, from the closed loop's downwards, of whose highest share the broker keeps up with this load."""
    for _ in range(SEARCHES_MAX):
        if at_rate(context, rate * max(SHARES), broker).produce.p50_us < KEEPS_UP_US:
            return rate
        rate *= SLOWER
    raise RuntimeError("no rate was low enough")


def at_rate(context: Context, rate: float, contestant: ProduceContestant) -> LatencyOutcome:
    """One run of the load; the floor has no consumers."""
    with topic(contestant, CONNECTIONS) as topic_name:
        load = Latency(contestant.bootstrap, topic_name, rate, CONNECTIONS, consumers=not isinstance(contestant, Floor))
        return replace(load, seconds=context.volume.seconds, warmup_seconds=context.volume.warmup_seconds).run()


def measure(context: Context, share: float, rate: float, name: str, contestant: ProduceContestant) -> None:
    """One rate against one contestant."""
    outcome = at_rate(context, rate, contestant)
    label = f"{share:.0%}".replace("%", " %")
    if isinstance(contestant, Floor):
        add_percentiles(context, f"{label} produce", name, outcome.produce)
    else:
        add_latencies(context, f"{label} ", name, outcome)


def add_latencies(context: Context, label: str, name: str, outcome: LatencyOutcome) -> None:
    """Add the percentiles of both latencies."""
    add_generator(context, label.strip(), name, outcome.client_cpu_share)
    add_percentiles(context, f"{label}produce", name, outcome.produce)
    add_percentiles(context, f"{label}end-to-end", name, outcome.end_to_end)
