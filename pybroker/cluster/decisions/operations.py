"""What is asked of the controller and what it answers, as plain values.

Owns: the requests and results of every controller operation, apart from any version of the wire.
Owns no rule: those are in ``decisions/``.

``error_code`` has Kafka's numbers (0 is NONE), ``error_message`` is what the client reads, or None.  The request to
change configs is ``config.resources.ConfigChange``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from pybroker.cluster.image.cluster_image import RECOVERED, PartitionImage
from pybroker.cluster.image.quota_entities import QuotaEntity
from pybroker_protocol.uuids import ZERO_UUID

if TYPE_CHECKING:
    from pybroker.security.acl_bindings import Acl
    from pybroker.security.delegation_tokens import DelegationToken

# The kinds of ElectLeaders.
PREFERRED: Final = 0
UNCLEAN: Final = 1

# FeatureUpdate.UpgradeType, with Kafka's numbers.
UPGRADE: Final = 1
SAFE_DOWNGRADE: Final = 2
UNSAFE_DOWNGRADE: Final = 3


class NewTopic(NamedTuple):
    """One topic to create.  ``-1`` means the broker's default; ``assignments`` pairs partition indexes and replicas."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: tuple[tuple[int, tuple[int, ...]], ...] = ()
    configs: tuple[tuple[str, str | None], ...] = ()


# Whether a client may make, or delete, so many partitions now, which counts them (KIP-599).
Allows = Callable[[int], bool]


def anything(_partitions: int) -> bool:
    """Where no quota holds."""
    return True


class TopicCreation(NamedTuple):
    """The answer for one ``NewTopic``; what follows ``error_message`` is set only where there is no error."""

    name: str
    error_code: int = 0
    error_message: str | None = None
    topic_id: bytes = ZERO_UUID
    num_partitions: int = -1
    replication_factor: int = -1
    overrides: Mapping[str, str] = {}


class TopicDeletion(NamedTuple):
    """The answer for one topic to delete, in the order asked; ``name`` is None for an unknown id."""

    name: str | None
    topic_id: bytes
    error_code: int = 0
    error_message: str | None = None


class MorePartitions(NamedTuple):
    """Grow a topic to ``total_count`` partitions; ``assignments`` has the replicas of each new one (None: choose)."""

    name: str
    total_count: int
    assignments: tuple[tuple[int, ...], ...] | None = None


