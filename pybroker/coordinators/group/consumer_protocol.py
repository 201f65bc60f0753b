"""The little that a broker understands of what consumers tell one another.

Owns: reading the topics out of a consumer's subscription.  The bytes are the clients' business; they are read only so
that offsets of topics that are in use neither expire nor get deleted.  Version 0 is a prefix of every later version.

Counterpart in Kafka: ``ConsumerProtocol.deserializeConsumerProtocolSubscription``.
"""

from __future__ import annotations

from collections.abc import Iterable

from pybroker_protocol import codec
from pybroker_protocol.errors import ProtocolError
from pybroker_protocol.messages.consumer_protocol import ConsumerProtocolSubscription

CONSUMER_PROTOCOL_TYPE = "consumer"

_VERSION_BYTES = 2


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """All topics of all subscriptions, or None when one of them cannot be read."""
    decode = codec.decoder(ConsumerProtocolSubscription, 0)
    topics: set[str] = set()
    try:
        for subscription in subscriptions:
            decoded, _ = decode(memoryview(subscription), _VERSION_BYTES)
            topics.update(decoded.topics)
    except ProtocolError:
        return None
    return frozenset(topics)
