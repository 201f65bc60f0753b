"""Which brokers hold the replicas of new partitions.

Owns: spreading leaders and replicas evenly over brokers, racks and log dirs, and checking assignments that clients
bring.  The log dir is chosen, and committed, with the partition.  So there is no moment at which a partition holds data
in an unknown place (Kafka's brokers choose, and report it afterwards).

Invariants:
- The replicas of a partition are distinct.
- The first one is on a live broker.
- In a rack live brokers come before fenced ones.
- Racks take turns, so that two replicas share a rack only when there are fewer racks than replicas.

Counterpart in Kafka: ``StripedReplicaPlacer`` and ``ReplicationControlManager.validateManualPartitionAssignment``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol

from pybroker.cluster.image.cluster_image import UNASSIGNED_DIRECTORY, BrokerRegistration, ImageBuilder, PartitionImage
from pybroker_protocol.errors import ErrorCode, readable


class Shuffler(Protocol):
    """The part of ``random.Random`` that placement needs."""

    def shuffle(self, x: Any) -> None: ...


class Refused(Exception):
    """A request that breaks a rule: Kafka's error code and what the client reads."""

    def __init__(self, error_code: int, message: str | None = None) -> None:
        super().__init__(message)
        self.error_code = int(error_code)
        self.message = None if message is None else readable(message)


def place(
    brokers: Mapping[int, BrokerRegistration], partition_count: int, replication_factor: int, random: Shuffler
) -> Iterator[tuple[int, ...]]:
    """Replicas for ``partition_count`` new partitions; ``Refused`` when the brokers are too few or all fenced.

    One whose log dirs are all cordoned gets none, and counts for none, as in Kafka (KIP-1066).
    One in controlled shutdown is as good as fenced.  (Kafka leaves it out, and refuses a topic with as many replicas as
    there are brokers while one of them restarts.)
    """
    brokers = {broker_id: broker for broker_id, broker in brokers.items() if broker.takes_replicas}
    if not any(broker.is_active for broker in brokers.values()):
        reason = "All brokers are currently fenced, or have all their log directories cordoned."
        raise _cannot_replicate(replication_factor, reason)
    if replication_factor > len(brokers):
        reason = (
            f"The target replication factor of {replication_factor} cannot be reached because only "
            f"{len(brokers)} broker(s) are registered."
        )
        raise _cannot_replicate(replication_factor, reason)
    return _assignments(_racks(brokers.values(), random), partition_count, replication_factor, random)


def _assignments(
    racks: list[tuple[list[int], list[int]]], partition_count: int, replication_factor: int, random: Shuffler
) -> Iterator[tuple[int, ...]]:
    """One after the other; the order is another one each time all brokers had their turn.

    So the partitions that a broker leads have different followers, and not all of them the same next leader.
    """
    live_count = sum(len(live) for live, _ in racks)
    for index in range(partition_count):
        turn = index % live_count
        if turn == 0 and index > 0 and live_count > 1:
            _shuffle(racks, random)
        yield _replicas(racks, turn, replication_factor)


def _cannot_replicate(replication_factor: int, reason: str) -> Refused:
    message = f"Unable to replicate the partition {replication_factor} time(s): {reason}"
    return Refused(ErrorCode.INVALID_REPLICATION_FACTOR, message)


def _racks(brokers: Collection[BrokerRegistration], random: Shuffler) -> list[tuple[list[int], list[int]]]:
    """Per rack the brokers that may lead and the others, all in a random order.

    One without space is among the others, unless none of those that may lead has any.
    """
    racks: dict[str | None, tuple[list[int], list[int]]] = {}
    any_has_space = any(broker.is_active and broker.has_free_space for broker in brokers)
    for broker in brokers:
        live, others = racks.setdefault(broker.rack, ([], []))
        may_lead = broker.is_active and (broker.has_free_space or not any_has_space)
        (live if may_lead else others).append(broker.broker_id)
    shuffled = list(racks.values())
    _shuffle(shuffled, random)
    return shuffled


