"""Clients that every kind of run has: transactions over what producers write, and groups that read it.

Owns: how many of each there are, as the seed has it, and what the coordinators are set to so that a run sees much.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from pybroker.cluster.image.coordinator_table import GROUPS, TRANSACTIONS
from tests.simulation.consumer_members import ConsumerMember
from tests.simulation.members import ClassicMember
from tests.simulation.producers import IdempotentProducer
from tests.simulation.run import OUTPUTS, PARTITIONS, TOPIC
from tests.simulation.switching_members import SwitchingMember
from tests.simulation.transactions import Reader, TransactionalProducer

if TYPE_CHECKING:
    from tests.simulation.run import Run

TABLE = "table"  # compacted
KEYS = 6
# Cleaned early and often, in small segments.
CLEANING = {"log.cleaner.backoff.ms": "300", "log.cleaner.min.cleanable.ratio": "0.1"}
COORDINATORS_SEGMENT_BYTES = {GROUPS.topic: "3000", TRANSACTIONS.topic: "1500"}
DELETIONS_GO_MS, DELETIONS_STAY_MS = 1_000, 86_400_000
INPUTS = [(TOPIC, index) for index in range(PARTITIONS)]


def coordinator_settings(random: Random) -> dict[str, str]:
    """Few partitions, so that groups and transactions share them; short time-outs, so that they are met."""
    return {
        "offsets.topic.num.partitions": "2",
        "transaction.state.log.num.partitions": "2",
        "group.initial.rebalance.delay.ms": random.choice(("0", "1000")),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "2000",
        "group.consumer.session.timeout.ms": "6000",
        "group.consumer.min.session.timeout.ms": "6000",
        "group.consumer.heartbeat.interval.ms": "1000",
        "group.consumer.min.heartbeat.interval.ms": "1000",
        "group.consumer.assignment.interval.ms": random.choice(("0", "1000")),
    }


def topic_settings(cleans: bool, large_batches: bool, deletions_go: bool) -> dict[str, dict[str, str]]:
    """Each topic of a run with its settings; one is compacted where there is a cleaner."""
    segment_bytes = "300000" if large_batches else "4000"
    wanted = {name: {"internal.segment.bytes": segment_bytes} for name in (TOPIC, OUTPUTS)}
    if cleans:
        wanted[TABLE] = {
            "cleanup.policy": "compact",
            "internal.segment.bytes": "1500",
            "delete.retention.ms": str(DELETIONS_GO_MS if deletions_go else DELETIONS_STAY_MS),
        }
    return wanted


def table_writers(run: Run, random: Random) -> list[IdempotentProducer | TransactionalProducer]:
    """Who writes to the compacted topic, transactions and deletions included."""
    return [
        IdempotentProducer(run, "table-writer", TABLE, PARTITIONS, random.randint(40, 120), KEYS),
        TransactionalProducer(run, "table-transactor", TABLE, PARTITIONS, second_protocol=True, count=10, keys=KEYS),
    ]


def readers_of(run: Run, topics: list[str]) -> list[Reader]:
    """Readers of all partitions, of either isolation level."""
    return [
        Reader(run, f"reader-{topic}-{committed}", [(topic, index) for index in range(PARTITIONS)], committed)
        for topic in topics
        for committed in (False, True)
    ]


def transactional_producers(
    run: Run, random: Random, second_protocol: Callable[[], bool]
) -> list[TransactionalProducer]:
    """Some that write, and some that transform what there is; ``second_protocol()``: whether one speaks KIP-890's."""
    producers = []
    for i in range(random.randint(0, 2)):
        second, count = second_protocol(), random.randint(5, 20)
        producers.append(
            TransactionalProducer(run, f"transactor-{i}", TOPIC, PARTITIONS, second_protocol=second, count=count)
        )
    for i in range(random.randint(0, 2)):
        second = second_protocol()
        producers.append(
            TransactionalProducer(
                run, f"transformer-{i}", OUTPUTS, PARTITIONS, second_protocol=second, count=0, inputs=INPUTS
            )
        )
    return producers


def consumer_members(run: Run, random: Random) -> list[ConsumerMember | SwitchingMember]:
    """Members of KIP-848 groups, some static, some subscribed by a pattern; one group changes its protocol."""
    members: list[ConsumerMember | SwitchingMember] = []
    for k in range(random.randint(0, 1)):
        read_committed = random.random() < 0.5
        for i in range(random.randint(1, 4)):
            instance_id = f"instance-{k}-{i}" if random.random() < 0.3 else None
            regex = "ev.*s" if random.random() < 0.3 else None
            members.append(
                ConsumerMember(run, f"consumer-{k}-{i}", f"consumers-{k}", INPUTS, read_committed, instance_id, regex)
            )
    for i in range(random.choice((0, 2, 3))):
        members.append(SwitchingMember(run, f"switching-{i}", "switching", INPUTS, read_committed=False))
    return members


def classic_members(run: Run, random: Random) -> list[ClassicMember]:
    """One or two groups of them."""
    members = []
    for g in range(random.randint(1, 2)):
        cooperative, read_committed = random.random() < 0.5, random.random() < 0.5
        for i in range(random.randint(1, 3)):
            static = f"static-{g}-{i}" if random.random() < 0.2 else None
            members.append(
                ClassicMember(run, f"member-{g}-{i}", f"group-{g}", INPUTS, cooperative, static, read_committed)
            )
    return members
