"""ListTransactions (key 66), versions 0 to 2.

Behaviour: the transactional ids that this broker coordinates, with producer and state, filtered by both (KIP-664); from
1 by how long the transaction has been open (KIP-994); from 2 by a regular expression of RE2 for the id (KIP-1152).
Names that are no state's are told.
"""

from __future__ import annotations

from pybroker.handlers.context import Parked, RequestContext, Steps
from pybroker.handlers.portions import visible
from pybroker.security.acls import AclOperation, Resource
from pybroker_protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse


def handle(ctx: RequestContext, request: ListTransactionsRequest) -> Steps:
    """List what the client may see."""
    listed = Parked()
    ctx.services.transactions.list_transactions(request, listed.complete)
    response: ListTransactionsResponse = yield listed
    response.transaction_states = yield from visible(
        response.transaction_states,
        lambda state: ctx.authorize(AclOperation.DESCRIBE, Resource.TRANSACTIONAL_ID, state.transactional_id),
    )
    return response
