"""What statements of SQL change in a cluster: topics are made and deleted, and records are written.

Implements ``pybroker.sql``'s port ``Changes``; the records are sent by the command's own producer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from pybroker.cli.connection.admin_client import AdminClient
from pybroker.cli.connection.retries import retried
from pybroker.cli.requests import config_requests, topic_requests
from pybroker.cli.requests.wire_requests import described_cluster
from pybroker.cli.terminal.error_names import refused
from pybroker.sql.relations.cluster_port import Written
from pybroker_protocol.errors import ErrorCode

_LEFT_TO_THE_BROKER: Final = -1

Send = Callable[[str, Sequence[Written]], None]


class TopicChanges:
    """For one thread; raises ``CommandFailed``."""

    def __init__(self, client: AdminClient, send: Send) -> None:
        self._client = client
        self._send = send

    def cluster_id(self) -> str:
        """Of the cluster that is changed."""
        return str(retried(lambda: described_cluster(self._client)).cluster_id)

    def create_topic(self, name: str, partitions: int, replicas: int | None, settings: Mapping[str, str]) -> None:
        """Make a topic, unless it is there."""
        made = topic_requests.create(
            self._client, [name], partitions, replicas or _LEFT_TO_THE_BROKER, settings, dry_run=False
        )
        _check(made, ErrorCode.TOPIC_ALREADY_EXISTS)

    def difference(self, name: str, replicas: int | None, settings: Mapping[str, str]) -> str | None:
        """What a topic has that is there, in place of what is wanted; None where it is as wanted."""
        [topic] = retried(lambda: topic_requests.described(self._client, [name]))
        _check([topic], ErrorCode.NONE)
        counts = {len(each["replica_nodes"]) for each in topic["partitions"]}
        if replicas is not None and counts != {replicas}:
            return f"{max(counts)} replica{'' if max(counts) == 1 else 's'}, not {replicas}"
        its = {each["name"]: each["value"] for each in config_requests.described(self._client, "topic", name)}
        return next(
            (f"{key}={its.get(key)}, not {value}" for key, value in settings.items() if its.get(key) != value), None
        )

    def delete_topic(self, name: str) -> None:
        """Delete a topic, if it is there."""
        _check(topic_requests.delete(self._client, [name]), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def write(self, topic: str, records: Sequence[Written]) -> None:
        """Send records; returns when all are acknowledged."""
        self._send(topic, records)


def _check(answers: Sequence[Mapping[str, Any]], passes: ErrorCode) -> None:
    for each in answers:
        if each["error_code"] and each["error_code"] != passes:
            raise refused(f"topic {each['name']}", each["error_code"], each.get("error_message"))
