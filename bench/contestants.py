"""The two brokers, started alike: fresh directories on one filesystem, Kafka's defaults, one machine; and the floor.

Apache Kafka runs with the heap of its own start script (1 GB) and its collector's settings; pybroker runs as
``pybroker serve``.  Both remove deleted segments at once instead of after a minute, so that rounds neither fill the
disk nor remove what others left.
"""

from __future__ import annotations

import os
import shutil
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from harness.apache_kafka import SERVER_JVM_OPTIONS, ApacheKafka
from harness.broker_process import BrokerProcess
from harness.pybroker_process import COMMAND, PybrokerProcess

from bench.floor import Floor
from bench.wire import Client

Contestant = ApacheKafka | PybrokerProcess
# Of loads that only produce.
ProduceContestant = Contestant | Floor

KAFKA, PYBROKER, FLOOR = "kafka", "pybroker", "floor"
HEAP_MB = 1024
LOG_TAIL_LINES = 15

PROPERTIES: Mapping[str, str] = {
    "log.segment.delete.delay.ms": "100",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
}


def pybroker_command(name: str) -> Path:
    """The command of a contestant that is pybroker; a name with a slash in it is that of another commit."""
    return Path(name) if os.sep in name else COMMAND


def make(name: str, directory: Path, properties: Mapping[str, str] | None = None) -> Contestant:
    """A contestant that is not started yet."""
    settings = {**PROPERTIES, **(properties or {})}
    if name == KAFKA:
        return ApacheKafka(directory, settings, heap_mb=HEAP_MB, jvm_options=("-Xms1g", *SERVER_JVM_OPTIONS))
    return PybrokerProcess(directory, settings, command=pybroker_command(name))


@contextmanager
def running(
    names: list[str], root: Path, properties: Mapping[str, str] | None = None
) -> Iterator[dict[str, Contestant]]:
    """Start the named brokers on fresh directories; kill them and remove the directories afterwards."""
    directory = root / uuid.uuid4().hex[:8]
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        brokers: dict[str, Contestant] = {}
        for name in names:
            broker = make(name, directory / str(len(brokers)), properties)
            stack.callback(broker.kill)
            brokers[name] = broker.start()
        try:
            yield brokers
        except Exception:
            for broker in brokers.values():
                print_log_tail(broker)
            raise


def print_log_tail(broker: BrokerProcess) -> None:
    """Show on stderr what a broker said last, before its directory goes."""
    lines = broker.log_path.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
    print(f"the end of {broker.log_path}:", *lines, sep="\n  ", file=sys.stderr)


@contextmanager
def topic(broker: ProduceContestant, partitions: int, configs: Mapping[str, str] | None = None) -> Iterator[str]:
    """A fresh topic, deleted afterwards; the floor, which has none, serves as long."""
    if isinstance(broker, Floor):
        with broker.serving():
            yield FLOOR
        return
    name = f"bench-{uuid.uuid4().hex[:8]}"
    with Client(broker.bootstrap) as client:
        client.create_topic(name, partitions, configs)
    yield name
    with Client(broker.bootstrap) as client:
        client.delete_topic(name)
