"""Two ways to mirror a topic, started alike: a link of pybroker, and MirrorMaker 2, each between two pybrokers.

Owns: the pair of brokers, how either mirror begins, and when a topic has come.  MirrorMaker runs as its own script runs
it, with the heap and collector of that, and with what its operators set for throughput: a task for each partition, and
batches as large as those that it reads.  Topics keep their names, as a link's do.

``scripts/connect-jars`` resolves MirrorMaker's jars.
"""

from __future__ import annotations

import re
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from harness.apache_kafka import SERVER_JVM_OPTIONS
from harness.child_process import ChildProcess
from harness.connect_jars import CONNECT_JARS, java_command

from bench import contestants
from bench.contestants import KAFKA, PYBROKER, Contestant
from bench.context import LONG_SESSIONS, Context
from bench.process_stats import cpu_seconds, memory
from bench.wire import INCREMENTAL_ALTER_CONFIGS, Client
from pybroker_protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource

LINK = "bench"
BATCH_BYTES = 1_000_000
READY = re.compile(r"Kafka MirrorMaker started")
JVM_OPTIONS = ("-Xms256m", "-Xmx2g", *SERVER_JVM_OPTIONS)
READY_S = COMES_S = 300.0
_PAUSE_S = 0.02
_BROKER = 4
SET, APPEND = 0, 2
_FETCH_WAIT_MS = 500


class Pair(NamedTuple):
    """Two brokers, of which one is mirrored."""

    source: Contestant
    target: Contestant


@contextmanager
def running(context: Context) -> Iterator[Pair]:
    """Both on fresh directories; killed, and their directories removed, afterwards."""
    directory = context.root / uuid.uuid4().hex[:8]
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        made = [contestants.make(PYBROKER, directory / name, LONG_SESSIONS) for name in Pair._fields]
        for broker in made:
            stack.callback(broker.kill)
            broker.start()
        try:
            yield Pair(*made)
        except Exception:
            for broker in made:
                contestants.print_log_tail(broker)
            raise


class Mirroring:
    """A mirror that runs, and what it takes: the target's broker, and MirrorMaker beside it where that mirrors."""

    def __init__(self, pair: Pair, pids: list[int]) -> None:
        self._pair = pair
        self._pids = [pair.target.pid, *pids]

    def cpu_seconds(self) -> float:
        """Of all processes, since their starts."""
        return sum(map(cpu_seconds, self._pids))

    def anon_mb(self) -> float:
        """What they have allocated and touched."""
        return sum(memory(pid).anon_mb for pid in self._pids)


@contextmanager
def mirroring(name: str, pair: Pair, topics: str) -> Iterator[Mirroring]:
    """Mirror these topics: by MirrorMaker 2 (``KAFKA``, a pattern of Java) or by a link (``PYBROKER``, with ``*``)."""
    if name == KAFKA:
        with _mirror_maker(pair, topics) as pid:
            yield Mirroring(pair, [pid])
    else:
        change_link(pair.target, {"bootstrap.servers": pair.source.bootstrap, "topics": topics})
        yield Mirroring(pair, [])


def change_link(target: Contestant, settings: Mapping[str, str], operation: int = SET) -> None:
    """Change settings of the link: ``SET`` them, or ``APPEND`` to their lists; RuntimeError where that is refused."""
    configs = [
        AlterableConfig(name=f"pybroker.links.{LINK}.{setting}", value=text, config_operation=operation)
        for setting, text in settings.items()
    ]
    resource = AlterConfigsResource(resource_type=_BROKER, resource_name="", configs=configs)
    with Client(target.bootstrap) as client:
        [answer] = client.call(INCREMENTAL_ALTER_CONFIGS, resources=[resource], validate_only=False).responses
    if answer.error_code:
        raise RuntimeError(f"the link is refused: {answer.error_message}")


@contextmanager
def _mirror_maker(pair: Pair, topics: str) -> Iterator[int]:
    """Its process's id, once it says that it has started."""
    if not any(CONNECT_JARS.glob("connect-mirror-*.jar")):
        raise RuntimeError("MirrorMaker's jars are missing: run scripts/connect-jars")
    directory = pair.target.data_directory.parent
    settings = directory / f"mirror-{uuid.uuid4().hex[:8]}.properties"
    settings.write_text("".join(f"{key}={text}\n" for key, text in _settings(pair, topics).items()))
    command = java_command("connect-mirror-maker.sh", [str(settings)], JVM_OPTIONS)
    process = ChildProcess(command, settings.with_suffix(".log"))
    try:
        _wait_until_ready(process)
        yield process.pid
    except Exception:
        print(process.log_tail())
        raise
    finally:
        process.kill()


def _settings(pair: Pair, topics: str) -> dict[str, str]:
    alone = ("replication", "config.storage.replication", "offset.storage.replication", "status.storage.replication")
    of_topics = ("offset-syncs.topic.replication", "checkpoints.topic.replication", "heartbeats.topic.replication")
    return {
        "clusters": "source, target",
        "source.bootstrap.servers": pair.source.bootstrap,
        "target.bootstrap.servers": pair.target.bootstrap,
        "source->target.enabled": "true",
        "target->source.enabled": "false",
        "topics": topics,
        "groups": "none",
        "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
        "emit.heartbeats.enabled": "false",
        "emit.checkpoints.enabled": "false",
        "sync.topic.acls.enabled": "false",
        "refresh.topics.interval.seconds": "1",
        "tasks.max": "8",
        "source.consumer.max.poll.records": "5000",
        "source.consumer.fetch.max.bytes": str(8 * BATCH_BYTES),
        "source.consumer.max.partition.fetch.bytes": str(BATCH_BYTES),
        "source.consumer.auto.offset.reset": "earliest",
        "target.producer.batch.size": str(BATCH_BYTES),
        "target.producer.max.request.size": str(2 * BATCH_BYTES),
        "target.producer.buffer.memory": str(64 * BATCH_BYTES),
        **{f"{what}.factor": "1" for what in (*alone, *of_topics)},
    }


def _wait_until_ready(process: ChildProcess) -> None:
    deadline_s = time.monotonic() + READY_S
    while not READY.search(process.log_path.read_text(errors="replace")):
        if process.exit_code is not None or time.monotonic() > deadline_s:
            raise RuntimeError(f"MirrorMaker does not start: {process.log_tail()}")
        time.sleep(0.1)


def records_in(client: Client, topic: str, partitions: int) -> int:
    """Records that a topic has, 0 where it is not there yet."""
    return sum(max(0, end) for end in client.end_offsets(topic, range(partitions)).values())


def wait_for_records(client: Client, topic: str, partitions: int, count: int) -> None:
    """Until a topic has so many records; RuntimeError where they do not come."""
    deadline_s = time.monotonic() + COMES_S
    while records_in(client, topic, partitions) < count:
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"{topic} has {records_in(client, topic, partitions)} of {count} records")
        time.sleep(_PAUSE_S)


def wait_for_offset(client: Client, topic: str, partition: int, offset: int) -> None:
    """Until the record at an offset can be read; a fetch waits for it at the broker."""
    deadline_s = time.monotonic() + COMES_S
    while not client.fetch(topic, partition, offset, wait_ms=_FETCH_WAIT_MS):
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"the record {offset} of {topic}-{partition} does not come")
