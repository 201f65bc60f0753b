"""What a metadata store holds when it comes into being.

Owns: the first contents of a new cluster, and the log line for a cluster which exists and has other users.
``kraft_takeover`` makes the same value out of a data directory of Kafka's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from pybroker.cluster.image.cluster_image import ClusterImage
from pybroker.cluster.image.supported_features import INITIAL_LEVELS
from pybroker_protocol.uuids import uuid_text

if TYPE_CHECKING:
    from pybroker.cluster.image.cluster_image import ScramKey
    from pybroker.security.scram import ScramCredential

    Users = Mapping[ScramKey, ScramCredential]

log = logging.getLogger(__name__)

NO_USERS: Final[Users] = MappingProxyType({})


class InitialMetadata(NamedTuple):
    """The first image, and the records of Kafka's metadata log that are kept for later as they are."""

    image: ClusterImage
    retained_records: tuple[bytes, ...] = ()


def new_cluster(cluster_id: str, users: Users = NO_USERS) -> InitialMetadata:
    """A cluster without topics, whose users of SCRAM are these."""
    return InitialMetadata(ClusterImage(cluster_id=cluster_id, features=INITIAL_LEVELS, scram_credentials=users))


def tell_of_users_passed_over(image: ClusterImage, users: Users) -> None:
    """A line where ``users`` were to begin with a cluster that has begun without them."""
    passed_over = sorted(
        user for (mechanism, user), own in users.items() if image.scram_credentials.get((mechanism, user)) != own
    )
    if passed_over:
        log.info("the cluster exists, and keeps its users: %s not set to what --add-scram says", ", ".join(passed_over))


def new_cluster_id(new_uuid: Callable[[], bytes]) -> str:
    """A random cluster id in Kafka's form: a uuid as 22 characters of URL-safe base64."""
    return uuid_text(new_uuid())
