"""Requests about ACLs, as commands ask them.

Owns: ACLs and filters as the fields of requests, and the other way round.  Does not own how they are written on the
command line (``acls``, ``tenants``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Any

from pybroker.cli.connection.admin_client import AdminClient
from pybroker.cli.connection.changes import remark_on_repeat
from pybroker.cli.connection.retries import retried
from pybroker.cli.terminal.failure import CommandFailed, named_error
from pybroker.security.acl_bindings import Acl, AclFilter


def word_of(member: IntEnum) -> str:
    """An operation, or a kind of resource, as commands take and print it: ``cluster-action``."""
    return member.name.lower().replace("_", "-")


def create(client: AdminClient, acls: Sequence[Acl]) -> list[str | None]:
    """Create ACLs; of each why it was refused, or None."""
    from pybroker_protocol.messages.create_acls import AclCreation, CreateAclsRequest

    request = CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                resource_pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission_type,
            )
            for acl in acls
        ]
    )
    response = retried(lambda: client.ask(request))
    return [_refusal(result) for result in response.results]


def delete(client: AdminClient, filters: Iterable[AclFilter]) -> tuple[set[Acl], list[str]]:
    """Delete what filters mean: the ACLs that are gone, and why filters were refused."""
    from pybroker_protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest

    request = DeleteAclsRequest(filters=[DeleteAclsFilter(**_fields(each)) for each in filters])
    response = retried(lambda: client.ask(request))
    remark_on_repeat(client, request, "removed")
    failures = [refusal for result in response.filter_results if (refusal := _refusal(result)) is not None]
    return {_acl(each, each) for result in response.filter_results for each in result.matching_acls}, failures


def described(client: AdminClient, wanted: AclFilter) -> list[Acl]:
    """The ACLs that a filter means; CommandFailed."""
    from pybroker_protocol.messages.describe_acls import DescribeAclsRequest

    response = retried(lambda: client.ask(DescribeAclsRequest(**_fields(wanted))))
    refusal = _refusal(response)
    if refusal is not None:
        raise CommandFailed(f"ACLs: {refusal}")
    return [_acl(resource, each) for resource in response.resources for each in resource.acls]


def _refusal(result: Any) -> str | None:
    return named_error(result.error_code, result.error_message) if result.error_code else None


def _fields(wanted: AclFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": wanted.resource_type,
        "resource_name_filter": wanted.resource_name,
        "pattern_type_filter": wanted.pattern_type,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission_type,
    }


def _acl(resource: Any, entry: Any) -> Acl:
    return Acl(
        resource.resource_type,
        resource.resource_name,
        resource.pattern_type,
        entry.principal,
        entry.host,
        entry.operation,
        entry.permission_type,
    )
