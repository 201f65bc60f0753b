"""Requests for a coordinator at each broker, of which one is it."""

from __future__ import annotations

from functools import partial

from comparator.broker import Broker
from comparator.cluster import Cluster
from comparator.registry import cluster_scenario

GROUP = "coordinated"
ID = "coordinated"
PRODUCER = {"producer_id": 4000, "producer_epoch": 0}


@cluster_scenario
def groups_at_each_broker(cluster: Cluster) -> None:
    cluster.prepare_coordinators()
    cluster.prepare_topic("grouped", [[1, 2]])
    stranger = {"group_id": GROUP, "member_id": "nobody"}
    member = {**stranger, "generation_id": 1}
    offsets = [{"name": "grouped", "partitions": [{"partition_index": 0, "committed_offset": 3}]}]
    protocols = [{"name": "range", "metadata": b""}]
    for broker_id in (3, 2, 1):
        for version in (2, 8, 9):
            fields = {"generation_id_or_member_epoch": -1, "member_id": "", "topics": offsets}
            cluster.call(broker_id, "OffsetCommit", version, "by nobody", group_id=GROUP, **fields)
        for version in (1, 5, 7):
            asked = [{"name": "grouped", "partition_indexes": [0]}]
            cluster.call(broker_id, "OffsetFetch", version, "one group", group_id=GROUP, topics=asked)
        for version in (8, 9):
            groups = [{"group_id": name, "topics": None, "member_epoch": -1} for name in (GROUP, "g-1", "g-2")]
            cluster.call(broker_id, "OffsetFetch", version, "groups", groups=groups)
        for version in (0, 4):
            cluster.call(broker_id, "Heartbeat", version, "a stranger's", **member)
        cluster.call(broker_id, "SyncGroup", 5, "a stranger's", **member, assignments=[])
        joining = {
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 10_000,
            "protocol_type": "consumer",
            "protocols": protocols,
        }
        cluster.call(broker_id, "JoinGroup", 7, "a stranger's", **stranger, **joining)
        cluster.call(broker_id, "LeaveGroup", 3, "a stranger's", group_id=GROUP, members=[{"member_id": "nobody"}])
        cluster.call(broker_id, "DescribeGroups", 5, "groups", groups=[GROUP, "g-1", "g-2"])
        cluster.call(broker_id, "ConsumerGroupDescribe", 1, "groups", group_ids=[GROUP, "g-1", "g-2"])
        beating = {"member_id": "nobody", "member_epoch": 3, "rebalance_timeout_ms": -1}
        cluster.call(broker_id, "ConsumerGroupHeartbeat", 1, "a stranger's", group_id=GROUP, **beating)
        deleted = [{"name": "grouped", "partitions": [{"partition_index": 0}]}]
        cluster.call(broker_id, "OffsetDelete", 0, "an offset", group_id=GROUP, topics=deleted)
        cluster.call(broker_id, "DeleteGroups", 2, "groups", groups_names=["g-1", "g-2", "g-3"])
        cluster.call(
            broker_id,
            "TxnOffsetCommit",
            3,
            "of no transaction",
            transactional_id=ID,
            group_id=GROUP,
            **PRODUCER,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=offsets,
        )


@cluster_scenario
def each_broker_lists_its_own_groups(cluster: Cluster) -> None:
    cluster.prepare_coordinators()
    cluster.prepare_topic("listed-by", [[1, 2]])
    offsets = [{"name": "listed-by", "partitions": [{"partition_index": 0, "committed_offset": 3}]}]
    names = [f"listed-{number}" for number in range(6)]
    for name in names:
        coordinator = cluster.brokers[1].quietly("FindCoordinator", 3, key=name, key_type=0)["node_id"]
        fields = {"generation_id_or_member_epoch": -1, "member_id": "", "topics": offsets}
        cluster.call(coordinator, "OffsetCommit", 8, name, group_id=name, **fields)
    for broker_id in cluster.ids:
        reply = cluster.brokers[broker_id].quietly("ListGroups", 4, states_filter=[])
        own = [group for group in reply["groups"] if group["group_id"] in names]
        cluster.note(f"groups at {broker_id}", {"groups": own})


def gives_ids(broker: Broker) -> bool:
    """Kafka refuses until its first block of producer ids has come."""
    reply = broker.quietly("InitProducerId", 4, transactional_id=None, transaction_timeout_ms=60_000)
    return bool(reply["error_code"] == 0)


@cluster_scenario
def transactions_at_each_broker(cluster: Cluster) -> None:
    cluster.prepare_coordinators()
    cluster.prepare_topic("transacted", [[1, 2]])
    for broker in cluster.brokers.values():
        broker.wait_until(partial(gives_ids, broker), "producer ids")
    own = {"transactional_id": ID, **PRODUCER}
    topics = [{"name": "transacted", "partitions": [0]}]
    for broker_id in (3, 2, 1):
        for version in cluster.versions("InitProducerId"):
            fields = {"transactional_id": ID, "transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}
            cluster.call(broker_id, "InitProducerId", version, "transactional", **fields)
            cluster.call(broker_id, "InitProducerId", version, "idempotent", **{**fields, "transactional_id": None})
        for version in (0, 3):
            fields = {
                "v3_and_below_transactional_id": ID,
                "v3_and_below_producer_id": 4000,
                "v3_and_below_producer_epoch": 0,
                "v3_and_below_topics": topics,
            }
            cluster.call(broker_id, "AddPartitionsToTxn", version, "a stranger's", **fields)
        cluster.call(broker_id, "AddOffsetsToTxn", 3, "a stranger's", **own, group_id=GROUP)
        for version in (0, 3, 5):
            cluster.call(broker_id, "EndTxn", version, "a stranger's", **own, committed=True)
        ids = [ID, "t-1", "t-2", "t-3"]
        described = cluster.brokers[broker_id].quietly("DescribeTransactions", 0, transactional_ids=ids)
        codes = {each["transactional_id"]: each["error_code"] for each in described["transaction_states"]}
        cluster.note(f"transactions at {broker_id}", codes)
