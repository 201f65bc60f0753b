"""Whose use of quotas is forgotten: of whoever brings too many client ids, and of nobody else."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from harness.virtual_world import VirtualWorld

from pybroker import limits
from pybroker.cluster.image.cluster_image import ClusterImage
from pybroker.cluster.image.quota_entities import CONTROLLER_MUTATION_RATE, PRODUCER_BYTE_RATE, QuotaEntity
from pybroker.config.broker import BrokerConfig
from pybroker.quotas import client_quotas
from pybroker.quotas.client_quotas import ClientQuotas, ClientShare

WEB, ETL, THIRD = "User:acme.web", "User:acme.etl", "User:other"
OF_ANY_USER: QuotaEntity = (("user", None),)
OF_ANY_CLIENT: QuotaEntity = (("client-id", None), ("user", None))


@pytest.fixture
def world() -> VirtualWorld:
    return VirtualWorld()


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch, world: VirtualWorld) -> Callable[[QuotaEntity], ClientQuotas]:
    """Quotas of 1 byte and 1 partition per second, where three clients are remembered."""

    def make(entity: QuotaEntity) -> ClientQuotas:
        quotas = ClientQuotas(world.env, BrokerConfig({}))
        image = ClusterImage(quotas={entity: {PRODUCER_BYTE_RATE: 1.0, CONTROLLER_MUTATION_RATE: 1.0}})
        assert quotas.on_image(image)
        return quotas

    monkeypatch.setattr(limits, "QUOTA_CLIENTS", 3)
    return make


def used_up(quotas: ClientQuotas, user: str, client_id: str = "a") -> ClientShare:
    """The share of a client that has used more than it may; it is not kept for the quotas."""
    share = quotas.share(user, client_id)
    share.produced(1_000)
    made = quotas.mutations(user, client_id, strict=False)
    assert made is not None
    made.allows(100)
    return share


def rests(quotas: ClientQuotas, user: str, client_id: str = "a") -> tuple[bool, bool]:
    """Whether a client is to rest for what it has produced, and may make no partitions."""
    produce_ms = quotas.share(user, client_id).produce_throttle_ms()
    mutations = quotas.mutations(user, client_id, strict=True)
    assert mutations is not None
    return produce_ms > 0, not mutations.allows(1)


@pytest.mark.parametrize("entity", [OF_ANY_USER, OF_ANY_CLIENT], ids=["of the user", "of user and client id"])
def test_used_up_quota_of_one_user_is_not_forgotten_for_client_ids_that_another_brings(
    make: Callable[[QuotaEntity], ClientQuotas], entity: QuotaEntity
) -> None:
    quotas = make(entity)
    used_up(quotas, WEB)
    for number in range(9):
        quotas.share(ETL, f"id-{number}")
    assert rests(quotas, WEB) == (True, True)


def test_used_up_quota_of_a_user_is_not_forgotten_for_its_own_new_client_ids(
    make: Callable[[QuotaEntity], ClientQuotas],
) -> None:
    quotas = make(OF_ANY_USER)
    for client_id in ("a", "b"):
        quotas.share(ETL, client_id)
    used_up(quotas, WEB)
    for number in range(9):
        quotas.share(WEB, f"id-{number}")
    assert rests(quotas, WEB, "the next") == (True, True)


def test_user_who_is_new_takes_the_place_from_who_has_most(make: Callable[[QuotaEntity], ClientQuotas]) -> None:
    quotas = make(OF_ANY_CLIENT)
    used_up(quotas, WEB)
    for client_id in ("a", "b"):
        used_up(quotas, ETL, client_id)
    quotas.share(THIRD, "a")
    assert rests(quotas, WEB) == (True, True)
    assert rests(quotas, ETL, "b") == (True, True)
    assert rests(quotas, ETL, "a") == (False, False), "its oldest has gone"


def test_clients_that_are_remembered_have_a_bound_whatever_ids_come(
    make: Callable[[QuotaEntity], ClientQuotas],
) -> None:
    quotas = make(OF_ANY_CLIENT)
    for number in range(30):
        for user in (WEB, ETL, f"User:{number}"):
            quotas.share(user, f"id-{number}")
        assert sum(map(len, quotas._clients.values())) == quotas._client_count <= 3
        assert len(quotas._allowances) <= 2 * 3, "of each a rate and mutations"


def test_who_was_not_seen_for_an_hour_is_forgotten(
    make: Callable[[QuotaEntity], ClientQuotas], world: VirtualWorld
) -> None:
    quotas = make(OF_ANY_CLIENT)
    quotas.share(WEB, "a")
    quotas.share(ETL, "a")
    world.advance(client_quotas.QUOTA_CLIENT_IDLE_MS - client_quotas.QUOTA_LOOK_MS)
    quotas.share(WEB, "b")
    for _ in range(2):
        world.advance(client_quotas.QUOTA_LOOK_MS)
    assert [(user, [*clients]) for user, clients in quotas._clients.items()] == [("acme.web", ["b"])]
    assert quotas._client_count == 1
