"""Clients that every kind of run has: transactions over what producers write, and groups that read it.

Owns: how many of each there are, as the seed has it, and what the coordinators are set to so that a run sees much.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from tests.simulation.members import ClassicMember
from tests.simulation.run import OUTPUTS, PARTITIONS, TOPIC
from tests.simulation.transactions import TransactionalProducer

if TYPE_CHECKING:
    from tests.simulation.run import Run

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
