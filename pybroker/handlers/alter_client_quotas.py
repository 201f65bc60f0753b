"""AlterClientQuotas (key 49), versions 0 and 1: set and remove quotas (KIP-546).

Behaviour: each entity is answered for itself: what may be set is, and one that is refused keeps what it has.
``validate_only`` sets nothing.
"""

from __future__ import annotations

from pybroker.cluster.decisions.operations import QuotaAlteration, QuotaResult
from pybroker.cluster.image.quota_entities import entity_of
from pybroker.handlers.context import Parked, RequestContext
from pybroker.security.acl_bindings import CLUSTER_NAME, AclOperation, Resource
from pybroker_protocol.errors import ErrorCode, readable
from pybroker_protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntityData,
    AlterClientQuotasResponseEntryData,
)


def handle(ctx: RequestContext, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse | Parked:
    """Change the quotas; the reply waits for the commit."""
    if not ctx.authorize(AclOperation.ALTER_CONFIGS, Resource.CLUSTER, CLUSTER_NAME):
        return refuse(ctx, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    parked = Parked()
    ctx.services.controller.alter_client_quotas(
        [_alteration(entry) for entry in request.entries],
        lambda results: parked.complete(_response(results)),
        validate_only=request.validate_only,
    )
    return parked


def refuse(ctx: RequestContext, request: AlterClientQuotasRequest, error: ErrorCode) -> AlterClientQuotasResponse:
    """Nothing was changed, for this reason."""
    return _response(
        [
            QuotaResult(tuple((part.entity_type, part.entity_name) for part in entry.entity), error, error.message)
            for entry in request.entries
        ]
    )


def _alteration(entry: AlterClientQuotasRequestEntryData) -> QuotaAlteration:
    return QuotaAlteration(
        entity_of((part.entity_type, part.entity_name) for part in entry.entity),
        tuple((operation.key, None if operation.remove else operation.value) for operation in entry.ops),
    )


def _response(results: list[QuotaResult]) -> AlterClientQuotasResponse:
    entries = [
        AlterClientQuotasResponseEntryData(
            error_code=result.error_code,
            error_message=None if result.error_message is None else readable(result.error_message),
            entity=[
                AlterClientQuotasResponseEntityData(entity_type=kind, entity_name=name) for kind, name in result.entity
            ],
        )
        for result in results
    ]
    return AlterClientQuotasResponse(throttle_time_ms=0, entries=entries)
