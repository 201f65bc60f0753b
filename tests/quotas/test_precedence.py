"""Which quota holds for a client: Kafka's order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.cluster.image.quota_entities import QuotaEntity, entity_of
from pybroker.quotas.precedence import Holder, quota_of

U, C = "user", "client-id"
BOTH, ALONE, OF_CLIENT = Holder("u", "c"), Holder("u", ""), Holder("", "c")

# As in the documentation of Kafka's ClientQuotaManager, first things first.
ORDER: tuple[tuple[QuotaEntity, Holder], ...] = (
    (((C, "c"), (U, "u")), BOTH),
    (((C, None), (U, "u")), BOTH),
    (((U, "u"),), ALONE),
    (((C, "c"), (U, None)), BOTH),
    (((C, None), (U, None)), BOTH),
    (((U, None),), ALONE),
    (((C, "c"),), OF_CLIENT),
    (((C, None),), OF_CLIENT),
)


@pytest.mark.parametrize("first", range(len(ORDER)))
def test_most_specific_quota_holds(first: int) -> None:
    bounds = {entity: float(place) for place, (entity, _) in enumerate(ORDER) if place >= first}
    assert quota_of(bounds, "u", "c") == (ORDER[first][1], float(first))


def test_quotas_of_others_do_not_hold() -> None:
    others: list[QuotaEntity] = [((U, "v"),), ((C, "d"),), ((C, "c"), (U, "v")), ((C, "d"), (U, "u"))]
    assert quota_of(dict.fromkeys(others, 1.0), "u", "c") is None


@pytest.mark.parametrize(("entity", "holds"), [(ORDER[1][0], False), (ORDER[2][0], True), (ORDER[7][0], False)])
def test_client_without_an_id_is_held_to_quotas_of_users_alone(entity: QuotaEntity, *, holds: bool) -> None:
    assert (quota_of({entity: 1.0}, "u", "") == (ALONE, 1.0)) == holds


NAMES = st.sampled_from([None, "a", "b", "c"])
ENTITIES = st.dictionaries(st.sampled_from([U, C]), NAMES, min_size=1).map(lambda parts: entity_of(parts.items()))


def naive(bounds: dict[QuotaEntity, float], user: str, client_id: str) -> float | None:
    """By a score of what each entity names: who names the user is first, then who has one, and so with the client."""

    def score(entity: QuotaEntity) -> tuple[bool, bool, bool, bool]:
        parts = dict(entity)
        return (parts.get(U) == user, U in parts, parts.get(C) == client_id, C in parts)

    def holds(entity: QuotaEntity) -> bool:
        return all(name in (None, {U: user, C: client_id}[kind]) for kind, name in entity)

    held = [entity for entity in bounds if holds(entity)]
    return bounds[max(held, key=score)] if held else None


@given(st.dictionaries(ENTITIES, st.floats(1, 9), max_size=8), st.sampled_from("abc"), st.sampled_from("abc"))
def test_order_is_that_of_a_naive_comparison(bounds: dict[QuotaEntity, float], user: str, client_id: str) -> None:
    found = quota_of(bounds, user, client_id)
    assert (None if found is None else found[1]) == naive(bounds, user, client_id)


@given(st.dictionaries(ENTITIES, st.floats(1, 9), max_size=8), st.sampled_from("abc"), st.sampled_from("abc"))
def test_who_shares_a_quota_has_the_same_one(bounds: dict[QuotaEntity, float], user: str, client_id: str) -> None:
    found = quota_of(bounds, user, client_id)
    if found is not None:
        holder, bound = found
        assert holder.user in ("", user)
        assert holder.client_id in ("", client_id)
        assert quota_of(bounds, holder.user or user, holder.client_id or client_id) == found or not holder.client_id
        assert bound in bounds.values()
