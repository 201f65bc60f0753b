"""The features that this broker supports, and what a new cluster finalizes.

Owns: the supported range of each feature (KIP-584), as ApiVersions announces them.  A feature is listed here when it is
served, not before: clients switch behaviour on it.  Finalized levels are in ``ClusterImage.features``.

Counterpart in Kafka: ``org.apache.kafka.server.common.Feature`` and ``MetadataVersion``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

METADATA_VERSION: Final = "metadata.version"
KRAFT_VERSION: Final = "kraft.version"


class VersionRange(NamedTuple):
    """Supported levels, both ends inclusive."""

    min_version: int
    max_version: int


SUPPORTED: Final[Mapping[str, VersionRange]] = {
    KRAFT_VERSION: VersionRange(0, 1),
    METADATA_VERSION: VersionRange(7, 30),  # 3.3-IV3 to 4.3-IV0
}

# Levels of a new cluster.  kraft.version stays at 0, which Kafka finalizes without a record of it.
INITIAL_LEVELS: Final[Mapping[str, int]] = {METADATA_VERSION: SUPPORTED[METADATA_VERSION].max_version}

# Levels of metadata.version (MetadataVersion.featureLevel), by what clients and operators call them.
METADATA_VERSION_NAMES: Final[Mapping[int, str]] = {
    7: "3.3-IV3",
    8: "3.4-IV0",
    9: "3.5-IV0",
    10: "3.5-IV1",
    11: "3.5-IV2",
    12: "3.6-IV0",
    13: "3.6-IV1",
    14: "3.6-IV2",
    15: "3.7-IV0",
    16: "3.7-IV1",
    17: "3.7-IV2",
    18: "3.7-IV3",
    19: "3.7-IV4",
    20: "3.8-IV0",
    21: "3.9-IV0",
    22: "4.0-IV0",
    23: "4.0-IV1",
    24: "4.0-IV2",
    25: "4.0-IV3",
    26: "4.1-IV0",
    27: "4.1-IV1",
    28: "4.2-IV0",
    29: "4.2-IV1",
    30: "4.3-IV0",
}
