"""What a link carries over of its source's ACLs and quotas, and what it says of the rest."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from pybroker.cluster.decisions.carried_access import NOT_CARRIED_MAX, SourceAccess, carry_access
from pybroker.cluster.image.cluster_image import ClusterImage, ImageBuilder
from pybroker.cluster.image.link_states import WRITABLE, LinkState, MirroredTopic
from pybroker.config.link_config import LinkConfig
from pybroker.security.acl_bindings import Acl, AclOperation, PatternType, Permission, Resource
from pybroker.security.scram import ScramCredential
from tests.steps import end_of

ALICE = "User:alice"


def link(**settings: str) -> LinkConfig:
    texts = {name.replace("_", "."): text for name, text in settings.items()}
    return LinkConfig("west", {"bootstrap.servers": "source:9092", "topics": "orders*", **texts})


def acl(
    name: str = "orders",
    resource_type: Resource = Resource.TOPIC,
    pattern_type: PatternType = PatternType.LITERAL,
    principal: str = ALICE,
    host: str = "*",
) -> Acl:
    return Acl(resource_type, name, pattern_type, principal, host, AclOperation.READ, Permission.ALLOW)


def carried(config: LinkConfig, builder: ImageBuilder | None = None, **access: Any) -> ImageBuilder:
    """A cluster, which mirrors ``orders``, after the link has looked at its source's access."""
    builder = builder or mirroring("orders", config.get("prefix"))
    steps: Generator[None, None, None] = carry_access(builder, config, SourceAccess(**access))
    end_of(steps)
    return builder


def mirroring(topic: str, prefix: str = "") -> ImageBuilder:
    """A cluster whose link mirrors a topic."""
    builder = ImageBuilder(ClusterImage(cluster_id="here"))
    builder.put_mirror(prefix + topic, MirroredTopic("west", topic))
    return builder


def acls_of(builder: ImageBuilder) -> list[Acl]:
    return sorted(builder.view().acls.values())


def notes(builder: ImageBuilder) -> tuple[str, ...]:
    return builder.view().links.get("west", LinkState()).not_carried


def test_acls_of_the_principals_that_are_named_are_carried() -> None:
    bob = acl(principal="User:bob")
    builder = carried(link(acls="User:al*"), acls=[acl(), bob])
    assert acls_of(builder) == [acl()]
    carried(link(acls="User:*"), builder, acls=[acl(), bob])
    assert acls_of(builder) == [acl(), bob]
    assert notes(builder) == ()


@pytest.mark.parametrize(
    ("at_source", "prefix", "here"),
    [
        (acl("orders"), "west.", acl("west.orders")),
        (acl("ord", pattern_type=PatternType.PREFIXED), "west.", acl("west.ord", pattern_type=PatternType.PREFIXED)),
        (acl("*"), "", acl("orders")),
        (acl("*"), "west.", acl("west.", pattern_type=PatternType.PREFIXED)),
        (acl("billing", Resource.GROUP), "west.", acl("billing", Resource.GROUP)),
        (acl("tx", Resource.TRANSACTIONAL_ID), "", acl("tx", Resource.TRANSACTIONAL_ID)),
    ],
)
def test_an_acl_names_what_it_is_of_as_it_is_called_here(at_source: Acl, prefix: str, here: Acl) -> None:
    assert acls_of(carried(link(acls="*", prefix=prefix), mirroring("orders", prefix), acls=[at_source])) == [here]


def test_a_right_to_all_topics_is_one_to_each_topic_of_the_link_and_to_no_other() -> None:
    config, builder = link(acls="*"), mirroring("orders")
    builder.put_mirror("payments", MirroredTopic("east", "payments"))
    carried(config, builder, acls=[acl("*")])
    assert acls_of(builder) == [acl("orders")]
    builder.put_mirror("orders-2", MirroredTopic("west", "orders-2"))
    carried(config, builder, acls=[acl("*")])
    assert acls_of(builder) == [acl("orders"), acl("orders-2")]
    carried(config, builder, acls=[acl("*"), acl("orders")])  # it is brought already, and stays with the other
    carried(config, builder, acls=[])
    assert acls_of(builder) == []


