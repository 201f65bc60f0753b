"""ListTransactions (key 66), versions 0 to 2.

Behaviour: the transactional ids that this broker coordinates, with producer and state, filtered by both (KIP-664); from
1 by how long the transaction has been open (KIP-994); from 2 by a regular expression of RE2 for the id (KIP-1152).
Names that are no state's are told.
"""

from __future__ import annotations

from pybroker.apis import Operation, Resource
from pybroker.handlers.context import Parked, RequestContext
from pybroker_protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse


def handle(ctx: RequestContext, request: ListTransactionsRequest) -> Parked:
    """List what the client may see."""
    parked = Parked()

    def done(response: ListTransactionsResponse) -> None:
        response.transaction_states = [
            state
            for state in response.transaction_states
            if ctx.authorize(Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, state.transactional_id)
        ]
        parked.complete(response)

    ctx.services.transactions.list_transactions(request, done)
    return parked
