"""A group of 100 members over 300 partitions: the time it takes to join, and to settle after one member died."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial

from bench.contestants import Contestant, topic
from bench.context import Context
from bench.group_load import CLASSIC, CONSUMER, Job, Outcome
from bench.parts.warmup import highest_rate
from bench.subprocesses import Generator
from bench.wire import CONSUMER_GROUP_HEARTBEAT, Client

MEMBERS, PARTITIONS = 100, 300
# A group lives for two seconds, and joins in less time than a scheduler's slice on a busy machine.
ROUNDS = 9
# Short sessions, since the wait for a dead member is no work of the broker; the rest are Kafka's defaults.
PROPERTIES = {
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
}


def run(context: Context) -> None:
    """Both protocols in every round, as far as the broker serves them."""
    with context.running(PROPERTIES) as brokers:
        warm_up(context, CLASSIC, brokers)
        context.alternate(brokers, partial(measure, context, CLASSIC), ROUNDS)
        with_consumer_groups = {name: broker for name, broker in brokers.items() if serves_consumer_groups(broker)}
        warm_up(context, CONSUMER, with_consumer_groups)
        context.alternate(with_consumer_groups, partial(measure, context, CONSUMER), ROUNDS)


def serves_consumer_groups(broker: Contestant) -> bool:
    """Whether the broker speaks KIP-848."""
    with Client(broker.bootstrap) as client:
        return client.serves(CONSUMER_GROUP_HEARTBEAT)


def warm_up(context: Context, protocol: str, brokers: dict[str, Contestant]) -> None:
    """Groups come and go until they do not join faster."""
    for name, broker in brokers.items():
        highest_rate(context, name, partial(members_per_second, protocol, broker))


def members_per_second(protocol: str, broker: Contestant) -> float:
    """How fast a group's members join."""
    return MEMBERS / one_group(protocol, broker).join_s


def measure(context: Context, protocol: str, name: str, broker: Contestant) -> None:
    """One group against one broker."""
    outcome = one_group(protocol, broker)
    context.add(f"{protocol} join", "ms", name, outcome.join_s * 1000)
    context.add(f"{protocol} settle", "ms", name, outcome.settle_s * 1000)


def one_group(protocol: str, broker: Contestant) -> Outcome:
    """A group of its own topic, from its first member to its settling without one."""
    with topic(broker, PARTITIONS) as topic_name:
        job = Job(broker.bootstrap, topic_name, protocol, MEMBERS, PARTITIONS)
        return Outcome(**Generator.of_module("bench.group_load", asdict(job)).outcome())
