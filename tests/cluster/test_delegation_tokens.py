"""Delegation tokens as metadata: how long they last, who changes that, and that what has expired goes."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pybroker.cluster.decisions.operations import NewToken, TokenCreation, TokenExpiry
from pybroker.cluster.store.sqlite.sqlite_store import FILE_NAME
from pybroker.cluster.store.store_codec import decode
from pybroker_protocol.errors import ErrorCode
from tests.cluster.fakes import FakeCluster

SETTINGS = {
    "delegation.token.secret.key": "the key",
    "delegation.token.max.lifetime.ms": "10000",
    "delegation.token.expiry.time.ms": "4000",
    "delegation.token.expiry.check.interval.ms": "1000",
}
ALICE = NewToken("User:alice", "User:alice", ("User:carol",), -1)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[FakeCluster]:
    started = FakeCluster(tmp_path, SETTINGS).start()
    yield started
    started.close()


def created(cluster: FakeCluster, wanted: NewToken = ALICE) -> TokenCreation:
    creation: TokenCreation = cluster.ask(cluster.tokens.create, wanted)
    assert creation.error_code == 0
    assert creation.token is not None
    assert cluster.cache.image.delegation_tokens[creation.token.token_id] == creation.token
    return creation


def renewed(cluster: FakeCluster, token_hmac: bytes, principal: str = "User:alice", period_ms: int = -1) -> Any:
    return cluster.ask(cluster.tokens.renew, token_hmac, principal, period_ms)


def expired(cluster: FakeCluster, token_hmac: bytes, principal: str = "User:alice", period_ms: int = -1) -> Any:
    return cluster.ask(cluster.tokens.expire, token_hmac, principal, period_ms)


@pytest.mark.parametrize(
    ("asked_ms", "max_ms", "expiry_ms"),
    [(-1, 10_000, 4_000), (0, 10_000, 4_000), (7_000, 7_000, 4_000), (3_000, 3_000, 3_000), (99_000, 10_000, 4_000)],
)
def test_a_token_lasts_as_long_as_is_asked_for_and_granted(
    cluster: FakeCluster, asked_ms: int, max_ms: int, expiry_ms: int
) -> None:
    token = created(cluster, ALICE._replace(max_lifetime_ms=asked_ms)).token
    assert token is not None
    now_ms = cluster.world.clock.now_ms()
    assert (token.issue_timestamp_ms, token.max_timestamp_ms) == (now_ms, now_ms + max_ms)
    assert token.expiry_timestamp_ms == now_ms + expiry_ms


@pytest.mark.parametrize(
    ("after_ms", "period_ms", "lasts_ms"),
    [(0, -1, 4_000), (1_000, 500, 1_500), (3_000, 99_000, 7_000), (1_000, 2**63 - 1, 5_000)],
)
def test_a_renewal_counts_from_now_and_ends_with_the_tokens_last_moment(
    cluster: FakeCluster, after_ms: int, period_ms: int, lasts_ms: int
) -> None:
    creation = created(cluster)
    begun_ms = cluster.world.clock.now_ms()
    cluster.world.advance(after_ms)
    assert renewed(cluster, creation.hmac, "User:carol", period_ms) == TokenExpiry(0, begun_ms + lasts_ms)
    renewed(cluster, creation.hmac)
    cluster.world.advance(3_000)
    assert renewed(cluster, creation.hmac).expiry_timestamp_ms <= begun_ms + 10_000


def test_owner_and_renewers_alone_change_a_token(cluster: FakeCluster) -> None:
    token_hmac = created(cluster, ALICE._replace(requester="User:bob")).hmac
    for change in (renewed, expired):
        for principal in ("User:bob", "User:mallory", "Group:alice"):
            assert change(cluster, token_hmac, principal).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        assert change(cluster, b"guessed").error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    assert expired(cluster, token_hmac, "User:carol").error_code == 0
    for change in (renewed, expired):
        assert change(cluster, token_hmac).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def test_what_has_expired_stays_so_and_is_ended_all_the_same(tmp_path: Path) -> None:
    cluster = FakeCluster(tmp_path, {**SETTINGS, "delegation.token.expiry.check.interval.ms": "999999"}).start()
    token_hmac = created(cluster).hmac
    cluster.world.advance(4_001)
    assert renewed(cluster, token_hmac).error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert expired(cluster, token_hmac, period_ms=9_000).error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert expired(cluster, token_hmac) == TokenExpiry(0, cluster.world.clock.now_ms())
    assert not cluster.cache.image.delegation_tokens
    cluster.close()


def test_expired_tokens_go_by_themselves(cluster: FakeCluster) -> None:
    short = created(cluster, ALICE._replace(max_lifetime_ms=1_500)).token
    kept = created(cluster).token
    assert short is not None
    assert kept is not None
    cluster.world.advance(1_000)
    assert len(cluster.cache.image.delegation_tokens) == 2
    cluster.world.advance(1_000)
    assert set(cluster.cache.image.delegation_tokens) == {kept.token_id}
    for _ in range(3):
        cluster.world.advance(1_000)
    assert not cluster.cache.image.delegation_tokens
    cluster.controller.deactivate()
    cluster.tokens.close()
    cluster.world.advance(10_000)


def test_an_owners_name_writes_no_line_of_its_own(cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    created(cluster, ALICE._replace(owner="User:x\nERROR pybroker: not so", max_lifetime_ms=500))
    cluster.world.advance(2_000)
    (line,) = (record.getMessage() for record in caplog.records if "has expired" in record.getMessage())
    assert "User:x\\nERROR" in line


def test_tokens_are_there_after_a_restart_and_the_store_holds_no_secret(tmp_path: Path) -> None:
    cluster = FakeCluster(tmp_path, SETTINGS).start()
    creation = created(cluster)
    cluster.close()
    data = (tmp_path / FILE_NAME).read_bytes()
    assert creation.hmac not in data
    assert creation.hmac.hex().encode() not in data
    assert b"the key" not in data
    again = FakeCluster(tmp_path, SETTINGS).start()
    assert list(again.cache.image.delegation_tokens.values()) == [creation.token]
    again.world.clock.elapsed_ns = cluster.world.clock.elapsed_ns
    assert renewed(again, creation.hmac).error_code == 0
    assert decode(again.store.load("/")).delegation_tokens == again.cache.image.delegation_tokens
    again.close()


def test_without_a_secret_nothing_of_tokens_is_served(tmp_path: Path) -> None:
    cluster = FakeCluster(tmp_path).start()
    assert cluster.ask(cluster.tokens.create, ALICE).error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    for change in (renewed, expired):
        assert change(cluster, b"x").error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    cluster.close()
