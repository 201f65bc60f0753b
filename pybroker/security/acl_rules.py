"""The rules by which ACLs allow and deny: those of Kafka's StandardAuthorizer.

Owns: ``AclIndex``, which has the ACLs so that only those are looked at that concern a resource, and decides by them.
Owns no super user, no default and no cache (``standard_authorizer``), nor which ACLs there are.

The rules: an ACL concerns a resource by its name, by a prefix of it, or by the wildcard. Of those the ones count that
are the principal's, or everybody's, from its host or from everywhere, and for the operation or for all. One that denies
wins over all that allow. READ, WRITE, DELETE and ALTER allow DESCRIBE, and ALTER_CONFIGS DESCRIBE_CONFIGS; prohibitions
imply nothing. Where no ACL at all concerns the resource, the authorizer's default decides. Hosts are compared as text,
or are ranges of addresses (``host_ranges``).

Counterpart in Kafka: ``org.apache.kafka.metadata.authorizer.StandardAuthorizerData`` and ``AclCache``; for
``decide_by_resource_type`` the default method of ``Authorizer``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from pybroker.security.acl_bindings import (
    WILDCARD,
    WILDCARD_PRINCIPAL,
    Acl,
    AclOperation,
    PatternType,
    Permission,
)
from pybroker.security.host_ranges import is_in_range, is_range

# What an ACL that allows the operation may be for; operations that are not here are implied by none but ALL.
_IMPLIED_BY: Final = {
    AclOperation.DESCRIBE: frozenset(
        {AclOperation.DESCRIBE, AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER}
    ),
    AclOperation.DESCRIBE_CONFIGS: frozenset({AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS}),
}


class Decision(NamedTuple):
    """What the ACLs say: ``allowed`` is None where none concerns the resource; ``acl`` is the one that decided."""

    allowed: bool | None
    acl: Acl | None = None


NO_ACL: Final = Decision(None)
NOT_MENTIONED: Final = Decision(False)  # there are ACLs of the resource, and none of them is for this


class AclIndex:
    """The order in which ACLs came has no effect on what is decided."""

    __slots__ = ("_literal", "_prefixed", "_types", "count")

    def __init__(self) -> None:
        self.count = 0
        self._types: dict[int, set[Acl]] = {}
        self._literal: dict[tuple[int, str], set[Acl]] = {}
        self._prefixed: dict[int, _Prefixes] = {}

    def add(self, acl: Acl) -> None:
        """One more; what is there already stays."""
        of_type = self._types.setdefault(acl.resource_type, set())
        if acl in of_type:
            return
        self.count += 1
        of_type.add(acl)
        if acl.pattern_type == PatternType.PREFIXED:
            self._prefixed.setdefault(acl.resource_type, _Prefixes()).add(acl)
        else:
            self._literal.setdefault((acl.resource_type, acl.resource_name), set()).add(acl)

    def remove(self, acl: Acl) -> None:
        """One less; what is not there is no matter."""
        of_type = self._types.get(acl.resource_type, set())
        if acl not in of_type:
            return
        self.count -= 1
        of_type.remove(acl)
        if acl.pattern_type == PatternType.PREFIXED:
            self._prefixed[acl.resource_type].remove(acl)
            return
        key = acl.resource_type, acl.resource_name
        self._literal[key].remove(acl)
        if not self._literal[key]:
            del self._literal[key]

    def decide(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> Decision:
        """Whether the principal, which is connected from ``host``, may do ``operation`` on the resource."""
        wanted = _IMPLIED_BY.get(AclOperation(operation), frozenset((operation,)))
        concerned = False
        allowing: Acl | None = None
        for acl in self._concerning(resource_type, name):
            concerned = True
            if not _is_for(acl, principal, host):
                continue
            if acl.permission_type == Permission.ALLOW:
                if acl.operation == AclOperation.ALL or acl.operation in wanted:
                    allowing = acl
            elif acl.operation in (AclOperation.ALL, operation):
                return Decision(False, acl)
        if allowing is not None:
            return Decision(True, allowing)
        return NOT_MENTIONED if concerned else NO_ACL

    def decide_by_resource_type(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        """Whether the principal may do ``operation`` on any resource of the type, as far as ACLs name some.

        Operations are implied by ALL alone here, as in Kafka.
        """
        denied: dict[int, set[str]] = {PatternType.LITERAL: set(), PatternType.PREFIXED: set()}
        allowed: list[Acl] = []
        for acl in self._types.get(resource_type, ()):
            if acl.operation not in (AclOperation.ALL, operation) or not _is_for(acl, principal, host):
                continue
            if acl.permission_type == Permission.ALLOW:
                allowed.append(acl)
            elif _is_wildcard(acl):
                return False
            else:
                denied[acl.pattern_type].add(acl.resource_name)
        return any(_is_wildcard(acl) or not _is_dominated(acl, denied) for acl in allowed)

    def _concerning(self, resource_type: int, name: str) -> Iterator[Acl]:
        literal = self._literal
        yield from literal.get((resource_type, name), ())
        if name != WILDCARD:
            yield from literal.get((resource_type, WILDCARD), ())
        prefixes = self._prefixed.get(resource_type)
        if prefixes is not None:
            yield from prefixes.concerning(name)


class _Prefixes:
    """Prefixed ACLs of one type of resource: as many looks as there are lengths of prefixes."""

    __slots__ = ("_by_prefix", "_lengths")

    def __init__(self) -> None:
        self._by_prefix: dict[str, set[Acl]] = {}
        self._lengths: Counter[int] = Counter()  # of prefixes

    def add(self, acl: Acl) -> None:
        acls = self._by_prefix.get(acl.resource_name)
        if acls is None:
            acls = self._by_prefix[acl.resource_name] = set()
            self._lengths[len(acl.resource_name)] += 1
        acls.add(acl)

    def remove(self, acl: Acl) -> None:
        name = acl.resource_name
        self._by_prefix[name].remove(acl)
        if not self._by_prefix[name]:
            del self._by_prefix[name]
            self._lengths[len(name)] -= 1
            if not self._lengths[len(name)]:
                del self._lengths[len(name)]

    def concerning(self, name: str) -> Iterator[Acl]:
        for length in self._lengths:
            if length <= len(name):
                yield from self._by_prefix.get(name[:length], ())


def _is_for(acl: Acl, principal: str, host: str) -> bool:
    if acl.principal not in (principal, WILDCARD_PRINCIPAL):
        return False
    return acl.host in (host, WILDCARD) or (is_range(acl.host) and is_in_range(host, acl.host))


def _is_wildcard(acl: Acl) -> bool:
    return acl.resource_name == WILDCARD and acl.pattern_type == PatternType.LITERAL


def _is_dominated(acl: Acl, denied: dict[int, set[str]]) -> bool:
    """Whether every resource that the ACL allows is denied by one other, which is as wide or wider."""
    name = acl.resource_name
    if acl.pattern_type == PatternType.LITERAL and name in denied[PatternType.LITERAL]:
        return True
    prefixes = denied[PatternType.PREFIXED]
    return bool(prefixes) and any(name[:length] in prefixes for length in range(1, len(name) + 1))
