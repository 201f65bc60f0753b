"""EndTxn (key 26), versions 0 to 5.

Behaviour: a transaction is committed or aborted. The reply leaves when the decision is in the coordinator's log; the
markers follow. From 2 a fenced producer hears PRODUCER_FENCED. Version 5 is transaction version 2 (KIP-890): the
producer goes on with the id and epoch of the reply, and may abort a transaction that has nothing in it.
"""

from __future__ import annotations

from pybroker.coordinators.transaction.transaction_responses import end_error
from pybroker.handlers.context import Parked, RequestContext
from pybroker.security.acl_bindings import AclOperation, Resource
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.end_txn import EndTxnRequest, EndTxnResponse


def handle(ctx: RequestContext, request: EndTxnRequest) -> EndTxnResponse | Parked:
    """Hand the request to the coordinator."""
    if not ctx.authorize(AclOperation.WRITE, Resource.TRANSACTIONAL_ID, request.transactional_id):
        return end_error(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    parked = Parked()
    ctx.services.transactions.end_txn(request, ctx.api_version, parked.complete)
    return parked
