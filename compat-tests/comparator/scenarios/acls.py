"""ACLs: what DescribeAcls, CreateAcls and DeleteAcls say of them, and whom they let do what.

Everybody is User:ANONYMOUS here; who somebody is, is the address they come from.  Both brokers have Kafka's
StandardAuthorizer, and allow everything where no ACL concerns a resource.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

from harness.batches import TRANSACTIONAL_FLAG, batch

from comparator.boundaries import vary
from comparator.broker import Broker, Narrow, Step
from comparator.encoding import Tree
from comparator.registry import scenario
from comparator.scenarios import consumer_groups
from comparator.scenarios.transactions import prepare, settle
from comparator.wire import Connection

ADMIN, GUEST, EVERYWHERE = "127.0.0.1", "127.0.0.2", "*"
CLUSTER_NAME = "kafka-cluster"
# The numbers of ResourceType, PatternType, AclOperation and AclPermissionType.
UNKNOWN, ANY = 0, 1
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, DELEGATION_TOKEN, USER = range(2, 8)
MATCH, LITERAL, PREFIXED = 2, 3, 4
ALL, READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS = range(2, 12)
IDEMPOTENT_WRITE = 12
DENY, ALLOW = 2, 3


class Acl(NamedTuple):
    resource_type: int
    resource_name: str
    operation: int
    host: str = GUEST
    permission_type: int = ALLOW
    pattern: int = LITERAL
    principal: str = "User:ANONYMOUS"

    def creation(self) -> Tree:
        return {
            "resource_type": self.resource_type,
            "resource_name": self.resource_name,
            "resource_pattern_type": self.pattern,
            "principal": self.principal,
            "host": self.host,
            "operation": self.operation,
            "permission_type": self.permission_type,
        }

    def filter(self) -> Tree:
        return wanted(
            resource_type_filter=self.resource_type,
            resource_name_filter=self.resource_name,
            pattern_type_filter=self.pattern,
            principal_filter=self.principal,
            host_filter=self.host,
            operation=self.operation,
            permission_type=self.permission_type,
        )


def wanted(**conditions: Any) -> Tree:
    """A filter with these conditions and no others."""
    return {
        "resource_type_filter": ANY,
        "resource_name_filter": None,
        "pattern_type_filter": ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
        **conditions,
    }


def in_order(reply: Tree) -> Tree:
    """A reply about ACLs with what has no order in one."""
    return {key: _sorted(value) for key, value in reply.items()}


def _sorted(value: Tree) -> Tree:
    if not isinstance(value, list):
        return value
    tidy = [in_order(each) for each in value]
    # The order of filters and of creations is theirs.
    return tidy if tidy and ("matching_acls" in tidy[0] or len(tidy[0]) == 2) else sorted(tidy, key=str)


def ask(broker: Broker, api: str, version: int, note: str, **fields: Any) -> Any:
    return broker.begin(api, version, note, **fields).reply(in_order)


def put(broker: Broker, *acls: Acl) -> None:
    """Create them, not recorded; the broker knows of them when this returns."""
    reply = broker.quietly("CreateAcls", 3, creations=[acl.creation() for acl in acls])
    assert all(result["error_code"] == 0 for result in reply["results"]), reply
    for acl in acls:
        broker.wait_until(lambda acl=acl: _there(broker, acl), f"{acl}")  # type: ignore[misc]


def remove(broker: Broker, *acls: Acl) -> None:
    broker.quietly("DeleteAcls", 3, filters=[acl.filter() for acl in acls])
    for acl in acls:
        broker.wait_until(lambda acl=acl: not _there(broker, acl), f"no {acl}")  # type: ignore[misc]


def _there(broker: Broker, acl: Acl) -> bool:
    reply = broker.quietly("DescribeAcls", 3, **acl.filter())
    assert reply["error_code"] == 0, reply
    return bool(reply["resources"])


@scenario
def acls_in_every_version(broker: Broker) -> None:
    for version in broker.versions("CreateAcls"):
        topic, prefix = f"acl-{version}", f"ac-{version}"
        acls = [
            Acl(TOPIC, topic, READ),
            Acl(TOPIC, topic, READ, ADMIN),
            Acl(TOPIC, topic, WRITE, EVERYWHERE, DENY, principal="User:*"),
            Acl(TOPIC, prefix, ALL, pattern=PREFIXED, principal="User:anna"),
            Acl(GROUP, topic, DELETE, EVERYWHERE),
            Acl(TRANSACTIONAL_ID, topic, WRITE, EVERYWHERE),
            Acl(USER, "User:anna", 13, EVERYWHERE),
        ]
        creations = [acl.creation() for acl in acls]
        ask(broker, "CreateAcls", version, "several", creations=creations)
        ask(broker, "CreateAcls", version, "the same again", creations=[*creations, creations[0]])
        ask(broker, "CreateAcls", version, "none", creations=[])
        for acl in acls:
            broker.wait_until(lambda acl=acl: _there(broker, acl), f"{acl}")  # type: ignore[misc]
        for note, conditions in (
            ("all", {}),
            ("of topics", {"resource_type_filter": TOPIC}),
            ("of a name", {"resource_name_filter": topic}),
            ("of a name, matching", {"resource_name_filter": f"{prefix}-x", "pattern_type_filter": MATCH}),
            ("of a name, prefixed", {"resource_name_filter": prefix, "pattern_type_filter": PREFIXED}),
            ("of any name, literal", {"pattern_type_filter": LITERAL}),
            ("of nobody", {"principal_filter": "User:nobody"}),
            ("of everybody", {"principal_filter": "User:*"}),
            ("of no principal", {"principal_filter": ""}),
            ("of a host", {"host_filter": ADMIN}),
            ("of an operation", {"operation": READ}),
            ("of denials", {"permission_type": DENY}),
            ("of no resource", {"resource_name_filter": ""}),
        ):
            ask(broker, "DescribeAcls", version, note, **wanted(**conditions))
        filters = [wanted(operation=WRITE), wanted(resource_name_filter=topic), wanted(principal_filter="User:nobody")]
        ask(broker, "DeleteAcls", version, "several filters", filters=filters)
        ask(broker, "DeleteAcls", version, "the rest", filters=[wanted()])
        ask(broker, "DeleteAcls", version, "nothing", filters=[])
        broker.wait_until(lambda: not broker.quietly("DescribeAcls", 3, **wanted())["resources"], "ACLs that are gone")


@scenario
def what_is_no_acl(broker: Broker) -> None:
    sound = Acl(TOPIC, "no-acl", READ)
    for version in broker.versions("CreateAcls"):
        for note, acl in {
            "no name": sound._replace(resource_name=""),
            "another cluster": sound._replace(resource_type=CLUSTER),
            "any resource": sound._replace(resource_type=ANY),
            "a resource of the future": sound._replace(resource_type=99),
            "any pattern": sound._replace(pattern=ANY),
            "a pattern that matches": sound._replace(pattern=MATCH),
            "a pattern of the future": sound._replace(pattern=99),
            "any operation": sound._replace(operation=ANY),
            "an operation of the future": sound._replace(operation=99),
            "any permission": sound._replace(permission_type=ANY),
            "a permission of the future": sound._replace(permission_type=99),
            "no principal": sound._replace(principal=""),
            "a principal without a type": sound._replace(principal="anna"),
            "a prefixed cluster": sound._replace(resource_type=CLUSTER, pattern=PREFIXED),
        }.items():
            ask(broker, "CreateAcls", version, note, creations=[acl.creation()])
        bad = [sound._replace(resource_name="").creation(), sound._replace(principal="anna").creation()]
        ask(broker, "CreateAcls", version, "a good one among bad ones", creations=[*bad, sound.creation()])
        for note, conditions in {
            "a resource of the future": {"resource_type_filter": 99},
            "a pattern of the future": {"pattern_type_filter": 99},
            "an operation of the future": {"operation": 99},
            "a permission of the future": {"permission_type": 99},
        }.items():
            ask(broker, "DescribeAcls", version, note, **wanted(**conditions))
            ask(broker, "DeleteAcls", version, note, filters=[wanted(**conditions), sound.filter()])
    remove(broker, sound)


@scenario
def ranges_of_addresses(broker: Broker) -> None:
    """Hosts of ACLs that are ranges (KIP-1276): which are taken, and for whom they are."""
    for host in (
        "10.0.0.0/8", "10.1.2.3/8", "010.0.0.0/8", "0.0.0.0/0", "1.2.3.4/32", "2001:db8::/32", "::/0", "fe80::1/128",
        "10.0.0.0/33", "10.0.0/8", "256.0.0.0/8", "10.0.0.0/", "/8", "/", "10.0.0.0/-1", "10.0.0.0/255.0.0.0", "*/8",
        "host/8", "10.0.0.0/8/8", "2001:db8::/129", "2001:db8::/", "2001:db8::/x", ":/8", "::ffff:10.0.0.1/104", "",
    ):  # fmt: skip
        acl = Acl(TOPIC, "acl-ranges", READ, host)
        ask(broker, "CreateAcls", 3, f"host {host!r}", creations=[acl.creation()])
        ask(broker, "DeleteAcls", 3, f"host {host!r}", filters=[wanted(resource_name_filter="acl-ranges")])
    broker.prepare_topic("acl-ranges")
    guest = broker.connect(GUEST)
    for host in (f"{GUEST}/32", "127.0.0.0/8", "0.0.0.0/0", "10.0.0.0/8", "::/0"):
        denial = Acl(TOPIC, "acl-ranges", DESCRIBE, host, DENY)
        ask(broker, "CreateAcls", 3, f"deny {host}", creations=[denial.creation()])
        broker.wait_until(lambda acl=denial: _there(broker, acl), f"{denial}")  # type: ignore[misc]
        asked = [{"topic_id": bytes(16), "name": "acl-ranges"}]
        broker.begin("Metadata", 12, f"denied {host}", guest, topics=asked).reply()
        remove(broker, denial)


@scenario
def boundaries_of_acls(broker: Broker) -> None:
    def creations(_version: int, name: str) -> Tree:
        return {"creations": [Acl(TOPIC, name, READ, "10.0.0.1").creation()]}

    def deletions(_version: int, name: str) -> Tree:
        return {"filters": [Acl(TOPIC, name, READ, "10.0.0.1").filter()]}

    def question(_version: int, name: str) -> Tree:
        return Acl(TOPIC, name, READ, "10.0.0.1").filter()

    vary(broker, "CreateAcls", creations, narrow=in_order)
    broker.quietly("DeleteAcls", 3, filters=[wanted()])
    broker.wait_until(lambda: not broker.quietly("DescribeAcls", 3, **wanted())["resources"], "ACLs that are gone")
    vary(broker, "DescribeAcls", question, narrow=in_order)
    vary(broker, "DeleteAcls", deletions, narrow=in_order)


# --- who may do what ------------------------------------------------------------------------------------------------

Permission = tuple[int, str, int]  # type of resource, its name, operation


@contextmanager
def denied(broker: Broker, *permissions: Permission) -> Iterator[None]:
    """The guest lacks these permissions and has all others."""
    resources = {(kind, name) for kind, name, _ in permissions}
    acls = [Acl(kind, name, ALL, EVERYWHERE, principal="User:*") for kind, name in sorted(resources)]
    acls += [Acl(kind, name, operation, permission_type=DENY) for kind, name, operation in permissions]
    put(broker, *acls)
    try:
        yield
    finally:
        remove(broker, *reversed(acls))


T, G, X, C = (TOPIC, "kept"), (GROUP, "kept"), (TRANSACTIONAL_ID, "kept"), (CLUSTER, CLUSTER_NAME)
NEW, NAMED = (TOPIC, "new-by-guest"), (TOPIC, "named-by-guest")
OPEN = (TRANSACTIONAL_ID, "open")


class Row(NamedTuple):
    """A request, and the sets of permissions of which each is taken away once.

    ``version``: the latest unless it is named.  ``amid``: what there has to be while it is asked.
    """

    api: str
    fields: Tree
    missing: tuple[tuple[Permission, ...], ...]
    note: str = ""
    version: int | None = None
    amid: Callable[[Broker], AbstractContextManager[Any]] = nullcontext
    narrow: Narrow | None = None

    def version_at(self, broker: Broker) -> int:
        return broker.latest(self.api) if self.version is None else self.version


@contextmanager
def open_transaction(broker: Broker) -> Iterator[None]:
    """The topic is part of a transaction that lasts, of an id that has no other."""
    (_, transactional_id), (_, topic) = OPEN, T
    prepare(broker, transactional_id)
    # Long enough for all that is asked meanwhile.
    asked = {"transactional_id": transactional_id, "transaction_timeout_ms": 600_000}
    begun = broker.quietly("InitProducerId", 4, **asked)
    who = {name: begun[name] for name in ("producer_id", "producer_epoch")}
    producer = {f"{_V3}{name}": value for name, value in who.items()}
    partitions = [{"name": topic, "partitions": [0]}]
    added = {f"{_V3}transactional_id": transactional_id, **producer, f"{_V3}topics": partitions}

    def is_part() -> bool:
        (result,) = broker.quietly("AddPartitionsToTxn", 3, **added)["results_by_topic_v3_and_below"]
        (partition,) = result["results_by_partition"]
        return bool(partition["partition_error_code"] == 0)

    broker.wait_until(is_part, "the transaction")
    try:
        yield
    finally:
        broker.quietly("EndTxn", 3, transactional_id=transactional_id, committed=False, **who)
        settle(broker, transactional_id)


class Consumer:
    """A member of a group of the new protocol, alone in it, of which nothing is recorded."""

    def __init__(self, connection: Connection, group: str) -> None:
        self._connection, self._group, self._epoch = connection, group, consumer_groups.JOIN

    def assigned(self, broker: Broker, **subscription: Any) -> set[bytes]:
        """The ids of the topics that it has first."""
        found: set[bytes] = set()

        def has_some() -> bool:
            reply = self._beat(self._epoch, **subscription)
            self._epoch = reply["member_epoch"]
            given = reply["assignment"] or {"topic_partitions": []}
            found.update(each["topic_id"] for each in given["topic_partitions"])
            return bool(found)

        broker.wait_until(has_some, f"partitions for {self._group}")
        return found

    def leave(self) -> None:
        self._beat(consumer_groups.LEAVE)

    def _beat(self, epoch: int, **subscription: Any) -> Tree:
        fields = {
            "group_id": self._group,
            "member_id": "consumer",
            "member_epoch": epoch,
            "rebalance_timeout_ms": consumer_groups.NEVER_MS,
            "topic_partitions": [],
            **subscription,
        }
        sent = self._connection.send("ConsumerGroupHeartbeat", 1, fields)
        return self._connection.receive("ConsumerGroupHeartbeat", 1, sent)


@contextmanager
def assigned_topic(broker: Broker) -> Iterator[None]:
    """The topic is assigned to the member of the group ``consumers``."""
    consumer_groups.prepare(broker, "consumers")
    consumer = Consumer(broker.connect(), "consumers")
    consumer.assigned(broker, subscribed_topic_names=["kept"])
    try:
        yield
    finally:
        consumer.leave()


def only_kept(reply: Tree) -> Tree:
    """A list of groups without those of others."""
    return {**reply, "groups": [group for group in reply["groups"] if group["group_id"] == "kept"]}


_CONFIG = {"resource_type": TOPIC, "resource_name": "kept"}
_BROKER_CONFIG = {**_CONFIG, "resource_type": 4, "resource_name": "1"}
_GROUP_CONFIG = {**_CONFIG, "resource_type": 32, "resource_name": "kept"}
_CREATION = {"name": NEW[1], "num_partitions": 1, "replication_factor": 1, "configs": []}
_V3 = "v3_and_below_"


def table(topic_id: bytes) -> list[Row]:
    """Each API and the permissions that it asks for; what is taken away is told by the error."""
    listed = [{"name": "kept", "partitions": [{"partition_index": 0, "timestamp": -1}]}]
    of_topic = [{"name": "kept", "partitions": [{"partition_index": 0}]}]
    epoch = [{"topic": "kept", "partitions": [{"partition": 0, "leader_epoch": 0}]}]
    fetched = {"partition": 0, "fetch_offset": 0}
    added = [{"name": "kept", "partitions": [0]}]
    of_producer = {"transactional_id": "kept", "producer_id": 99, "producer_epoch": 0, "topics": added}
    in_transaction = batch(b"a", producer_id=99, producer_epoch=0, base_sequence=0, flags=TRANSACTIONAL_FLAG)
    committed = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}

    def produced(transactional_id: str | None, records: bytes) -> Tree:
        data = [{"topic_id": topic_id, "partition_data": [{"index": 0, "records": records}]}]
        return {"transactional_id": transactional_id, "acks": -1, "timeout_ms": 9_000, "topic_data": data}

    return [
        Row("Produce", produced(None, batch(b"a")), (((*T, WRITE),),)),
        Row("Produce", produced("kept", in_transaction), (((*X, WRITE),), ((*T, WRITE),)), "transactional"),
        Row("ListOffsets", {"replica_id": -1, "topics": listed}, (((*T, DESCRIBE),),)),
        Row(
            "Fetch",
            {
                "replica_id": -1,
                "max_wait_ms": 0,
                "min_bytes": 1,
                "max_bytes": 1000,
                "session_epoch": -1,
                "topics": [{"topic_id": topic_id, "partitions": [{**fetched, "partition_max_bytes": 1000}]}],
                "rack_id": "",
            },
            (((*T, READ),), ((*T, DESCRIBE),)),
        ),
        Row(
            "Metadata",
            {"topics": [{"name": "kept"}], "include_topic_authorized_operations": True},
            (((*T, DESCRIBE),), ((*T, DELETE),)),
            "one",
        ),
        Row("Metadata", {"topics": [{"topic_id": topic_id, "name": None}]}, (((*T, DESCRIBE),),), "by id"),
        Row(
            "Metadata",
            {"topics": [{"name": NAMED[1]}], "allow_auto_topic_creation": True},
            (((*C, CREATE), (*NAMED, CREATE)),),
            "of a topic to be made",
        ),
        Row(
            "DescribeTopicPartitions",
            {"topics": [{"name": "kept"}], "response_partition_limit": 10},
            (((*T, DESCRIBE),), ((*T, ALTER),)),
        ),
        Row("FindCoordinator", {"key_type": 0, "coordinator_keys": ["kept"]}, (((*G, DESCRIBE),),), "group"),
        Row("FindCoordinator", {"key_type": 1, "coordinator_keys": ["kept"]}, (((*X, DESCRIBE),),), "transaction"),
        Row(
            "JoinGroup",
            {
                "group_id": "kept",
                "session_timeout_ms": 10_000,
                "rebalance_timeout_ms": 10_000,
                "member_id": "",
                "protocol_type": "consumer",
                "protocols": [{"name": "range", "metadata": b""}],
            },
            (((*G, READ),),),
        ),
        Row(
            "SyncGroup",
            {
                "group_id": "kept",
                "generation_id": 1,
                "member_id": "m",
                "protocol_type": "consumer",
                "protocol_name": "range",
                "assignments": [],
            },
            (((*G, READ),),),
        ),
        Row("Heartbeat", {"group_id": "kept", "generation_id": 1, "member_id": "m"}, (((*G, READ),),)),
        Row("LeaveGroup", {"group_id": "kept", "members": [{"member_id": "m"}]}, (((*G, READ),),)),
        Row(
            "OffsetCommit",
            {
                "group_id": "kept",
                "generation_id_or_member_epoch": -1,
                "member_id": "",
                "topics": [{"topic_id": topic_id, "partitions": [committed]}],
            },
            (((*G, READ),), ((*T, READ),)),
        ),
        Row(
            "OffsetFetch",
            {
                "groups": [
                    {"group_id": "kept", "topics": [{"topic_id": topic_id, "partition_indexes": [0]}]},
                    {"group_id": "other", "topics": [{"topic_id": topic_id, "partition_indexes": [0]}]},
                ]
            },
            (((*G, DESCRIBE),), ((*T, DESCRIBE),)),
            "of topics",
        ),
        Row(
            "OffsetFetch",
            {"groups": [{"group_id": "kept", "topics": None}]},
            (((*G, DESCRIBE),), ((*T, DESCRIBE),)),
            "of all",
        ),
        Row("OffsetDelete", {"group_id": "kept", "topics": of_topic}, (((*G, DELETE),), ((*T, READ),))),
        Row(
            "DescribeGroups",
            {"groups": ["kept", "other"], "include_authorized_operations": True},
            (((*G, DESCRIBE),), ((*G, DELETE),)),
        ),
        Row("ListGroups", {}, (((*C, DESCRIBE),), ((*C, DESCRIBE), (*G, DESCRIBE))), narrow=only_kept),
        Row("ConsumerGroupDescribe", {"group_ids": ["kept", "other"]}, (((*G, DESCRIBE),),)),
        Row(
            "ConsumerGroupDescribe",
            {"group_ids": ["consumers"]},
            (((*T, DESCRIBE),),),
            "of a topic",
            amid=assigned_topic,
        ),
        Row(
            "ConsumerGroupHeartbeat",
            {
                "group_id": "kept",
                "member_id": "m" * 22,
                "member_epoch": 0,
                "rebalance_timeout_ms": 1000,
                "subscribed_topic_names": ["kept"],
                "topic_partitions": [],
            },
            (((*G, READ),), ((*T, DESCRIBE),)),
        ),
        Row("DeleteGroups", {"groups_names": ["kept", "no-such"]}, (((*G, DELETE),),)),
        Row(
            "InitProducerId",
            {"transactional_id": "kept", "transaction_timeout_ms": 60_000},
            (((*X, WRITE),), ((*X, DESCRIBE),)),
            "transactional",
        ),
        Row(
            "InitProducerId",
            {"transactional_id": None, "transaction_timeout_ms": 60_000},
            (((*C, IDEMPOTENT_WRITE),), ((*C, IDEMPOTENT_WRITE), (TOPIC, "*", WRITE))),
            "idempotent",
        ),
        Row(
            "AddPartitionsToTxn",
            {f"{_V3}{name}": value for name, value in of_producer.items()},
            (((*X, WRITE),), ((*T, WRITE),)),
            "of a client",
            version=3,
        ),
        Row(
            "AddPartitionsToTxn",
            {"transactions": [{**of_producer, "verify_only": False}]},
            (((*C, CLUSTER_ACTION),),),
            "of a broker",
        ),
        Row(
            "AddOffsetsToTxn",
            {"transactional_id": "kept", "producer_id": 99, "producer_epoch": 0, "group_id": "kept"},
            (((*X, WRITE),), ((*G, READ),)),
        ),
        Row(
            "TxnOffsetCommit",
            {
                "transactional_id": "kept",
                "group_id": "kept",
                "producer_id": 99,
                "producer_epoch": 0,
                "generation_id_or_member_epoch": -1,
                "member_id": "",
                "topics": [{"topic_id": topic_id, "partitions": [committed]}],
            },
            (((*X, WRITE),), ((*G, READ),), ((*T, READ),)),
        ),
        Row(
            "EndTxn",
            {"transactional_id": "kept", "producer_id": 99, "producer_epoch": 0, "committed": True},
            (((*X, WRITE),),),
        ),
        Row(
            "WriteTxnMarkers",
            {"markers": [{"producer_id": 99, "topics": [{"name": "kept", "partition_indexes": [0]}]}]},
            (((*C, ALTER), (*C, CLUSTER_ACTION)),),
        ),
        Row("DescribeTransactions", {"transactional_ids": ["kept"]}, (((*X, DESCRIBE),),)),
        Row(
            "DescribeTransactions",
            {"transactional_ids": [OPEN[1]]},
            (((*T, DESCRIBE),),),
            "of a topic",
            amid=open_transaction,
        ),
        Row(
            "ListTransactions",
            {"duration_filter": -1, "transactional_id_pattern": OPEN[1]},
            (((*OPEN, DESCRIBE),),),
            amid=open_transaction,
        ),
        Row("DescribeProducers", {"topics": [{"name": "kept", "partition_indexes": [0]}]}, (((*T, READ),),)),
        Row("OffsetForLeaderEpoch", {"replica_id": -1, "topics": epoch}, (((*C, CLUSTER_ACTION),),)),
        Row(
            "OffsetForLeaderEpoch",
            {"replica_id": -1, "topics": epoch},
            (((*C, CLUSTER_ACTION), (*T, DESCRIBE)),),
            "nor the topic",
        ),
        Row(
            "DeleteRecords",
            {"topics": [{"name": "kept", "partitions": [{"partition_index": 0, "offset": 0}]}], "timeout_ms": 9_000},
            (((*T, DELETE),),),
        ),
        Row(
            "CreateTopics",
            {"topics": [_CREATION], "timeout_ms": 9_000, "validate_only": True},
            (((*C, CREATE),), ((*C, CREATE), (*NEW, CREATE)), ((*NEW, DESCRIBE_CONFIGS),)),
        ),
        Row(
            "CreatePartitions",
            {"topics": [{"name": "kept", "count": 2}], "timeout_ms": 9_000, "validate_only": True},
            (((*T, ALTER),),),
        ),
        Row(
            "DeleteTopics",
            {"topics": [{"name": "kept"}], "timeout_ms": 9_000},
            (((*C, DELETE), (*T, DELETE)), ((*C, DELETE), (*T, DELETE), (*T, DESCRIBE))),
        ),
        Row(
            "DeleteTopics",
            {"topics": [{"name": None, "topic_id": topic_id}], "timeout_ms": 9_000},
            (((*C, DELETE), (*T, DELETE)), ((*C, DELETE), (*T, DELETE), (*T, DESCRIBE))),
            "by id",
        ),
        Row("DescribeConfigs", {"resources": [_CONFIG]}, (((*T, DESCRIBE_CONFIGS),),), "topic"),
        Row("DescribeConfigs", {"resources": [_GROUP_CONFIG]}, (((*G, DESCRIBE_CONFIGS),),), "group"),
        Row(
            "DescribeConfigs",
            {"resources": [{**_BROKER_CONFIG, "configuration_keys": ["num.io.threads"]}]},
            (((*C, DESCRIBE_CONFIGS),),),
            "broker",
        ),
        *(
            Row(
                api,
                {"resources": [{**config, "configs": []}], "validate_only": True},
                (((*resource, ALTER_CONFIGS),),),
                note,
            )
            for api in ("AlterConfigs", "IncrementalAlterConfigs")
            for config, resource, note in (
                (_CONFIG, T, "topic"),
                (_GROUP_CONFIG, G, "group"),
                (_BROKER_CONFIG, C, "broker"),
            )
        ),
        Row("ListConfigResources", {"resource_types": [TOPIC]}, (((*C, DESCRIBE_CONFIGS),),)),
        Row(
            "AlterReplicaLogDirs",
            {"dirs": [{"path": "/", "topics": [{"name": "kept", "partitions": [0]}]}]},
            (((*C, ALTER),),),
        ),
        Row("DescribeLogDirs", {"topics": [{"topic": "kept", "partitions": [0]}]}, (((*C, DESCRIBE),),)),
        Row(
            "ElectLeaders",
            {"election_type": 0, "topic_partitions": [{"topic": "kept", "partitions": [0]}], "timeout_ms": 9_000},
            (((*C, ALTER),),),
        ),
        Row(
            "AlterPartitionReassignments",
            {
                "timeout_ms": 9_000,
                "topics": [{"name": "kept", "partitions": [{"partition_index": 0, "replicas": None}]}],
            },
            (((*C, ALTER),),),
        ),
        Row("ListPartitionReassignments", {"timeout_ms": 9_000, "topics": None}, (((*C, DESCRIBE),),)),
        Row("UnregisterBroker", {"broker_id": 99}, (((*C, ALTER),),)),
        Row("UnregisterController", {"controller_id": 99}, (((*C, ALTER),),)),
        Row("UpdateFeatures", {"timeout_ms": 9_000, "feature_updates": []}, (((*C, ALTER),),)),
        Row(
            "DescribeCluster",
            {"include_cluster_authorized_operations": True, "endpoint_type": 1},
            (((*C, DESCRIBE),), ((*C, ALTER),)),
        ),
        Row("DescribeQuorum", {"topics": []}, (((*C, DESCRIBE),),)),
        Row("DescribeAcls", wanted(principal_filter="User:nobody"), (((*C, DESCRIBE),),), narrow=in_order),
        Row("CreateAcls", {"creations": [Acl(TOPIC, "x", READ).creation()]}, (((*C, ALTER),),), narrow=in_order),
        Row("DeleteAcls", {"filters": [wanted(principal_filter="User:nobody")]}, (((*C, ALTER),),), narrow=in_order),
        Row("DescribeClientQuotas", {"components": [], "strict": False}, (((*C, DESCRIBE_CONFIGS),),)),
        Row(
            "AlterClientQuotas",
            {
                "entries": [
                    {
                        "entity": [{"entity_type": "user", "entity_name": "nobody"}],
                        "ops": [{"key": "producer_byte_rate", "value": 0.0, "remove": True}],
                    }
                ],
                "validate_only": True,
            },
            (((*C, ALTER_CONFIGS),),),
        ),
        Row("DescribeUserScramCredentials", {"users": [{"name": "nobody"}]}, (((*C, DESCRIBE),),)),
        Row(
            "AlterUserScramCredentials",
            {"deletions": [{"name": "nobody", "mechanism": 1}], "upsertions": []},
            (((*C, ALTER),),),
        ),
    ]


RESOURCE_NAMES = {TOPIC: "topic", GROUP: "group", CLUSTER: "cluster", TRANSACTIONAL_ID: "transactional id"}
OPERATION_NAMES = {
    READ: "READ",
    WRITE: "WRITE",
    CREATE: "CREATE",
    DELETE: "DELETE",
    ALTER: "ALTER",
    DESCRIBE: "DESCRIBE",
    CLUSTER_ACTION: "CLUSTER_ACTION",
    DESCRIBE_CONFIGS: "DESCRIBE_CONFIGS",
    ALTER_CONFIGS: "ALTER_CONFIGS",
    IDEMPOTENT_WRITE: "IDEMPOTENT_WRITE",
}


def _commit(broker: Broker, name: str) -> None:
    """Have a group of that name, with an offset of the topic of that name."""
    partitions = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]
    committed = [{"name": name, "partitions": partitions}]
    reply = broker.quietly(
        "OffsetCommit", 8, group_id=name, generation_id_or_member_epoch=-1, member_id="", topics=committed
    )
    assert reply["topics"][0]["partitions"][0]["error_code"] == 0, reply


@scenario
def each_missing_permission(broker: Broker) -> None:
    topic_id = broker.prepare_topic("kept")
    broker.wait_for_coordinator("kept")
    broker.wait_for_coordinator("other")
    prepare(broker, "kept")
    _commit(broker, "kept")
    guest = broker.connect(GUEST)
    for row in table(topic_id):
        with row.amid(broker):
            for missing in row.missing:
                with denied(broker, *missing):
                    ask_row(broker, row, guest, _note_of(row, missing))


def ask_row(broker: Broker, row: Row, connection: Connection, note: str) -> Tree:
    """Ask what a row asks, record and return the reply."""
    return broker.begin(row.api, row.version_at(broker), note, connection, **row.fields).reply(row.narrow)


def title_of(broker: Broker, row: Row, missing: tuple[Permission, ...]) -> str:
    """How the exchange is called in which the guest lacked ``missing``."""
    return Step(row.api, row.version_at(broker), _note_of(row, missing), {}, None).title


def _note_of(row: Row, missing: tuple[Permission, ...]) -> str:
    lacking = " and ".join(
        f"{OPERATION_NAMES[operation]} on {RESOURCE_NAMES[kind]} {name}" for kind, name, operation in missing
    )
    return f"{row.note + ': ' if row.note else ''}without {lacking}"


@scenario
def what_may_not_be_seen_is_absent(broker: Broker) -> None:
    broker.prepare_topic("hidden")
    broker.wait_for_coordinator("kept")
    guest = broker.connect(GUEST)

    def names(reply: Tree) -> Tree:
        """Of all that there is, what this scenario is about."""
        return {
            key: [each for each in value if (each.get("name") or each.get("group_id")) == "hidden"]
            for key, value in reply.items()
            if key in ("topics", "groups")
        }

    broker.wait_for_coordinator("hidden")
    _commit(broker, "hidden")
    hidden = ((TOPIC, "hidden", DESCRIBE), (GROUP, "hidden", DESCRIBE))
    for missing in ((), hidden, (*hidden, (CLUSTER, CLUSTER_NAME, DESCRIBE))):
        note = f"with {len(missing)} missing"
        with denied(broker, *missing):
            broker.begin("Metadata", 12, note, guest, topics=None).reply(names)
            broker.begin("ListGroups", 5, note, guest).reply(names)


@scenario
def a_regular_expression_names_no_topic_that_may_not_be_described(broker: Broker) -> None:
    ids = {broker.prepare_topic(f"matched-{name}"): name for name in ("seen", "hidden")}
    for group, *missing in (
        ("matching-all", (TOPIC, "matched-none", DESCRIBE)),
        ("matching-seen", (TOPIC, "matched-hidden", DESCRIBE)),
    ):
        consumer_groups.prepare(broker, group)
        consumer = Consumer(broker.connect(GUEST), group)
        with denied(broker, *missing):
            assigned = consumer.assigned(broker, subscribed_topic_names=[], subscribed_topic_regex="matched-.*")
            broker.note(group, sorted(ids[topic_id] for topic_id in assigned))
            consumer.leave()


@scenario
def denial_by_prefix_and_wildcard(broker: Broker) -> None:
    broker.prepare_topic("team-a")
    guest = broker.connect(GUEST)
    everything = Acl(TOPIC, "*", ALL, EVERYWHERE, principal="User:*")
    asked = {"topics": [{"name": "team-a"}], "include_topic_authorized_operations": True}
    for note, *acls in (
        ("all allowed", everything),
        ("a prefix denied", everything, Acl(TOPIC, "team-", WRITE, permission_type=DENY, pattern=PREFIXED)),
        ("all denied", everything, Acl(TOPIC, "*", READ, permission_type=DENY)),
        ("somebody else allowed", Acl(TOPIC, "team-a", ALL, ADMIN)),
        ("a prefix allowed", Acl(TOPIC, "team", READ, pattern=PREFIXED)),
        ("another type of principal", Acl(TOPIC, "team-a", ALL, principal="Group:ANONYMOUS")),
        ("everybody of another address", Acl(TOPIC, "team-a", ALL, "127.0.0.0/8", principal="User:*")),
        ("configs altered", Acl(TOPIC, "team-a", ALTER_CONFIGS), Acl(TOPIC, "team-a", DESCRIBE)),
    ):
        put(broker, *acls)
        broker.begin("Metadata", 12, note, guest, **asked).reply()
        remove(broker, *reversed(acls))
