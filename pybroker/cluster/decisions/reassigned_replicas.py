"""The replicas of a partition on their way from some brokers to others (KIP-455).

Owns: which replicas a partition has while it is reassigned, when that has come to its end, and what it is without it.
Owns no rule of who may lead (``partition_changes``), and no request (``reassignments``).

Invariants:
- Until the end everybody who was a replica stays one, so that nothing is lost while others catch up.
- The end comes when all who are to stay are in sync, never before.
- ``adding_replicas`` are exactly those that the partition did not have before its reassignment, however often that was
  changed on the way, so that taking it back finds the others.

Counterpart in Kafka: ``PartitionReassignmentReplicas`` and ``PartitionReassignmentRevert``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pybroker.cluster.image.cluster_image import PartitionImage


def is_reassigned(partition: PartitionImage) -> bool:
    """Whether a reassignment is under way."""
    return bool(partition.adding_replicas or partition.removing_replicas)


def original_replicas(partition: PartitionImage) -> tuple[int, ...]:
    """Those before the reassignment that is under way."""
    return tuple(replica for replica in partition.replicas if replica not in partition.adding_replicas)


def reassigned(
    partition: PartitionImage, target: Sequence[int], directory_of: Callable[[int], bytes]
) -> PartitionImage:
    """The partition on its way to ``target``; ``directory_of`` chooses the log dir of a broker that is new to it."""
    original = original_replicas(partition)
    removing = sorted(set(partition.replicas) - set(target))
    replicas = (*target, *removing)
    adding = sorted(set(replicas) - set(original))
    directories = tuple(
        partition.directory(replica) if replica in partition.replicas else directory_of(replica) for replica in replicas
    )
    return partition._replace(
        replicas=replicas,
        directories=directories,
        adding_replicas=tuple(adding),
        removing_replicas=tuple(removing),
    )


def completed(partition: PartitionImage) -> PartitionImage:
    """The partition with its reassignment at its end, if all who are to stay are in sync; else the same object."""
    if not is_reassigned(partition):
        return partition
    staying = [replica for replica in partition.replicas if replica not in partition.removing_replicas]
    if not staying or not set(staying) <= set(partition.isr):
        return partition
    return _with_replicas(partition, staying)


class Reverted(NamedTuple):
    """A partition without its reassignment; unclean where none of those that stay was in sync."""

    partition: PartitionImage
    is_unclean: bool


def reverted(partition: PartitionImage) -> Reverted:
    """The partition as if it had not been reassigned."""
    back = _with_replicas(partition, original_replicas(partition))
    if back.isr:
        return Reverted(back, is_unclean=False)
    return Reverted(back._replace(isr=back.replicas[:1]), is_unclean=True)


def _with_replicas(partition: PartitionImage, replicas: Sequence[int]) -> PartitionImage:
    """The partition with these of its replicas and no others, for good."""
    return partition._replace(
        replicas=tuple(replicas),
        directories=tuple(map(partition.directory, replicas)),
        isr=tuple(replica for replica in partition.isr if replica in replicas),
        elr=tuple(replica for replica in partition.elr if replica in replicas),
        last_known_elr=tuple(replica for replica in partition.last_known_elr if replica in replicas),
        adding_replicas=(),
        removing_replicas=(),
    )
