"""Large batches: 900 KB requests over 1 and 8 connections, and another client's tiny requests while they pour in."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from bench.contestants import Contestant, ProduceContestant, topic
from bench.context import Context, CpuMeter
from bench.loads import Extent, Produce
from bench.parts.tiny import RECORD_BYTES, add_generator, add_percentiles, check_log
from bench.parts.warmup import warm_up

RECORDS, LARGE_RECORD_BYTES = 890, 1000
BATCH_BYTES = 900_000
SHAPES = ((1, 5), (8, 2))
WARMUP_S = 0.5
# A transfer takes half a second, and one wait for the disk in it a third of its rate: more of them than of other loads.
TRANSFERS_PER_ROUND = 2


def run(context: Context) -> None:
    """1 and 8 connections alone, then 8 with another client beside."""
    # Half a second of warm-up at more than 1 GB/s comes first.
    written_bytes = 2 * context.volume.bulk_bytes
    with context.running() as brokers:
        warm_up(context, brokers)
        contestants = context.with_floor(brokers)
        for connections, in_flight in SHAPES:
            measure = partial(measure_bulk, context, f"{connections} conn", connections, in_flight)
            transfers = TRANSFERS_PER_ROUND * context.volume.rounds
            context.alternate(contestants, measure, transfers, written_bytes=written_bytes)
        context.alternate(brokers, partial(measure_beside, context), written_bytes=written_bytes)


def large_load(
    context: Context, contestant: ProduceContestant, topic_name: str, connections: int, in_flight: int = 2
) -> Produce:
    """A bulk transfer, bounded by its volume and, on a slow disk, by time."""
    extent = Extent(30, WARMUP_S, context.volume.bulk_bytes // BATCH_BYTES)
    return Produce(contestant.bootstrap, topic_name, RECORDS, LARGE_RECORD_BYTES, connections, in_flight, extent)


def measure_bulk(
    context: Context, label: str, connections: int, in_flight: int, name: str, contestant: ProduceContestant
) -> None:
    """A bulk transfer, told under a label."""
    with topic(contestant, connections) as topic_name:
        load = large_load(context, contestant, topic_name, connections, in_flight)
        cpu = CpuMeter(contestant.pid)
        outcome = load.run()
        cpu_seconds = cpu.seconds()
        check_log(contestant, load, outcome)
    batch_bytes = len(load.batch())
    context.add(f"{label} produce", "MB/s", name, outcome.requests * batch_bytes / outcome.seconds / 1e6)
    context.add(f"{label} p99", "µs", name, outcome.latency.p99_us)
    context.add(f"{label} CPU", "s/GB", name, cpu_seconds / (outcome.acknowledged * batch_bytes / 1e9))
    add_generator(context, label, name, outcome.client_cpu_share)


def measure_beside(context: Context, name: str, broker: Contestant) -> None:
    """Tiny requests of another client for as long as a bulk transfer over 8 connections lasts."""
    with topic(broker, 8) as large_topic, topic(broker, 1) as tiny_topic:
        # The bulk transfer starts first and outlasts the tiny requests.
        load = replace(large_load(context, broker, large_topic, 8), extent=Extent(4.0, WARMUP_S))
        large = load.start()
        tiny_load = Produce(broker.bootstrap, tiny_topic, record_bytes=RECORD_BYTES, extent=Extent(2.0, 1.0))
        tiny = tiny_load.run()
        outcome = large.outcome()
        check_log(broker, load, outcome)
        check_log(broker, tiny_load, tiny)
    context.add("tiny beside 8 conn", "1/s", name, tiny.requests_per_second)
    add_percentiles(context, "tiny beside 8 conn", name, tiny.latency)
    mb_per_second = outcome.requests * len(load.batch()) / outcome.seconds / 1e6
    context.add("8 conn beside tiny produce", "MB/s", name, mb_per_second)
