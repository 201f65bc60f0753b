"""Requests about topics: what there is, and topics that are made, deleted and given more partitions.

Owns: the requests, and the plain documents of what brokers answer.  Offsets in topics are ``log_requests``'.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pybroker.cli import config_requests
from pybroker.cli.changes import may_be_done, settled
from pybroker.cli.connection import AdminClient
from pybroker.cli.wire_requests import raise_passing
from pybroker_protocol.messages.metadata import MetadataRequestTopic
from pybroker_protocol.uuids import ZERO_UUID

_TIMEOUT_MS: Final = 30_000
_BROKERS_DEFAULT: Final = -1
_BY_ID: Final = 6  # DeleteTopics names topics in another field from this version on


def described(client: AdminClient, names: Sequence[str] | None) -> list[dict[str, Any]]:
    """The metadata of topics (None: of all), also of those that do not exist, which have an error code."""
    topics = None if names is None else [MetadataRequestTopic(topic_id=ZERO_UUID, name=name) for name in names]
    return [
        {
            "name": topic.name,
            "topic_id": None if topic.topic_id == ZERO_UUID else topic.topic_id,
            "error_code": int(topic.error_code),
            "is_internal": topic.is_internal,
            "partitions": [
                {
                    "partition_index": each.partition_index,
                    "leader_id": each.leader_id,
                    "leader_epoch": each.leader_epoch,
                    "replica_nodes": list(each.replica_nodes),
                    "isr_nodes": list(each.isr_nodes),
                    "offline_replicas": list(each.offline_replicas),
                }
                for each in topic.partitions
            ],
        }
        for topic in client.metadata(topics).topics
    ]


def names(client: AdminClient) -> list[str]:
    """Those of all topics."""
    return [topic["name"] for topic in described(client, None)]


def create(
    client: AdminClient,
    names: Sequence[str],
    partitions: int,
    replicas: int,
    configs: Mapping[str, str],
    *,
    dry_run: bool,
) -> list[dict[str, Any]]:
    """CreateTopics: what became of each.

    One that exists after a request that got no answer counts as created where it is as asked for.
    """
    from pybroker_protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

    topics = [
        CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replicas,
            assignments=[],
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
        for name in dict.fromkeys(names)
    ]
    request = CreateTopicsRequest(topics=topics, timeout_ms=_TIMEOUT_MS, validate_only=dry_run)
    outcomes = _outcomes(client.ask(request, client.controller()).topics)
    for each in outcomes:
        if may_be_done(client, request, each["error_code"]):
            if _is_as_wanted(client, each["name"], partitions, replicas, configs):
                each["error_code"] = settled(client, request, each["error_code"], f"topic {each['name']}")
            else:
                each["error_message"] = "It is not as asked for, and may be another's."
    return outcomes


def _is_as_wanted(client: AdminClient, name: str, partitions: int, replicas: int, configs: Mapping[str, str]) -> bool:
    """Whether a topic is as CreateTopics would make it, as far as its numbers and settings were given."""
    [topic] = described(client, [name])
    found = topic["partitions"]
    if partitions not in (_BROKERS_DEFAULT, len(found)):
        return False
    if any(replicas not in (_BROKERS_DEFAULT, len(each["replica_nodes"])) for each in found):
        return False
    if not configs:
        return True
    its = {each["name"]: each["value"] for each in config_requests.described(client, "topic", name)}
    return all(its.get(key) == value for key, value in configs.items())


def delete(client: AdminClient, names: Sequence[str]) -> list[dict[str, Any]]:
    """DeleteTopics: what became of each."""
    from pybroker_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

    wanted = list(dict.fromkeys(names))
    if client.serves(DeleteTopicsRequest, _BY_ID):
        states = [DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in wanted]
        request = DeleteTopicsRequest(topics=states, topic_names=[], timeout_ms=_TIMEOUT_MS)
    else:
        request = DeleteTopicsRequest(topics=[], topic_names=wanted, timeout_ms=_TIMEOUT_MS)
    outcomes = _outcomes(client.ask(request, client.controller()).responses)
    for each in outcomes:
        each["error_code"] = settled(client, request, each["error_code"], f"topic {each['name']}")
    return outcomes


def set_partitions(client: AdminClient, name: str, count: int, *, dry_run: bool) -> tuple[int, str | None]:
    """CreatePartitions for one topic, to ``count`` in all: the error code, and the broker's message."""
    from pybroker_protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic

    topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
    request = CreatePartitionsRequest(topics=[topic], timeout_ms=_TIMEOUT_MS, validate_only=dry_run)
    (result,) = client.ask(request, client.controller()).results
    raise_passing([result.error_code])
    code = int(result.error_code)
    if may_be_done(client, request, code) and _is_as_wanted(client, name, count, _BROKERS_DEFAULT, {}):
        code = settled(client, request, code, f"topic {name}")
    return code, result.error_message


def _outcomes(results: Sequence[Any]) -> list[dict[str, Any]]:
    raise_passing(result.error_code for result in results)
    return [
        {"name": result.name, "error_code": int(result.error_code), "error_message": result.error_message}
        for result in results
    ]
