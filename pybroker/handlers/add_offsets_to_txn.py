"""AddOffsetsToTxn (key 25), versions 0 to 4.

Behaviour: the partition of ``__consumer_offsets`` that keeps the group becomes part of the producer's transaction, so
that TxnOffsetCommit may write there.  From 2 a fenced producer hears PRODUCER_FENCED.
"""

from __future__ import annotations

from pybroker.cluster.image.coordinator_table import GROUPS
from pybroker.handlers.context import Parked, RequestContext
from pybroker.security.acl_bindings import AclOperation, Resource
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse


def handle(ctx: RequestContext, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse | Parked:
    """Hand the request to the coordinator."""
    if not ctx.authorize(AclOperation.WRITE, Resource.TRANSACTIONAL_ID, request.transactional_id):
        return _response(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not ctx.authorize(AclOperation.READ, Resource.GROUP, request.group_id):
        return _response(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    services = ctx.services
    partition = (GROUPS.topic, services.groups.partition_of(request.group_id))
    parked = Parked()
    services.transactions.add_offsets(
        request, partition, ctx.api_version, lambda error_code: parked.complete(_response(error_code))
    )
    return parked


def _response(error_code: int) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=error_code)
