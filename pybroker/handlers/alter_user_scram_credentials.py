"""AlterUserScramCredentials (key 51), version 0 (KIP-554).

Behaviour: credentials are set and deleted, all changes of one user together; passwords come salted and iterated by the
client, and only what follows from that is kept.  Who has logged in by a delegation token may ask, too, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable

from pybroker.cluster.controller.access_changes import alter_scram_credentials
from pybroker.cluster.decisions.operations import NamedResult, ScramUpsertion
from pybroker.handlers.context import Parked, RequestContext
from pybroker.security.acl_bindings import CLUSTER_NAME, AclOperation, Resource
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)


def handle(
    ctx: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse | Parked:
    """Alter the credentials; the reply waits for the commit."""
    if not ctx.authorize(AclOperation.ALTER, Resource.CLUSTER, CLUSTER_NAME):
        return refuse(ctx, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    parked = Parked()
    alter_scram_credentials(
        ctx.services.controller,
        [(deletion.mechanism, deletion.name) for deletion in request.deletions],
        [
            ScramUpsertion(each.name, each.mechanism, each.iterations, bytes(each.salt), bytes(each.salted_password))
            for each in request.upsertions
        ],
        lambda results: parked.complete(_response(results)),
    )
    return parked


def refuse(
    ctx: RequestContext, request: AlterUserScramCredentialsRequest, error: ErrorCode
) -> AlterUserScramCredentialsResponse:
    """Nothing was altered, for this reason."""
    users = dict.fromkeys([each.name for each in request.deletions] + [each.name for each in request.upsertions])
    return _response(NamedResult(user, error, error.message) for user in users)


def _response(results: Iterable[NamedResult]) -> AlterUserScramCredentialsResponse:
    return AlterUserScramCredentialsResponse(
        throttle_time_ms=0,
        results=[
            AlterUserScramCredentialsResult(
                user=result.name, error_code=result.error_code, error_message=result.error_message
            )
            for result in results
        ],
    )