def test_two_links_with_prefixes_give_each_other_no_acls_of_each_others_mirrors() -> None:
    here, there = mirroring("orders", "west."), mirroring("invoices", "east.")
    ways = link(topics="*", prefix="west.", acls="*"), link(topics="*", prefix="east.", acls="*")
    create = [acl("orders"), acl("invoices")]
    for _ in range(4):
        carried(ways[0], here, acls=[create[0], *acls_of(there)])
        carried(ways[1], there, acls=[create[1], *acls_of(here)])
    assert (acls_of(here), acls_of(there)) == ([acl("west.orders")], [acl("east.invoices")])


def test_acls_that_two_links_have_given_each_other_before_go_away() -> None:
    here, there = mirroring("orders", "west."), mirroring("invoices", "east.")
    ways = link(topics="*", prefix="west.", acls="*"), link(topics="*", prefix="east.", acls="*")
    names = ("east.orders", "west.east.orders"), ("west.orders", "east.west.orders")
    for builder, (at_source, name) in ((here, names[0]), (there, names[1])):
        builder.put_acl(acl(name))
        brought = ((acl(name).acl_id(), acl(at_source).acl_id()),)
        builder.put_link("west", LinkState(brought_acls=brought))
    at_first = acls_of(there)
    carried(ways[0], here, acls=[acl("orders"), acl("east.orders"), *at_first])
    carried(ways[1], there, acls=[acl("invoices"), acl("west.orders")])
    assert (acls_of(here), acls_of(there)) == ([acl("west.orders")], [acl("east.invoices")])


def test_no_acl_comes_of_a_topic_that_is_left_out_and_one_that_came_stays() -> None:
    config = link(topics="*", topics_exclude="secret", acls="*")
    builder = mirroring("secret")
    builder.put_mirror("orders", MirroredTopic("west", "orders"))
    carried(link(topics="*", acls="*"), builder, acls=[acl("secret")])
    carried(config, builder, acls=[acl("secret"), acl("secret", principal="User:bob"), acl("*")])
    assert acls_of(builder) == [acl("orders"), acl("secret")]


def test_a_prefix_that_no_topic_of_the_link_has_stays_at_the_source() -> None:
    builder = carried(link(acls="*"), mirroring("orders"), acls=[acl("pay", pattern_type=PatternType.PREFIXED)])
    assert acls_of(builder) == []
    assert notes(builder) == ("acls: 1 of topics that the link does not mirror",)


def test_rights_over_the_cluster_and_over_what_is_not_mirrored_stay_at_the_source() -> None:
    others = [
        acl("payments"),
        acl("kafka-cluster", Resource.CLUSTER),
        acl("bob", Resource.DELEGATION_TOKEN),
        acl("User:bob", Resource.USER),
    ]
    builder = carried(link(acls="*"), acls=[acl(), *others])
    assert acls_of(builder) == [acl()]
    assert notes(builder) == (
        "acls: 1 of the source's own CLUSTER, which is no other cluster's affair",
        "acls: 1 of the source's own DELEGATION_TOKEN, which is no other cluster's affair",
        "acls: 1 of the source's own USER, which is no other cluster's affair",
        "acls: 1 of topics that the link does not mirror",
    )


def test_an_acl_that_cannot_be_here_is_named() -> None:
    builder = carried(link(acls="*"), acls=[acl(), acl(host="10.0.0.0/8")])
    assert acls_of(builder) == [acl()]
    (note,) = notes(builder)
    assert note.endswith("CIDR-based ACL host patterns require metadata version 4.4-IV1 or higher.")


USER_ALICE = (("user", "alice"),)
RATES = {"producer_byte_rate": 1.0, "consumer_byte_rate": 2.0}