def _shuffle(racks: list[tuple[list[int], list[int]]], random: Shuffler) -> None:
    random.shuffle(racks)
    for live, fenced in racks:
        random.shuffle(live)
        random.shuffle(fenced)


def _replicas(racks: Sequence[tuple[list[int], list[int]]], turn: int, replication_factor: int) -> tuple[int, ...]:
    # Each partition begins one rack further, and one broker further in every rack each time the racks are through.
    first = turn % len(racks)
    lap = turn // len(racks)
    order = [*racks[first:], *racks[:first]]
    queues = [[*_rotated(live, lap), *_rotated(fenced, lap)] for live, fenced in order]
    with_live = next(index for index, (live, _) in enumerate(order) if live)
    leader = queues[with_live].pop(0)
    queues = [*queues[with_live + 1 :], *queues[: with_live + 1]]
    replicas = [leader]
    while len(replicas) < replication_factor:
        for queue in queues:
            if queue and len(replicas) < replication_factor:
                replicas.append(queue.pop(0))
    return tuple(replicas)


def _rotated(brokers: list[int], by: int) -> list[int]:
    if not brokers:
        return brokers
    start = by % len(brokers)
    return brokers[start:] + brokers[:start]


def check_assignment(
    replicas: Sequence[int], brokers: Mapping[int, BrokerRegistration], replication_factor: int | None
) -> None:
    """``Refused`` unless the replicas are registered brokers, distinct, and as many as ``replication_factor`` says."""
    if not replicas:
        raise _bad_assignment("The manual partition assignment includes an empty replica list.")
    previous = None
    for broker_id in sorted(replicas):
        if broker_id not in brokers:
            reason = f"includes broker {broker_id}, but no such broker is registered."
            raise _bad_assignment(f"The manual partition assignment {reason}")
        if broker_id == previous:
            raise _bad_assignment(f"The manual partition assignment includes the broker {broker_id} more than once.")
        previous = broker_id
    if replication_factor is not None and len(replicas) != replication_factor:
        raise _bad_assignment(
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is not "
            f"consistent with previous partitions, which have {replication_factor} replica(s)."
        )


def new_partition(
    builder: ImageBuilder,
    index: int,
    replicas: tuple[int, ...],
    brokers: Mapping[int, BrokerRegistration],
    *,
    manual: bool,
) -> PartitionImage:
    """The first state of a partition: live replicas are in sync, the first of them leads; ``Refused`` if none lives.

    Those without space are not, where any has it.
    """
    active = [broker_id for broker_id in replicas if brokers[broker_id].is_active]
    if not active and manual:
        raise _bad_assignment(
            f"All brokers specified in the manual partition assignment for partition {index} "
            "are fenced or in controlled shutdown."
        )
    if not active:
        raise _cannot_replicate(len(replicas), "All brokers are currently fenced or in controlled shutdown.")
    directories = {broker_id: choose_directory(builder, brokers[broker_id]) for broker_id in replicas}
    with_space = [broker_id for broker_id in active if directories[broker_id] not in brokers[broker_id].full_dirs]
    isr = tuple(with_space or active)
    return PartitionImage(replicas, isr, isr[0], directories=tuple(directories.values()))


def choose_directory(builder: ImageBuilder, broker: BrokerRegistration) -> bytes:
    """The log dir of the broker that has space and holds the fewest replicas; one more is counted to it.

    A cordoned one only where there is no other: who assigns replicas by hand may do that, as in Kafka.
    """
    directories = broker.open_log_dirs or broker.log_dirs
    if len(broker.log_dirs) == 1:
        return broker.log_dirs[0]
    if not broker.log_dirs:
        return UNASSIGNED_DIRECTORY
    counts = builder.replicas_per_directory
    chosen = min(directories, key=lambda directory: (directory in broker.full_dirs, counts[directory]))
    counts[chosen] += 1
    return chosen


def _bad_assignment(message: str) -> Refused:
    return Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
