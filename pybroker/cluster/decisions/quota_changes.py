"""Changing the quotas of clients.

Owns: which entities there may be and how long their names, which quotas each may have, and which values.

Counterpart in Kafka: ``org.apache.kafka.controller.ClientQuotaControlManager``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from typing import Final

from pybroker.cluster.decisions.operations import QuotaAlteration, QuotaResult
from pybroker.cluster.image.cluster_image import ImageBuilder
from pybroker.cluster.image.quota_entities import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    ENTITY_TYPES,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    QuotaEntity,
    entity_text,
)
from pybroker.cluster.store.store_names import refusal_of_length
from pybroker_protocol.errors import ErrorCode

# The types of the values, by their names in Kafka's ConfigDef, and the greatest value of those that are integers.
_INTEGER_MAX: Final = {"INT": 2**31 - 1, "LONG": 2**63 - 1}
_OF_CLIENTS: Final = {
    PRODUCER_BYTE_RATE: "LONG",
    CONSUMER_BYTE_RATE: "LONG",
    REQUEST_PERCENTAGE: "DOUBLE",
    CONTROLLER_MUTATION_RATE: "DOUBLE",
}
_OF_ADDRESSES: Final = {CONNECTION_CREATION_RATE: "INT"}
_FRACTION_MAX: Final = 1e-6


def alter_client_quotas(builder: ImageBuilder, alterations: Sequence[QuotaAlteration]) -> list[QuotaResult]:
    """Change what may be changed; one answer per entity, an entity that is refused keeps its quotas."""
    results: dict[QuotaEntity, str | None] = {}
    for entity, operations in alterations:
        names = [name for name, _ in operations]
        # As in Kafka: of an entity that comes twice the first is done, and an error is answered.
        if entity in results or len(set(names)) != len(names):
            results[entity] = f"Ignoring duplicate entity {entity_text(entity)}"
        else:
            results[entity] = _refusal_of_entity(entity) or _alter(builder, entity, dict(operations))
    return [
        QuotaResult(entity, ErrorCode.NONE if message is None else ErrorCode.INVALID_REQUEST, message)
        for entity, message in results.items()
    ]


def _alter(builder: ImageBuilder, entity: QuotaEntity, wanted: Mapping[str, float | None]) -> str | None:
    """Set, and for None remove; why nothing was changed, or None."""
    types = _OF_ADDRESSES if entity[0][0] == IP else _OF_CLIENTS
    before = builder.view().quotas.get(entity, {})
    too_long = None if before else refusal_of_length(*(name for _, name in entity if name is not None))
    if too_long is not None:
        return too_long
    after = dict(before)
    for name, value in wanted.items():
        if value is None:
            after.pop(name, None)
            continue
        refusal = _refusal_of_value(types, name, value)
        if refusal is not None:
            return refusal
        after[name] = value
    if after != before:
        builder.put_quotas(entity, after)
    return None


def _refusal_of_entity(entity: QuotaEntity) -> str | None:
    if not entity:
        return "Invalid empty client quota entity"
    for kind, name in entity:
        if kind not in ENTITY_TYPES:
            return f"Unhandled client quota entity type: {kind}"
        if name == "":
            return f"Empty {kind} not supported"
    kinds = {kind for kind, _ in entity}
    if IP not in kinds:
        return None
    if kinds & {USER, CLIENT_ID}:
        return "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"
    address = entity[0][1]
    return None if address is None or _is_address(address) else f"{address} is not a valid IP or resolvable host."


def _is_address(text: str) -> bool:
    """Whether it is an address; names of hosts, which Kafka looks up, are not."""
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _refusal_of_value(types: Mapping[str, str], name: str, value: float) -> str | None:
    kind = types.get(name)
    if kind is None:
        return f"Invalid configuration key {name}"
    if not value > 0:  # not a number is none, either, where Kafka would have it
        return f"Quota {name} must be greater than 0"
    if kind == "DOUBLE":
        return None
    if value > _INTEGER_MAX[kind]:
        return f"Proposed value for {name} is too large for {'an' if kind == 'INT' else 'a'} {kind}."
    return f"{name} cannot be a fractional value." if value % 1 > _FRACTION_MAX else None
