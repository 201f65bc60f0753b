"""Requests about topics: what there is, and topics that are made, deleted and given more partitions.

Owns: the requests, and the plain documents of what brokers answer.  Offsets in topics are ``log_requests``'.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from pybroker.cli.connection.admin_client import AdminClient
from pybroker.cli.connection.changes import may_be_done, settled
from pybroker.cli.connection.retries import PASSING_ERRORS, Passing, retried
from pybroker.cli.requests import config_requests
from pybroker.cli.requests.wire_requests import raise_passing
from pybroker.cli.terminal.output import remark
from pybroker_protocol.messages.metadata import MetadataRequestTopic
from pybroker_protocol.schema import Request
from pybroker_protocol.uuids import ZERO_UUID

EXISTS: Final = "exists"  # in place of "created"

_TIMEOUT_MS: Final = 30_000
_BROKERS_DEFAULT: Final = -1


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

    One that exists after a request that got no answer is no failure where it is as asked for. Its ``status`` says that
    it exists: by this command, or from before, which no broker tells.
    """
    from pybroker_protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

    def request_of(rest: Sequence[str]) -> CreateTopicsRequest:
        topics = [
            CreatableTopic(
                name=name,
                num_partitions=partitions,
                replication_factor=replicas,
                assignments=[],
                configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
            )
            for name in rest
        ]
        return CreateTopicsRequest(topics=topics, timeout_ms=_TIMEOUT_MS, validate_only=dry_run)

    def settle(outcome: dict[str, Any], _: Request) -> None:
        if _is_as_wanted(client, outcome["name"], partitions, replicas, configs):
            remark(
                f"topic {outcome['name']}: it exists with that shape (created by this command, or before): "
                "an earlier request of this command got no answer"
            )
            outcome.update(error_code=0, error_message=None, status=EXISTS)
        else:
            outcome["error_message"] = "It is not as asked for, and may be another's."

    return _asked_of_controller(client, names, request_of, lambda response: response.topics, settle)


def _asked_of_controller(
    client: AdminClient,
    names: Sequence[str],
    request_of: Callable[[Sequence[str]], Request],
    results_of: Callable[[Any], Sequence[Any]],
    settle: Callable[[dict[str, Any], Request], None],
) -> list[dict[str, Any]]:
    """What became of each topic; those alone are asked for again of which a refusal passes by itself.

    ``settle(outcome, request)`` judges a refusal that there would be if that request, which got no answer, was done.
    Raises ``CommandFailed`` where nothing came of any topic.
    """
    wanted = list(dict.fromkeys(names))
    outcomes: dict[str, dict[str, Any]] = {}
    sent: list[Request] = []

    def rest() -> list[str]:
        return [each for each in wanted if each not in outcomes or outcomes[each]["error_code"] in PASSING_ERRORS]

    def ask_for_rest() -> None:
        sent.append(request_of(rest()))
        for result in results_of(client.ask(sent[-1], client.controller())):
            outcome = {"name": result.name, "error_code": int(result.error_code), "error_message": result.error_message}
            # A request for all may have been lost before the one for the rest.
            lost = next((each for each in sent if may_be_done(client, each, outcome["error_code"])), None)
            if lost is not None:
                settle(outcome, lost)
            outcomes[result.name] = outcome
        raise_passing(each["error_code"] for each in outcomes.values())

    try:
        retried(ask_for_rest)
    except Passing as error:
        if len(rest()) == len(wanted):
            raise
        if client.doubt is not None:
            for name in rest():
                outcomes[name]["error_message"] = f"{error}; {client.doubt}"
    return list(outcomes.values())


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

    def request_of(rest: Sequence[str]) -> DeleteTopicsRequest:
        if not client.serves(DeleteTopicsRequest, DeleteTopicsRequest.since("topics")):
            return DeleteTopicsRequest(topics=[], topic_names=list(rest), timeout_ms=_TIMEOUT_MS)
        states = [DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in rest]
        return DeleteTopicsRequest(topics=states, topic_names=[], timeout_ms=_TIMEOUT_MS)

    def settle(outcome: dict[str, Any], lost: Request) -> None:
        outcome["error_code"] = settled(client, lost, outcome["error_code"], f"topic {outcome['name']}")

    return _asked_of_controller(client, names, request_of, lambda response: response.responses, settle)


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
