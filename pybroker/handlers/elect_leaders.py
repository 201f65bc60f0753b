"""ElectLeaders (key 43), versions 0 to 2.

Behaviour: each partition is answered for itself; of all partitions (null), those that need no election are left out.
Version notes: 0 elects preferred leaders only, and has no error of the whole; unclean elections from 1 (KIP-460).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pybroker.cluster.decisions.operations import (
    PREFERRED,
    PartitionResult,
    PartitionResults,
    WantedElections,
    refused_partitions,
)
from pybroker.handlers.context import Parked, RequestContext, Steps
from pybroker.security.acl_bindings import CLUSTER_NAME, AclOperation, Resource
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages import elect_leaders as messages
from pybroker_protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, ReplicaElectionResult

_TYPES_SINCE: Final = ElectLeadersRequest.since("election_type")


def handle(ctx: RequestContext, request: ElectLeadersRequest) -> Steps:
    """Elect the leaders; the reply waits for the commit."""
    version = ctx.api_version
    wanted = _wanted(request)
    if not ctx.authorize(AclOperation.ALTER, Resource.CLUSTER, CLUSTER_NAME):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return (yield from _response(refused_partitions(wanted or (), code, code.message), version))
    elected = Parked()
    ctx.services.controller.elect_leaders(
        request.election_type if version >= _TYPES_SINCE else PREFERRED,
        wanted,
        elected.complete,
        timeout_ms=request.timeout_ms,
    )
    return (yield from _response((yield elected), version))


def refuse(ctx: RequestContext, request: ElectLeadersRequest, error: ErrorCode) -> ElectLeadersResponse:
    """No leader was elected, for this reason."""
    elections = refused_partitions(_wanted(request) or (), error, error.message)
    return _whole_response(ctx.api_version, elections, [_result(*topic) for topic in elections.topics])


def _wanted(request: ElectLeadersRequest) -> WantedElections:
    topics = request.topic_partitions
    return None if topics is None else [(topic.topic, topic.partitions) for topic in topics]


def _response(elections: PartitionResults, version: int) -> Steps:
    results = []
    for name, partitions in elections.topics:
        results.append(_result(name, partitions))
        yield
    return _whole_response(version, elections, results)


def _whole_response(
    version: int, elections: PartitionResults, results: list[ReplicaElectionResult]
) -> ElectLeadersResponse:
    return ElectLeadersResponse(
        throttle_time_ms=0,
        error_code=elections.error_code if version >= _TYPES_SINCE else 0,
        replica_election_results=results,
    )


def _result(name: str, elections: Iterable[PartitionResult]) -> ReplicaElectionResult:
    return ReplicaElectionResult(
        topic=name,
        partition_result=[
            messages.PartitionResult(
                partition_id=election.partition,
                error_code=election.error_code,
                error_message=election.error_message,
            )
            for election in elections
        ],
    )
