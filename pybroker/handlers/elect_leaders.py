"""ElectLeaders (key 43), versions 0 to 2.

Behaviour: each partition is answered for itself; of all partitions (null), those that need no election are left out.
Version notes: 0 elects preferred leaders only, and has no error of the whole; unclean elections from 1 (KIP-460).
"""

from __future__ import annotations

from typing import Final

from pybroker.apis import CLUSTER_NAME, Operation, Resource
from pybroker.cluster.decisions.elections import PREFERRED, refused_elections
from pybroker.cluster.operations import LeaderElections
from pybroker.handlers.context import Parked, RequestContext
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

_TYPES_SINCE: Final = 1


def handle(ctx: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse | Parked:
    """Elect the leaders; the reply waits for the commit."""
    version = ctx.api_version
    wanted = None
    if request.topic_partitions is not None:
        wanted = [(topic.topic, topic.partitions) for topic in request.topic_partitions]
    if not ctx.authorize(Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return _response(refused_elections(wanted, code, code.message), version)
    parked = Parked()
    ctx.services.controller.elect_leaders(
        request.election_type if version >= _TYPES_SINCE else PREFERRED,
        wanted,
        lambda elections: parked.complete(_response(elections, version)),
        timeout_ms=request.timeout_ms,
    )
    return parked


def _response(elections: LeaderElections, version: int) -> ElectLeadersResponse:
    return ElectLeadersResponse(
        throttle_time_ms=0,
        error_code=elections.error_code if version >= _TYPES_SINCE else 0,
        replica_election_results=[
            ReplicaElectionResult(
                topic=name,
                partition_result=[
                    PartitionResult(
                        partition_id=election.partition,
                        error_code=election.error_code,
                        error_message=election.error_message,
                    )
                    for election in partitions
                ],
            )
            for name, partitions in elections.topics
        ],
    )
