"""Tiny requests of a client that an authorizer knows by one of 1,000 ACLs, against a broker without an authorizer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from bench import contestants
from bench.bars import SHAPES
from bench.contestants import PYBROKER, Contestant, topic
from bench.context import LONG_SESSIONS, Context, CpuMeter
from bench.loads import Extent, Produce
from bench.parts.tiny import RECORD_BYTES, add_generator, check_log
from bench.secure import AUTHORIZED, add_acls

ACLS = 1_000
NONE, MANY = "no authorizer", f"{ACLS:,} ACLs"


def run(context: Context) -> None:
    """Both brokers in alternating order; the ratio is of the processor time of a request, round by round."""
    with _running(context) as brokers:
        for shape in SHAPES:
            context.alternate(brokers, partial(_measure, context, shape))
            none, many = (context.measurements.get(context.part, _metric(shape, name)) for name in (NONE, MANY))
            assert none is not None
            assert many is not None
            for before, after in zip(none.samples[PYBROKER], many.samples[PYBROKER], strict=True):
                context.add(f"{shape} CPU of 1,000 ACLs by none", "×", PYBROKER, after / before)


def _metric(shape: str, name: str) -> str:
    return f"{shape} CPU, {name}"


@contextmanager
def _running(context: Context) -> Iterator[dict[str, Contestant]]:
    with ExitStack() as stack:
        settings = {NONE: LONG_SESSIONS, MANY: {**LONG_SESSIONS, **AUTHORIZED}}
        brokers = {
            name: stack.enter_context(contestants.running([PYBROKER], context.root, properties))[PYBROKER]
            for name, properties in settings.items()
        }
        add_acls(brokers[MANY].bootstrap, ACLS)
        yield brokers


def _measure(context: Context, shape: str, name: str, broker: Contestant) -> None:
    connections, in_flight = map(int, shape.split("×"))
    with topic(broker, connections) as topic_name:
        extent = Extent(context.volume.seconds, context.volume.warmup_seconds)
        load = Produce(broker.bootstrap, topic_name, 1, RECORD_BYTES, connections, in_flight, extent)
        cpu = CpuMeter(broker.pid)
        outcome = load.run()
        cpu_seconds = cpu.seconds()
        check_log(broker, load, outcome)
    add_generator(context, f"{shape}, {name},", PYBROKER, outcome.client_cpu_share)
    context.add(_metric(shape, name), "µs", PYBROKER, cpu_seconds / outcome.acknowledged * 1e6)
