"""``pybroker tokens``: delegation tokens (KIP-48): create, describe, renew and expire.

Owns: how tokens are named on the command line, and the shapes that are printed. Rights are the broker's. A token's
HMAC, the secret of a login by it, is printed where it is asked for. It is no argument of a command, since everybody on
the machine sees arguments. A token is named by its id. Counterpart: kafka-delegation-tokens.sh.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Annotated, Any

import typer

from pybroker.cli.commands.transactions import duration_ms
from pybroker.cli.connection.admin_client import AdminClient
from pybroker.cli.connection.admin_command import Session, admin_command
from pybroker.cli.connection.changes import settled
from pybroker.cli.connection.retries import retried
from pybroker.cli.requests.offsets import INT64_MAX
from pybroker.cli.terminal.error_names import refused
from pybroker.cli.terminal.options import repeated
from pybroker.cli.terminal.output import Row, remark, show_time
from pybroker_protocol.errors import ErrorCode

app = typer.Typer(help="Delegation tokens: create, describe, renew and expire.", no_args_is_help=True)

TokenId = Annotated[str, typer.Argument(metavar="ID", help="The token, by its id.")]

_USER = "User"
_COLUMNS = ("ID", "OWNER", "REQUESTER", "RENEWERS", "ISSUED", "EXPIRES", "MAX-EXPIRES")
_BROKERS_PERIOD, _AT_ONCE = -1, -1
_GONE_MS = -1
# Kafka's rule, which its error does not say.
_ALLOWED = "only a connection that has logged in by SASL (not by a token), or by a certificate, may ask."


def _user(text: str) -> str:
    """The name of ``NAME`` or ``User:NAME``, as Kafka's own tool wants it; wrong use for another kind of principal."""
    kind, colon, name = text.partition(":")
    if not colon:
        return text
    if kind != _USER or not name:
        raise typer.BadParameter(f"{text!r} is no user: NAME or {_USER}:NAME")
    return name


def _period(text: str | None, option: str) -> int:
    """Milliseconds; without a text the brokers decide."""
    return _BROKERS_PERIOD if text is None else min(duration_ms(text, option, None), INT64_MAX)


@admin_command(app, "create")
def create_token(
    session: Session,
    *,
    owner: Annotated[str, typer.Option(metavar="USER", help="The user that the token is for; otherwise you.")] = "",
    renewers: Annotated[
        list[str], repeated("--renewer", metavar="USER", help="A user that may renew and end the token as well.")
    ],
    lifetime: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="How long renewals may keep it, like 12h or 7d; otherwise, and at most, as long as "
            "delegation.token.max.lifetime.ms of the brokers.",
        ),
    ] = None,
) -> None:
    """Create a token of yours, and print it with its HMAC, the secret of a login by the token."""
    from pybroker_protocol.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest

    request = CreateDelegationTokenRequest(
        owner_principal_type=_USER if owner else "",
        owner_principal_name=_user(owner),
        renewers=[CreatableRenewers(principal_type=_USER, principal_name=_user(renewer)) for renewer in renewers],
        max_lifetime_ms=_period(lifetime, "--lifetime"),
    )
    with session.client() as client:
        since = CreateDelegationTokenRequest.since("owner_principal_name") if owner else 0
        created = client.ask(request, min_version=since)
    _raise(created.error_code)
    shown = {
        "id": created.token_id,
        "hmac": b64encode(bytes(created.hmac)).decode(),
        "owner": f"{created.principal_type}:{created.principal_name}",
        "expires_ms": created.expiry_timestamp_ms,
        "max_expires_ms": created.max_timestamp_ms,
    }
    session.output.result(shown, ("ID", "HMAC", "OWNER", "EXPIRES", "MAX-EXPIRES"), [_row(shown)])


@admin_command(app, "describe")
def describe_tokens(
    session: Session,
    *,
    owners: Annotated[list[str], repeated("--owner", metavar="USER", help="A user whose tokens are shown.")],
    hmacs: Annotated[
        bool, typer.Option("--hmacs", help="Show the HMACs, too: the secrets of logins by the tokens.")
    ] = False,
) -> None:
    """Show the tokens that you may see, all of them or those of some owners."""
    with session.client() as client:
        tokens = _described(client, owners)
    shown = [_shown(token, hmacs) for token in tokens]
    columns = (*_COLUMNS, "HMAC") if hmacs else _COLUMNS
    session.output.result(shown, columns, map(_row, shown))


