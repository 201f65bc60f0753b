"""What a producer and a consumer get that are held to quotas, and what another client beside them notices.

Shares are of one minute, after the burst that a quota lets through to a client that was quiet.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

from harness.wire import Client

from bench.contestants import PYBROKER, Contestant, topic
from bench.context import Context
from bench.quota_taker import BATCH_BYTES, CLIENT_ID, PRODUCE_VERSION, Job, Outcome, produce_request
from bench.subprocesses import Generator
from pybroker_protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)

QUOTA = 1 << 20
WARM_UP_S, MEASURED_S, ALONE_S = 15.0, 60.0, 30.0
OTHERS_PAUSE_S = 0.002


def run(context: Context) -> None:
    """pybroker alone, in rounds of three minutes: what is judged are shares of its own quotas.

    What takers cost another client of the same broker is to be told from what their processes cost it by sharing the
    machine: so it is measured, too, while they take as much from a second broker.
    """
    for _ in range(context.fewer_rounds):
        with context.running_one(PYBROKER) as broker, context.running_one(PYBROKER) as second:
            _measure(context, broker, second)


def _measure(context: Context, broker: Contestant, second: Contestant) -> None:
    with _held_topic(broker) as topic_name, _held_topic(second) as second_topic:
        alone_ms = _p99_ms(broker, topic_name, ALONE_S)
        takers = _takers(second, second_topic, ALONE_S)
        elsewhere_ms = _p99_ms(broker, topic_name, ALONE_S - 2)
        for taker in takers:
            taker.outcome()
        takers = _takers(broker, topic_name, MEASURED_S)
        beside_ms = _p99_ms(broker, topic_name, MEASURED_S - 2)
        outcomes = [Outcome(**taker.outcome()) for taker in takers]
    for what, outcome in zip(("produced", "fetched"), outcomes, strict=True):
        context.add(f"{what}, of the quota", "%", PYBROKER, 100 * outcome.taken_bytes / (QUOTA * MEASURED_S))
    of_another = "p99 of another client"
    context.add(f"{of_another}, alone", "ms", PYBROKER, alone_ms)
    context.add(f"{of_another}, they at a second broker", "ms", PYBROKER, elsewhere_ms)
    context.add(f"{of_another}, beside them", "ms", PYBROKER, beside_ms)
    context.add(f"{of_another}, beside them by alone", "×", PYBROKER, beside_ms / alone_ms)
    context.add(f"{of_another}, beside them by they at a second broker", "×", PYBROKER, beside_ms / elsewhere_ms)


@contextmanager
def _held_topic(broker: Contestant) -> Iterator[str]:
    """A topic with a batch in it, at a broker that holds takers to their quotas."""
    with topic(broker, 1) as topic_name:
        with Client((broker.host, broker.port), client_id="admin") as admin:
            admin.ask(produce_request(topic_name, BATCH_BYTES), PRODUCE_VERSION)
            _set_quotas(admin)
        yield topic_name


def _takers(broker: Contestant, topic_name: str, measured_s: float) -> list[Generator]:
    """A producer and a consumer, behind their first bursts."""
    jobs = [Job(broker.host, broker.port, topic_name, produces, WARM_UP_S, measured_s) for produces in (True, False)]
    takers = [Generator.of_module("bench.quota_taker", asdict(job)) for job in jobs]
    time.sleep(WARM_UP_S)
    return takers


def _set_quotas(admin: Client) -> None:
    operations = [
        OpData(key=key, value=float(QUOTA), remove=False) for key in ("producer_byte_rate", "consumer_byte_rate")
    ]
    entity = [AlterClientQuotasRequestEntityData(entity_type="client-id", entity_name=CLIENT_ID)]
    entry = AlterClientQuotasRequestEntryData(entity=entity, ops=operations)
    told = admin.ask(AlterClientQuotasRequest(entries=[entry], validate_only=False), 1)
    if told.entries[0].error_code:
        raise RuntimeError(f"the quotas were not taken: {told}")


def _p99_ms(broker: Contestant, topic_name: str, seconds: float) -> float:
    """Of small produces, one at a time, with pauses."""
    took = []
    request = produce_request(topic_name, 256)
    with Client((broker.host, broker.port), client_id="other") as client:
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            begun = time.perf_counter()
            client.ask(request, PRODUCE_VERSION)
            took.append(time.perf_counter() - begun)
            time.sleep(OTHERS_PAUSE_S)
    took.sort()
    return took[len(took) * 99 // 100] * 1000
