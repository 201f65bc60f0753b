"""ListTransactions (key 66), versions 0 to 2.

Behaviour: the transactional ids that this broker coordinates, with producer and state, filtered by both (KIP-664). From
1 they are filtered by how long the transaction has been open (KIP-994), from 2 by a regular expression of RE2 for the
id (KIP-1152). Names that are no state's are in the response. One match of an expression may take milliseconds, so each
is a step.
"""

from __future__ import annotations

from pybroker.coordinators.regular_expressions import InvalidRegularExpression, compile_regex
from pybroker.coordinators.transaction.transaction_responses import list_error
from pybroker.handlers.context import Parked, RequestContext, Steps
from pybroker.handlers.portions import visible
from pybroker.security.acl_bindings import AclOperation, Resource
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse


def handle(ctx: RequestContext, request: ListTransactionsRequest) -> Steps:
    """List what the client may see."""
    pattern = None
    if request.transactional_id_pattern:
        try:
            pattern = compile_regex(request.transactional_id_pattern)
        except InvalidRegularExpression:
            return list_error(ErrorCode.INVALID_REGULAR_EXPRESSION)
    listed = Parked()
    ctx.services.transactions.list_transactions(request, listed.complete)
    response: ListTransactionsResponse = yield listed
    response.transaction_states = yield from visible(
        response.transaction_states,
        lambda state: (
            (pattern is None or pattern.is_match(state.transactional_id))
            and ctx.authorize(AclOperation.DESCRIBE, Resource.TRANSACTIONAL_ID, state.transactional_id)
        ),
    )
    return response
