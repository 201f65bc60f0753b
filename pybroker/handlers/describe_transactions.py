"""DescribeTransactions (key 65), version 0.

Behaviour: producer, state, time-out, begin and partitions of each transactional id (KIP-664); one that does not exist
is TRANSACTIONAL_ID_NOT_FOUND.
"""

from __future__ import annotations

from pybroker.coordinators.transaction.transaction_responses import describe_error
from pybroker.handlers.context import RequestContext, Steps
from pybroker.handlers.portions import asked_in_portions
from pybroker.security.acl_bindings import AclOperation, Resource
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)


def handle(ctx: RequestContext, request: DescribeTransactionsRequest) -> Steps:
    """Describe what the client may see, with those topics that it may see; the rest comes first, with an error each."""
    allowed, refused = [], []
    for transactional_id in request.transactional_ids:
        if ctx.authorize(AclOperation.DESCRIBE, Resource.TRANSACTIONAL_ID, transactional_id):
            allowed.append(transactional_id)
        else:
            refused.append(describe_error(transactional_id, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
        yield
    answers = yield from asked_in_portions(allowed, ctx.services.transactions.describe)
    states: list[TransactionState] = refused
    for described in answers:
        for state in described:
            state.topics = [t for t in state.topics if ctx.authorize(AclOperation.DESCRIBE, Resource.TOPIC, t.topic)]
        states.extend(described)
        yield
    return DescribeTransactionsResponse(throttle_time_ms=0, transaction_states=states)
