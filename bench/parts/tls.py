"""TLS: large batches in and out, tiny requests, and full handshakes, beside Apache Kafka with the same certificate."""

from __future__ import annotations

from functools import partial

from bench.contestants import topic
from bench.context import Context, CpuMeter
from bench.loads import Extent, Fetch, Handshakes, Produce
from bench.parts.fetch import shared_end
from bench.parts.large import BATCH_BYTES, LARGE_RECORD_BYTES, RECORDS
from bench.parts.tiny import RECORD_BYTES, add_generator, add_outcome, check_log
from bench.parts.warmup import LARGE_REQUESTS, SECONDS, highest_rate, warm_up
from bench.secure import TlsContestant, running_with_tls

CONNECTIONS, HANDSHAKE_CLIENTS = 8, 4


def run(context: Context) -> None:
    """Every load in every round, on a fresh topic each."""
    with running_with_tls(context) as brokers:
        warm_up(context, {name: contestant.broker for name, contestant in brokers.items()})
        for name, contestant in brokers.items():
            _warm_up_tls(context, name, contestant)
        context.alternate(brokers, partial(measure_large, context), written_bytes=2 * context.volume.bulk_bytes)
        context.alternate(brokers, partial(measure_tiny, context))
        context.alternate(brokers, partial(measure_handshakes, context))


def _warm_up_tls(context: Context, name: str, contestant: TlsContestant) -> None:
    """What a broker and its JVM know after it of TLS."""
    with topic(contestant.broker, CONNECTIONS) as topic_name:
        to, extent = contestant.tls_bootstrap, Extent(SECONDS, warmup_seconds=0)
        tiny = Produce(to, topic_name, connections=CONNECTIONS, in_flight=5, extent=extent, is_tls=True)
        highest_rate(context, name, lambda: tiny.run().requests_per_second)
        large = Extent(10.0, warmup_seconds=0, requests=LARGE_REQUESTS)
        Produce(to, topic_name, RECORDS, LARGE_RECORD_BYTES, CONNECTIONS, 2, large, is_tls=True).run()
        Fetch(to, topic_name, CONNECTIONS, CONNECTIONS, extent=Extent(SECONDS, 0), is_tls=True).run()
        highest_rate(context, name, Handshakes(to, HANDSHAKE_CLIENTS, SECONDS).per_second)


def measure_large(context: Context, name: str, contestant: TlsContestant) -> None:
    """A bulk transfer in, bounded by its volume, and the same records out again."""
    broker = contestant.broker
    with topic(broker, CONNECTIONS) as topic_name:
        extent = Extent(30, 0.5, context.volume.bulk_bytes // BATCH_BYTES)
        sizes = (RECORDS, LARGE_RECORD_BYTES, CONNECTIONS, 2)
        load = Produce(contestant.tls_bootstrap, topic_name, *sizes, extent, is_tls=True)
        cpu = CpuMeter(contestant.pid)
        outcome = load.run()
        cpu_seconds = cpu.seconds()
        check_log(broker, load, outcome)
        add_generator(context, "produce", name, outcome.client_cpu_share)
        batch_bytes = len(load.batch())
        context.add("produce", "MB/s", name, outcome.requests * batch_bytes / outcome.seconds / 1e6)
        context.add("produce CPU", "s/GB", name, cpu_seconds / (outcome.acknowledged * batch_bytes / 1e9))
        end = shared_end(broker, topic_name)
        read_extent = Extent(context.volume.seconds, warmup_seconds=0)
        reader = Fetch(
            contestant.tls_bootstrap,
            topic_name,
            CONNECTIONS,
            CONNECTIONS,
            end_offset=end,
            extent=read_extent,
            is_tls=True,
        )
        cpu = CpuMeter(contestant.pid)
        read = reader.run()
        cpu_seconds = cpu.seconds()
        add_generator(context, "consume", name, read.client_cpu_share)
        context.add("consume", "MB/s", name, read.fetched_bytes / read.seconds / 1e6)
        context.add("consume CPU", "s/GB", name, cpu_seconds / (read.fetched_bytes / 1e9))


def measure_tiny(context: Context, name: str, contestant: TlsContestant) -> None:
    """Requests of one small record over 8 connections, one in flight on each."""
    broker = contestant.broker
    with topic(broker, CONNECTIONS) as topic_name:
        extent = Extent(context.volume.seconds, context.volume.warmup_seconds)
        load = Produce(contestant.tls_bootstrap, topic_name, 1, RECORD_BYTES, CONNECTIONS, 1, extent, is_tls=True)
        cpu = CpuMeter(contestant.pid)
        outcome = load.run()
        cpu_seconds = cpu.seconds()
        check_log(broker, load, outcome)
    add_outcome(context, "8×1", "requests", name, outcome, cpu_seconds)


def measure_handshakes(context: Context, name: str, contestant: TlsContestant) -> None:
    """Clients that do nothing but connect."""
    cpu = CpuMeter(contestant.pid)
    load = Handshakes(contestant.tls_bootstrap, HANDSHAKE_CLIENTS, context.volume.seconds)
    per_second = load.per_second()
    context.add("handshakes", "1/s", name, per_second)
    context.add("handshakes CPU", "ms", name, cpu.seconds() / (per_second * load.seconds) * 1e3)