def test_a_quota_that_the_link_has_brought_goes_when_it_is_removed_at_the_source() -> None:
    config = link(quotas="*")
    builder = carried(config, quotas={USER_ALICE: RATES})
    carried(config, builder, quotas={USER_ALICE: {"producer_byte_rate": 3.0}})
    assert builder.view().quotas == {USER_ALICE: {"producer_byte_rate": 3.0}}
    carried(config, builder, quotas={})
    assert (dict(builder.view().quotas), builder.view().links["west"].brought_quotas) == ({}, ())


def test_a_quota_that_was_here_before_stays_whatever_the_source_has() -> None:
    builder = ImageBuilder(ClusterImage(cluster_id="here"))
    builder.put_quotas(USER_ALICE, RATES)
    others = dict.fromkeys(RATES, 9.0)
    for at_source, note in ((RATES, ()), (others, ("quotas: 2 that this cluster has set otherwise",)), ({}, ())):
        carried(link(quotas="*"), builder, quotas={USER_ALICE: at_source})
        assert builder.view().quotas == {USER_ALICE: RATES}
        assert notes(builder) == note


@pytest.mark.parametrize("later", [{"refused": {"quotas": "the source does not answer that"}}, {}])
def test_a_quota_stays_where_the_source_does_not_tell_or_is_not_asked(later: Any) -> None:
    config = link(quotas="*")
    builder = carried(config, quotas={USER_ALICE: RATES})
    carried(config if later else link(), builder, **later)
    if not later:
        carried(config, builder, quotas={})
    assert builder.view().quotas == {USER_ALICE: RATES}


@pytest.mark.parametrize("state", sorted(WRITABLE))
def test_a_quota_is_the_sources_no_more_once_a_topic_takes_writes_here(state: str) -> None:
    """A cut-over may remove those of the source, which has no clients any more."""
    config = link(quotas="*")
    builder = carried(config, quotas={USER_ALICE: RATES})
    builder.put_mirror("orders", MirroredTopic("west", "orders", state=state))
    carried(config, builder, quotas={})
    assert builder.view().quotas == {USER_ALICE: RATES}
    for own in ({"producer_byte_rate": 5.0}, {}):
        builder.put_quotas(USER_ALICE, own)
        carried(config, builder, quotas={USER_ALICE: RATES})
        assert builder.view().quotas == ({USER_ALICE: own} if own else {})


def test_more_quotas_than_are_remembered_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pybroker.cluster.decisions.carried_access.BROUGHT_QUOTAS_MAX", 2)
    at_source = {(("user", f"u{number}"),): {"producer_byte_rate": 1.0} for number in range(5)}
    builder = carried(link(quotas="*"), quotas=at_source)
    assert len(builder.view().quotas) == 2
    assert notes(builder) == ("quotas: 3 of more than 2, which a link brings at most",)
    changed = {entity: {"producer_byte_rate": 2.0} for entity in at_source}
    carried(link(quotas="*"), builder, quotas=changed)
    assert set(map(str, builder.view().quotas.values())) == {"{'producer_byte_rate': 2.0}"}


@pytest.mark.parametrize("prefix", ["", "west."])
def test_an_acl_that_the_link_has_brought_goes_when_it_is_revoked_at_the_source(prefix: str) -> None:
    config = link(acls="*", prefix=prefix)
    group = acl("billing", Resource.GROUP)
    builder = carried(config, acls=[acl(), group])
    carried(config, builder, acls=[acl()])
    assert acls_of(builder) == [acl(f"{prefix}orders")]
    carried(config, builder, acls=[])
    assert acls_of(builder) == []
    assert builder.view().links["west"].brought_acls == ()


def test_an_acl_that_was_here_before_stays_whatever_the_source_has() -> None:
    builder = ImageBuilder(ClusterImage(cluster_id="here"))
    builder.put_acl(acl())
    for at_source in ([acl()], []):
        carried(link(acls="*"), builder, acls=at_source)
        assert acls_of(builder) == [acl()]


def test_what_the_source_does_not_tell_takes_nothing_away() -> None:
    builder = carried(link(acls="*"), acls=[acl()])
    carried(link(acls="*"), builder, refused={"acls": "the source does not answer that"})
    carried(link(acls="User:bob"), builder, acls=[acl()])  # it is there, and not named any more
    assert acls_of(builder) == [acl()]


