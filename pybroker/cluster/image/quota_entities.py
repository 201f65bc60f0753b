"""Quotas of clients as a kind of metadata: whose they are, which there are, and which of them a filter names.

Owns: the form of an entity (``QuotaEntity``), the names of the quotas, and ``QuotaFilter``.  Does not own which values
may be set (``decisions/quota_changes``), nor which quota holds for a client and what becomes of one that is over it
(``pybroker/quotas``).

Counterparts in Kafka: ``ClientQuotaEntity``, ``QuotaConfig``, ``ClientQuotasImage``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from pybroker_protocol.errors import ErrorCode

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = frozenset((USER, CLIENT_ID, IP))

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

# Pairs of type and name, in the order of the types; the name None is the default of all that have no quota of their
# own.  At most one of each type.
QuotaEntity = tuple[tuple[str, str | None], ...]
QuotaValues = Mapping[str, float]

# How a component of a filter names entities, with Kafka's numbers (DescribeClientQuotasRequest).
MATCH_EXACT: Final = 0
MATCH_DEFAULT: Final = 1
MATCH_SPECIFIED: Final = 2


def entity_of(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """The entity of these types and names; of a type that comes twice the last name counts, as in Kafka."""
    return tuple(sorted(dict(parts).items(), key=lambda part: part[0]))


def entity_text(entity: QuotaEntity) -> str:
    """As Kafka prints it in errors."""
    parts = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in entity)
    return f"ClientQuotaEntity(entries={{{parts}}})"


class FilterRefused(Exception):
    """A filter that makes no sense: the error and Kafka's text."""

    def __init__(self, error_code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error_code = error_code
        self.message = message


class Component(NamedTuple):
    """One component of a filter: of this type, the name (or the default) or whichever."""

    entity_type: str
    match_type: int
    match: str | None


class QuotaFilter:
    """Which entities are asked for: those that have all of the components and, if ``strict``, no other types."""

    __slots__ = ("_exact", "_specified", "_strict")

    def __init__(self, components: Iterable[Component], strict: bool) -> None:
        """Raises ``FilterRefused``."""
        self._exact: dict[str, str | None] = {}
        self._specified: set[str] = set()
        self._strict = strict
        for component in components:
            self._add(*component)
        types = {*self._exact, *self._specified}
        if IP in types and len(types) > 1:
            raise FilterRefused(
                ErrorCode.INVALID_REQUEST,
                "Invalid entity filter component combination. IP filter component should not be used with user or "
                "clientId filter component.",
            )

    def _add(self, kind: str, match_type: int, match: str | None) -> None:
        if not kind:
            raise FilterRefused(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        if kind in self._exact or kind in self._specified:
            message = f"Entity type {kind} cannot appear more than once in the filter."
            raise FilterRefused(ErrorCode.INVALID_REQUEST, message)
        if kind not in ENTITY_TYPES:
            raise FilterRefused(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        name = {MATCH_EXACT: "EXACT", MATCH_DEFAULT: "DEFAULT", MATCH_SPECIFIED: "SPECIFIED"}.get(match_type)
        if name is None:
            raise FilterRefused(ErrorCode.INVALID_REQUEST, f"Unknown match type {match_type}")
        if match_type == MATCH_EXACT and match is None:
            wrong = "but set match string to null."
        elif match_type != MATCH_EXACT and match is not None:
            wrong = "but also specified a match string."
        else:
            wrong = ""
        if wrong:
            raise FilterRefused(ErrorCode.INVALID_REQUEST, f"Request specified MATCH_TYPE_{name}, {wrong}")
        if match_type == MATCH_SPECIFIED:
            self._specified.add(kind)
        else:
            self._exact[kind] = match

    def matches(self, entity: QuotaEntity) -> bool:
        """Whether the entity is asked for."""
        parts = dict(entity)
        if self._strict and len(parts) != len(self._exact) + len(self._specified):
            return False
        return all(kind in parts and parts[kind] == name for kind, name in self._exact.items()) and all(
            kind in parts for kind in self._specified
        )
