"""DescribeClientQuotas (key 48), versions 0 and 1: the quotas that are set, of the entities that a filter names.

Behaviour: the answer holds what was set for an entity, not what holds for a client (KIP-546), in Kafka's order.
"""

from __future__ import annotations

from operator import itemgetter

from pybroker import limits
from pybroker.cluster.image.quota_entities import Component, FilterRefused, QuotaEntity, QuotaFilter, QuotaValues
from pybroker.handlers.context import RequestContext, Steps
from pybroker.handlers.portions import portions
from pybroker.security.acl_bindings import CLUSTER_NAME, AclOperation, Resource
from pybroker_protocol.errors import ErrorCode, readable
from pybroker_protocol.java_order import in_hash_map_order, string_hash
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
    found: list[tuple[int, EntryData]] = []
    quotas = list(ctx.services.metadata.image.quotas.items())
    for portion in portions(quotas, limits.ELEMENTS_AT_ONCE):
        found += [(_hash_of(entity), _entry(entity, values)) for entity, values in portion if wanted.matches(entity)]
        yield
    ordered = in_hash_map_order(found, itemgetter(0), slots_min=1, table_size=len(quotas))
    return DescribeClientQuotasResponse(
        throttle_time_ms=0, error_code=0, error_message="", entries=[entry for _, entry in ordered]
    )


def _entry(entity: QuotaEntity, values: QuotaValues) -> EntryData:
    """One entity with its quotas, both in the order of Kafka's tables."""
    parts = in_hash_map_order(entity, lambda part: string_hash(part[0]))
    quotas = in_hash_map_order(sorted(values.items()), lambda quota: string_hash(quota[0]), slots_min=1)
    return EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in parts],
        values=[ValueData(key=key, value=value) for key, value in quotas],
    )


def _hash_of(entity: QuotaEntity) -> int:
    """``ClientQuotaEntity.hashCode()``: that of a map of the parts, in a list of one."""
    parts = sum(string_hash(kind) ^ (0 if name is None else string_hash(name)) for kind, name in entity)
    return (31 + parts) & 0xFFFF_FFFF


def _refused(error_code: int, message: str | None) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(throttle_time_ms=0, error_code=error_code, error_message=message, entries=None)
