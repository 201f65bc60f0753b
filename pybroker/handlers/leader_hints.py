"""Who leads a partition, for a client that asked another broker (KIP-951).

Owns: what Produce and Fetch tell beside NOT_LEADER_OR_FOLLOWER.  Owns no error.

Kafka counterpart: KafkaApis.getCurrentLeader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType

    from pybroker.handlers.context import RequestContext


def name_leader(
    ctx: RequestContext, messages: ModuleType, response: Any, topic: str | bytes, index: int, reply: Any
) -> None:
    """Tell in a partition's reply who leads it, -1 for none, and in the response where clients of the listener find it.

    ``messages`` has the classes of the response; ``topic`` is a name or an id.  Tells nothing of what does not exist.
    """
    metadata = ctx.services.metadata
    image = metadata.image
    found = image.topics_by_name.get(topic) if isinstance(topic, str) else image.topics_by_id.get(topic)
    if found is None or not 0 <= index < len(found.partitions):
        return
    state = found.partitions[index]
    reply.current_leader = messages.LeaderIdAndEpoch(leader_id=state.leader, leader_epoch=state.leader_epoch)
    node = metadata.view(ctx.listener).live.get(state.leader)
    if node is not None and all(endpoint.node_id != state.leader for endpoint in response.node_endpoints):
        response.node_endpoints.append(
            messages.NodeEndpoint(node_id=node.broker_id, host=node.host, port=node.port, rack=node.rack)
        )
