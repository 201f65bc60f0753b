"""Delegation tokens: who is given one, how long it lasts, who sees it and who may change it.

Lifetimes are compared as differences of one reply's times, since no two brokers have the same clock.
"""

from __future__ import annotations

from typing import Any

from comparator import users
from comparator.boundaries import vary
from comparator.broker import Broker
from comparator.encoding import Tree
from comparator.registry import scenario
from comparator.scenarios.acls import DELEGATION_TOKEN, DESCRIBE, EVERYWHERE, USER, Acl, put, remove

CREATE_TOKENS, DESCRIBE_TOKENS = 13, 14
_PERIODS = {"RenewDelegationToken": "renew_period_ms", "ExpireDelegationToken": "expiry_time_period_ms"}


def principal(name: str, kind: str = "User") -> Tree:
    return {"principal_type": kind, "principal_name": name}


def creation(*renewers: Tree, owner: str = "", kind: str = "User", lifetime_ms: int = 60_000) -> dict[str, Any]:
    return {
        "owner_principal_type": kind if owner else "",
        "owner_principal_name": owner,
        "renewers": list(renewers),
        "max_lifetime_ms": lifetime_ms,
    }


def lasting(reply: Tree) -> Tree:
    """A reply with how long tokens last from their issue on in the place of points in time, and in an order."""
    if isinstance(reply, list):
        return sorted((lasting(each) for each in reply), key=_without_secrets)
    if not isinstance(reply, dict):
        return reply
    found = {name: lasting(value) if name == "tokens" else value for name, value in reply.items()}
    issued = next((found[name] for name in found if name.startswith("issue_timestamp")), None)
    for name, value in found.items():
        if "timestamp" in name and isinstance(value, int) and value > 0:
            found[name] = "a time" if issued is None else value - issued
    return found


def of_users(reply: Tree) -> Tree:
    """``lasting``, of tokens that users own: Kafka alone makes others, which another scenario may have left behind."""
    assert isinstance(reply, dict)
    tokens = [token for token in reply["tokens"] if token["principal_type"] == "User"]
    return lasting({**reply, "tokens": tokens})


def _without_secrets(token: Tree) -> str:
    return str({name: value for name, value in token.items() if name not in ("hmac", "token_id")})


def ask(broker: Broker, api: str, note: str, **fields: Any) -> Any:
    return broker.begin(api, broker.latest(api), note, **fields).reply(lasting)


def made(broker: Broker, note: str, *renewers: Tree, **options: Any) -> tuple[str, bytes]:
    """A token, once the broker knows of it."""
    told: list[Any] = []

    def keep(reply: Tree) -> Tree:
        told.append(reply)
        return lasting(reply)

    broker.begin("CreateDelegationToken", 3, note, **creation(*renewers, **options)).reply(keep)
    (whole,) = told
    hmac = bytes(whole["hmac"])
    broker.wait_until(lambda: hmac in seen(broker), "the token")
    return whole["token_id"], hmac


def seen(broker: Broker, owner: str = "alice") -> list[bytes]:
    """Of those that a user owns: others it could not end."""
    reply = broker.quietly("DescribeDelegationToken", 3, owners=[principal(owner)])
    return [bytes(token["hmac"]) for token in reply["tokens"] if token["principal_type"] == "User"]


def end_all(broker: Broker, owner: str = "alice") -> None:
    """Leave none of this user's behind."""
    last = broker.quietly("CreateDelegationToken", 3, **creation())
    broker.wait_until(lambda: bytes(last["hmac"]) in seen(broker, owner), "the last token, and all before it")

    def are_gone() -> bool:
        left = seen(broker, owner)
        for hmac in left:
            broker.quietly("ExpireDelegationToken", 2, hmac=hmac, expiry_time_period_ms=-1)
        return not left

    broker.wait_until(are_gone, "the end of all tokens")


@scenario
def nobody_asks_for_tokens_on_a_plaintext_listener(broker: Broker) -> None:
    for version in broker.versions("CreateDelegationToken"):
        broker.call("CreateDelegationToken", version, "for oneself", **creation())
        broker.call("CreateDelegationToken", version, "for somebody", **creation(principal("bob"), owner="bob"))
        broker.call("DescribeDelegationToken", version, "all", owners=None)
        broker.call("DescribeDelegationToken", version, "none", owners=[])
    for version in broker.versions("RenewDelegationToken"):
        broker.call("RenewDelegationToken", version, "no token", hmac=b"x", renew_period_ms=1)
        broker.call("ExpireDelegationToken", version, "no token", hmac=b"x", expiry_time_period_ms=-1)


