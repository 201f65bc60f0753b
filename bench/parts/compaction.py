"""A producer's latency alone, and while the log cleaner compacts another topic's 3 GB."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from bench.contestants import Contestant, topic
from bench.context import Context
from bench.parts.cold import tail_latency
from bench.parts.warmup import warm_up
from bench.wire import INCREMENTAL_ALTER_CONFIGS, Client
from pybroker_protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource
from pybroker_protocol.record_codec import NewRecord, build_batch

COMPACTED_BYTES = 3_000_000_000
SEGMENT_BYTES = 100_000_000
# A twentieth of the records stay; with the active segment they are less than this part of the bytes.
LEFT = 8
RECORD_BYTES, RECORDS, KEYS, BATCHES = 1000, 1000, 100_000, 400
TOPIC_RESOURCE, SET = 2, 0
PATIENCE_S = 300
# Of the latencies, in both volumes: less than any broker takes for the compaction, which begins half a second late.
WARMUP_S, SECONDS = 0.5, 1.5
# The cleaner is to begin as soon as the topic is compacted, for the measurement's sake.
PROPERTIES = {"log.cleaner.backoff.ms": "500"}


def run(context: Context) -> None:
    """Fill a topic, then measure without and with the cleaner at work, in every round."""
    with context.running(PROPERTIES) as brokers:
        warm_up(context, brokers)
        context.alternate(brokers, partial(measure, context), context.fewer_rounds)


def measure(context: Context, name: str, broker: Contestant) -> None:
    """One broker: alone, then beside."""
    configs = {"segment.bytes": str(SEGMENT_BYTES), "file.delete.delay.ms": "1000"}
    with topic(broker, 1, configs) as compacted:
        fill(broker, compacted)
        alone = tail_latency(broker, SECONDS, WARMUP_S)
        directory = broker.data_directory / f"{compacted}-0"
        before = data_bytes(directory)
        with ThreadPoolExecutor(1) as pool:
            started = time.monotonic()
            compact(broker, compacted)
            end = pool.submit(await_end, directory, before)
            beside = tail_latency(broker, SECONDS, WARMUP_S)
            was_over = end.done()
            seconds = end.result() - started
    context.add("produce p99 alone", "µs", name, alone.produce.p99_us)
    if was_over:
        context.say(f"{name} had compacted everything before the measurement was over: nothing is told of it")
    else:
        context.add("produce p99 beside the cleaner", "µs", name, beside.produce.p99_us)
        context.add("produce p99 factor", "×", name, beside.produce.p99_us / alone.produce.p99_us)
    context.add("compacted", "MB/s", name, COMPACTED_BYTES / seconds / 1e6)


def fill(broker: Contestant, topic_name: str) -> None:
    """Keyed records, while the topic is not compacted yet and takes batches as they come."""
    chance = random.Random(1)
    now_ms = int(time.time() * 1000)
    prepared = [
        build_batch(
            [NewRecord(b"%015d" % chance.randrange(KEYS), bytes(RECORD_BYTES)) for _ in range(RECORDS)],
            timestamp_ms=now_ms,
        )
        for _ in range(BATCHES)
    ]
    with Client(broker.bootstrap) as client:
        for i in range((COMPACTED_BYTES + SEGMENT_BYTES) // len(prepared[0])):
            client.produce(topic_name, {0: prepared[i % BATCHES]})


def compact(broker: Contestant, topic_name: str) -> None:
    """Make the topic compacted."""
    config = AlterableConfig(name="cleanup.policy", config_operation=SET, value="compact")
    resource = AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic_name, configs=[config])
    with Client(broker.bootstrap) as client:
        [result] = client.call(INCREMENTAL_ALTER_CONFIGS, resources=[resource], validate_only=False).responses
    if result.error_code:
        raise RuntimeError(f"alter {topic_name}: error {result.error_code} {result.error_message}")


def data_bytes(directory: Path) -> int:
    """The bytes of a partition's segments, whatever state they are in; a file may go while it is looked at."""
    try:
        return sum(path.stat().st_size for path in directory.glob("*.log"))
    except FileNotFoundError:
        return data_bytes(directory)


def await_end(directory: Path, before: int) -> float:
    """Until what is left is small and nothing is written any more; when that was (``time.monotonic``)."""
    deadline = time.monotonic() + PATIENCE_S
    while data_bytes(directory) > before // LEFT or list(directory.glob("*.cleaned")):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{directory} was not cleaned in time")
        time.sleep(0.05)
    return time.monotonic()
