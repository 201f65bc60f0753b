"""How cluster links and mirrored topics lie in the metadata store; imported by who has any.

Owns: their keys and the JSON of their values, both directions.  Settings of links lie with those of brokers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pybroker.cluster.image.link_states import UNKNOWN_EPOCH, LinkState, MirroredTopic
from pybroker.cluster.image.quota_entities import entity_of
from pybroker.cluster.store.store_names import LINKS, MIRRORS, quoted, unquoted
from pybroker_protocol.uuids import uuid_bytes, uuid_text

if TYPE_CHECKING:
    from pybroker.cluster.image.cluster_image import ImageBuilder


def link_key(link: str) -> str:
    return LINKS + quoted(link)


def mirror_key(topic: str) -> str:
    return MIRRORS + topic


def link_fields(state: LinkState) -> dict[str, Any]:
    fields: dict[str, Any] = {"sourceCluster": state.source_cluster_id}
    if state.problem:
        fields["problem"] = state.problem
    if state.refused:
        fields["refused"] = dict(state.refused)
    if state.refused_more:
        fields["refusedMore"] = state.refused_more
    if state.not_carried:
        fields["notCarried"] = state.not_carried
    if state.brought_acls:
        fields["acls"] = [_ids_text(here, there) for here, there in state.brought_acls]
    if state.brought_quotas:
        fields["quotas"] = state.brought_quotas
    return fields


def _ids_text(here: bytes, there: bytes) -> str:
    """An ACL's id here, and behind it that at the source where it is another one."""
    return uuid_text(here) if here == there else f"{uuid_text(here)} {uuid_text(there)}"


def mirror_fields(mirror: MirroredTopic) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "link": mirror.link,
        "sourceTopic": mirror.source_topic,
        "sourceId": uuid_text(mirror.source_topic_id),
        "state": mirror.state,
    }
    optional = {
        "reason": mirror.reason,
        "ended": [index for index, _ in mirror.ended],
        "endedIn": [epoch for _, epoch in mirror.ended],  # older versions read what stands before it alone
        "firstEpochs": mirror.first_epochs,
        "partings": mirror.partings,
        "carried": mirror.carried,
        "lowered": mirror.lowered,
    }
    fields.update((name, value) for name, value in optional.items() if value)
    return fields


def decoded(key: str, fields: Mapping[str, Any]) -> tuple[str, str, LinkState | MirroredTopic]:
    """The image's field, the name in it, and the value.  ValueError, KeyError and TypeError for nonsense."""
    if key.startswith(LINKS):
        return "links", unquoted(key[len(LINKS) :]), _link(fields)
    return "mirrors", key[len(MIRRORS) :], _mirror(fields)


def put_into(builder: ImageBuilder, key: str, fields: Mapping[str, Any]) -> None:
    """The key has this value from now on."""
    if key.startswith(LINKS):
        builder.put_link(unquoted(key[len(LINKS) :]), _link(fields))
    else:
        builder.put_mirror(key[len(MIRRORS) :], _mirror(fields))


def _link(fields: Mapping[str, Any]) -> LinkState:
    refused, not_carried = tuple(fields.get("refused", {}).items()), tuple(fields.get("notCarried", ()))
    brought = []
    for text in fields.get("acls", ()):
        here, _, there = text.partition(" ")
        brought.append((uuid_bytes(here), uuid_bytes(there or here)))
    quotas = tuple((entity_of(entity), quota) for entity, quota in fields.get("quotas", ()))
    return LinkState(
        fields["sourceCluster"],
        fields.get("problem", ""),
        refused,
        not_carried,
        tuple(brought),
        quotas,
        fields.get("refusedMore", 0),
    )


def _ended(fields: Mapping[str, Any]) -> tuple[tuple[int, int], ...]:
    """An older version has kept no epochs, and keeps none where it alters the record."""
    ended, epochs = fields.get("ended", ()), fields.get("endedIn", ())
    return tuple(zip(ended, epochs if len(epochs) == len(ended) else [UNKNOWN_EPOCH] * len(ended), strict=True))


def _mirror(fields: Mapping[str, Any]) -> MirroredTopic:
    return MirroredTopic(
        fields["link"],
        fields["sourceTopic"],
        uuid_bytes(fields["sourceId"]),
        fields["state"],
        fields.get("reason", ""),
        _ended(fields),
        tuple(fields.get("firstEpochs", ())),
        tuple((partition, offset, count) for partition, offset, count in fields.get("partings", ())),
        fields.get("carried", 0),
        fields.get("lowered", 0),
    )
