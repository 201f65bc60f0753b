"""Marks as earlier versions kept them: in a group for each task number, and the claim in one more, beside the rows.

There an epoch was an offset of the topic that a run wrote to first, so that each group showed a lag.  Owns the reading
of those groups; what they say is taken over by ``claims``.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from confluent_kafka import TopicPartition as ClientTopicPartition

from pybroker.pipeline.topics.client_calls import REQUEST_TIMEOUT_S, admin, connection, offsets_of
from pybroker.pipeline.topics.task_commits import QueryRun

_ASKED_AT_ONCE = 16


class FormerGroups(NamedTuple):
    """The groups of a query that there are: those of task numbers, by these, and those of the claim and decisions.

    ``slots`` is how many task numbers the claim has allowed to register.
    """

    by_task: Mapping[int, str]
    others: Collection[str]
    slots: int


NO_GROUPS = FormerGroups({}, (), 0)


def former_groups(client: Mapping[str, str], query_run: QueryRun) -> FormerGroups:
    """Those of a query; raises `KafkaException`.

    Groups of other programs may have such names, and say nothing: the claim's and the decisions' are left out then.
    """
    listed = admin(client).list_consumer_groups(request_timeout=REQUEST_TIMEOUT_S).result(REQUEST_TIMEOUT_S)
    if listed.errors:
        raise listed.errors[0]
    known = {each.group_id for each in listed.valid}
    prefix = f"{query_run.group}-"
    numbers = [name.removeprefix(prefix) for name in known if name.startswith(prefix)]
    by_task = {int(number): f"{prefix}{number}" for number in numbers if number.isdecimal()}
    others = sorted(known & {query_run.claim, f"{prefix}decisions"})
    said = dict(zip(others, _texts(client, others, is_stable=False), strict=True))
    claims = [slots for _, (_, _, _, slots, *_) in said.get(query_run.claim, ())]
    return FormerGroups(by_task, [name for name in others if said[name]], max(claims, default=0))


def read_former(client: Mapping[str, str], groups: Mapping[int, str], *, is_stable: bool) -> dict[int, list[str]]:
    """What the group of each task number says of it, a text for each topic that it has written to first.

    The texts are those that `Mark.read` reads.  Raises `KafkaException` as `marks_topic.read` does.
    """
    found = _texts(client, list(groups.values()), is_stable=is_stable)
    return {
        task: [json.dumps([epoch, *said]) for epoch, said in each] for task, each in zip(groups, found, strict=True)
    }


def _texts(client: Mapping[str, str], groups: Sequence[str], *, is_stable: bool) -> list[list[tuple[int, list[Any]]]]:
    """Of each group the offsets of first partitions, each with what its metadata says."""
    if not groups:
        return []
    first = [ClientTopicPartition(topic, 0) for topic in admin(client).list_topics(timeout=REQUEST_TIMEOUT_S).topics]
    settings = {**connection(client), "isolation.level": "read_committed" if is_stable else "read_uncommitted"}
    with ThreadPoolExecutor(_ASKED_AT_ONCE) as pool:
        found = list(pool.map(lambda group: offsets_of(settings, group, first), groups))
    return [
        [(at.offset, json.loads(at.metadata)) for at in each if at.metadata and at.metadata.startswith("[")]
        for each in found
    ]
