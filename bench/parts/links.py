"""Links: 2 GB beside MirrorMaker 2, lag at rest, 5,000 partitions at rest, 1,000 promoted, tiny requests beside a link.

Whether a broker without links is slower than before there were any, ``scripts/bench --before`` says of other parts.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from statistics import quantiles
from typing import NamedTuple

from bench import mirrors
from bench.contestants import KAFKA, PYBROKER, Contestant, topic
from bench.context import Context, CpuMeter, back_with_memory, settle
from bench.loads import Extent, Produce
from bench.mirrors import Mirroring, Pair, mirroring, records_in, wait_for_offset, wait_for_records
from bench.parts.tiny import RECORD_BYTES, add_generator, check_log
from bench.process_stats import cpu_seconds
from bench.wire import Client, record_batch

MIRRORED_BYTES = 2_000_000_000
PARTITIONS = 8
SMALL_BYTES = 200
RECORDS = 4_000  # of a batch
# A JVM's start, and what it compiles first, is not its rate: counted is from this share of the records on.
BEGUN = 0.05
SAMPLES = 300
SAMPLE_PAUSE_S = 0.025

REST_TOPICS, REST_PARTITIONS = 50, 100
SETTLE_S = MEASURED_S = 10.0
FILLED_AT_ONCE = 50
PROMOTED_TOPICS = 10  # of ``REST_TOPICS``, by each of the two ways

SHAPES = ("1×1", "8×1")
WITH, WITHOUT = "with a link", "without a link"
_PAUSE_S = 0.02
NONE, TOPIC_AUTHORIZATION_FAILED = 0, 29


def run(context: Context) -> None:
    """Each in every round, but for the many partitions."""
    names = [name for name in (KAFKA, PYBROKER) if name in context.brokers]
    for number in range(context.fewer_rounds):
        for name in names if number % 2 == 0 else reversed(names):
            measure_mirror(context, name)
    if PYBROKER in names:
        for _ in range(context.fewer_rounds):
            measure_rest(context)
        measure_beside(context)


# --- 2 GB, and the lag behind it -------------------------------------------------------------------------------------


def measure_mirror(context: Context, name: str) -> None:
    """Mirror what is there, then single records as they come."""
    batches = MIRRORED_BYTES // (RECORDS * SMALL_BYTES)
    settle()
    back_with_memory(context.root, 2 * MIRRORED_BYTES)
    with mirrors.running(context) as pair, topic(pair.source, PARTITIONS) as topic_name:
        load = Produce(pair.source.bootstrap, topic_name, RECORDS, SMALL_BYTES, PARTITIONS, 1, Extent(600, 0, batches))
        load.run()
        with Client(pair.source.bootstrap) as source:
            count = records_in(source, topic_name, PARTITIONS)
        before = Look(time.monotonic(), 0, cpu_seconds(pair.target.pid))
        with mirroring(name, pair, topic_name) as running:
            start, end, highest_mb = mirror_all(pair, running, topic_name, count, before)
            gigabytes = (end.records - start.records) * SMALL_BYTES / 1e9
            context.add("2 GB mirrored", "MB/s", name, 1_000 * gigabytes / (end.at_s - start.at_s))
            context.add("2 GB mirrored CPU", "s/GB", name, (end.cpu_s - start.cpu_s) / gigabytes)
            context.add("2 GB mirrored RssAnon", "MB", name, highest_mb)
            measure_lag(context, name, pair, topic_name)


class Look(NamedTuple):
    """What of a topic had come at a time, and the processor time of its mirror until then."""

    at_s: float
    records: int
    cpu_s: float


def mirror_all(pair: Pair, running: Mirroring, topic_name: str, count: int, before: Look) -> tuple[Look, Look, float]:
    """The last look at which the records had not begun to come, the one that finds all, and the highest memory in MB.

    ``before`` is a look from before the mirror was there: a short one may be whole at the first look.
    """
    start, highest_mb, deadline_s = before, 0.0, time.monotonic() + mirrors.COMES_S
    with Client(pair.target.bootstrap) as target:
        while True:
            records = records_in(target, topic_name, PARTITIONS)
            now = Look(time.monotonic(), records, running.cpu_seconds())
            highest_mb = max(highest_mb, running.anon_mb())
            if records >= count:
                return start, now, highest_mb
            if records < count * BEGUN:
                start = now
            if now.at_s > deadline_s:
                raise RuntimeError(f"{records} of {count} records have come")
            time.sleep(_PAUSE_S)


def measure_lag(context: Context, name: str, pair: Pair, topic_name: str) -> None:
    """From when a record is sent to the source until a consumer of the mirror has it; nothing else is under way."""
    batch = record_batch(1, SMALL_BYTES)
    lags_ms = []
    with Client(pair.source.bootstrap) as source, Client(pair.target.bootstrap) as target:
        offset = source.end_offsets(topic_name, [0])[0]
        for number in range(SAMPLES):
            time.sleep(SAMPLE_PAUSE_S)
            sent_s = time.monotonic()
            source.produce(topic_name, {0: batch})
            wait_for_offset(target, topic_name, 0, offset + number)
            lags_ms.append(1_000 * (time.monotonic() - sent_s))
    cuts = quantiles(lags_ms, n=100, method="inclusive")
    context.add("lag at rest p50", "ms", name, cuts[49])
    context.add("lag at rest p99", "ms", name, cuts[98])


# --- many partitions at rest -----------------------------------------------------------------------------------------


def measure_rest(context: Context) -> None:
    """Partitions that hold a record each, once all of them have come."""
    with mirrors.running(context) as pair:
        fill(pair.source)
        with mirroring(PYBROKER, pair, "rest-*") as running, Client(pair.target.bootstrap) as target:
            for number in range(REST_TOPICS):
                wait_for_records(target, f"rest-{number}", REST_PARTITIONS, REST_PARTITIONS)
            time.sleep(SETTLE_S)
            before, source_before = running.cpu_seconds(), cpu_seconds(pair.source.pid)
            time.sleep(MEASURED_S)
            used, source_used = running.cpu_seconds() - before, cpu_seconds(pair.source.pid) - source_before
            context.add("5,000 partitions CPU", "% of a core", PYBROKER, 100 * used / MEASURED_S)
            context.add("5,000 partitions source CPU", "% of a core", PYBROKER, 100 * source_used / MEASURED_S)
            context.add("5,000 partitions RssAnon", "MB", PYBROKER, running.anon_mb())
            names = [f"rest-{number}" for number in range(2 * PROMOTED_TOPICS)]
            context.add("1,000 partitions promoted", "ms", PYBROKER, cut_over_ms(pair, "promote", names[::2]))
            context.add("1,000 partitions failed over", "ms", PYBROKER, cut_over_ms(pair, "failover", names[1::2]))


def cut_over_ms(pair: Pair, way: str, names: list[str]) -> float:
    """From when a promotion or failover of topics is asked for until every partition has taken a record."""
    batches = dict.fromkeys(range(REST_PARTITIONS), record_batch(1, SMALL_BYTES))
    with Client(pair.target.bootstrap) as producer:
        if any(takes_writes(producer, name, batches) for name in names):
            raise RuntimeError(f"a mirrored topic of {names} takes writes")
        began_s = time.monotonic()
        mirrors.change_link(pair.target, {way: ",".join(names)}, mirrors.APPEND)
        for name in names:
            while not takes_writes(producer, name, batches):
                if time.monotonic() > began_s + mirrors.COMES_S:
                    raise RuntimeError(f"{name} takes no writes after its {way}")
                time.sleep(_PAUSE_S)
        return 1_000 * (time.monotonic() - began_s)


def takes_writes(producer: Client, name: str, batches: Mapping[int, bytes]) -> bool:
    """Whether all partitions took a batch; RuntimeError where one refuses it, but not as a mirror's."""
    codes = producer.produce_errors(name, batches)
    if unforeseen := codes - {NONE, TOPIC_AUTHORIZATION_FAILED}:
        raise RuntimeError(f"produce to {name}: errors {unforeseen}")
    return codes == {NONE}