def test_a_link_that_carries_no_acls_any_more_takes_none_away_later() -> None:
    builder = carried(link(acls="*"), acls=[acl()])
    carried(link(), builder)
    carried(link(acls="*"), builder, acls=[])
    assert acls_of(builder) == [acl()]


@pytest.mark.parametrize("state", sorted(WRITABLE))
def test_an_acl_of_a_topic_that_takes_writes_here_is_the_sources_no_more(state: str) -> None:
    """A cut-over revokes the right to write at the source."""
    group, pattern = acl("billing", Resource.GROUP), acl("ord", pattern_type=PatternType.PREFIXED)
    of_both = [acl("orders"), acl("orders-2"), group, pattern]
    builder = mirroring("orders")
    builder.put_mirror("orders-2", MirroredTopic("west", "orders-2"))
    carried(link(acls="*"), builder, acls=of_both)
    builder.put_mirror("orders", MirroredTopic("west", "orders", state=state))
    carried(link(acls="*"), builder, acls=[])
    assert acls_of(builder) == sorted([acl("orders"), group, pattern])


@pytest.mark.parametrize("state", sorted(WRITABLE))
def test_an_acl_that_is_revoked_here_of_a_topic_that_takes_writes_does_not_come_again(state: str) -> None:
    config = link(acls="*", prefix="west.")
    builder = carried(config, acls=[acl()])
    builder.put_mirror("west.orders", MirroredTopic("west", "orders", state=state))
    builder.put_mirror("west.orders-2", MirroredTopic("west", "orders-2"))
    builder.remove_acl(acl("west.orders").acl_id())
    carried(config, builder, acls=[acl(), acl("orders-2")])
    assert acls_of(builder) == [acl("west.orders-2")]
    assert notes(builder) == ("acls: 1 of topics that take writes here, whose ACLs are this cluster's own",)


def test_more_acls_than_are_remembered_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pybroker.cluster.decisions.carried_access.BROUGHT_ACLS_MAX", 2)
    builder, names = mirroring("orders"), [f"orders-{number}" for number in range(5)]
    for name in names:
        builder.put_mirror(name, MirroredTopic("west", name))
    carried(link(acls="*"), builder, acls=[acl(name) for name in names])
    assert len(acls_of(builder)) == 2
    assert notes(builder) == ("acls: 3 of more than 2, which a link brings at most",)


def test_no_step_makes_acls_of_many_topics_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = 0
    replace, acl_id = Acl._replace, Acl.acl_id

    def counted_replace(self: Acl, **fields: Any) -> Acl:
        nonlocal made
        made += 1
        return replace(self, **fields)

    def counted_id(self: Acl) -> bytes:
        nonlocal made
        made += 1
        return acl_id(self)

    monkeypatch.setattr(Acl, "_replace", counted_replace)
    monkeypatch.setattr(Acl, "acl_id", counted_id)
    builder = mirroring("orders")
    for number in range(100):
        builder.put_mirror(f"orders-{number}", MirroredTopic("west", f"orders-{number}"))
    at_source = [acl("*", principal=f"User:{number}") for number in range(20)]
    for acls in (at_source, at_source, at_source[1:], []):
        in_steps, before = [], made
        for _ in carry_access(builder, link(acls="*"), SourceAccess(acls=acls)):
            in_steps.append(made - before)
            before = made
        assert max([*in_steps, made - before]) <= 4
    assert acls_of(builder) == []


def test_quotas_of_the_entities_that_are_named_are_those_of_the_source() -> None:
    alice, both = (("user", "alice"),), (("client-id", "app"), ("user", "alice"))
    others = (("user", None),)
    at_source = {entity: {"producer_byte_rate": 1000.0} for entity in (alice, both, others)}
    builder = carried(link(quotas="alice"), quotas=at_source)
    assert set(builder.view().quotas) == {alice}
    carried(link(quotas="alice,app,<default>"), builder, quotas={**at_source, alice: {"producer_byte_rate": 5.0}})
    assert builder.view().quotas == {**at_source, alice: {"producer_byte_rate": 5.0}}


