"""Delegation tokens over the wire (KIP-48): who may ask for one, what its holder may do, and for how long."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from harness.waiting import wait_until

from pybroker.security.plain import LOGIN_MODULE as PLAIN_MODULE
from pybroker.security.scram import MECHANISMS, SHA_256, ScramClient, ScramMechanism
from pybroker.testing import Broker
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from pybroker_protocol.messages.create_acls import AclCreation, CreateAclsRequest
from pybroker_protocol.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from pybroker_protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from pybroker_protocol.messages.describe_groups import DescribeGroupsRequest
from pybroker_protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from pybroker_protocol.messages.metadata import MetadataRequest
from pybroker_protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from pybroker_protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from pybroker_protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.broker.wire_client import WireClient

PREFIX = "listener.name.sasl_plaintext"
USERS = ("admin", "alice", "bob", "carol")
SETTINGS: dict[str, str | int] = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    f"{PREFIX}.plain.sasl.jaas.config": f"{PLAIN_MODULE} required "
    + " ".join(f'user_{user}="{user}"' for user in USERS) + ";",
    "connection.failed.authentication.delay.ms": 20,
    "delegation.token.secret.key": "the key",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}  # fmt: skip
ANY_TOPIC = MetadataRequest(topics=None)
CREATE_TOKENS, DESCRIBE_TOKENS, DESCRIBE = 13, 14, 8
USER, DELEGATION_TOKEN = 7, 6
NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def token_broker(settings: dict[str, str | int] | None = None, data_dir: Path | None = None) -> Broker:
    return Broker({**SETTINGS, **(settings or {})}, data_dir=data_dir, listen="SASL_PLAINTEXT://127.0.0.1:0")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with token_broker() as broker:
        yield broker


class User(WireClient):
    """A connection that has logged in by its name."""

    def __init__(self, broker: Broker, name: str) -> None:
        super().__init__((broker.host, broker.port))
        assert self.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
        assert self.ask(SaslAuthenticateRequest(auth_bytes=f"\0{name}\0{name}".encode()), 2).error_code == 0

    def create(self, owner: str = "", renewers: tuple[str, ...] = (), lifetime_ms: int = -1, version: int = 3) -> Any:
        """``owner`` and ``renewers`` are principals."""
        kind, _, name = owner.partition(":")
        request = CreateDelegationTokenRequest(
            owner_principal_type=kind,
            owner_principal_name=name,
            renewers=[
                CreatableRenewers(principal_type=each.partition(":")[0], principal_name=each.partition(":")[2])
                for each in renewers
            ],
            max_lifetime_ms=lifetime_ms,
        )
        return self.ask(request, version)

    def renew(self, hmac: bytes, period_ms: int = -1) -> Any:
        return self.ask(RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms), 2)

    def expire(self, hmac: bytes, period_ms: int = -1) -> Any:
        return self.ask(ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms), 2)

    def describe(self, *owners: str, version: int = 3) -> Any:
        """Of all owners where none is named."""
        named = [DescribeDelegationTokenOwner(principal_type="User", principal_name=owner) for owner in owners]
        return self.ask(DescribeDelegationTokenRequest(owners=named or None), version)

    def allow(self, resource_type: int, name: str, operation: int, principal: str) -> None:
        creation = AclCreation(
            resource_type=resource_type, resource_name=name, resource_pattern_type=3, principal=principal, host="*",
            operation=operation, permission_type=3,
        )  # fmt: skip
        (result,) = self.ask(CreateAclsRequest(creations=[creation]), 3).results
        assert result.error_code == 0


class Holder(WireClient):
    """A connection that logs in by a token; ``last`` is the last answer to that."""

    def __init__(self, broker: Broker, token: Any, mechanism: ScramMechanism = SHA_256) -> None:
        super().__init__((broker.host, broker.port))
        self.last = self.log_in(token.token_id, bytes(token.hmac), mechanism)

    def log_in(self, token_id: str, hmac: bytes, mechanism: ScramMechanism = SHA_256) -> Any:
        self.ask(SaslHandshakeRequest(mechanism=mechanism.name), 1)
        password = b64encode(hmac)
        salted = partial(mechanism.salted, password)
        client = ScramClient(mechanism, token_id, salted, b"c" * 18, is_token=True)
        first = self.ask(SaslAuthenticateRequest(auth_bytes=client.first()), 2)
        return self.ask(SaslAuthenticateRequest(auth_bytes=client.final(bytes(first.auth_bytes))), 2)


@pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=lambda mechanism: mechanism.name)
@pytest.mark.parametrize("version", [1, 2, 3])
def test_who_holds_a_token_is_its_owner(broker: Broker, mechanism: ScramMechanism, version: int) -> None:
    with User(broker, "alice") as alice, User(broker, "admin") as admin:
        token = alice.create(version=version)
        assert (token.error_code, token.principal_type, token.principal_name) == (0, "User", "alice")
        admin.allow(3, f"group-{version}-{mechanism.type}", DESCRIBE, "User:alice")
    with Holder(broker, token, mechanism) as holder:
        assert holder.last.error_code == 0
        assert 0 < holder.last.session_lifetime_ms <= 86_400_000, "no longer than the token"
        groups = [f"group-{version}-{mechanism.type}", "another"]
        described = holder.ask(DescribeGroupsRequest(groups=groups), 5).groups
        refused = [group.group_id for group in described if group.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED]
        assert refused == ["another"]


def test_who_holds_a_token_asks_for_no_others_and_changes_none(broker: Broker) -> None:
    with User(broker, "alice") as alice:
        token = alice.create()
    with Holder(broker, token) as holder:
        stranger: Any = holder
        assert User.create(stranger).error_code == NOT_ALLOWED
        assert User.renew(stranger, bytes(token.hmac)).error_code == NOT_ALLOWED
        assert User.expire(stranger, bytes(token.hmac)).error_code == NOT_ALLOWED
        assert User.describe(stranger).error_code == NOT_ALLOWED


def test_where_nobody_says_who_they_are_nobody_asks_for_tokens(pybroker: Broker) -> None:
    with WireClient((pybroker.host, pybroker.port)) as client:
        nobody: Any = client
        assert User.create(nobody).error_code == NOT_ALLOWED
        assert User.renew(nobody, b"x").error_code == NOT_ALLOWED
        assert User.expire(nobody, b"x").error_code == NOT_ALLOWED
        assert User.describe(nobody).error_code == NOT_ALLOWED


def test_another_users_token_takes_permission(broker: Broker) -> None:
    with User(broker, "bob") as bob, User(broker, "admin") as admin:
        refused = bob.create("User:carol")
        assert refused.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        assert (refused.token_id, bytes(refused.hmac)) == ("", b"")
        admin.allow(USER, "User:carol", CREATE_TOKENS, "User:bob")
        token = bob.create("User:carol")
        assert (token.error_code, token.principal_name) == (0, "carol")
        assert token.token_requester_principal_name == "bob"
        with Holder(broker, token) as carol:
            assert carol.last.error_code == 0
        assert bob.renew(bytes(token.hmac)).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        with User(broker, "carol") as carol_herself:
            assert carol_herself.renew(bytes(token.hmac)).error_code == 0


@pytest.mark.parametrize(("owner", "renewers"), [("Group:alice", ()), ("", ("Group:alice",)), ("", (":",))])
def test_owners_and_renewers_are_users(broker: Broker, owner: str, renewers: tuple[str, ...]) -> None:
    with User(broker, "admin") as admin:
        assert admin.create(owner, renewers).error_code == ErrorCode.INVALID_PRINCIPAL_TYPE


def test_renewers_renew_and_end_a_token(broker: Broker) -> None:
    with User(broker, "alice") as alice, User(broker, "bob") as bob, User(broker, "carol") as carol:
        token = alice.create(renewers=("User:bob",))
        hmac = bytes(token.hmac)
        assert carol.renew(hmac).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        assert carol.expire(hmac).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        assert bob.renew(hmac, 60_000).expiry_timestamp_ms < token.expiry_timestamp_ms
        assert bob.expire(hmac).error_code == 0
        assert alice.renew(hmac).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    with Holder(broker, token) as holder:
        assert holder.last.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_tokens_are_seen_by_whom_they_concern_and_whom_that_is_allowed() -> None:
    with (
        token_broker() as broker,
        User(broker, "admin") as admin,
        User(broker, "alice") as alice,
        User(broker, "bob") as bob,
        User(broker, "carol") as carol,
    ):
        own, to_renew = alice.create(), alice.create(renewers=("User:bob",))
        ids = {own.token_id, to_renew.token_id}

        def seen(user: User, *owners: str) -> set[str]:
            reply = user.describe(*owners)
            assert reply.error_code == 0
            return {token.token_id for token in reply.tokens}

        assert seen(alice) == seen(alice, "alice") == seen(admin) == ids
        assert seen(alice, "carol") == set()
        assert seen(bob) == {to_renew.token_id}
        assert seen(carol) == set()
        admin.allow(DELEGATION_TOKEN, own.token_id, DESCRIBE, "User:carol")
        assert seen(carol) == {own.token_id}
        admin.allow(USER, "User:alice", DESCRIBE_TOKENS, "User:carol")
        assert seen(carol) == ids
        (shown,) = (token for token in bob.describe(version=1).tokens)
        assert bytes(shown.hmac) == bytes(to_renew.hmac)
        assert [renewer.principal_name for renewer in shown.renewers] == ["bob"]
        empty = carol.ask(DescribeDelegationTokenRequest(owners=[]), 3)
        assert (empty.error_code, empty.tokens) == (0, [])


def test_a_session_ends_with_its_token_and_a_renewed_token_prolongs_it(broker: Broker) -> None:
    with User(broker, "alice") as alice:
        token = alice.create()
        hmac = bytes(token.hmac)
        assert alice.expire(hmac, 1_500).error_code == 0
        with Holder(broker, token) as stays, Holder(broker, token) as goes:
            assert 0 < stays.last.session_lifetime_ms <= 1_500
            assert alice.renew(hmac).error_code == 0
            wait_until(lambda: goes.ask(ANY_TOPIC, 9) is None, "the end of the session", 10)
            assert stays.log_in(token.token_id, hmac).session_lifetime_ms > 1_500
            assert stays.ask(ANY_TOPIC, 9).brokers


def test_an_expired_token_lets_nobody_in(broker: Broker) -> None:
    with User(broker, "alice") as alice:
        token = alice.create()
        assert alice.expire(bytes(token.hmac), 0).error_code == 0

        def is_refused() -> bool:
            with Holder(broker, token) as holder:
                return bool(holder.last.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED)

        wait_until(is_refused, "the end of the token", 10)
        assert alice.renew(bytes(token.hmac)).error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED


def test_a_token_is_no_user_and_a_user_is_no_token(broker: Broker) -> None:
    with User(broker, "alice") as alice:
        token = alice.create()
    said = []
    with WireClient((broker.host, broker.port)) as client:
        client.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
        scram = ScramClient(
            SHA_256, token.token_id, lambda salt, n: SHA_256.salted(b64encode(bytes(token.hmac)), salt, n), b"c" * 18
        )
        first = client.ask(SaslAuthenticateRequest(auth_bytes=scram.first()), 2)
        last = client.ask(SaslAuthenticateRequest(auth_bytes=scram.final(bytes(first.auth_bytes))), 2)
        said.append((last.error_code, last.error_message))
    for token_id in (token.token_id, "alice", "nobody"):
        token.token_id, token.hmac = token_id, b"guessed"
        with Holder(broker, token) as holder:
            said.append((holder.last.error_code, holder.last.error_message))
    assert len(set(said)) == 1, "nobody is told what there is"
    assert said[0][0] == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_bare_tokens_of_sasl_wait_for_the_keys_of_a_delegation_token(broker: Broker) -> None:
    with User(broker, "alice") as alice:
        token = alice.create()
    with WireClient((broker.host, broker.port)) as client:
        client.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 0)
        password = b64encode(bytes(token.hmac))
        scram = ScramClient(SHA_256, token.token_id, partial(SHA_256.salted, password), b"c" * 18, is_token=True)
        client.send_raw(len(scram.first()).to_bytes(4, "big") + scram.first())
        final = scram.final(bytes(client.receive_payload() or b""))
        client.send_raw(len(final).to_bytes(4, "big") + final)
        scram.finish(bytes(client.receive_payload() or b""))
        assert client.ask(ANY_TOPIC, 9).brokers


def test_a_token_of_one_user_takes_nobody_elses_session_over(broker: Broker) -> None:
    with User(broker, "alice") as alice, User(broker, "bob") as bob:
        tokens = alice.create(), bob.create()
    with Holder(broker, tokens[0]) as holder:
        refused = holder.log_in(tokens[1].token_id, bytes(tokens[1].hmac))
        assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert "Cannot change principals" in refused.error_message
        assert holder.ask(ANY_TOPIC, 9) is None


def test_without_a_secret_nobody_logs_in_by_a_token_that_there_was(tmp_path: Path) -> None:
    with token_broker(data_dir=tmp_path) as broker, User(broker, "alice") as alice:
        token = alice.create()
    with token_broker({"delegation.token.secret.key": ""}, tmp_path) as broker, User(broker, "alice") as alice:
        assert alice.create().error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        assert alice.describe().error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        with Holder(broker, token) as holder:
            assert holder.last.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    with token_broker({"delegation.token.secret.key": "another"}, tmp_path) as broker, Holder(broker, token) as holder:
        assert holder.last.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    with token_broker(data_dir=tmp_path) as broker, Holder(broker, token) as holder:
        assert holder.last.error_code == 0


def test_a_token_of_one_broker_is_good_at_another_and_its_holder_stays_one_on_the_way(tmp_path: Path) -> None:
    shared: dict[str, str | int] = {"pybroker.metadata": f"sqlite://{tmp_path}/metadata.db"}
    with (
        token_broker({**shared, "node.id": 1}) as one,
        token_broker({**shared, "node.id": 2}) as other,
        User(one, "alice") as at_one,
        User(other, "alice") as at_other,
    ):
        for creator, place in ((at_one, other), (at_other, one)):
            token = creator.create()
            assert token.error_code == 0

            def is_known(token: Any = token, place: Broker = place) -> bool:
                with Holder(place, token) as holder:
                    return bool(holder.last.error_code == 0)

            wait_until(is_known, "the token at the other broker", 10)
            with Holder(place, token) as holder:
                changed = AlterUserScramCredentialsRequest(deletions=[], upsertions=[])
                assert holder.ask(changed, 0).results == []
                stranger: Any = holder
                assert User.create(stranger).error_code == NOT_ALLOWED, "whichever is the controller's"
        assert at_other.renew(bytes(token.hmac)).error_code == 0
        assert at_one.renew(bytes(token.hmac)).error_code == 0