def fill(source: Contestant) -> None:
    """A record in each partition of each topic."""
    batch = record_batch(1, SMALL_BYTES)
    with Client(source.bootstrap) as client:
        for number in range(REST_TOPICS):
            client.create_topic(f"rest-{number}", REST_PARTITIONS)
            for start in range(0, REST_PARTITIONS, FILLED_AT_ONCE):
                partitions = range(start, min(start + FILLED_AT_ONCE, REST_PARTITIONS))
                client.produce(f"rest-{number}", dict.fromkeys(partitions, batch))


# --- tiny requests of a broker that has a link -----------------------------------------------------------------------


def measure_beside(context: Context) -> None:
    """The processor time of a request to a broker that mirrors a topic at rest, by that of one without a link."""
    with (
        mirrors.running(context) as pair,
        mirrors.running(context) as other,
        topic(pair.source, PARTITIONS) as mirrored,
        Client(pair.source.bootstrap) as source,
        Client(pair.target.bootstrap) as target,
        mirroring(PYBROKER, pair, mirrored),
    ):
        source.produce(mirrored, dict.fromkeys(range(PARTITIONS), record_batch(1, SMALL_BYTES)))
        wait_for_records(target, mirrored, PARTITIONS, PARTITIONS)
        brokers = {WITHOUT: other.target, WITH: pair.target}
        for shape in SHAPES:
            context.alternate(brokers, partial(measure_tiny, context, shape))
            compare(context, shape)


def measure_tiny(context: Context, shape: str, name: str, broker: Contestant) -> None:
    """One shape against one of the brokers, on a topic of its own."""
    connections, in_flight = map(int, shape.split("×"))
    with topic(broker, connections) as topic_name:
        extent = Extent(context.volume.seconds, context.volume.warmup_seconds)
        load = Produce(broker.bootstrap, topic_name, 1, RECORD_BYTES, connections, in_flight, extent)
        cpu = CpuMeter(broker.pid)
        outcome = load.run()
        used = cpu.seconds()
        check_log(broker, load, outcome)
    add_generator(context, f"{shape}, {name},", PYBROKER, outcome.client_cpu_share)
    context.add(f"{shape} CPU, {name}", "µs", PYBROKER, used / outcome.acknowledged * 1e6)


def compare(context: Context, shape: str) -> None:
    """With by without, round by round."""
    without, with_link = (context.measurements.get(context.part, f"{shape} CPU, {name}") for name in (WITHOUT, WITH))
    assert without is not None
    assert with_link is not None
    for before, after in zip(without.samples[PYBROKER], with_link.samples[PYBROKER], strict=True):
        context.add(f"{shape} CPU with a link by none", "×", PYBROKER, after / before)
