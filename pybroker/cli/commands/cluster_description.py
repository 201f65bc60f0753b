"""``pybroker cluster describe``: what a cluster is, in one look.

Owns: the shape that this command prints.  Counterparts: kafka-cluster.sh cluster-id, kafka-metadata-quorum.sh,
``rpk cluster info``.
"""

from __future__ import annotations

from typing import Any, Final

from pybroker.cli.commands.brokers import BROKER_COLUMNS, broker_documents, broker_row
from pybroker.cli.commands.features import api_versions
from pybroker.cli.connection.admin_client import AdminClient
from pybroker.cli.connection.admin_command import Session
from pybroker.cli.connection.retries import retried
from pybroker.cli.requests.wire_requests import described_cluster
from pybroker_protocol.errors import ErrorCode

_METADATA_TOPIC: Final = "__cluster_metadata"
_METADATA_VERSION: Final = "metadata.version"
_COLUMNS: Final = ("CLUSTER", "CONTROLLER", "CONTROLLER-EPOCH", "METADATA-OFFSET", "METADATA-VERSION")
_NAMES: Final = ("cluster", "controller", "controller_epoch", "metadata_offset", "metadata_version")


def describe_cluster(session: Session) -> None:
    """Describe a cluster: its id, the controller and its epoch, how far the metadata is, and the brokers with racks.

    METADATA-VERSION is the level of metadata.version that the cluster has finalized.
    """
    with session.client() as client:
        cluster = retried(lambda: described_cluster(client))
        quorum = retried(lambda: _quorum(client))
        versions = retried(lambda: api_versions(client))
    levels = {each.name: int(each.max_version_level) for each in versions.finalized_features}
    leads = quorum is not None and quorum.leader_id >= 0
    document: dict[str, Any] = {
        "cluster": cluster.cluster_id,
        "controller": _known(quorum.leader_id if leads else cluster.controller_id),
        "controller_epoch": quorum.leader_epoch if leads else None,
        "metadata_offset": quorum.high_watermark if leads else None,
        "metadata_version": levels.get(_METADATA_VERSION),
        "features_epoch": _known(versions.finalized_features_epoch),
        "brokers": broker_documents(cluster),
    }
    output = session.output
    if output.as_json:
        output.json(document)
        return
    output.table(_COLUMNS, [[document[name] for name in _NAMES]])
    output.table(BROKER_COLUMNS, map(broker_row, document["brokers"]))


def _known(number: int) -> int | None:
    return None if number < 0 else number


def quorum_request() -> Any:
    """The question for the partition of the metadata: who leads it, and when its voters were heard."""
    from pybroker_protocol.messages.describe_quorum import (
        DescribeQuorumRequest,
        DescribeQuorumRequestPartitionData,
        DescribeQuorumRequestTopicData,
    )

    partition = DescribeQuorumRequestPartitionData(partition_index=0)
    topic = DescribeQuorumRequestTopicData(topic_name=_METADATA_TOPIC, partitions=[partition])
    return DescribeQuorumRequest(topics=[topic])


def _quorum(client: AdminClient) -> Any:
    """The partition of the metadata as its leader describes it; ``None`` where the cluster does not tell."""
    request = quorum_request()
    if not client.serves(type(request)):
        return None
    reply = client.ask(request)
    if reply.error_code != ErrorCode.NONE or not reply.topics:
        return None
    (answered,) = reply.topics[0].partitions
    return None if answered.error_code else answered
