"""Start-up: from exec to the first Metadata reply, on a fresh directory and on a used one; and in process."""

from __future__ import annotations

import shutil
import time
import uuid

from bench.contestants import PYBROKER, Contestant, make
from bench.context import Context
from bench.subprocesses import Generator


def run(context: Context) -> None:
    """Both kinds of start in every round, then the in-process broker and the in-process cluster."""
    for _ in range(context.volume.rounds):
        for name in context.brokers:
            directory = context.root / uuid.uuid4().hex[:8]
            broker = make(name, directory)
            try:
                context.add("first start", "ms", name, timed_start(broker))
                context.add("ready", "ms", name, timed_start(broker))
            finally:
                broker.kill()
                shutil.rmtree(directory, ignore_errors=True)
    if PYBROKER in context.brokers:
        for _ in range(context.volume.rounds):
            outcome = Generator.of_module("bench.in_process_start", {}).outcome()
            context.add("in-process first start", "ms", PYBROKER, outcome["first"])
            context.add("in-process start", "ms", PYBROKER, outcome["start"])
            context.add("in-process close", "ms", PYBROKER, outcome["close"])
            context.add("in-process start of three brokers", "ms", PYBROKER, outcome["cluster"])


def timed_start(broker: Contestant) -> float:
    """Milliseconds from exec to the reply; stops the broker again.  Formatting Kafka's directory does not count."""
    started = time.perf_counter()
    broker.start()
    elapsed_ms = (time.perf_counter() - started) * 1000
    broker.stop()
    return elapsed_ms
