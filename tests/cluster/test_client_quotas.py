"""Quotas of clients as metadata: which may be set for whom, which a filter names, and how they are stored."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.cluster.decisions.operations import QuotaAlteration
from pybroker.cluster.image.cluster_image import ClusterImage, ImageBuilder, first_delta
from pybroker.cluster.image.quota_entities import Component, FilterRefused, QuotaEntity, QuotaFilter, entity_of
from pybroker.cluster.store import store_codec
from pybroker.cluster.store.metadata_store import Changes, Entry
from pybroker_protocol.errors import ErrorCode
from tests.cluster.fakes import FakeCluster

USER: QuotaEntity = (("user", "u"),)
BOTH: QuotaEntity = (("client-id", "c"), ("user", "u"))
DEFAULTS: QuotaEntity = (("client-id", None), ("user", None))
ADDRESS: QuotaEntity = (("ip", "10.0.0.1"),)

NAMES = st.none() | st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
ENTITIES = st.dictionaries(st.sampled_from(["user", "client-id"]), NAMES, min_size=1).map(
    lambda parts: entity_of(parts.items())
)
QUOTAS = st.dictionaries(
    ENTITIES, st.dictionaries(st.sampled_from(["a", "b"]), st.floats(0.001, 1e18), min_size=1), max_size=6
)


def alter(cluster: FakeCluster, *alterations: QuotaAlteration, **more: bool) -> list[tuple[int, str | None]]:
    results = cluster.ask(cluster.controller.alter_client_quotas, alterations, **more)
    return [(result.error_code, result.error_message) for result in results]


def test_quotas_are_merged_into_those_of_their_entity_and_the_last_removal_removes_it(cluster: FakeCluster) -> None:
    def quotas() -> dict[QuotaEntity, dict[str, float]]:
        return {entity: dict(values) for entity, values in cluster.cache.image.quotas.items()}

    ok = [(0, None)]
    assert alter(cluster, QuotaAlteration(BOTH, (("producer_byte_rate", 5.0), ("request_percentage", 0.5)))) == ok
    assert alter(cluster, QuotaAlteration(BOTH, (("producer_byte_rate", 6.0),))) == ok
    assert quotas() == {BOTH: {"producer_byte_rate": 6.0, "request_percentage": 0.5}}
    assert alter(cluster, QuotaAlteration(BOTH, (("producer_byte_rate", None), ("consumer_byte_rate", None)))) == ok
    assert alter(cluster, QuotaAlteration(BOTH, (("request_percentage", None),)), validate_only=True) == ok
    assert quotas() == {BOTH: {"request_percentage": 0.5}}
    assert alter(cluster, QuotaAlteration(BOTH, (("request_percentage", None),))) == ok
    assert quotas() == {}


@pytest.mark.parametrize(
    ("entity", "quota", "says"),
    [
        (USER, ("producer_byte_rate", -1.0), "Quota producer_byte_rate must be greater than 0"),
        (USER, ("producer_byte_rate", float("nan")), "Quota producer_byte_rate must be greater than 0"),
        (USER, ("request_percentage", float("nan")), "Quota request_percentage must be greater than 0"),
        (USER, ("producer_byte_rate", 1.5), "producer_byte_rate cannot be a fractional value."),
        (USER, ("consumer_byte_rate", 1e19), "Proposed value for consumer_byte_rate is too large for a LONG."),
        (ADDRESS, ("connection_creation_rate", 2.0**31), "Proposed value for connection_creation_rate is too large"),
        (USER, ("connection_creation_rate", 1.0), "Invalid configuration key connection_creation_rate"),
        (ADDRESS, ("producer_byte_rate", 1.0), "Invalid configuration key producer_byte_rate"),
        ((), ("producer_byte_rate", 1.0), "Invalid empty client quota entity"),
        ((("group", "g"),), ("producer_byte_rate", 1.0), "Unhandled client quota entity type: group"),
        ((("user", ""),), ("producer_byte_rate", 1.0), "Empty user not supported"),
        ((("ip", "10.0.0.1"), ("user", "u")), ("producer_byte_rate", 1.0), "Invalid quota entity combination"),
        ((("ip", "nowhere"),), ("connection_creation_rate", 1.0), "nowhere is not a valid IP or resolvable host."),
    ],
)
def test_entity_that_is_refused_keeps_its_quotas_and_others_are_changed(
    cluster: FakeCluster, entity: QuotaEntity, quota: tuple[str, float], says: str
) -> None:
    alterations = QuotaAlteration(entity, (quota,)), QuotaAlteration(DEFAULTS, (("controller_mutation_rate", 0.5),))
    (code, message), good = alter(cluster, *alterations)
    assert (code, good) == (ErrorCode.INVALID_REQUEST, (0, None))
    assert message is not None
    assert message.startswith(says)
    assert cluster.cache.image.quotas == {DEFAULTS: {"controller_mutation_rate": 0.5}}


def test_entity_that_comes_twice_is_told_so(cluster: FakeCluster) -> None:
    one, other = (QuotaAlteration(USER, (("producer_byte_rate", value),)) for value in (1.0, 2.0))
    assert alter(cluster, one, other) == [
        (ErrorCode.INVALID_REQUEST, "Ignoring duplicate entity ClientQuotaEntity(entries={user=u})")
    ]


@given(QUOTAS, QUOTAS)
def test_quotas_come_back_from_their_keys_and_from_what_was_written_of_a_change(
    before: dict[QuotaEntity, dict[str, float]], after: dict[QuotaEntity, dict[str, float]]
) -> None:
    old = ClusterImage(quotas=before)
    entries = store_codec.encode(ClusterImage(), old, first_delta(old)).puts
    assert store_codec.decode({key: Entry(value, 0) for key, value in entries.items()}).quotas == before
    builder = ImageBuilder(old)
    builder.become(ClusterImage(quotas=after))
    assert builder.view().quotas == after
    writes = store_codec.encode(old, builder.view(), builder.delta())
    follower = ImageBuilder(old)
    store_codec.apply_changes(follower, Changes(1, writes.puts, writes.deletes))
    assert follower.view().quotas == after


EXACT, DEFAULT, ANY = 0, 1, 2
ALL: tuple[QuotaEntity, ...] = (
    USER,
    BOTH,
    DEFAULTS,
    ADDRESS,
    (("user", None),),
    (("client-id", "c"),),
    (("ip", None),),
)


@pytest.mark.parametrize(
    ("components", "strict", "found"),
    [
        ((), False, set(ALL)),
        ((), True, set()),
        ((Component("user", EXACT, "u"),), False, {USER, BOTH}),
        ((Component("user", EXACT, "u"),), True, {USER}),
        ((Component("user", DEFAULT, None),), False, {DEFAULTS, (("user", None),)}),
        ((Component("user", ANY, None),), True, {USER, (("user", None),)}),
        ((Component("user", ANY, None), Component("client-id", EXACT, "c")), True, {BOTH}),
        ((Component("ip", ANY, None),), False, {ADDRESS, (("ip", None),)}),
    ],
)
def test_filter_names_entities_with_all_of_its_components(
    components: tuple[Component, ...], strict: bool, found: set[QuotaEntity]
) -> None:
    wanted = QuotaFilter(components, strict)
    assert {entity for entity in ALL if wanted.matches(entity)} == found


@pytest.mark.parametrize(
    ("components", "code", "says"),
    [
        ([Component("", ANY, None)], ErrorCode.INVALID_REQUEST, "Invalid empty entity type."),
        ([Component("group", ANY, None)], ErrorCode.UNSUPPORTED_VERSION, "Unsupported entity type group"),
        ([Component("user", EXACT, None)], ErrorCode.INVALID_REQUEST, "Request specified MATCH_TYPE_EXACT, but set"),
        ([Component("user", DEFAULT, "u")], ErrorCode.INVALID_REQUEST, "Request specified MATCH_TYPE_DEFAULT, but al"),
        ([Component("user", 9, None)], ErrorCode.INVALID_REQUEST, "Unknown match type 9"),
        ([Component("user", ANY, None)] * 2, ErrorCode.INVALID_REQUEST, "Entity type user cannot appear more than"),
        (
            [Component("user", ANY, None), Component("ip", ANY, None)],
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination.",
        ),
    ],
)
def test_filter_that_makes_no_sense_is_refused(components: list[Component], code: int, says: str) -> None:
    with pytest.raises(FilterRefused) as refused:
        QuotaFilter(components, strict=False)
    assert refused.value.error_code == code
    assert refused.value.message.startswith(says)
