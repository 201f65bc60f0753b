"""How fast replicas are copied while they are moved (KIP-73): the settings of brokers and topics that hold them back.

Owns: which settings those are, and the requests that set, find and remove them.  Does not own when it is time for that
(``partitions``).  Counterpart: ``--throttle`` of kafka-reassign-partitions.sh, and the end of its ``--verify``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pybroker.cli.connection.admin_client import AdminClient
from pybroker.cli.connection.retries import is_passing_with_brokers, retried
from pybroker.cli.requests import config_requests
from pybroker.cli.requests.config_requests import Changes
from pybroker.cli.requests.wire_requests import brokers

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
SENDERS, RECEIVERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
_SOURCES = {"DYNAMIC_BROKER_CONFIG", "DYNAMIC_TOPIC_CONFIG"}  # of what was set for this very broker or topic


class Move(NamedTuple):
    """A partition on its way: the brokers that have it, and those that get it."""

    topic: str
    partition: int
    sources: Sequence[int]
    destinations: Sequence[int]


class Throttle(NamedTuple):
    """One setting that stands: ``resource`` is ``broker`` or ``topic``."""

    resource: str
    name: str
    setting: str
    value: str


def set_throttle(client: AdminClient, moves: Sequence[Move], rate: int) -> None:
    """Let no broker that runs send, or fetch, more than ``rate`` bytes per second of ``moves``, which are all of them.

    What a topic's settings said before is replaced.  A broker that does not run is passed over: it would have to be
    asked itself, and the others hold to the rate when it comes back.
    """
    retried(lambda: _set_throttle(client, moves, rate), passes=is_passing_with_brokers)


def _set_throttle(client: AdminClient, moves: Sequence[Move], rate: int) -> None:
    running = set(brokers(client))
    taking_part = {broker for move in moves for broker in (*move.sources, *move.destinations)}
    rates: Changes = {name: ("SET", str(rate)) for name in RATES}
    wanted: list[tuple[str, str, Changes]] = [("broker", str(each), rates) for each in sorted(taking_part & running)]
    for topic in sorted({move.topic for move in moves}):
        of_topic = sorted(move for move in moves if move.topic == topic)
        senders = ",".join(f"{move.partition}:{broker}" for move in of_topic for broker in move.sources)
        receivers = ",".join(f"{move.partition}:{broker}" for move in of_topic for broker in move.destinations)
        wanted.append(("topic", topic, {SENDERS: ("SET", senders), RECEIVERS: ("SET", receivers)}))
    _alter(client, wanted)


def find_throttles(client: AdminClient, topics: Iterable[str]) -> list[Throttle]:
    """What holds replicas of ``topics`` back, and the rates of all brokers that run."""
    return retried(lambda: _found(client, topics), passes=is_passing_with_brokers)


def _found(client: AdminClient, topics: Iterable[str]) -> list[Throttle]:
    resources = [("broker", str(each), RATES) for each in brokers(client)]
    resources += [("topic", name, (SENDERS, RECEIVERS)) for name in sorted(topics)]
    return [
        Throttle(of, name, setting["name"], setting["value"])
        for of, name, settings in resources
        for setting in config_requests.described(client, of, name)
        if setting["name"] in settings and setting["source"] in _SOURCES
    ]


def remove_throttles(client: AdminClient, found: Sequence[Throttle]) -> None:
    """Have each setting back at its default."""
    by_resource: dict[tuple[str, str], dict[str, tuple[str, str | None]]] = {}
    for throttle in found:
        by_resource.setdefault((throttle.resource, throttle.name), {})[throttle.setting] = ("DELETE", None)
    _alter(client, [(of, name, changes) for (of, name), changes in by_resource.items()])


def _alter(client: AdminClient, wanted: Sequence[tuple[str, str, Changes]]) -> None:
    """IncrementalAlterConfigs; raises ``CommandFailed`` for the first resource that refuses."""
    for of, name, changes in wanted:
        config_requests.alter(client, of, name, changes, dry_run=False)
