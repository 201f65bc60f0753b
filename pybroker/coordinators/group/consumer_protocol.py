"""The little that a broker understands of what consumers tell one another.

Owns: reading subscriptions and reading and writing assignments of the classic protocol. The bytes are the clients'
business. They are read so that offsets of topics that are in use neither expire nor get deleted, and where members of
both protocols are in one group. Each version is a prefix of the next, so that a later one is read as the last known.

Invariant: what is read at once is bounded (``limits``), because it is read between the requests of others; what is
longer counts as unreadable.

Counterpart in Kafka: ``ConsumerProtocol``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import Struct
from typing import NamedTuple

from pybroker_protocol import codec
from pybroker_protocol.errors import ProtocolError
from pybroker_protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)

# Topics that the subscriptions of a classic group may name, all members together, and be read for: a tenth of a
# second.  Of a group with more all topics count as subscribed to.
GROUP_SUBSCRIBED_TOPICS_MAX = 250_000

# A subscription or assignment of a classic member that is read as a whole.  As much as a record of __consumer_offsets
# may have, and there it has to be kept.
CONSUMER_PROTOCOL_BYTES_MAX = 1 << 20

CONSUMER_PROTOCOL_TYPE = "consumer"

_VERSION = Struct(">h")
_VERSION_BYTES = _VERSION.size
_TOPIC_COUNT = Struct(">i")  # behind the version of a subscription
_LATEST_VERSION = 3


class Subscription(NamedTuple):
    """What a member subscribes to; ``owned`` has topics by name."""

    topics: list[str]
    owned: Mapping[str, frozenset[int]]
    rack_id: str | None


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """All topics of all subscriptions, or None when one of them cannot be read, or all of them name too many."""
    decode = codec.decoder(ConsumerProtocolSubscription, 0)
    topics: set[str] = set()
    left = GROUP_SUBSCRIBED_TOPICS_MAX
    try:
        for subscription in subscriptions:
            if len(subscription) >= _VERSION_BYTES + _TOPIC_COUNT.size:
                left -= _TOPIC_COUNT.unpack_from(subscription, _VERSION_BYTES)[0]
            if left < 0:
                return None
            decoded, _ = decode(memoryview(subscription), _VERSION_BYTES)
            topics.update(decoded.topics)
    except ProtocolError:
        return None
    return frozenset(topics)


def read_version(data: bytes) -> int:
    """The version of a subscription or an assignment, as far as it is known; raises ProtocolError."""
    if len(data) < _VERSION_BYTES:
        raise ProtocolError("the version is cut off")
    version: int = _VERSION.unpack_from(data)[0]
    if version < 0:
        raise ProtocolError(f"there is no version {version}")
    return min(version, _LATEST_VERSION)


def _readable_version(data: bytes) -> int:
    if len(data) > CONSUMER_PROTOCOL_BYTES_MAX:
        raise ProtocolError(f"there are more than {CONSUMER_PROTOCOL_BYTES_MAX} bytes")
    return read_version(data)


def read_subscription(metadata: bytes) -> Subscription:
    """A member's subscription; raises ProtocolError."""
    version = _readable_version(metadata)
    decoded, _ = codec.decoder(ConsumerProtocolSubscription, version)(memoryview(metadata), _VERSION_BYTES)
    owned = {topic.topic: frozenset(topic.partitions) for topic in decoded.owned_partitions}
    return Subscription(decoded.topics, owned, decoded.rack_id or None)


def read_assignment(assignment: bytes) -> tuple[Mapping[str, frozenset[int]], bytes]:
    """(partitions by topic, what the assignor of the leader wrote besides); raises ProtocolError."""
    if not assignment:
        return {}, b""
    version = _readable_version(assignment)
    decoded, _ = codec.decoder(ConsumerProtocolAssignment, version)(memoryview(assignment), _VERSION_BYTES)
    topics = {topic.topic: frozenset(topic.partitions) for topic in decoded.assigned_partitions}
    return topics, bytes(decoded.user_data or b"")


def write_assignment(topics: Mapping[str, Iterable[int]], version: int) -> bytes:
    """An assignment in the version that the member's subscription has."""
    assigned = [
        ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=sorted(partitions))
        for topic, partitions in topics.items()
    ]
    message = ConsumerProtocolAssignment(assigned_partitions=assigned, user_data=None)
    return _VERSION.pack(version) + codec.encode(message, version)
