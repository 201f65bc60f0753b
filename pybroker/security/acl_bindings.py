"""ACLs as values: what one says, and what a filter of them matches.

Owns: Kafka's numbers of operations, resources, patterns and permissions; ``Acl``, its id and its order; ``AclFilter``.
Owns no decision (``acl_rules``) and no ACL (they are metadata: ``cluster/image/cluster_image``).

An ACL's id is made of what it says, so that the same one is not kept twice, and is found without a search.

Counterpart in Kafka: ``org.apache.kafka.common.acl``, ``org.apache.kafka.common.resource`` and ``StandardAcl``.
"""

from __future__ import annotations

from enum import IntEnum
from hashlib import sha256
from typing import Final, NamedTuple, TypeVar

Code = TypeVar("Code", bound=IntEnum)


class AclOperation(IntEnum):
    """AclOperation, with Kafka's numbers."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Resource(IntEnum):
    """ResourceType of ACLs, with Kafka's numbers."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """PatternType, with Kafka's numbers; ANY and MATCH are for filters."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    """AclPermissionType, with Kafka's numbers."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


# The name of the one resource of type CLUSTER.
CLUSTER_NAME: Final = "kafka-cluster"
# Every name of a resource (of a LITERAL pattern), every host, and every principal.
WILDCARD: Final = "*"
WILDCARD_PRINCIPAL: Final = "User:*"

_ID_BYTES: Final = 16


class Acl(NamedTuple):
    """A permission or a prohibition; ``principal`` is ``type:name``, ``host`` an address in Java's form, or ``*``."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int

    def acl_id(self) -> bytes:
        """Sixteen bytes that no other ACL has."""
        return sha256("\0".join(map(_escaped, self)).encode()).digest()[:_ID_BYTES]

    def describe(self) -> str:
        """As Kafka's audit log writes it."""
        return (
            f"StandardAcl[resourceType={known(Resource, self.resource_type).name}, "
            f"resourceName={self.resource_name}, patternType={known(PatternType, self.pattern_type).name}, "
            f"principal={self.principal}, host={self.host}, operation={known(AclOperation, self.operation).name}, "
            f"permissionType={known(Permission, self.permission_type).name}]"
        )


class AclFilter(NamedTuple):
    """Which ACLs are meant: None, and ANY, stand for whatever there is.

    With MATCH the name is a resource's, and those are meant that concern it: literal, prefixed, and the wildcard.
    """

    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission_type: int

    def only_match(self) -> Acl | None:
        """The one ACL that can be meant, where everything is said of it."""
        name, principal, host = self.resource_name, self.principal, self.host
        if (
            name is None
            or principal is None
            or host is None
            or self.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED)
            or 1 in (self.resource_type, self.operation, self.permission_type)  # ANY
        ):
            return None
        return Acl(self.resource_type, name, self.pattern_type, principal, host, self.operation, self.permission_type)

    def matches(self, acl: Acl) -> bool:
        """Whether the ACL is meant."""
        return (
            self.resource_type in (Resource.ANY, acl.resource_type)
            and self.pattern_type in (PatternType.ANY, PatternType.MATCH, acl.pattern_type)
            and (self.resource_name is None or self._matches_name(self.resource_name, acl))
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission_type in (Permission.ANY, acl.permission_type)
        )

    def _matches_name(self, name: str, acl: Acl) -> bool:
        if self.pattern_type != PatternType.MATCH:
            return name == acl.resource_name
        if acl.pattern_type == PatternType.PREFIXED:
            return name.startswith(acl.resource_name)
        return acl.resource_name in (name, WILDCARD)


def known(kind: type[Code], code: int) -> Code:
    """The value of a number of the wire; UNKNOWN for a number of the future."""
    try:
        return kind(code)
    except ValueError:
        return kind(0)


def _escaped(part: object) -> str:
    """Without a zero character, which separates the parts."""
    return part.replace("\\", "\\\\").replace("\0", "\\0") if isinstance(part, str) else f"{part:d}"
