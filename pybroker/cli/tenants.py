"""``pybroker tenants``: who shares a cluster, made, listed and deleted by one command each.

Owns: what a tenant is, in Kafka's terms, and the passwords that are made.  A tenant ``acme`` is a prefix of names,
``acme.``, and the users to whom all topics, groups and transactional ids with such names belong, and nothing else does.
Nothing is kept of it but users, ACLs and quotas, so that any Kafka with an authorizer has tenants.

Invariants: no tenant's prefix is the beginning of another's, nor collides with it in the names of metrics, where Kafka
takes ``.`` and ``_`` for one; a user is in one tenant.  What lets a user in comes last, and goes first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from secrets import token_urlsafe
from typing import Annotated, Any, Final

import typer

from pybroker.cli import acl_requests, quotas
from pybroker.cli import users as scram_users
from pybroker.cli.admin_command import Session, admin_command
from pybroker.cli.connection import retried
from pybroker.cli.failure import CommandFailed, describe_error_code
from pybroker.cli.options import repeated
from pybroker.security.acls import WILDCARD, Acl, AclFilter, AclOperation, PatternType, Permission, Resource

app = typer.Typer(help="Who shares a cluster: create, list and delete tenants.", no_args_is_help=True)

_NAME: Final = re.compile(r"[a-zA-Z0-9-]{1,60}")
_RESOURCES: Final = (Resource.TOPIC, Resource.GROUP, Resource.TRANSACTIONAL_ID)
_PASSWORD_BYTES: Final = 24

Name = Annotated[str, typer.Argument(metavar="NAME", help="Letters, digits and hyphens.")]
Rate = Annotated[float | None, typer.Option(min=0, metavar="NUMBER", help="A quota of each of its users.")]


@admin_command(app, "create")
def create_tenant(
    session: Session,
    *,
    name: Name,
    users: Annotated[list[str], repeated("--user", "-u", metavar="NAME", help="A user NAME of it, as TENANT.NAME.")],
    principals: Annotated[
        list[str], repeated("--principal", metavar="TYPE:NAME", help="Who logs in otherwise, as by a certificate.")
    ],
    mechanism: Annotated[str, typer.Option(metavar="NAME", help="By which its users log in.")] = "SCRAM-SHA-512",
    producer_byte_rate: Rate = None,
    consumer_byte_rate: Rate = None,
    request_percentage: Rate = None,
    controller_mutation_rate: Rate = None,
) -> None:
    """Make users who may do everything with names that begin with NAME and a dot; their passwords are shown once.

    Without --user and --principal there is one user, of the tenant's own name.
    """
    from pybroker.security.scram import MECHANISMS

    _check(name)
    if mechanism not in MECHANISMS:
        raise typer.BadParameter(f"no such mechanism: {mechanism}; there are {', '.join(MECHANISMS)}")
    if strange := next((user for user in users if not _NAME.fullmatch(user)), None):
        raise typer.BadParameter(f"a user is named by letters, digits and hyphens, not {strange!r}")
    if strange := next((each for each in principals if not each.partition(":")[2]), None):
        raise typer.BadParameter(f"a principal is TYPE:NAME, not {strange!r}")
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
        if name in (tenants := _tenants(client)):
            raise CommandFailed(f"tenant {name} exists, with {', '.join(tenants[name])}")
        others = {member: tenant for tenant, its_members in tenants.items() for member in its_members}
        if taken := next((member for member in members if member in others), None):
            raise CommandFailed(f"{taken} belongs to the tenant {others[taken]}")
        if left := _topics(client, [name])[name]:
            raise CommandFailed(f"tenant {name} would have {len(left)} topics that are there already, as {left[0]}")
        if taken := next(iter(scram_users.described(client, [*passwords]) if passwords else ()), None):
            raise CommandFailed(f"user {taken} exists already")
        acls = [acl for member in members for acl in _acls(name, member)]
        if refusal := next(filter(None, acl_requests.create(client, acls)), None):
            raise CommandFailed(f"tenant {name} is not whole, delete it: {refusal}")
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
    with_topics: Annotated[bool, typer.Option("--with-topics", help="And its topics, with all their records.")] = False,
) -> None:
    """Remove a tenant's users, ACLs and quotas; one that has topics stays, unless they are to go, too.

    Who was taken in by --principal keeps login and quotas.
    """
    _check(name)
    with session.client() as client:
        members = _tenants(client).get(name, [])
        if not members:
            raise CommandFailed(f"there is no tenant {name}")
        topics = _topics(client, [name])[name]
        if topics and not with_topics:
            raise CommandFailed(f"tenant {name} has {len(topics)} topics: --with-topics deletes them, too")
        own = [user for user in map(_user, members) if user.partition(".")[0] == name]
        for user, mechanisms in (scram_users.described(client, own) if own else {}).items():
            scram_users.remove(client, user, mechanisms)
        for row in quotas.described(client, {}):
            if [*row["entity"]] == ["user"] and row["entity"]["user"] in own:
                quotas.alter(client, [row["entity"]], dict.fromkeys(row["quotas"]))
        # Its permissions go last, since a tenant is known by them: what could not be removed is tried again.
        failures = _delete_topics(client, topics)
        removed: set[Acl] = set()
        if not failures:
            removed, failures = acl_requests.delete(client, [_filter(kind, f"{name}.", None) for kind in _RESOURCES])
            failures += _delete_topics(client, _topics(client, [name])[name] if topics else [])
    shown = {"tenant": name, "principals": members, "acls": len(removed), "topics": len(topics)}
    session.output.result(shown, ("TENANT", "PRINCIPALS", "ACLS", "TOPICS"), [tuple(shown.values())])
    if failures:
        session.output.flush()
        raise CommandFailed(f"something of the tenant {name} is left: {failures[0]}")


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
        for kind in _RESOURCES
    ]


def _filter(kind: Resource, name: str | None, principal: str | None) -> AclFilter:
    return AclFilter(kind, name, PatternType.PREFIXED, principal, None, AclOperation.ANY, Permission.ANY)


def _tenants(client: Any) -> dict[str, list[str]]:
    """The principals of each tenant: who may do everything with topics of its prefix."""
    found: dict[str, list[str]] = {}
    for acl in sorted(acl_requests.described(client, _filter(Resource.TOPIC, None, None))):
        name = acl.resource_name.removesuffix(".")
        if acl == _acls(name, acl.principal)[0] and _NAME.fullmatch(name):
            found.setdefault(name, []).append(acl.principal)
    return found


def _delete_topics(client: Any, topics: list[str]) -> list[str]:
    """Why some of them are still there."""
    if not topics:
        return []
    answers = retried(lambda: client.delete_topics(topics, raise_errors=False))["topics"]
    return [describe_error_code(each["error_code"]) for each in answers if each["error_code"]]


def _topics(client: Any, names: Iterable[str]) -> dict[str, list[str]]:
    """The topics of each tenant."""
    found: dict[str, list[str]] = {name: [] for name in names}
    for topic in sorted(retried(client.list_topics)):
        name = topic.partition(".")[0]
        if name in found and "." in topic:
            found[name].append(topic)
    return found
