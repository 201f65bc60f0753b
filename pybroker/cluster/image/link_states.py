"""Cluster links as a kind of metadata: what is known of a link beside its settings, and how its topics stand.

Owns: the values, and the state machine of a mirrored topic, as the table that runs (``TRANSITIONS``).  Does not own
what a link is set to (``config/link_config``), what leads from one state to another (``decisions/mirrored_topics``),
nor how records come (``replication/mirrors``).

A topic of another cluster, the source, is mirrored by a topic here: at the source's offsets, batches byte for byte.  It
is read-only until it is promoted.

Counterpart in Kafka: ``ClusterMirror`` of KIP-1279.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple
from zlib import crc32

from pybroker_protocol.uuids import ZERO_UUID, uuid_text

if TYPE_CHECKING:
    from pybroker.cluster.image.quota_entities import QuotaEntity

# --- states ----------------------------------------------------------------------------------------------------------

MIRRORING: Final = "mirroring"  # records come
PAUSED: Final = "paused"  # the operator wants none to come
PROMOTING: Final = "promoting"  # records come until everything is here; then it is PROMOTED
STOPPED: Final = "stopped"  # none can come, for the reason that stands beside
PROMOTED: Final = "promoted"  # it has all that its source had, and takes writes
FAILED_OVER: Final = "failed-over"  # it takes writes, with what was here
ADOPTED: Final = "adopted"  # it was here before the link: nothing is cut before it is known where both histories part
STATES: Final = (MIRRORING, PAUSED, PROMOTING, STOPPED, PROMOTED, FAILED_OVER, ADOPTED)

# In these a topic takes writes, and its source is of no concern to it any more.
WRITABLE: Final = frozenset((PROMOTED, FAILED_OVER))
# In these its leaders fetch.
FETCHED: Final = frozenset((MIRRORING, PROMOTING))
# In these its leaders ask the source anything.
ASKED_FOR: Final = FETCHED | {ADOPTED}

# --- inputs ----------------------------------------------------------------------------------------------------------

RESUME: Final = "resume"  # the settings want it mirrored
PAUSE: Final = "pause"
PROMOTE: Final = "promote"
FAIL_OVER: Final = "failover"
CAUGHT_UP: Final = "caught up"  # the leader of each partition has found nothing more at the source
STOP: Final = "stop"  # a leader, or the controller, has found that it cannot go on
ALIKE: Final = "alike"  # the source has all that is here
DISCARD: Final = "discard"  # the settings agree that what the source lacks is cut
INPUTS: Final = (RESUME, PAUSE, PROMOTE, FAIL_OVER, CAUGHT_UP, STOP, ALIKE, DISCARD)

# From a state, by an input, to a state.  What is missing cannot be, and changes nothing.
TRANSITIONS: Final[Mapping[tuple[str, str], str]] = {
    (MIRRORING, RESUME): MIRRORING,
    (MIRRORING, PAUSE): PAUSED,
    (MIRRORING, PROMOTE): PROMOTING,
    (MIRRORING, FAIL_OVER): FAILED_OVER,
    (MIRRORING, STOP): STOPPED,
    (PAUSED, RESUME): MIRRORING,
    (PAUSED, PAUSE): PAUSED,
    (PAUSED, PROMOTE): PROMOTING,
    (PAUSED, FAIL_OVER): FAILED_OVER,
    (PAUSED, STOP): STOPPED,
    (PROMOTING, RESUME): MIRRORING,
    (PROMOTING, PAUSE): PAUSED,
    (PROMOTING, PROMOTE): PROMOTING,
    (PROMOTING, FAIL_OVER): FAILED_OVER,
    (PROMOTING, CAUGHT_UP): PROMOTED,
    (PROMOTING, STOP): STOPPED,
    # A topic that has stopped goes on by the operator's word alone: by a pause, which ends. A link that is made again
    # under its name is such a word, too, for what has stopped without one.
    (STOPPED, RESUME): STOPPED,
    (STOPPED, PAUSE): PAUSED,
    (STOPPED, FAIL_OVER): FAILED_OVER,
    (STOPPED, STOP): STOPPED,
    # What is here beyond the source's history is cut by nothing else than the operator's word.
    **{(ADOPTED, wish): ADOPTED for wish in (RESUME, PAUSE, PROMOTE, STOP)},
    (ADOPTED, FAIL_OVER): FAILED_OVER,
    (ADOPTED, ALIKE): MIRRORING,
    (ADOPTED, DISCARD): MIRRORING,
    # What takes writes has a history of its own: no wish of a link changes it any more.
    **{(state, wish): state for state in sorted(WRITABLE) for wish in (RESUME, PAUSE, PROMOTE, FAIL_OVER)},
}


def own_producer_ids(cluster_id: str) -> int:
    """The first of the producer ids that a cluster with links hands out.

    Clusters number producers from 0 on, and a topic that is promoted has those of its source.  From the first mirrored
    topic on a cluster's own have its mark above their lower 32 bits, so that they are no other cluster's.
    """
    return (1 + crc32(cluster_id.encode()) % (1 << 30)) << 32


# Of what was kept before it was kept with the leader epoch.
UNKNOWN_EPOCH: Final = -1


class MirroredTopic(NamedTuple):
    """How a topic of this cluster, which has the name under which this is kept, stands to its source.

    ``reason`` says why it has STOPPED, or what the source lacks of one that is ADOPTED.  ``ended`` has the partitions
    whose leaders have found nothing more at the source since the topic is PROMOTING, or nothing that the source lacks
    since it is ADOPTED.  Each is (partition, the leader epoch in which that was found): in another one it says nothing.
    ``first_epochs`` has, since it takes writes, the leader epoch with which they began in each partition: everything of
    former epochs is the source's.  ``partings`` says of one that is, or was, ADOPTED what the source lacks:
    (partition, the offset from which on, the records that are here behind that).

    ``carried`` and ``lowered`` are sets of partitions of ``__consumer_offsets``, a bit each.  Their coordinators have
    done what follows for groups' offsets.  Of one that is PROMOTED they have looked at the source once more.  Of one
    that takes writes, or was cut, nothing is past the end.
    """

    link: str
    source_topic: str
    source_topic_id: bytes = ZERO_UUID
    state: str = MIRRORING
    reason: str = ""
    ended: tuple[tuple[int, int], ...] = ()
    first_epochs: tuple[int, ...] = ()
    partings: tuple[tuple[int, int, int], ...] = ()
    carried: int = 0
    lowered: int = 0

    @property
    def is_cut(self) -> bool:
        """Whether what its source lacks is cut off, or is about to be."""
        return bool(self.partings) and self.state != ADOPTED

    @property
    def writable_since(self) -> int:
        """The leader epoch with which its first partition began to take writes; -1 where it takes none."""
        return self.first_epochs[0] if self.is_writable and self.first_epochs else -1

    @property
    def is_writable(self) -> bool:
        """Whether clients may write to it."""
        return self.state in WRITABLE

    def first_epoch(self, index: int) -> int:
        """Everything below that leader epoch of the partition is the source's; 0 where nothing is known to be."""
        return self.first_epochs[index] if self.is_writable and index < len(self.first_epochs) else 0