@scenario
def tokens_are_made_in_every_version(broker: Broker) -> None:
    with users.logged_in(broker, users.by_password("alice")) as alice:
        for version in alice.versions("CreateDelegationToken"):
            for note, fields in {
                "no renewer": creation(),
                "a renewer": creation(principal("bob")),
                "a renewer twice": creation(principal("bob"), principal("bob")),
                "oneself": creation(principal("alice"), owner="alice"),
                "a lifetime that is the broker's": creation(lifetime_ms=-1),
                "no lifetime": creation(lifetime_ms=0),
                "a lifetime of a second": creation(lifetime_ms=1_000),
                "more than is granted": creation(lifetime_ms=2**63 - 1),
                "a renewer who is no user": creation(principal("bob", "Group")),
                "a renewer without a name": creation(principal("")),
            }.items():
                alice.begin("CreateDelegationToken", version, note, **fields).reply(lasting)
        end_all(alice)


@scenario
def tokens_are_renewed_and_ended(broker: Broker) -> None:
    with (
        users.logged_in(broker, users.by_password("alice")) as alice,
        users.logged_in(broker, users.by_password("bob")) as bob,
        users.logged_in(broker, users.by_password("carol")) as carol,
    ):
        _, hmac = made(alice, "the token", principal("bob"))
        for period_ms in (-1, 0, 1_000, 2**62):
            ask(alice, "RenewDelegationToken", f"for {period_ms}", hmac=hmac, renew_period_ms=period_ms)
        ask(bob, "RenewDelegationToken", "by its renewer", hmac=hmac, renew_period_ms=-1)
        ask(carol, "RenewDelegationToken", "by anybody", hmac=hmac, renew_period_ms=-1)
        ask(carol, "ExpireDelegationToken", "by anybody", hmac=hmac, expiry_time_period_ms=-1)
        ask(alice, "ExpireDelegationToken", "later", hmac=hmac, expiry_time_period_ms=30_000)
        ask(alice, "ExpireDelegationToken", "much later", hmac=hmac, expiry_time_period_ms=2**62)
        for version in alice.versions("RenewDelegationToken"):
            for api, period in _PERIODS.items():
                fields: dict[str, Any] = {"hmac": hmac, period: 10_000}
                alice.begin(api, version, "in each version", **fields).reply(lasting)
        ask(bob, "ExpireDelegationToken", "by its renewer, now", hmac=hmac, expiry_time_period_ms=-1)
        alice.wait_until(lambda: hmac not in seen(alice), "the end of the token")
        for api, period in _PERIODS.items():
            for version in alice.versions(api):
                alice.call(api, version, "what is gone", **{"hmac": hmac, period: -1})
                alice.call(api, version, "what never was", **{"hmac": b"", period: -1})
        _, hmac = made(alice, "another")
        ask(alice, "ExpireDelegationToken", "in a moment", hmac=hmac, expiry_time_period_ms=0)
        alice.wait_until(lambda: _renewal(alice, hmac) != 0, "the end of the token")
        ask(alice, "RenewDelegationToken", "what has expired", hmac=hmac, renew_period_ms=-1)
        ask(alice, "ExpireDelegationToken", "what has expired, later", hmac=hmac, expiry_time_period_ms=9_000)
        ask(alice, "ExpireDelegationToken", "what has expired, now", hmac=hmac, expiry_time_period_ms=-1)


def _renewal(broker: Broker, hmac: bytes) -> Any:
    """The error of a change that lasts no time."""
    return broker.quietly("ExpireDelegationToken", 2, hmac=hmac, expiry_time_period_ms=0)["error_code"]


