"""ApiVersions, key by key, and what a broker does with versions and keys it does not serve."""

from __future__ import annotations

from comparator.broker import Broker
from comparator.registry import scenario

UNSERVED_VERSION = 99
UNKNOWN_KEY = 9999


@scenario
def every_version(broker: Broker) -> None:
    for version in broker.versions("ApiVersions"):
        broker.call("ApiVersions", version, client_software_name="comparator", client_software_version="1.0")


@scenario
def client_software_names_that_are_not_valid(broker: Broker) -> None:
    for name in ("", "-starts-with-a-dash", "has space", "ends-with-dash-", "ok.name-1"):
        note = f"client software {name!r}"
        broker.call("ApiVersions", 3, note, client_software_name=name, client_software_version="1.0")


@scenario
def a_client_may_say_which_node_it_means(broker: Broker) -> None:
    """KIP-1242: the cluster and the node, both or neither."""
    told = broker.quietly("DescribeCluster", 1, endpoint_type=1)
    cluster_id, node_id = told["cluster_id"], told["brokers"][0]["broker_id"]
    software = {"client_software_name": "comparator", "client_software_version": "1.0"}
    for note, cluster, node in (
        ("neither", None, -1),
        ("this one", cluster_id, node_id),
        ("another node", cluster_id, node_id + 1),
        ("another cluster", "another-cluster-id-abc", node_id),
        ("another of both", "another-cluster-id-abc", node_id + 1),
        ("no cluster's id", "", node_id),
        ("a cluster alone", cluster_id, -1),
        ("another cluster alone", "another-cluster-id-abc", -1),
        ("a node alone", None, node_id),
        ("the least node", cluster_id, -(2**31)),
    ):
        broker.call("ApiVersions", 5, note, **software, cluster_id=cluster, node_id=node)
    nameless = {"client_software_name": "", "client_software_version": "1.0"}
    broker.call("ApiVersions", 5, "another node, and no name", **nameless, cluster_id=cluster_id, node_id=node_id + 1)
    broker.check_alive("the connection lives on")


@scenario
def a_version_from_the_future_is_answered_in_version_0(broker: Broker) -> None:
    broker.call_bytes("ApiVersions", UNSERVED_VERSION, "from the future", b"\x02a\x02b\x00", flexible=True)
    broker.check_alive("the connection lives on")


@scenario
def an_unserved_version_of_another_api_closes_the_connection(broker: Broker) -> None:
    broker.call_bytes("Metadata", UNSERVED_VERSION, "no such version", b"\x00", flexible=True)
    broker.call_bytes("Produce", 2, "removed by KIP-896", b"\x00\x01\x00\x00\x03\xe8\x00\x00\x00\x00")
    broker.call_bytes("Fetch", 3, "removed by KIP-896", b"\xff\xff\xff\xff" + bytes(16))
    broker.check_alive("a new connection works")


@scenario
def an_unknown_key_closes_the_connection(broker: Broker) -> None:
    broker.call_frame("unknown key", UNKNOWN_KEY.to_bytes(2, "big") + bytes(8))
    broker.call_frame("negative key", b"\xff\xff" + bytes(8))
    broker.check_alive("a new connection works")


@scenario
def bytes_that_are_no_request_close_the_connection(broker: Broker) -> None:
    broker.call_frame("an empty frame", b"")
    broker.call_frame("half a header", b"\x00\x12\x00")
    broker.call_frame("a client id longer than the frame", b"\x00\x12\x00\x00\x00\x00\x00\x01\x7f\xff")
    broker.call_bytes("Metadata", 1, "an array longer than the frame", b"\x00\x00\x00\x09")
    broker.call_bytes("Metadata", 1, "bytes after the last field", b"\x00\x00\x00\x00trailing")
    broker.check_alive("a new connection works")