class LinkState(NamedTuple):
    """What is known of a link: whose cluster its source is, and what is the matter with it, if anything is.

    ``refused`` has topics of the source that are not mirrored though the link's settings want them, with the reason;
    ``refused_more`` is the number of others.
    ``not_carried`` says what of the source's ACLs, quotas and users is not taken over though they want it.
    ``brought_acls`` has the ACLs that are here because the link has brought them: (id here, id at the source).
    ``brought_quotas`` has the quotas of which that is so: (entity, name of the quota).
    """

    source_cluster_id: str = ""
    problem: str = ""
    refused: tuple[tuple[str, str], ...] = ()
    not_carried: tuple[str, ...] = ()
    brought_acls: tuple[tuple[bytes, bytes], ...] = ()
    brought_quotas: tuple[tuple[QuotaEntity, str], ...] = ()
    refused_more: int = 0

    @property
    def has_of_access(self) -> bool:
        """Whether anything is kept of the source's ACLs, quotas and users."""
        return bool(self.not_carried or self.brought_acls or self.brought_quotas)


# --- what is learned -------------------------------------------------------------------------------------------------


# What a topic is described by that is, or was, mirrored itself: its state, and the id of the topic that it mirrors.
MIRROR_STATE: Final = "pybroker.mirror.state"
MIRROR_TOPIC_ID: Final = "pybroker.mirror.topic.id"


# The protocol type of groups that commit no offsets (KIP-932).
SHARE: Final = "share"


class SourceTopic(NamedTuple):
    """A topic of the source: the leader epoch of each partition, -1 where it has no leader.

    ``configs`` are the settings that a mirrored topic takes over, and ``MIRROR_STATE`` and ``MIRROR_TOPIC_ID`` where it
    is, or was, mirrored there; None where they are not known.  ``defaults`` are those that nothing sets there.
    """

    name: str
    topic_id: bytes
    leader_epochs: tuple[int, ...]
    configs: Mapping[str, str] | None = None
    defaults: Mapping[str, str] = MappingProxyType({})

    @property
    def takes_writes(self) -> bool:
        """Whether it is no mirror there, as far as its settings are known."""
        return (self.configs or {}).get(MIRROR_STATE, PROMOTED) in WRITABLE

    def has_history_of(self, topic_id: bytes, mirror: MirroredTopic | None) -> bool:
        """Whether this topic, or that of another cluster, was mirrored from the other one.

        Then the same leader epoch has the same records in both.  Of others it says nothing: all topics begin with 0.
        """
        is_mirror_of_this = (
            mirror is not None and self.topic_id != ZERO_UUID and mirror.source_topic_id == self.topic_id
        )
        return is_mirror_of_this or self.mirrors(topic_id)

    def mirrors(self, topic_id: bytes) -> bool:
        """Whether it is, or was, mirrored from the topic of that id, as far as its settings are known."""
        return (self.configs or {}).get(MIRROR_TOPIC_ID) == uuid_text(topic_id)


class SourceCluster(NamedTuple):
    """What the source says of itself: its topics as far as the link is to mirror them, and may see them.

    ``refused`` has what the source does not say of topics that the link is to mirror, with the reason.  ``unsure`` are
    topics of which it may have said less than there is.
    """

    cluster_id: str
    topics: Mapping[str, SourceTopic]
    refused: Mapping[str, str] = MappingProxyType({})
    unsure: frozenset[str] = frozenset()


# What the leader of a mirrored partition finds.
ENDED: Final = 0  # there is nothing more at the source
DIVERGED: Final = 1  # the source has other records at our offsets: they are cut in the next leader epoch, or were cut
FAILED: Final = 2  # it cannot go on
PARTED: Final = 3  # where an adopted partition's history parts from the source's

# What coordinators have done for groups' offsets in a topic.
CARRIED: Final = 4
LOWERED: Final = 5


class MirrorReport(NamedTuple):
    """A leader's word to the controller; ``leader_epoch`` is that of the partition here.

    CARRIED and LOWERED are a coordinator's: ``leader_epoch`` is the topic's ``writable_since``, and ``reason`` has
    partitions of ``__consumer_offsets``, each with its leader epoch behind a colon.
    """

    topic_id: bytes
    partition: int
    leader_epoch: int
    kind: int
    reason: str = ""
