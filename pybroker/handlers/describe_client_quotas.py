"""DescribeClientQuotas (key 48), versions 0 and 1: the quotas that are set, of the entities that a filter names.

Behaviour: what is told is what was set for an entity, not what holds for a client (KIP-546).
"""

from __future__ import annotations

from pybroker import limits
from pybroker.cluster.client_quotas import Component, FilterRefused, QuotaFilter
from pybroker.handlers.context import RequestContext, Steps
from pybroker.handlers.portions import portions
from pybroker.security.acls import CLUSTER_NAME, AclOperation, Resource
from pybroker_protocol.errors import ErrorCode, readable
from pybroker_protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)


def handle(ctx: RequestContext, request: DescribeClientQuotasRequest) -> Steps:
    """Look through all quotas, a portion at a time."""
    if not ctx.authorize(AclOperation.DESCRIBE_CONFIGS, Resource.CLUSTER, CLUSTER_NAME):
        return _refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None)
    try:
        wanted = QuotaFilter(
            (Component(each.entity_type, each.match_type, each.match) for each in request.components), request.strict
        )
    except FilterRefused as refused:
        return _refused(refused.error_code, readable(refused.message))
    found: list[EntryData] = []
    for portion in portions(list(ctx.services.metadata.image.quotas.items()), limits.ELEMENTS_AT_ONCE):
        found += [
            EntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                values=[ValueData(key=key, value=value) for key, value in sorted(values.items())],
            )
            for entity, values in portion
            if wanted.matches(entity)
        ]
        yield
    return DescribeClientQuotasResponse(throttle_time_ms=0, error_code=0, error_message="", entries=found)


def _refused(error_code: int, message: str | None) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(throttle_time_ms=0, error_code=error_code, error_message=message, entries=None)
