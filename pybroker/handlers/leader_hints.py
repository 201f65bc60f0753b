"""Who leads a partition, for a client that asked another broker (KIP-951).

Owns: what Produce and Fetch tell beside NOT_LEADER_OR_FOLLOWER.  Owns no error, and no shape of a message.

Kafka counterpart: KafkaApis.getCurrentLeader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pybroker.cluster.listener_view import ReachableBroker
    from pybroker.handlers.context import RequestContext


class LeaderHint(NamedTuple):
    """The leader by what this broker knows, -1 for none, and where clients of the request's listener find it."""

    leader: int
    leader_epoch: int
    node: ReachableBroker | None


def leader_hint(ctx: RequestContext, topic: str | bytes, index: int) -> LeaderHint | None:
    """Of a partition of the topic with that name or id; None for one that does not exist."""
    metadata = ctx.services.metadata
    image = metadata.image
    found = image.topics_by_name.get(topic) if isinstance(topic, str) else image.topics_by_id.get(topic)
    if found is None or not 0 <= index < len(found.partitions):
        return None
    state = found.partitions[index]
    return LeaderHint(state.leader, state.leader_epoch, metadata.view(ctx.listener).live.get(state.leader))
