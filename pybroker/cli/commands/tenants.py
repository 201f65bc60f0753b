"""``pybroker tenants``: those that share a cluster, made, listed and deleted by one command each.

Owns: what a tenant is, in Kafka's terms, and the passwords that are made.  A tenant ``acme`` is a prefix of names,
``acme.``, and the users to whom all topics, groups and transactional ids with such names belong, and nothing else does.
Nothing is kept of it but users, ACLs and quotas, so that any Kafka with an authorizer has tenants.  What else there may
be of it, and how all of it goes, is ``tenant_resources``.

Invariants:
- No tenant's prefix is the beginning of another's, nor collides with it in the names of metrics, where Kafka takes
  ``.`` and ``_`` for one.
- A user is in one tenant, and may do nothing but what the tenant may.
- A tenant finds nothing that a former one of its name has left, but for connections. As in Kafka a deleted user keeps
  those that are open, and ``delete`` says so.
- What lets a user in comes last, and goes first.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from secrets import token_urlsafe
from typing import Annotated, Final

import typer

from pybroker.cli.commands import quotas
from pybroker.cli.commands import users as scram_users
from pybroker.cli.commands.tenant_resources import RESOURCES, Names, find, take_away
from pybroker.cli.connection.admin_client import AdminClient
from pybroker.cli.connection.admin_command import Session, admin_command
from pybroker.cli.connection.retries import RETRY_BACKOFF_S, retried
from pybroker.cli.requests import acl_requests, topic_requests
from pybroker.cli.terminal.failure import CommandFailed
from pybroker.cli.terminal.options import repeated
from pybroker.cli.terminal.output import counted, remark
from pybroker.security.acl_bindings import WILDCARD, Acl, AclFilter, AclOperation, PatternType, Permission, Resource

app = typer.Typer(help="Tenants that share a cluster: create, list and delete them.", no_args_is_help=True)

_NAME: Final = re.compile(r"[a-zA-Z0-9-]{1,60}")
_PASSWORD_BYTES: Final = 24
_ANYBODY: Final = ("*", "ANONYMOUS")
_OF_TOPICS: Final = AclFilter(Resource.TOPIC, None, PatternType.PREFIXED, None, None, AclOperation.ANY, Permission.ANY)
# How long brokers may take to learn what is gone.
_SETTLE_TIMEOUT_S: Final = 5.0

Name = Annotated[str, typer.Argument(metavar="NAME", help="The tenant, by a name of letters, digits and hyphens.")]
ProducerByteRate = Annotated[
    float | None, typer.Option(min=0, metavar="N", help="Bytes per second that each user may produce to a broker.")
]
ConsumerByteRate = Annotated[
    float | None, typer.Option(min=0, metavar="N", help="Bytes per second that each user may fetch from a broker.")
]
RequestPercentage = Annotated[
    float | None, typer.Option(min=0, metavar="N", help="Percent of a thread's time that each user may take.")
]
ControllerMutationRate = Annotated[
    float | None, typer.Option(min=0, metavar="N", help="Partitions per second that each user may make or delete.")
]


@admin_command(app, "create")
def create_tenant(
    session: Session,
    *,
    name: Name,
    users: Annotated[
        list[str], repeated("--user", "-u", metavar="NAME", help="A user of the tenant, which logs in as TENANT.NAME.")
    ],
    principals: Annotated[
        list[str],
        repeated("--principal", metavar="TYPE:NAME", help="A principal that logs in otherwise, as by a certificate."),
    ],
    mechanism: Annotated[
        str, typer.Option(metavar="NAME", help="The mechanism of its users' logins.")
    ] = "SCRAM-SHA-512",
    producer_byte_rate: ProducerByteRate = None,
    consumer_byte_rate: ConsumerByteRate = None,
    request_percentage: RequestPercentage = None,
    controller_mutation_rate: ControllerMutationRate = None,
) -> None:
    """Create a tenant: users with all rights on topics, groups and transactional ids named NAME.*, and on nothing else.

    Their passwords are shown once. Without --user and --principal there is one user, of the tenant's own name.
    """
    from pybroker.security.scram import MECHANISMS

    _check(name)
    if mechanism not in MECHANISMS:
        raise typer.BadParameter(f"no such mechanism: {mechanism}; there are {', '.join(MECHANISMS)}")
    if strange := next((user for user in users if not _NAME.fullmatch(user)), None):
        raise typer.BadParameter(f"a user is named by letters, digits and hyphens, not {strange!r}")
    if strange := next((each for each in principals if not each.partition(":")[2]), None):
        raise typer.BadParameter(f"a principal is TYPE:NAME, not {strange!r}")
    if anybody := next((each for each in (f"User:{name}", *principals) if _user(each) in _ANYBODY), None):
        raise typer.BadParameter(f"{anybody} is no user, but stands for all clients")
    passwords = {
        user: token_urlsafe(_PASSWORD_BYTES)
        for user in ([f"{name}.{user}" for user in users] if users or principals else [name])
    }
    members = [*(f"User:{user}" for user in passwords), *principals]
    limits = {
        "producer_byte_rate": producer_byte_rate,
        "consumer_byte_rate": consumer_byte_rate,
        "request_percentage": request_percentage,
        "controller_mutation_rate": controller_mutation_rate,
    }
    with session.client() as client:
        _refuse_who_is_more(session, client, name, members, [*passwords])
        acls = [acl for member in members for acl in _acls(name, member)]
        if refusal := next(filter(None, acl_requests.create(client, acls)), None):
            raise CommandFailed(f"tenant {name} is not whole: {refusal}; delete it with --remains")
        if asked := {key: value for key, value in limits.items() if value is not None}:
            quotas.alter(client, [{"user": _user(member)} for member in members], asked)
        for user, password in passwords.items():
            scram_users.set_password(client, user, password, [MECHANISMS[mechanism].type])
    shown = [
        {
            "tenant": name,
            "principal": member,
            "mechanism": mechanism if _user(member) in passwords else None,
            "password": passwords.get(_user(member)),
        }
        for member in members
    ]
    session.output.result(
        shown, ("TENANT", "PRINCIPAL", "MECHANISM", "PASSWORD"), [tuple(row.values()) for row in shown]
    )


@admin_command(app, "list")
def list_tenants(session: Session) -> None:
    """Show all tenants: their users, quotas of these, and how many topics they have."""
    with session.client() as client:
        found = _tenants(client)
        topics = _topics(client, found)
        set_for = {
            row["entity"]["user"]: row["quotas"] for row in quotas.described(client, {}) if [*row["entity"]] == ["user"]
        }
    shown = [
        {"tenant": name, "principal": member, "quotas": set_for.get(_user(member), {}), "topics": len(topics[name])}
        for name, members in sorted(found.items())
        for member in members
    ]
    rows = [
        (
            row["tenant"],
            row["principal"],
            ",".join(f"{key}={value:.15g}" for key, value in row["quotas"].items()),
            row["topics"],
        )
        for row in shown
    ]
    session.output.result(shown, ("TENANT", "PRINCIPAL", "QUOTAS", "TOPICS"), rows)


@admin_command(app, "delete")
def delete_tenant(
    session: Session,
    *,
    name: Name,
    with_topics: Annotated[
        bool,
        typer.Option(
            "--with-topics", help="Delete its topics, too, with all their records, also while they are read or written."
        ),
    ] = False,
    remains: Annotated[
        bool, typer.Option("--remains", help="Remove what a former tenant of that name has left.")
    ] = False,
) -> None:
    """Delete a tenant with its users, and their ACLs, quotas, delegation tokens and groups.

    A tenant that has topics stays, unless --with-topics deletes them as well. Principals that were taken in by
    --principal keep their logins and quotas.
    """
    _check(name)
    names = Names(name)
    with session.client() as client:
        members = _tenants(client).get(name, [])
        if not members and not remains:
            raise CommandFailed(f"there is no tenant {name}")
        resources = find(client, names)
        if resources.topics and not with_topics:
            raise CommandFailed(
                f"tenant {name} has {counted(len(resources.topics), 'topic')}: --with-topics deletes them, too"
            )
        if resources.busy_groups and not with_topics:
            raise CommandFailed(f"group {resources.busy_groups[0]} has members: stop them, or delete --with-topics")
        failures = take_away(session, client, names, resources)
        left = _what_is_left(client, names)
    warning = ""
    if members or resources.users:
        # No request ends a session, nor tells of any.
        warning = (
            "Open connections of its users stay until they end, or have to log in again (connections.max.reauth.ms). "
            f"Until then they may do what a next tenant {name} may do."
        )
    shown = {
        "tenant": name,
        "principals": members,
        "acls": len(resources.acls),
        "tokens": len(resources.tokens),
        "groups": len(resources.groups),
        "topics": len(resources.topics),
        "status": "deleted",
    }
    if left is None:
        columns = ("TENANT", "PRINCIPALS", "ACLS", "TOKENS", "GROUPS", "TOPICS", "STATUS")
        session.output.result(shown, columns, [tuple(shown.values())])
        session.output.flush()
        if warning:
            remark(warning)
        return
    if warning:
        remark(warning)
    why = f" ({failures[0]})" if failures else ""
    raise CommandFailed(f"of the tenant {name} is left: {left}{why}; again with --remains")


def _what_is_left(client: AdminClient, names: Names) -> str | None:
    """What is still there when all brokers should know that it is gone."""
    give_up_s = time.monotonic() + _SETTLE_TIMEOUT_S
    while (left := find(client, names).told()) is not None and time.monotonic() < give_up_s:
        time.sleep(RETRY_BACKOFF_S)
    return left


def _refuse_who_is_more(session: Session, client: AdminClient, name: str, members: list[str], users: list[str]) -> None:
    """CommandFailed where a tenant is there, would inherit something, or has a member with more rights than it.

    ``users`` are those of its members that are new.
    """
    if name in (tenants := _tenants(client)):
        raise CommandFailed(f"tenant {name} exists, with {', '.join(tenants[name])}")
    others = {member: tenant for tenant, its_members in tenants.items() for member in its_members}
    by_name = {member: _user(member).partition(".")[0] for member in members}
    others |= {member: tenant for member, tenant in by_name.items() if tenant in tenants}
    if taken := next((member for member in members if member in others), None):
        raise CommandFailed(f"{taken} belongs to the tenant {others[taken]}")
    if (own := client.access.user) in map(_user, members):
        raise CommandFailed(f"user {own} runs this command, and cannot be a tenant's")
    if there := find(client, Names(name)).told():
        raise CommandFailed(f"{there}: there already, and it would be the tenant's; delete {name} --remains")
    if privileged := next((user for user in users if _is_administrator(session, client, user)), None):
        raise CommandFailed(f"user {privileged} would be an administrator (super.users, or ACLs for all)")


def _is_administrator(session: Session, client: AdminClient, user: str) -> bool:
    """Whether a user may change the cluster before any ACL says so, as far as brokers tell it: to the user alone."""
    from pybroker_protocol.messages.describe_cluster import DescribeClusterRequest

    try:
        with scram_users.acting_as(session, client, user) as own:
            told = own.ask(DescribeClusterRequest(include_cluster_authorized_operations=True))
    except CommandFailed:
        return False
    operations: int = told.cluster_authorized_operations
    return operations > 0 and bool(operations >> AclOperation.ALTER & 1)


def _check(name: str) -> None:
    """Raise ``typer.BadParameter`` for what is no tenant's name; neither ``.`` nor ``_`` may stand in one."""
    if not _NAME.fullmatch(name):
        raise typer.BadParameter(f"a tenant is named by letters, digits and hyphens, not {name!r}")


def _user(principal: str) -> str:
    return principal.partition(":")[2]


def _acls(name: str, principal: str) -> list[Acl]:
    prefix = f"{name}."
    return [
        Acl(kind, prefix, PatternType.PREFIXED, principal, WILDCARD, AclOperation.ALL, Permission.ALLOW)
        for kind in RESOURCES
    ]


def _tenants(client: AdminClient) -> dict[str, list[str]]:
    """The principals of each tenant: those with all rights on topics of its prefix."""
    found: dict[str, list[str]] = {}
    for acl in sorted(acl_requests.described(client, _OF_TOPICS)):
        name = acl.resource_name.removesuffix(".")
        if acl == _acls(name, acl.principal)[0] and _NAME.fullmatch(name):
            found.setdefault(name, []).append(acl.principal)
    return found


def _topics(client: AdminClient, names: Iterable[str]) -> dict[str, list[str]]:
    """The topics of each tenant."""
    found: dict[str, list[str]] = {name: [] for name in names}
    for topic in sorted(retried(lambda: topic_requests.names(client))):
        name = topic.partition(".")[0]
        if name in found and "." in topic:
            found[name].append(topic)
    return found
