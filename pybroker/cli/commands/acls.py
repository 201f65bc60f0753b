"""``pybroker acls``: list, add and remove ACLs.

Owns: how resources, operations and principals are named on the command line, and the shapes that are printed.
Counterpart: kafka-acls.sh.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import typer

from pybroker.cli.connection.admin_command import Session, admin_command
from pybroker.cli.requests import acl_requests
from pybroker.cli.terminal.error_names import show
from pybroker.cli.terminal.failure import CommandFailed
from pybroker.cli.terminal.options import misused, repeated
from pybroker.cli.terminal.output import Output, remark
from pybroker.security.acl_bindings import (
    CLUSTER_NAME,
    WILDCARD,
    Acl,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    Resource,
    known,
)

app = typer.Typer(help="List, add and remove ACLs: what principals may do.", no_args_is_help=True)

_OPERATIONS = {acl_requests.word_of(each): each for each in AclOperation if each >= AclOperation.ALL}


class Resources(NamedTuple):
    """The resources that a command names."""

    topics: Annotated[
        list[str], repeated("--topic", "-t", metavar="NAME", help="A topic by its name, or * for all topics.")
    ]
    groups: Annotated[
        list[str], repeated("--group", "-g", metavar="NAME", help="A group by its name, or * for all groups.")
    ]
    transactional_ids: Annotated[
        list[str], repeated("--transactional-id", metavar="ID", help="A transactional id, or * for all.")
    ]
    tokens: Annotated[list[str], repeated("--delegation-token", metavar="ID", help="A delegation token by its id.")]
    users: Annotated[
        list[str], repeated("--user", metavar="TYPE:NAME", help="The tokens of a user, by the user's principal.")
    ]
    cluster: Annotated[bool, typer.Option("--cluster", help="The cluster itself.")] = False

    def named(self) -> list[tuple[Resource, Any]]:
        """Each with its type."""
        named = {
            Resource.TOPIC: self.topics,
            Resource.GROUP: self.groups,
            Resource.TRANSACTIONAL_ID: self.transactional_ids,
            Resource.DELEGATION_TOKEN: self.tokens,
            Resource.USER: self.users,
            Resource.CLUSTER: [CLUSTER_NAME] if self.cluster else [],
        }
        return [(kind, name) for kind, names in named.items() for name in names]


Prefixed = Annotated[bool, typer.Option("--prefixed", help="Take each name as a prefix of resources' names.")]
Principals = Annotated[
    list[str], repeated("--principal", "-p", metavar="TYPE:NAME", help="A principal, like User:anna.")
]
PrincipalsNeeded = Annotated[
    list[str], typer.Option("--principal", "-p", metavar="TYPE:NAME", help="A principal, like User:anna.")
]
HostsAllowed = Annotated[
    list[str],
    repeated("--host", metavar="ADDRESS", help="An address that the principal connects from.", default="* for all"),
]
Hosts = Annotated[list[str], repeated("--host", metavar="ADDRESS", help="The address of the ACL, as it is listed.")]
_OPERATIONS_HELP = f"An operation: {', '.join(_OPERATIONS)}."
Operations = Annotated[list[str], repeated("--operation", "-o", metavar="NAME", help=_OPERATIONS_HELP)]
OperationsNeeded = Annotated[list[str], typer.Option("--operation", "-o", metavar="NAME", help=_OPERATIONS_HELP)]


@admin_command(app, "list")
def list_acls(
    session: Session,
    *,
    resources: Resources,
    principals: Principals,
) -> None:
    """List ACLs: all of them, or those that concern the named resources, whether literally, by a prefix or by *."""
    _check_principals(principals)
    filters = [
        _filter(kind, name, PatternType.MATCH if name is not None else PatternType.ANY, principal)
        for kind, name in resources.named() or [(Resource.ANY, None)]
        for principal in _or_any(principals)
    ]
    with session.client() as client:
        found = {acl for each in filters for acl in acl_requests.described(client, each)}
    _report(session.output, sorted(found))


@admin_command(app, "add")
def add_acls(
    session: Session,
    *,
    resources: Resources,
    prefixed: Prefixed = False,
    principals: PrincipalsNeeded,
    hosts: HostsAllowed,
    operations: OperationsNeeded,
    deny: Annotated[bool, typer.Option("--deny", help="Deny the operations; no other ACL allows them then.")] = False,
) -> None:
    """Allow principals operations on resources, or deny them with --deny.

    At least one resource is named: --topic, --group, --transactional-id, --delegation-token, --user or --cluster.
    """
    _check_principals(principals)
    named = resources.named()
    if not named:
        raise misused("name a resource: --topic, --group, --transactional-id, --delegation-token, --user or --cluster")
    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    acls = [
        Acl(kind, name, pattern, principal, host, operation, Permission.DENY if deny else Permission.ALLOW)
        for kind, name in named
        for principal in principals
        for host in hosts or [WILDCARD]
        for operation in map(_operation, operations)
    ]
    with session.client() as client:
        refusals = acl_requests.create(client, acls)
    added = [acl for acl, refusal in zip(acls, refusals, strict=True) if refusal is None]
    failures = [
        CommandFailed(f"{known(Resource, acl.resource_type).name.lower()} {acl.resource_name}: {refusal}")
        for acl, refusal in zip(acls, refusals, strict=True)
        if refusal is not None
    ]
    _report(session.output, added, failures)


@admin_command(app, "remove")
def remove_acls(
    session: Session,
    *,
    resources: Resources,
    prefixed: Prefixed = False,
    principals: Principals,
    hosts: Hosts,
    operations: Operations,
    every: Annotated[bool, typer.Option("--all", help="Remove all ACLs, where nothing is named.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be removed, and remove nothing.")
    ] = False,
) -> None:
    """Remove the ACLs of the named resources, principals, hosts and operations, and print them.

    Names are compared as they stand. An option that is left out matches any value.
    """
    _check_principals(principals)
    named = resources.named()
    if not (named or principals or hosts or operations or every):
        raise misused("name what to remove, or say --all")
    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL if named else PatternType.ANY
    filters = [
        _filter(kind, name, pattern, principal, host, operation)
        for kind, name in named or [(Resource.ANY, None)]
        for principal in _or_any(principals)
        for host in _or_any(hosts)
        for operation in [_operation(each) for each in operations] or [AclOperation.ANY]
    ]
    with session.client() as client:
        if dry_run:
            _report(session.output, sorted({acl for each in filters for acl in acl_requests.described(client, each)}))
            remark("Nothing was removed.")
            return
        removed, failures = acl_requests.delete(client, filters)
    _report(session.output, sorted(removed), [CommandFailed(failure) for failure in failures])


def _or_any(names: list[str]) -> Sequence[str | None]:
    return names or [None]


def _operation(name: str) -> AclOperation:
    operation = _OPERATIONS.get(name.lower().replace("_", "-"))
    if operation is None:
        raise typer.BadParameter(f"no such operation: {name}; there are {', '.join(_OPERATIONS)}")
    return operation


def _filter(
    kind: Resource,
    name: str | None,
    pattern: PatternType,
    principal: str | None,
    host: str | None = None,
    operation: AclOperation = AclOperation.ANY,
) -> AclFilter:
    return AclFilter(kind, name, pattern, principal, host, operation, Permission.ANY)


def _check_principals(principals: Sequence[str]) -> None:
    """A usage error for what brokers would refuse, or would find in no ACL."""
    if strange := next((text for text in principals if not all(text.partition(":"))), None):
        raise typer.BadParameter(f"a principal is TYPE:NAME, like User:anna, not {strange!r}")


def _report(output: Output, acls: Sequence[Acl], failures: Sequence[CommandFailed] = ()) -> None:
    shown = [
        {
            "permission": known(Permission, acl.permission_type).name.lower(),
            "principal": acl.principal,
            "host": acl.host,
            "operation": acl_requests.word_of(known(AclOperation, acl.operation)),
            "resource": acl_requests.word_of(known(Resource, acl.resource_type)),
            "name": acl.resource_name,
            "pattern": known(PatternType, acl.pattern_type).name.lower(),
        }
        for acl in acls
    ]
    columns = ("PERMISSION", "PRINCIPAL", "HOST", "OPERATION", "RESOURCE", "NAME", "PATTERN")
    show(output, shown, columns, [tuple(each.values()) for each in shown], failures)