def test_a_quota_that_cannot_be_here_is_named_and_the_others_come() -> None:
    alice, bob = (("user", "alice"),), (("user", "bob"),)
    builder = carried(link(quotas="*"), quotas={alice: {"new_quota": 1.0}, bob: {"request_percentage": 5.0}})
    assert builder.view().quotas == {bob: {"request_percentage": 5.0}}
    assert notes(builder) == ("quotas: user alice: Invalid configuration key new_quota",)


def test_names_of_which_the_source_has_nothing_are_told() -> None:
    """A list is split at commas, which a certificate's name has."""
    names = link(acls="User:CN=alice,OU=of-a,User:b*", quotas="alice,<default>,c*", users="alice,bob")
    builder = carried(names, acls=[], quotas={(("user", None),): {}}, users={"bob": []})
    assert notes(builder) == (
        "acls: the source has none of User:CN=alice, OU=of-a",
        "quotas: the source has none of alice",
        "users: the source has none of alice",
    )


def test_groups_that_are_named_and_not_seen_at_the_source_are_told() -> None:
    config = link(groups="billing,shipping,audit*")
    builder = carried(config, groups={"shipping": "consumer"})
    assert notes(builder) == (
        "groups: the source has no such groups, or the link's user needs DESCRIBE on them: billing",
    )
    assert notes(carried(config, builder, groups={"shipping": "consumer", "billing": ""})) == ()
    shared = carried(config, groups={"shipping": "share", "billing": "consumer", "audits": "share"})
    assert notes(shared) == ("groups: share groups commit no offsets: shipping",)
    many = link(groups=",".join(f"group-{number:03}" for number in range(NOT_CARRIED_MAX + 5)))
    assert notes(carried(many, groups={}))[0].endswith(f"group-{NOT_CARRIED_MAX - 1:03} and 5 more")


def test_users_are_named_until_they_are_here() -> None:
    users = {"alice": [1, 2], "bob": [2], "carol": [2]}
    builder = carried(link(users="alice,bob"), users=users)
    assert notes(builder) == (
        "users: passwords cannot be read from a cluster, so these have to be made here: "
        "alice (SCRAM-SHA-256/SCRAM-SHA-512), bob (SCRAM-SHA-512)",
    )
    for key in ((1, "alice"), (2, "alice"), (2, "bob")):
        builder.put_scram_credential(key, ScramCredential(b"salt", b"stored", b"server", 4096))
    assert notes(carried(link(users="alice,bob"), builder, users=users)) == ()


def test_of_many_users_some_are_named_and_the_others_counted() -> None:
    builder = carried(link(users="*"), users={f"user-{number:03}": [2] for number in range(NOT_CARRIED_MAX + 5)})
    assert notes(builder)[0].endswith(" and 5 more")


def test_why_a_kind_is_not_told_stands_beside_the_link() -> None:
    builder = carried(link(acls="*"), refused={"acls": "the source has none, because it has no authorizer"})
    assert notes(builder) == ("acls: the source has none, because it has no authorizer",)
    assert notes(carried(link(), builder)) == ()


def test_acls_without_an_authorizer_are_kept_and_have_no_effect() -> None:
    builder = mirroring("orders")
    end_of(carry_access(builder, link(acls="*"), SourceAccess([acl()]), has_authorizer=False))
    assert acls_of(builder) == [acl()]
    assert notes(builder) == ("acls: this cluster has no authorizer, so that they have no effect here",)


def test_nothing_comes_from_a_source_that_is_another_cluster() -> None:
    builder = ImageBuilder(ClusterImage(cluster_id="here"))
    builder.put_link("west", LinkState("that-cluster", "its source is the cluster other, and was that-cluster"))
    assert not acls_of(carried(link(acls="*"), builder, acls=[acl()]))
