"""Creating and deleting ACLs.

Owns: what an ACL must be, how many one request may create or remove, and what a request to delete some matches.  What
ACLs mean is not decided here (``security/acl_rules``).

Counterpart in Kafka: ``org.apache.kafka.controller.AclControlManager``, and of ``create_acls`` also the checks of
``AclApis``, which come first.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Final

from pybroker.cluster.decisions.operations import AclDeletion, Outcome
from pybroker.cluster.image.cluster_image import ImageBuilder
from pybroker.cluster.image.supported_features import HOSTS_ARE_RANGES, METADATA_VERSION
from pybroker.security.acl_bindings import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    Resource,
    known,
)
from pybroker.security.host_ranges import is_range, parse_range
from pybroker_protocol.errors import ErrorCode

# ACLs that one request creates, or removes: MAX_RECORDS_PER_USER_OP of Kafka's controller.
ACLS_PER_REQUEST = 10_000

_CREATED: Final = Outcome()
_TOO_MANY: Final = Outcome(ErrorCode.INVALID_REQUEST, "Unable to perform excessively large batch operation.")


def create_acls(builder: ImageBuilder, acls: Sequence[Acl]) -> Generator[None, None, list[Outcome]]:
    """Add the valid ones, one answer each, in the order asked; what is there already is no error.

    None of them where there are more new ones than one request may bring.
    """
    outcomes: list[Outcome] = []
    image = builder.view()
    present = image.acls
    has_ranges = image.features.get(METADATA_VERSION, 0) >= HOSTS_ARE_RANGES
    added: dict[bytes, Acl] = {}
    for acl in acls:
        refused = _refused(acl, has_ranges)
        if refused is None:
            acl_id = acl.acl_id()
            if acl_id not in present:
                added[acl_id] = acl
            outcomes.append(_CREATED)
        else:
            outcomes.append(refused)
        yield
    if len(added) > ACLS_PER_REQUEST:
        return [outcome if outcome.error_code else _TOO_MANY for outcome in outcomes]
    for acl in added.values():
        builder.put_acl(acl)
        yield
    return outcomes


def delete_acls(builder: ImageBuilder, filters: Sequence[AclFilter]) -> Generator[None, None, list[AclDeletion]]:
    """Remove what the filters match, one answer each, in the order asked; what several match, each of them tells.

    None at all where they match more than one request may remove.
    """
    answers: list[AclDeletion] = []
    removed: set[bytes] = set()
    acls = builder.view().acls
    for wanted in filters:
        refusal = _refusal_of_filter(wanted)
        if refusal is not None:
            answers.append(AclDeletion((), ErrorCode.INVALID_REQUEST, refusal))
            continue
        only = wanted.only_match()
        looked_at = acls.items() if only is None else [(only.acl_id(), only)]
        matched: list[Acl] = []
        for acl_id, acl in looked_at:
            if acl_id in acls and wanted.matches(acl):
                matched.append(acl)
                removed.add(acl_id)
            yield
        if len(removed) > ACLS_PER_REQUEST:
            message = f"Cannot remove more than {ACLS_PER_REQUEST} acls in a single delete operation."
            return [AclDeletion((), ErrorCode.INVALID_REQUEST, message)] * len(filters)
        answers.append(AclDeletion(matched))
    for acl_id in removed:
        builder.remove_acl(acl_id)
    return answers


def _refused(acl: Acl, has_ranges: bool) -> Outcome | None:
    """The answer to an ACL that cannot be; ``has_ranges`` is whether all brokers know ranges of addresses."""
    refusal = refusal_of(acl)
    if refusal is None and is_range(acl.host) and not has_ranges:
        message = "CIDR-based ACL host patterns require metadata version 4.4-IV1 or higher."
        return Outcome(ErrorCode.UNSUPPORTED_VERSION, message)
    refusal = refusal or _refusal_of_host(acl.host)
    return None if refusal is None else Outcome(ErrorCode.INVALID_REQUEST, refusal)


def refusal_of(acl: Acl) -> str | None:
    """Why there can be no such ACL, whatever its host, in Kafka's words."""
    resource_type, pattern_type = known(Resource, acl.resource_type), known(PatternType, acl.pattern_type)
    operation, permission = known(AclOperation, acl.operation), known(Permission, acl.permission_type)
    if resource_type is Resource.CLUSTER and acl.resource_name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not acl.resource_name:
        return "Invalid empty resource name"
    if resource_type in (Resource.UNKNOWN, Resource.ANY):
        return f"Invalid resourceType {resource_type.name}"
    if pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"Invalid patternType {pattern_type.name}"
    if operation in (AclOperation.UNKNOWN, AclOperation.ANY):
        return f"Invalid operation {operation.name}"
    if permission not in (Permission.DENY, Permission.ALLOW):
        return f"Invalid permissionType {permission.name}"
    if ":" not in acl.principal:
        missing = "no colon is present separating the principal type from the principal name"
        return f"Could not parse principal from `{acl.principal}` ({missing})"
    return None


def _refusal_of_host(host: str) -> str | None:
    if not host:
        return "Host pattern cannot be null or empty"
    if is_range(host):
        try:
            parse_range(host)
        except ValueError as error:
            return f"Invalid CIDR notation '{host}': {error}"
    return None


def _refusal_of_filter(wanted: AclFilter) -> str | None:
    if not known(Resource, wanted.resource_type) or not known(PatternType, wanted.pattern_type):
        return "Unknown patternFilter."
    if not known(AclOperation, wanted.operation) or not known(Permission, wanted.permission_type):
        return "Unknown entryFilter."
    return None
