"""``pybroker users``: users that log in by SCRAM: list, create, alter and delete them.

Owns: what is asked of a person, the salt, and the shapes that are printed.  The password does not leave this process:
brokers are sent what follows from it (RFC 5802), and keep less.  Which users may be the broker says.
Counterpart: kafka-configs.sh for users.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Annotated, Any

import typer

from pybroker.cli.connection.admin_client import AdminClient, admin_client
from pybroker.cli.connection.admin_command import Session, admin_command
from pybroker.cli.connection.changes import settled
from pybroker.cli.connection.client_settings import ClientOptions
from pybroker.cli.connection.retries import RETRY_BACKOFF_S, retried
from pybroker.cli.terminal.error_names import refused, show
from pybroker.cli.terminal.failure import CommandFailed
from pybroker.cli.terminal.options import repeated
from pybroker.cli.terminal.passwords import read_password
from pybroker.security.scram import (
    BY_TYPE,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    MECHANISMS,
    SHA_256,
    SHA_512,
    USER_SALT_BYTES,
)
from pybroker_protocol.errors import ErrorCode

app = typer.Typer(help="Users that log in by SCRAM: list, create, alter and delete them.", no_args_is_help=True)

# How long a broker may take to learn of a new password.
_LOGIN_TIMEOUT_S = 3.0

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="The user, as it logs in: alice is the principal User:alice.")
]
Mechanisms = Annotated[list[str], repeated("--mechanism", "-m", metavar="NAME", help=f"{' or '.join(MECHANISMS)}.")]
Iterations = Annotated[
    int, typer.Option(min=ITERATIONS_MIN, max=ITERATIONS_MAX, help="How often clients hash the password.")
]


@admin_command(app, "list")
def list_users(
    session: Session,
    *,
    names: Annotated[
        list[str],
        typer.Argument(metavar="[NAME…]", help="Users by name.", default_factory=list, show_default=False),
    ],
) -> None:
    """List users, all of them or those that are named, with their mechanisms."""
    with session.client() as client:
        users = described(client, names)
    shown = [
        {"user": user, "mechanism": BY_TYPE[number].name, "iterations": iterations}
        for user, credentials in sorted(users.items())
        for number, iterations in sorted(credentials.items())
    ]
    missing = [name for name in dict.fromkeys(names) if name not in users]
    failures = [refused(f"user {name}", ErrorCode.RESOURCE_NOT_FOUND) for name in missing]
    rows = [tuple(each.values()) for each in shown]
    show(session.output, shown, ("USER", "MECHANISM", "ITERATIONS"), rows, failures)


@admin_command(app, "create")
def create_user(
    session: Session, *, name: Name, mechanisms: Mechanisms, iterations: Iterations = ITERATIONS_MIN
) -> None:
    """Create a user that logs in by SCRAM-SHA-512, or by --mechanism.

    The password is asked for, or is the first line of standard input.
    """
    numbers = _numbers(mechanisms) or [SHA_512.type]
    with session.client() as client:
        if described(client, [name]):
            raise CommandFailed(f"user {name} exists; `pybroker users alter` sets another password")
        set_password(client, name, read_password(name), numbers, iterations)
    _report(session, name, numbers, "created")


@admin_command(app, "alter")
def alter_user(
    session: Session, *, name: Name, mechanisms: Mechanisms, iterations: Iterations = ITERATIONS_MIN
) -> None:
    """Set another password: of all mechanisms that the user has, or of those that are named.

    The password is asked for, or is the first line of standard input. Connections of the user stay.
    """
    with session.client() as client:
        numbers = _numbers(mechanisms) or _existing(client, name)
        _existing(client, name)
        set_password(client, name, read_password(name), numbers, iterations)
    _report(session, name, numbers, "altered")


@admin_command(app, "delete")
def delete_user(session: Session, *, name: Name, mechanisms: Mechanisms) -> None:
    """Delete a user, or the mechanisms that are named. Connections of the user stay."""
    with session.client() as client:
        numbers = _numbers(mechanisms) or _existing(client, name)
        remove(client, name, numbers)
    _report(session, name, numbers, "deleted")


def _numbers(mechanisms: Sequence[str]) -> list[int]:
    unknown = [name for name in mechanisms if name.upper() not in MECHANISMS]
    if unknown:
        raise typer.BadParameter(f"no such mechanism: {unknown[0]}; there are {', '.join(MECHANISMS)}")
    return [MECHANISMS[name.upper()].type for name in dict.fromkeys(mechanisms)]


def described(client: AdminClient, names: Sequence[str]) -> dict[str, dict[int, int]]:
    """Iterations by mechanism of the users that exist, all or those named; CommandFailed."""
    from pybroker_protocol.messages.describe_user_scram_credentials import (
        DescribeUserScramCredentialsRequest,
        UserName,
    )

    users = [UserName(name=name) for name in dict.fromkeys(names)] or None
    reply = retried(lambda: client.ask(DescribeUserScramCredentialsRequest(users=users)))
    _raise_error("users", reply)
    found: dict[str, dict[int, int]] = {}
    for result in reply.results:
        if result.error_code != ErrorCode.RESOURCE_NOT_FOUND:
            _raise_error(f"user {result.user}", result)
            known = [info for info in result.credential_infos if info.mechanism in BY_TYPE]
            found[result.user] = {info.mechanism: info.iterations for info in known}
    return found


def _existing(client: AdminClient, name: str) -> list[int]:
    """The mechanisms that the user has."""
    found = described(client, [name])
    if name not in found:
        raise refused(f"user {name}", ErrorCode.RESOURCE_NOT_FOUND)
    return sorted(found[name])


def set_password(
    client: AdminClient, name: str, password: str, numbers: Sequence[int], iterations: int = ITERATIONS_MIN
) -> None:
    """Have a user, new or not, log in by these mechanisms with a password; CommandFailed."""
    from pybroker_protocol.messages.alter_user_scram_credentials import ScramCredentialUpsertion

    for number in numbers:
        salt = secrets.token_bytes(USER_SALT_BYTES)
        salted = BY_TYPE[number].salted(password.encode(), salt, iterations)
        upsertion = ScramCredentialUpsertion(
            name=name, mechanism=number, iterations=iterations, salt=salt, salted_password=salted
        )
        _alter(client, name, upsertions=[upsertion])


def remove(client: AdminClient, name: str, numbers: Iterable[int]) -> None:
    """Have a user log in by these mechanisms no more; CommandFailed."""
    from pybroker_protocol.messages.alter_user_scram_credentials import ScramCredentialDeletion

    for number in numbers:
        _alter(client, name, deletions=[ScramCredentialDeletion(name=name, mechanism=number)])


@contextmanager
def acting_as(session: Session, client: AdminClient, name: str) -> Iterator[AdminClient]:
    """An admin client that has logged in as a user of SCRAM; CommandFailed where the session's address takes no such.

    For what the user alone may ask.  It gets a password that is shown nowhere, and has none afterwards.
    """
    if not client.access.protocol.startswith("SASL_"):
        raise CommandFailed(f"{session.options.bootstrap} takes no login")
    known = MECHANISMS.get(client.access.mechanism or "")
    mechanisms = [SHA_512, SHA_256] if known is None else [known]
    password = secrets.token_urlsafe(USER_SALT_BYTES)
    login = [f"sasl.username={name}", f"sasl.password={password}"]
    options = [
        session.options._replace(properties=[*session.options.properties, *login, f"sasl.mechanism={each.name}"])
        for each in mechanisms
    ]
    numbers = [each.type for each in mechanisms]
    set_password(client, name, password, numbers)
    try:
        with ExitStack() as stack:
            yield _first_that_opens(stack, options)
    finally:
        remove(client, name, numbers)


def _first_that_opens(stack: ExitStack, logins: Sequence[ClientOptions]) -> AdminClient:
    """A client by the first login that a broker takes, which may learn of a new password a moment later."""
    give_up_s = time.monotonic() + _LOGIN_TIMEOUT_S
    while True:
        for options in logins:
            try:
                return stack.enter_context(admin_client(options))
            except CommandFailed:
                if time.monotonic() >= give_up_s:
                    raise
        time.sleep(RETRY_BACKOFF_S)


def _alter(client: AdminClient, name: str, *, deletions: Sequence[Any] = (), upsertions: Sequence[Any] = ()) -> None:
    """One change: Kafka takes no two of one user in a request."""
    from pybroker_protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest

    request = AlterUserScramCredentialsRequest(deletions=list(deletions), upsertions=list(upsertions))
    reply = retried(lambda: client.ask(request))
    for result in reply.results:
        if settled(client, request, result.error_code, f"user {name}"):
            _raise_error(f"user {name}", result)


def _raise_error(what: str, answer: Any) -> None:
    if answer.error_code:
        raise refused(what, answer.error_code, answer.error_message)


def _report(session: Session, name: str, numbers: Sequence[int], status: str) -> None:
    shown = [{"user": name, "mechanism": BY_TYPE[number].name, "status": status} for number in numbers]
    session.output.result(shown, ("USER", "MECHANISM", "STATUS"), [tuple(each.values()) for each in shown])
