"""The features that this broker supports, and what a new cluster finalizes.

Owns: the supported range of each feature (KIP-584), as ApiVersions announces them.  A feature is listed here when it is
served, not before: clients switch behaviour on it (Kafka, too, leaves out what it cannot raise above 0).  Finalized
levels are in ``ClusterImage.features``.

Counterpart in Kafka: ``org.apache.kafka.server.common.Feature`` and ``MetadataVersion``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

METADATA_VERSION: Final = "metadata.version"
KRAFT_VERSION: Final = "kraft.version"
GROUP_VERSION: Final = "group.version"
TRANSACTION_VERSION: Final = "transaction.version"
ELIGIBLE_LEADER_REPLICAS_VERSION: Final = "eligible.leader.replicas.version"


class VersionRange(NamedTuple):
    """Supported levels, both ends inclusive."""

    min_version: int
    max_version: int


# The level of metadata.version from which log dirs can be cordoned (KIP-1066): 4.3-IV0.
CORDONED_LOG_DIRS_LEVEL: Final = 30

SUPPORTED: Final[Mapping[str, VersionRange]] = {
    ELIGIBLE_LEADER_REPLICAS_VERSION: VersionRange(0, 1),  # 1: KIP-966
    GROUP_VERSION: VersionRange(0, 1),  # 1: consumer groups of KIP-848
    KRAFT_VERSION: VersionRange(0, 1),
    METADATA_VERSION: VersionRange(7, 33),  # 3.3-IV3 to 4.4-IV2
    TRANSACTION_VERSION: VersionRange(0, 2),  # 1: flexible records, 2: KIP-890
}

# The levels of metadata.version that changed what metadata may say: a downgrade across one may lose some of it.
METADATA_CHANGES: Final = frozenset((8, 11, 13, 14, 15, 17, 23, 30, 32, 33))

# From these levels of metadata.version on.
HOSTS_ARE_RANGES: Final = 32  # 4.4-IV1: hosts of ACLs (KIP-1276)
CONTROLLERS_ARE_UNREGISTERED: Final = 33  # 4.4-IV2

# Levels of a new cluster.  kraft.version stays at 0, which Kafka finalizes without a record of it.
INITIAL_LEVELS: Final[Mapping[str, int]] = {
    METADATA_VERSION: SUPPORTED[METADATA_VERSION].max_version,
    GROUP_VERSION: SUPPORTED[GROUP_VERSION].max_version,
    TRANSACTION_VERSION: SUPPORTED[TRANSACTION_VERSION].max_version,
    ELIGIBLE_LEADER_REPLICAS_VERSION: SUPPORTED[ELIGIBLE_LEADER_REPLICAS_VERSION].max_version,
}

# What a level takes: other features at a level of their own.  A cluster of an older Kafka may have less (KIP-1022).
DEPENDENCIES: Final[Mapping[tuple[str, int], Mapping[str, int]]] = {
    (ELIGIBLE_LEADER_REPLICAS_VERSION, 1): {METADATA_VERSION: 23},  # 4.0-IV1
}


def unsupported_level(levels: Mapping[str, int]) -> str | None:
    """Why this broker cannot be of a cluster with these finalized levels; None where it can."""
    for name, level in levels.items():
        known = SUPPORTED.get(name, VersionRange(0, 0))
        if not known.min_version <= level <= known.max_version:
            return (
                f"the cluster has finalized {name} at level {level}, and this pybroker knows the levels "
                f"{known.min_version} to {known.max_version}: it is too old, or too new, for this cluster"
            )
    return None
