"""What the group coordinator writes into ``__consumer_offsets`` for consumer groups (KIP-848), record by record."""

from __future__ import annotations

import struct
from itertools import groupby
from typing import Any

from comparator.broker import Broker
from comparator.encoding import Tree
from comparator.registry import scenario
from comparator.scenarios.classic_groups import Member as ClassicMember
from comparator.scenarios.classic_groups import wait_for_state
from comparator.scenarios.consumer_groups import LEAVE_STATIC, Member, prepare
from comparator.scenarios.groups import protocols
from comparator.wire import tree_of
from pybroker.coordinators.group.topic_hashes import group_metadata_hash, topic_hash
from pybroker_protocol import codec
from pybroker_protocol.messages import records_consumer_group as new
from pybroker_protocol.messages import records_group as old
from pybroker_protocol.record_codec import decode_records
from pybroker_protocol.records import batches

OFFSETS_TOPIC = "__consumer_offsets"
PARTITION_BYTES = 10 << 20

KINDS: dict[int, tuple[Any, Any]] = {
    2: (old.GroupMetadataKey, old.GroupMetadataValue),
    3: (new.ConsumerGroupMetadataKey, new.ConsumerGroupMetadataValue),
    4: (new.ConsumerGroupPartitionMetadataKey, new.ConsumerGroupPartitionMetadataValue),
    5: (new.ConsumerGroupMemberMetadataKey, new.ConsumerGroupMemberMetadataValue),
    6: (new.ConsumerGroupTargetAssignmentMetadataKey, new.ConsumerGroupTargetAssignmentMetadataValue),
    7: (new.ConsumerGroupTargetAssignmentMemberKey, new.ConsumerGroupTargetAssignmentMemberValue),
    8: (new.ConsumerGroupCurrentMemberAssignmentKey, new.ConsumerGroupCurrentMemberAssignmentValue),
    16: (new.ConsumerGroupRegularExpressionKey, new.ConsumerGroupRegularExpressionValue),
}
TARGET_MEMBER = 7
TIMES_AND_VERSIONS = {"assignment_timestamp", "current_state_timestamp", "timestamp", "version"}


def records_of(broker: Broker, group: str, hashes: dict[int, str]) -> list[Tree]:
    """Everything that was written for the group, in order, as trees."""
    found: list[Tree] = []
    for partition in range(5):
        asked = {
            "partition": partition,
            "current_leader_epoch": -1,
            "fetch_offset": 0,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": PARTITION_BYTES,
        }
        topic = {"topic": OFFSETS_TOPIC, "partitions": [asked]}
        fields = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": PARTITION_BYTES, "topics": [topic]}
        reply = broker.quietly("Fetch", 12, session_id=0, session_epoch=-1, **fields)
        log = memoryview(bytes(reply["responses"][0]["partitions"][0]["records"] or b""))
        for position, header in batches(log):
            for record in decode_records(log[position : position + header.size_bytes]):
                tree = _tree(bytes(record.key or b""), record.value, hashes)
                if tree is not None and group in {tree["key"].get("group_id"), tree["key"].get("group")}:
                    found.append(tree)
    return found


def _tree(key: bytes, value: bytes | memoryview | None, hashes: dict[int, str]) -> dict[str, Any] | None:
    """A record as a tree, without what cannot be equal; None for other kinds."""
    (kind,) = struct.unpack_from(">h", key)
    if kind not in KINDS:
        return None
    key_class, value_class = KINDS[kind]
    key_tree = tree_of(codec.decode(key_class, 0, memoryview(key)[2:]), 0)
    if value is None:
        return {"kind": kind, "key": key_tree, "value": None}
    (version,) = struct.unpack_from(">h", value)
    written = tree_of(codec.decode(value_class, version, memoryview(value)[2:]), version)
    for name in TIMES_AND_VERSIONS & written.keys():
        written[name] = written[name] > 0
    if "metadata_hash" in written:
        written["metadata_hash"] = hashes.get(written["metadata_hash"], "of something else")
    return {"kind": kind, "key": key_tree, "value": written, "version": version}


def observe(broker: Broker, group: str, topic: str, topic_id: bytes, partitions: int) -> None:
    """Record what was written; members' targets of one assignment, and what deletes members, come in any order."""
    of_topic = group_metadata_hash({topic: topic_hash(topic_id, topic, [[]] * partitions)})
    hashes = {0: "of nothing", of_topic: "of the topic"}
    written: list[Tree] = []
    for (kind, is_tombstone), run in groupby(records_of(broker, group, hashes), key=_kind_of_run):
        together = list(run)
        if is_tombstone or kind == TARGET_MEMBER:
            together.sort(key=lambda record: str(record["key"].get("member_id")))
        written += together
    for number, record in enumerate(written):
        broker.note(f"record {number}", record)


def _kind_of_run(record: Tree) -> tuple[int, bool]:
    return record["kind"], record["value"] is None


@scenario
def the_life_of_a_group(broker: Broker) -> None:
    topic_id = broker.prepare_topic("kip848-log", 4)
    group = "kip848-log"
    prepare(broker, group)
    first = Member(broker, group, "first", ["kip848-log"])
    second = Member(broker, group, "second", ["kip848-log"], instance="i")
    first.join(rack_id="r")
    second.join(server_assignor="range")
    first.beat("gives up")
    first.acknowledge()
    second.beat("gets")
    second.acknowledge()
    first.beat("reads nothing", subscribed_topic_names=[])
    second.leave(LEAVE_STATIC)
    back = Member(broker, group, "back", ["kip848-log"], instance="i")
    back.join()
    back.leave()
    first.leave()
    broker.call("DeleteGroups", 2, "empty", groups_names=[group])
    observe(broker, group, "kip848-log", topic_id, 4)


@scenario
def a_regular_expression(broker: Broker) -> None:
    topic_id = broker.prepare_topic("kip848-log-regex", 1)
    group = "kip848-log-regex"
    prepare(broker, group)
    member = Member(broker, group, "member")
    member.join(subscribed_topic_regex="kip848-log-r.*")

    def resolved() -> bool:
        fields = {"group_ids": [group], "include_authorized_operations": False}
        described = broker.quietly("ConsumerGroupDescribe", 1, **fields)
        return bool(described["groups"][0]["group_epoch"] > member.epoch)

    broker.wait_until(resolved, "the regular expression")
    member.beat("gets what it matches")
    member.leave()
    observe(broker, group, "kip848-log-regex", topic_id, 1)


@scenario
def a_migration(broker: Broker) -> None:
    topic_id = broker.prepare_topic("kip848-log-moves", 4)
    group = "kip848-log-moves"
    prepare(broker, group)
    classic = ClassicMember(broker, group, "classic", protocols=protocols(topic="kip848-log-moves"))
    classic.join()
    name = b"kip848-log-moves"
    everything = struct.pack(">hih16s5ii", 0, 1, len(name), name, 4, 0, 1, 2, 3, -1)
    classic.begin_sync(classic, assignments=[{"member_id": classic.member_id, "assignment": everything}]).reply()
    member = Member(broker, group, "new", ["kip848-log-moves"])
    member.join()
    member.leave()
    wait_for_state(classic, "PreparingRebalance")
    observe(broker, group, "kip848-log-moves", topic_id, 4)