@admin_command(app, "renew")
def renew_token(
    session: Session,
    *,
    token_id: TokenId,
    period: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="How long the token lasts from now, like 1d; otherwise the brokers' delegation.token.expiry.time.ms.",
        ),
    ] = None,
) -> None:
    """Have a token last longer."""
    from pybroker_protocol.messages.renew_delegation_token import RenewDelegationTokenRequest

    period_ms = _period(period, "--period")
    with session.client() as client:
        request = RenewDelegationTokenRequest(hmac=_hmac_of(client, token_id), renew_period_ms=period_ms)
        reply = retried(lambda: client.ask(request))
    _raise(reply.error_code, f"token {token_id}")
    _report(session, token_id, reply.expiry_timestamp_ms)


@admin_command(app, "expire")
def expire_token(
    session: Session,
    *,
    token_id: TokenId,
    period: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION", help="How long the token lasts from now on, like 10m; otherwise it ends at once."
        ),
    ] = None,
) -> None:
    """Set when a token expires. A connection that was made with it stays until its session ends."""
    period_ms = _AT_ONCE if period is None else _period(period, "--period")
    with session.client() as client:
        expiry_ms = _expire(client, token_id, _hmac_of(client, token_id), period_ms)
    _report(session, token_id, expiry_ms)


def all_tokens(client: AdminClient) -> list[Any]:
    """The tokens that may be seen, none where the cluster has no tokens; a remark where they may not be asked for."""
    from pybroker_protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest

    if not client.serves(DescribeDelegationTokenRequest):
        return []
    described = retried(lambda: client.ask(DescribeDelegationTokenRequest(owners=None)))
    if described.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED:
        remark(f"Delegation tokens were not looked at: {_ALLOWED}")
        return []
    if described.error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED:
        return []
    _raise(described.error_code)
    return list(described.tokens)


def end(client: AdminClient, token_id: str, hmac: bytes) -> None:
    """Have a token expire at once; CommandFailed."""
    _expire(client, token_id, hmac, _AT_ONCE)


def _expire(client: AdminClient, token_id: str, hmac: bytes, period_ms: int) -> int:
    """When the token expires now, in epoch milliseconds; -1 where it is gone already.  CommandFailed."""
    from pybroker_protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest

    request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
    reply = retried(lambda: client.ask(request))
    what = f"token {token_id}"
    # One that is to last a while, and is gone, was not ended by this command.
    code = settled(client, request, reply.error_code, what) if period_ms == _AT_ONCE else reply.error_code
    _raise(code, what)
    return int(reply.expiry_timestamp_ms) if code == reply.error_code else _GONE_MS


def _described(client: AdminClient, owners: list[str]) -> list[Any]:
    """The tokens that may be seen, by owner and id."""
    from pybroker_protocol.messages.describe_delegation_token import (
        DescribeDelegationTokenOwner,
        DescribeDelegationTokenRequest,
    )

    named = [DescribeDelegationTokenOwner(principal_type=_USER, principal_name=_user(owner)) for owner in owners]
    described = retried(lambda: client.ask(DescribeDelegationTokenRequest(owners=named or None)))
    _raise(described.error_code)
    return sorted(described.tokens, key=lambda token: (token.principal_name, token.token_id))


def _hmac_of(client: AdminClient, token_id: str) -> bytes:
    found = [token for token in _described(client, []) if token.token_id == token_id]
    if not found:
        raise refused(f"token {token_id}", ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
    return bytes(found[0].hmac)


def _shown(token: Any, with_hmac: bool) -> dict[str, Any]:
    requester = token.token_requester_principal_name  # empty where the broker does not tell
    return {
        "id": token.token_id,
        "owner": f"{token.principal_type}:{token.principal_name}",
        "requester": f"{token.token_requester_principal_type}:{requester}" if requester else None,
        "renewers": [f"{each.principal_type}:{each.principal_name}" for each in token.renewers],
        "issued_ms": token.issue_timestamp,
        "expires_ms": token.expiry_timestamp,
        "max_expires_ms": token.max_timestamp,
        **({"hmac": b64encode(bytes(token.hmac)).decode()} if with_hmac else {}),
    }


def _row(shown: dict[str, Any]) -> Row:
    return [show_time(value) if name.endswith("_ms") else value for name, value in shown.items()]


def _report(session: Session, token_id: str, expiry_ms: int) -> None:
    # A token that is gone already has no time.
    shown = {"id": token_id, "expires_ms": None if expiry_ms < 0 else expiry_ms}
    session.output.result(shown, ("ID", "EXPIRES"), [(token_id, show_time(expiry_ms))])


def _raise(error_code: int, what: str = "tokens") -> None:
    if error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED:
        raise refused(what, error_code, _ALLOWED[0].upper() + _ALLOWED[1:])
    if error_code:
        raise refused(what, error_code)