@scenario
def who_sees_and_makes_whose_tokens(broker: Broker) -> None:
    nobody_else = [
        Acl(USER, "User:alice", operation, EVERYWHERE, principal="User:nobody")
        for operation in (CREATE_TOKENS, DESCRIBE_TOKENS)
    ]
    with (
        users.logged_in(broker, users.by_password("alice")) as alice,
        users.logged_in(broker, users.by_password("bob")) as bob,
        users.logged_in(broker, users.by_password("carol")) as carol,
    ):
        put(broker, *nobody_else, Acl(DELEGATION_TOKEN, "*", DESCRIBE, EVERYWHERE, principal="User:nobody"))
        own_id, _ = made(alice, "alice's own", lifetime_ms=10_000)
        made(alice, "one that bob may renew", principal("bob"), lifetime_ms=20_000)

        def look(note: str) -> None:
            for name, user in (("alice", alice), ("bob", bob), ("carol", carol)):
                for version in user.versions("DescribeDelegationToken"):
                    for owners in (None, [], [principal("alice")], [principal("bob")], [principal("nobody")]):
                        asked = "all" if owners is None else ", ".join(each["principal_name"] for each in owners)
                        about = f"{note}: {name} of {asked or 'none'}"
                        user.begin("DescribeDelegationToken", version, about, owners=owners).reply(of_users)

        look("nothing is allowed")
        ask(bob, "CreateDelegationToken", "alice's, not allowed", **creation(owner="alice"))
        put(broker, seen := Acl(DELEGATION_TOKEN, own_id, DESCRIBE, EVERYWHERE, principal="User:carol"))
        look("one may be seen by carol")
        put(broker, all_seen := Acl(USER, "User:alice", DESCRIBE_TOKENS, EVERYWHERE, principal="User:carol"))
        look("all of alice's may be seen by carol")
        put(broker, made_for := Acl(USER, "User:alice", CREATE_TOKENS, EVERYWHERE, principal="User:bob"))
        token_id, hmac = made(bob, "alice's, allowed", owner="alice")
        look("bob made one for alice")
        ask(bob, "RenewDelegationToken", "by who asked for it", hmac=hmac, renew_period_ms=-1)
        ask(bob, "CreateDelegationToken", "a group's", **creation(owner="alice", kind="Group", lifetime_ms=1))
        with users.logged_in(broker, users.by_token(token_id, hmac)) as holder:
            for api, fields in (
                ("CreateDelegationToken", creation()),
                ("RenewDelegationToken", {"hmac": hmac, "renew_period_ms": -1}),
                ("ExpireDelegationToken", {"hmac": hmac, "expiry_time_period_ms": -1}),
                ("DescribeDelegationToken", {"owners": None}),
            ):
                holder.begin(api, holder.latest(api), "by a token", **fields).reply(
                    of_users if api == "DescribeDelegationToken" else lasting
                )
        end_all(alice)
        remove(broker, made_for, all_seen, seen, *nobody_else)
        remove(broker, Acl(DELEGATION_TOKEN, "*", DESCRIBE, EVERYWHERE, principal="User:nobody"))


@scenario
def who_logs_in_by_a_token(broker: Broker) -> None:
    with users.logged_in(broker, users.by_password("alice")) as alice:
        token_id, hmac = made(alice, "the token")

        def told(name: str, secret: bytes) -> Tree:
            """Without what no two brokers have in common: signatures and times."""
            with Broker(users.address_of(broker)).opened() as door:
                reply = users.log_in_by_token(door.connect(), name, secret)
            return {key: reply[key] for key in ("error_code", "error_message")} | {
                "ends": reply["session_lifetime_ms"] > 0
            }

        broker.note("its holder", told(token_id, hmac))
        broker.note("who guesses", told(token_id, b"guessed"))
        broker.note("no token", told("nobody", hmac))
        broker.note("a user", told("alice", b"alice"))
        end_all(alice)
        broker.note("who held it", told(token_id, hmac))


@scenario
def boundaries_of_tokens(broker: Broker) -> None:
    with users.logged_in(broker, users.by_password("alice")) as alice:
        vary(alice, "CreateDelegationToken", lambda _version, name: creation(principal(name)), narrow=lasting)
        end_all(alice)
        vary(alice, "RenewDelegationToken", lambda _version, name: {"hmac": b"x", "renew_period_ms": 1_000})
        vary(alice, "ExpireDelegationToken", lambda _version, name: {"hmac": b"x", "expiry_time_period_ms": 1_000})
        vary(
            alice,
            "DescribeDelegationToken",
            lambda _version, name: {"owners": [principal(name)]},
            leave_out={"owners: null": "tells of the tokens that Kafka alone has made above"},
            narrow=lasting,
        )
