"""ACLs and quotas of a link's source, taken over here on request, and what cannot be: of users and groups, too.

Owns: which of them a link carries, under which names, and the words for what is not carried.  Does not own when the
source is asked (``cluster/links/source_access``), nor what an ACL or a quota may be (``acl_changes``,
``quota_changes``).

Invariants
- What is here is added to.  Only what the link itself has brought is changed, or taken away when it is missing at the
  source.  An ACL of what takes writes here stays, and so does a quota once any topic does: a cut-over revokes rights at
  the source.  Of a topic that takes writes no ACL is brought any more, and then no quota either, so that what is
  revoked here, or set otherwise, does not come again.
- No right over the cluster itself, its tokens or its users comes from another cluster.
- An ACL of a mirrored topic names it as it is called here.  Of a topic that is not mirrored none comes, whatever
  pattern has its name: two links with prefixes would give each other's ACLs ever longer names.  One of all topics there
  is one of each topic of the link here, and no right to others.  One of a prefix comes where a topic of the link has
  it.

Counterpart in Kafka: the ACLs of ``MirrorSourceConnector``, which takes none away: its class of 4.3.1 creates them
alone.  It carries no quotas.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from pybroker.cluster.decisions.acl_changes import ACLS_PER_REQUEST, create_acls
from pybroker.cluster.decisions.operations import QuotaAlteration
from pybroker.cluster.decisions.quota_changes import alter_client_quotas
from pybroker.cluster.image.cluster_image import ImageBuilder
from pybroker.cluster.image.link_states import SHARE, LinkState
from pybroker.cluster.image.quota_entities import QuotaEntity
from pybroker.config.link_config import LinkConfig
from pybroker.security.acl_bindings import Acl, PatternType, Resource, known
from pybroker.security.scram import BY_TYPE

# As many are named of what is not carried, of each kind.
NOT_CARRIED_MAX: Final = 20
# As many ACLs of a link are remembered, and so brought: 250 KB of metadata, and twice that with a prefix.
BROUGHT_ACLS_MAX: Final = 10_000
Brought = tuple[tuple[bytes, bytes], ...]  # ids of ACLs: (here, at the source)
# As many quotas are.
BROUGHT_QUOTAS_MAX: Final = 5_000
BroughtQuotas = tuple[tuple[QuotaEntity, str], ...]

_DEFAULT: Final = "<default>"  # the entity of all that have no quota of their own, as Kafka's tools write it
_OF_ANY_LINK: Final = frozenset((Resource.GROUP, Resource.TRANSACTIONAL_ID))


class SourceAccess(NamedTuple):
    """What the source says of who may do what there; None for what the link does not carry, or is not told.

    ``users`` has the mechanisms of each user that has SCRAM credentials, ``groups`` the protocol type of each group
    that the link may see.
    ``refused`` says why the source keeps a kind to itself.
    """

    acls: Sequence[Acl] | None = None
    quotas: Mapping[QuotaEntity, Mapping[str, float]] | None = None
    users: Mapping[str, Sequence[int]] | None = None
    groups: Mapping[str, str] | None = None
    refused: Mapping[str, str] = MappingProxyType({})


def carry_access(
    builder: ImageBuilder, config: LinkConfig, access: SourceAccess, has_authorizer: bool = True
) -> Generator[None, None, None]:
    """Take over what the link carries, and keep beside the link what it does not.

    ``has_authorizer`` is whether this cluster asks its ACLs.
    """
    known_state = builder.view().links.get(config.link, LinkState())
    if known_state.problem:
        return  # it may be another cluster's
    notes = [f"{kind}: {why}" for kind, why in access.refused.items()]
    brought = known_state.brought_acls if config.get("acls") else ()
    if access.acls is not None:
        brought = yield from _take_away(builder, config, brought, access.acls)
        brought, acl_notes = yield from _carry_acls(builder, config, access.acls, brought)
        notes += acl_notes + _unmatched(config, "acls", {acl.principal for acl in access.acls})
        if not has_authorizer:
            notes.append("acls: this cluster has no authorizer, so that they have no effect here")
    brought_quotas = known_state.brought_quotas if config.get("quotas") else ()
    if access.quotas is not None:
        brought_quotas, quota_notes = _carry_quotas(builder, config, access.quotas, brought_quotas)
        names = {_DEFAULT if name is None else name for entity in access.quotas for _, name in entity}
        notes += quota_notes + _unmatched(config, "quotas", names)
    if access.users is not None:
        notes += _missing_users(builder, config, access.users) + _unmatched(config, "users", access.users)
    if access.groups is not None:
        notes += _missing_groups(config, access.groups)
    after = known_state._replace(not_carried=tuple(notes), brought_acls=brought, brought_quotas=brought_quotas)
    if after != known_state:
        builder.put_link(config.link, after)


# --- ACLs ------------------------------------------------------------------------------------------------------------


def _take_away(
    builder: ImageBuilder, config: LinkConfig, brought: Brought, acls: Sequence[Acl]
) -> Generator[None, None, Brought]:
    """Remove what the link has brought and would bring no more; what it has brought of what is left.

    Of a topic that is mirrored no more, but is here, it stays: its readers are.
    """
    topics = _mirrored_topics(builder, config)
    at_source = set()
    for each in acls:
        if _as_it_is_here(config, each, topics) is not None:
            at_source.add(each.acl_id())
        yield
    present = builder.view().acls
    writable = _writable(builder, config)
    left = []
    for here, there in brought:
        acl = present.get(here)
        if acl is None or _is_of_writable(acl, writable):
            pass  # it was removed by hand, or is this cluster's own from now on
        elif there in at_source:
            left.append((here, there))
        else:
            builder.remove_acl(here)
        yield
    return tuple(left)


def _mirrored_topics(builder: ImageBuilder, config: LinkConfig) -> list[str]:
    """The topics of the link, by their names at the source, sorted."""
    return sorted(mirror.source_topic for mirror in builder.view().mirrors.values() if mirror.link == config.link)


def _writable(builder: ImageBuilder, config: LinkConfig) -> set[str]:
    """The topics of the link that take writes."""
    mirrors = builder.view().mirrors.items()
    return {name for name, mirror in mirrors if mirror.link == config.link and mirror.is_writable}


def _is_of_writable(acl: Acl, writable: set[str]) -> bool:
    """Whether an ACL is of topics that take writes; one of several topics, or of none, is so with the first of them."""
    return acl.resource_name in writable if _is_of_one_topic(acl) else bool(writable)


def _is_of_one_topic(acl: Acl) -> bool:
    is_literal = acl.pattern_type == PatternType.LITERAL and acl.resource_name != "*"
    return is_literal and acl.resource_type == Resource.TOPIC


def _carry_acls(
    builder: ImageBuilder, config: LinkConfig, acls: Sequence[Acl], brought: Brought
) -> Generator[None, None, tuple[Brought, list[str]]]:
    """What the link has brought by now, and the words for the rest."""
    present, writable = builder.view().acls, _writable(builder, config)
    topics = [name for name in _mirrored_topics(builder, config) if config.mirrors(name)]
    wanted: dict[bytes, tuple[bytes, Acl]] = {}  # by their ids here: with those at the source
    left: Counter[str] = Counter()
    for acl in acls:
        as_here = _as_it_is_here(config, acl, topics) if config.matches("acls", acl.principal) else ()
        if as_here is None:
            left[_what_it_is_of(acl)] += 1
        there = acl.acl_id()
        for here in as_here or ():
            acl_id = here.acl_id()
            if acl_id in present:
                pass
            elif _is_of_one_topic(here) and here.resource_name in writable:
                left["topics that take writes here, whose ACLs are this cluster's own"] += 1
            else:
                wanted[acl_id] = there, here
            yield
        yield
    room = max(BROUGHT_ACLS_MAX - len(brought), 0)
    if len(wanted) > room:
        left[f"more than {BROUGHT_ACLS_MAX}, which a link brings at most"] = len(wanted) - room
    chosen = list(wanted.values())[: min(ACLS_PER_REQUEST, room)]
    outcomes = yield from create_acls(builder, [here for _, here in chosen])
    refused, created = [], []
    for (there, acl), outcome in zip(chosen, outcomes, strict=True):
        if outcome.error_code:
            refused.append(f"acls: {acl.describe()}: {outcome.error_message}")
        else:
            created.append((acl.acl_id(), there))
        yield
    return (*brought, *created), [f"acls: {count} of {what}" for what, count in sorted(left.items())] + refused[
        :NOT_CARRIED_MAX
    ]


def _as_it_is_here(config: LinkConfig, acl: Acl, topics: Sequence[str]) -> Iterable[Acl] | None:
    """The ACL under the names of this cluster; None for what is not carried.  ``topics``: what is mirrored, sorted.

    One of all topics is thousands: each is made as it is asked for.
    """
    resource_type, prefix = known(Resource, acl.resource_type), config.get("prefix")
    if resource_type in _OF_ANY_LINK:
        return (acl,)
    if resource_type is not Resource.TOPIC:
        return None
    name = acl.resource_name
    if acl.pattern_type == PatternType.LITERAL and name == "*":
        # Of all topics there: here of those that the link makes.
        if prefix:
            return (acl._replace(resource_name=prefix, pattern_type=int(PatternType.PREFIXED)),)
        return (acl._replace(resource_name=topic) for topic in topics)
    is_literal = acl.pattern_type == PatternType.LITERAL
    if not (_is_any(name, topics) if is_literal else _begins_any(name, topics)):
        return None
    return (acl._replace(resource_name=prefix + name),)


def _is_any(name: str, topics: Sequence[str]) -> bool:
    first = bisect_left(topics, name)
    return first < len(topics) and topics[first] == name


def _begins_any(prefix: str, topics: Sequence[str]) -> bool:
    first = bisect_left(topics, prefix)
    return first < len(topics) and topics[first].startswith(prefix)


def _what_it_is_of(acl: Acl) -> str:
    resource_type = known(Resource, acl.resource_type)
    if resource_type is Resource.TOPIC:
        return "topics that the link does not mirror"
    return f"the source's own {resource_type.name}, which is no other cluster's affair"


# --- quotas ----------------------------------------------------------------------------------------------------------


def _carry_quotas(
    builder: ImageBuilder,
    config: LinkConfig,
    quotas: Mapping[QuotaEntity, Mapping[str, float]],
    brought: BroughtQuotas,
) -> tuple[BroughtQuotas, list[str]]:
    """What the link has brought by now, and the words for the rest."""
    if _writable(builder, config):
        return (), []  # they are this cluster's own
    here = builder.view().quotas
    changes: dict[QuotaEntity, dict[str, float | None]] = {}
    kept = dict.fromkeys(brought)
    for entity, name in tuple(kept):
        if name not in here.get(entity, {}):
            del kept[entity, name]  # it was removed by hand
        elif name not in quotas.get(entity, {}):
            changes.setdefault(entity, {})[name] = None
    room = BROUGHT_QUOTAS_MAX - len(kept)
    over = others = 0
    for entity, values in quotas.items():
        if not all(config.matches("quotas", _DEFAULT if name is None else name) for _, name in entity):
            continue
        for name, value in values.items():
            own = here.get(entity, {}).get(name)
            if own == value:
                continue
            if own is not None and (entity, name) not in kept:
                others += 1
                continue
            room -= (entity, name) not in kept
            if room < 0:
                over += 1
            else:
                changes.setdefault(entity, {})[name] = value
    results = alter_client_quotas(
        builder, [QuotaAlteration(entity, (*news.items(),)) for entity, news in changes.items()]
    )
    for result in results:
        for name, wanted in () if result.error_code else changes[result.entity].items():
            if wanted is None:
                del kept[result.entity, name]
            else:
                kept[result.entity, name] = None
    refused = [
        f"quotas: {', '.join(f'{kind} {_DEFAULT if name is None else name}' for kind, name in result.entity)}: "
        f"{result.error_message}"
        for result in results
        if result.error_code
    ]
    left = [f"quotas: {over} of more than {BROUGHT_QUOTAS_MAX}, which a link brings at most"] if over else []
    if others:
        left.append(f"quotas: {others} that this cluster has set otherwise")
    return tuple(kept), left + refused[:NOT_CARRIED_MAX]


# --- users -----------------------------------------------------------------------------------------------------------


def _missing_users(builder: ImageBuilder, config: LinkConfig, users: Mapping[str, Sequence[int]]) -> list[str]:
    """Users of the source that are not here: no request reads their passwords, or what is kept of them."""
    here = builder.view().scram_credentials
    missing = {}
    for user, mechanisms in sorted(users.items()):
        if config.matches("users", user):
            lacking = [number for number in mechanisms if (number, user) not in here]
            if lacking:
                missing[user] = "/".join(
                    BY_TYPE[number].name if number in BY_TYPE else f"mechanism {number}" for number in lacking
                )
    if not missing:
        return []
    named = _some_of([f"{user} ({how})" for user, how in missing.items()])
    return [f"users: passwords cannot be read from a cluster, so these have to be made here: {named}"]


# --- groups ----------------------------------------------------------------------------------------------------------


def _missing_groups(config: LinkConfig, groups: Mapping[str, str]) -> list[str]:
    """Groups that the link names one by one, of which it takes no offsets over."""
    named = config.named_groups()
    missing = [name for name in named if name not in groups]
    shared = [name for name in named if groups.get(name) == SHARE]
    notes = (
        (missing, "the source has no such groups, or the link's user needs DESCRIBE on them"),
        (shared, "share groups commit no offsets"),
    )
    return [f"groups: {why}: {_some_of(names)}" for names, why in notes if names]


def _unmatched(config: LinkConfig, kind: str, names: Collection[str]) -> list[str]:
    """Names that the link has one by one, and the source has not: as those of which a comma has made several."""
    missing = [each for each in config.get(kind) if "*" not in each and each not in names]
    return [f"{kind}: the source has none of {_some_of(missing)}"] if missing else []


def _some_of(names: Sequence[str]) -> str:
    more = len(names) - NOT_CARRIED_MAX
    return ", ".join(names[:NOT_CARRIED_MAX]) + (f" and {more} more" if more > 0 else "")
