"""ApiVersions 5 (KIP-1242): a client says which node of which cluster it means, and hears where it is wrong."""

from __future__ import annotations

import pytest

from pybroker.testing import Broker
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.api_versions import ApiVersionsRequest
from pybroker_protocol.messages.describe_cluster import DescribeClusterRequest
from tests.broker.wire_client import WireClient

THIS = "this cluster"
ANOTHER = "another-cluster-id-abc"


def asked(client: WireClient, cluster_id: str | None, node_id: int, name: str = "test", version: int = 5) -> int:
    request = ApiVersionsRequest(
        client_software_name=name, client_software_version="1", cluster_id=cluster_id, node_id=node_id
    )
    reply = client.ask(request, version)
    assert bool(reply.api_keys) == (reply.error_code == 0)
    return int(reply.error_code)


@pytest.mark.parametrize(
    ("cluster_id", "offset", "error"),
    [
        (THIS, 0, 0),
        (THIS, 1, ErrorCode.REBOOTSTRAP_REQUIRED),
        (ANOTHER, 0, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("", 0, ErrorCode.REBOOTSTRAP_REQUIRED),
        (None, 0, ErrorCode.INVALID_REQUEST),
        (THIS, None, ErrorCode.INVALID_REQUEST),
        (ANOTHER, None, ErrorCode.INVALID_REQUEST),
        (None, None, 0),
    ],
)
def test_who_means_another_node_starts_over_and_who_says_half_of_it_is_refused(
    pybroker: Broker, cluster_id: str | None, offset: int | None, error: int
) -> None:
    with WireClient((pybroker.host, pybroker.port)) as client:
        cluster = client.ask(DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=1), 1)
        node_id = -1 if offset is None else cluster.brokers[0].broker_id + offset
        assert asked(client, cluster.cluster_id if cluster_id == THIS else cluster_id, node_id) == error
        assert asked(client, None, -1) == 0  # the connection lives on


def test_name_of_a_client_is_looked_at_before_the_node_that_it_means(pybroker: Broker) -> None:
    with WireClient((pybroker.host, pybroker.port)) as client:
        assert asked(client, ANOTHER, 1, name="") == ErrorCode.INVALID_REQUEST


def test_a_stranger_hears_nothing_of_the_cluster_before_its_login() -> None:
    settings = {"sasl.enabled.mechanisms": "SCRAM-SHA-256"}
    with Broker(settings, listen="SASL_PLAINTEXT://127.0.0.1:0") as broker:
        for node_id, error in ((1, 0), (-1, ErrorCode.INVALID_REQUEST)):
            with WireClient((broker.host, broker.port)) as client:
                assert asked(client, ANOTHER, node_id) == error
