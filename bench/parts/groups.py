"""A group of 100 members over 300 partitions: the time it takes to join, and to settle after one member died."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial

from bench.contestants import Contestant, topic
from bench.context import Context
from bench.group_load import CLASSIC, CONSUMER, Job, Outcome
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
        for name, broker in brokers.items():
            measure(context, CLASSIC, name, broker, is_warm_up=True)
        context.alternate(brokers, partial(measure, context, CLASSIC), ROUNDS)
        with_consumer_groups = {name: broker for name, broker in brokers.items() if serves_consumer_groups(broker)}
        for name, broker in with_consumer_groups.items():
            measure(context, CONSUMER, name, broker, is_warm_up=True)
        context.alternate(with_consumer_groups, partial(measure, context, CONSUMER), ROUNDS)


def serves_consumer_groups(broker: Contestant) -> bool:
    """Whether the broker speaks KIP-848."""
    with Client(broker.bootstrap) as client:
        return client.serves(CONSUMER_GROUP_HEARTBEAT)


def measure(context: Context, protocol: str, name: str, broker: Contestant, is_warm_up: bool = False) -> None:
    """One group against one broker."""
    with topic(broker, PARTITIONS) as topic_name:
        job = Job(broker.bootstrap, topic_name, protocol, MEMBERS, PARTITIONS)
        outcome = Outcome(**Generator("bench.group_load", asdict(job)).outcome())
    if not is_warm_up:
        context.add(f"{protocol} join", "ms", name, outcome.join_s * 1000)
        context.add(f"{protocol} settle", "ms", name, outcome.settle_s * 1000)