class ScramUpsertion(NamedTuple):
    """Set what a mechanism knows of a user: the password, salted and iterated by the client."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes

    def __repr__(self) -> str:
        return f"ScramUpsertion({self.user!r}, [hidden])"


class NewToken(NamedTuple):
    """A delegation token that ``requester`` asks for, to log in as ``owner``; principals are ``type:name``.

    A ``max_lifetime_ms`` that is not positive is the broker's.
    """

    owner: str
    requester: str
    renewers: tuple[str, ...]
    max_lifetime_ms: int


class TokenCreation(NamedTuple):
    """The answer for a ``NewToken``: the token with its HMAC, where there is no error."""

    error_code: int = 0
    token: DelegationToken | None = None
    hmac: bytes = b""

    def __repr__(self) -> str:
        return f"TokenCreation({self.error_code}, {self.token!r}, [hidden])"


class TokenExpiry(NamedTuple):
    """The answer to a change of when a token expires: when it does, where there is no error."""

    error_code: int = 0
    expiry_timestamp_ms: int = 0


class FeatureUpdate(NamedTuple):
    """Finalize ``name`` at ``max_version_level`` (0 removes it); lowering needs one of the downgrades."""

    name: str
    max_version_level: int
    upgrade_type: int = UPGRADE


class Outcome(NamedTuple):
    """The answer to a request for one thing alone."""

    error_code: int = 0
    error_message: str | None = None


class AclDeletion(NamedTuple):
    """The answer for one filter of ACLs to delete: those that it matched, or why nothing was deleted."""

    deleted: Sequence[Acl] = ()
    error_code: int = 0
    error_message: str | None = None


class NamedResult(NamedTuple):
    """The answer for one named thing (topic, resource, feature)."""

    name: str
    error_code: int = 0
    error_message: str | None = None


class PartitionResult(NamedTuple):
    """How it went with one partition."""

    partition: int
    error_code: int = 0
    error_message: str | None = None


class PartitionResults(NamedTuple):
    """How it went with partitions, by topic, in the order asked; the error is that of the whole, if there was one."""

    topics: list[tuple[str, list[PartitionResult]]]
    error_code: int = 0
    error_message: str | None = None


def refused_partitions(wanted: Iterable[tuple[str, Iterable[int]]], code: int, message: str | None) -> PartitionResults:
    """The same error for the whole and for each partition that was named."""
    return PartitionResults(
        [(name, [PartitionResult(index, code, message) for index in indexes]) for name, indexes in wanted],
        code,
        message,
    )


# Topics and their partitions.
WantedPartitions = Sequence[tuple[str, Sequence[int]]]
# None for all.
WantedElections = WantedPartitions | None


class Reassignment(NamedTuple):
    """Move a partition to these replicas, the preferred leader first; None: take back what is under way."""

    partition: int
    replicas: tuple[int, ...] | None


# By topic.
WantedReassignments = Sequence[tuple[str, Sequence[Reassignment]]]


class OngoingReassignment(NamedTuple):
    """A partition that is being reassigned, by its index."""

    partition: int
    state: PartitionImage


class QuotaAlteration(NamedTuple):
    """Set quotas of an entity to these values; None removes one."""

    entity: QuotaEntity
    operations: tuple[tuple[str, float | None], ...]


class QuotaResult(NamedTuple):
    """The answer for one entity."""

    entity: QuotaEntity
    error_code: int = 0
    error_message: str | None = None


class ProducerIdBlock(NamedTuple):
    """Producer ids ``first_producer_id`` up to ``first_producer_id + size`` exclusive belong to the asking broker."""

    first_producer_id: int
    size: int


class ProducerIdAllocation(NamedTuple):
    """The answer to a broker that asked for producer ids: its block, where there is no error."""

    error_code: int = 0
    block: ProducerIdBlock | None = None


class InSyncChange(NamedTuple):
    """A leader asks for other in-sync replicas: pairs of broker id and broker epoch (-1: whichever it is).

    The epochs are those of the partition as the leader knows it; AlterPartition (KIP-497, KIP-903).
    """

    topic_id: bytes
    partition_index: int
    leader_epoch: int
    partition_epoch: int
    in_sync: tuple[tuple[int, int], ...]
    leader_recovery_state: int = RECOVERED


class InSyncState(NamedTuple):
    """What AlterPartition tells of a partition that it has changed."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    leader_recovery_state: int = RECOVERED


class InSyncResult(NamedTuple):
    """The answer for one ``InSyncChange``; ``state`` is the partition's where there is no error."""

    topic_id: bytes
    partition_index: int
    error_code: int = 0
    state: InSyncState | None = None


class InSyncResults(NamedTuple):
    """The answers, in the order asked; the error is that of the whole, and then there are none."""

    results: list[InSyncResult]
    error_code: int = 0


class Registration(NamedTuple):
    """The answer to a broker that registered: its epoch, where there is no error."""

    error_code: int = 0
    broker_epoch: int = -1


class Heartbeat(NamedTuple):
    """The answer to a broker's heartbeat."""

    error_code: int = 0
    is_fenced: bool = True
    should_shut_down: bool = False


# Log dir ids, by topic id and partition, in which a broker found its replicas.
FoundReplicas = Mapping[tuple[bytes, int], bytes]


class Assignments(NamedTuple):
    """The answer to a broker that says where its replicas lie: those that are not its own, by topic id and partition.

    The error is that of the whole, and then nothing was noted.
    """

    errors: Mapping[tuple[bytes, int], int]
    error_code: int = 0
