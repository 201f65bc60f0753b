"""Many of everything: 50 producers and 50 consumers share 200 partitions at a fixed rate that neither broker minds."""

from __future__ import annotations

from functools import partial

from bench.contestants import Contestant, topic
from bench.context import Context
from bench.loads import Latency
from bench.parts.latency import add_latencies
from bench.parts.warmup import warm_up

PARTITIONS, PRODUCERS, CONSUMERS = 200, 50, 50
RATE = 1000
# A new topic of so many partitions costs Kafka seconds, and what was due meanwhile waits: that is not this measurement.
WARMUP_SECONDS = 6.0


def run(context: Context) -> None:
    """The same load on both brokers, in every round."""
    with context.running() as brokers:
        warm_up(context, brokers)
        context.alternate(brokers, partial(measure, context))


def measure(context: Context, name: str, broker: Contestant) -> None:
    """One broker."""
    with topic(broker, PARTITIONS) as topic_name:
        load = Latency(
            broker.bootstrap,
            topic_name,
            RATE,
            connections=PRODUCERS,
            partitions=PARTITIONS,
            consumers=CONSUMERS,
            seconds=context.volume.seconds,
            warmup_seconds=WARMUP_SECONDS,
        )
        outcome = load.run()
    add_latencies(context, "", name, outcome)
