"""What a metadata store holds when it comes into being.

Owns: the first contents of a new cluster.  ``kraft_takeover`` makes the same value out of a data directory of Kafka's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from pybroker.cluster.features import INITIAL_LEVELS
from pybroker.cluster.image import ClusterImage
from pybroker_protocol.uuids import uuid_text


class Founding(NamedTuple):
    """The first image, and the records of Kafka's metadata log that are kept for later as they are."""

    image: ClusterImage
    retained_records: tuple[bytes, ...] = ()


def new_cluster(cluster_id: str) -> Founding:
    """A cluster without topics."""
    return Founding(ClusterImage(cluster_id=cluster_id, features=INITIAL_LEVELS))


def new_cluster_id(new_uuid: Callable[[], bytes]) -> str:
    """A random cluster id in Kafka's form: a uuid as 22 characters of URL-safe base64."""
    return uuid_text(new_uuid())
