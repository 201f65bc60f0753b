"""ACLs of users who have logged in: their hosts, prefixes and denials, and what each is served of a mixed request.

Others are in ``acls``, where everybody is User:ANONYMOUS.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness.batches import batch

from comparator import users
from comparator.broker import Broker
from comparator.encoding import Tree
from comparator.registry import scenario
from comparator.scenarios import acls, tokens, transactions
from comparator.scenarios.acls import (
    ALL,
    ALLOW,
    ALTER_CONFIGS,
    CLUSTER,
    CREATE,
    DELETE,
    DENY,
    DESCRIBE,
    EVERYWHERE,
    GROUP,
    LITERAL,
    PREFIXED,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
    Acl,
    put,
    remove,
)
from comparator.wire import Connection

HERE, THERE = acls.ADMIN, acls.GUEST
ANNA, BERT = "anna", "bert"
ORDERS = "named-orders"


def rule(
    permission: int, name: str, operation: int, resource: str = ORDERS, host: str = EVERYWHERE, pattern: int = LITERAL
) -> Acl:
    """Of a user and a topic."""
    return Acl(TOPIC, resource, operation, host, permission, pattern, f"User:{name}")


# None of these says anything of ``anna``; but where there is any ACL, not everybody may do everything.
FLOOR = Acl(TOPIC, "named-", ALL, EVERYWHERE, pattern=PREFIXED, principal="User:nobody")
CASES: dict[str, tuple[Acl, ...]] = {
    "nothing for anybody": (),
    "one operation": (rule(ALLOW, ANNA, READ),),
    "one operation from there": (rule(ALLOW, ANNA, READ, host=THERE),),
    "one operation, but not from there": (rule(ALLOW, ANNA, READ), rule(DENY, ANNA, READ, host=THERE)),
    "all from here, one of it denied there": (rule(ALLOW, ANNA, ALL, host=HERE), rule(DENY, ANNA, ALL, host=THERE)),
    "a prefix": (rule(ALLOW, ANNA, WRITE, "named-", pattern=PREFIXED),),
    "the name as a prefix": (rule(ALLOW, ANNA, WRITE, pattern=PREFIXED),),
    "a prefix that is longer": (rule(ALLOW, ANNA, WRITE, f"{ORDERS}-", pattern=PREFIXED),),
    "a prefix of each": (
        rule(ALLOW, ANNA, READ, "named-", pattern=PREFIXED),
        rule(ALLOW, BERT, WRITE, "name", pattern=PREFIXED),
    ),
    "all topics": (rule(ALLOW, ANNA, ALL, "*"),),
    "all topics, this one denied": (rule(ALLOW, ANNA, ALL, "*"), rule(DENY, ANNA, DELETE)),
    "a denial by a prefix": (rule(ALLOW, ANNA, ALL), rule(DENY, ANNA, WRITE, "nam", pattern=PREFIXED)),
    "a denial of all topics": (rule(ALLOW, ANNA, ALL), rule(DENY, ANNA, ALTER_CONFIGS, "*")),
    "a denial to everybody": (rule(ALLOW, ANNA, ALL), rule(ALLOW, BERT, READ), rule(DENY, "*", READ)),
    "a denial to everybody there": (rule(ALLOW, ANNA, ALL), rule(DENY, "*", ALL, host=THERE)),
    "everybody but one": (rule(ALLOW, "*", READ), rule(DENY, BERT, READ)),
    "everybody": (rule(ALLOW, "*", WRITE),),
    "what another operation implies, denied": (rule(ALLOW, ANNA, READ), rule(DENY, ANNA, DESCRIBE)),
    "all denied": (rule(ALLOW, ANNA, READ), rule(DENY, ANNA, ALL)),
    "another case": (rule(ALLOW, ANNA.upper(), READ),),
    "the beginning of a name": (rule(ALLOW, ANNA[:-1], READ),),
    "who has not logged in": (rule(ALLOW, "ANONYMOUS", READ),),
    "configs": (rule(ALLOW, ANNA, ALTER_CONFIGS),),
    "another type of principal": (rule(ALLOW, ANNA, READ)._replace(principal=f"Group:{ANNA}"),),
}


@contextmanager
def known(broker: Broker) -> Iterator[dict[str, Broker]]:
    """Both users, who have logged in by SCRAM."""
    with (
        users.made(broker, ANNA, BERT),
        users.logged_in(broker, users.by_scram(ANNA)) as anna,
        users.logged_in(broker, users.by_scram(BERT)) as bert,
    ):
        yield {ANNA: anna, BERT: bert}


@contextmanager
def existing(broker: Broker, *rules: Acl) -> Iterator[None]:
    put(broker, *rules)
    try:
        yield
    finally:
        remove(broker, *reversed(rules))


def of_topics(reply: Tree) -> Tree:
    """Metadata without brokers."""
    return {"topics": [each for each in reply["topics"] if (each["name"] or "named-").startswith("named-")]}


@scenario
def hosts_prefixes_and_denials_of_users(broker: Broker) -> None:
    broker.prepare_topic(ORDERS)
    asked = {"topics": [{"name": ORDERS}], "include_topic_authorized_operations": True}
    with known(broker) as both, existing(broker, FLOOR):
        connections = {
            f"{name} from {where}": (user, user.connect(host))
            for name, user in both.items()
            for where, host in (("here", HERE), ("there", THERE))
        }
        for note, rules in CASES.items():
            with existing(broker, *rules):
                for who, (user, connection) in connections.items():
                    user.begin("Metadata", 12, f"{note}: {who}", connection, **asked).reply(of_topics)


MINE, OTHERS, GROUPS = "named-annas", "named-berts", "named-group-"


def granted() -> list[Acl]:
    """Each user has a topic, and one has groups, new topics and transactions by prefixes."""

    def of(kind: int, name: str, operation: int, principal: str, pattern: int = LITERAL) -> Acl:
        return Acl(kind, name, operation, EVERYWHERE, ALLOW, pattern, f"User:{principal}")

    return [
        of(CLUSTER, acls.CLUSTER_NAME, ALL, "ANONYMOUS"),
        of(TOPIC, "named-", ALL, "ANONYMOUS", PREFIXED),
        of(GROUP, "named-", ALL, "ANONYMOUS", PREFIXED),
        of(TRANSACTIONAL_ID, "named-", ALL, "nobody", PREFIXED),
        of(TOPIC, MINE, READ, ANNA),
        of(TOPIC, MINE, WRITE, ANNA),
        of(TOPIC, OTHERS, ALL, BERT),
        of(GROUP, GROUPS, READ, ANNA, PREFIXED),
        of(GROUP, GROUPS, DELETE, BERT, PREFIXED),
        of(TOPIC, "named-new-", CREATE, ANNA, PREFIXED),
        of(TRANSACTIONAL_ID, "named-transaction-", WRITE, ANNA, PREFIXED),
    ]


def mixed_requests() -> list[tuple[str, int, dict[str, Any]]]:
    """Each of something that one may and of something that the other may."""
    names = (MINE, OTHERS)
    fetched = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1_000}]
    latest = [{"partition_index": 0, "timestamp": -1}]
    committed = [{"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}]
    creation = {"num_partitions": 1, "replication_factor": 1, "configs": []}
    group = f"{GROUPS}1"
    return [
        ("Metadata", 12, {"topics": [{"name": name} for name in (*names, "named-none")]}),
        ("Metadata", 12, {"topics": None, "include_topic_authorized_operations": True}),
        (
            "Produce",
            9,
            {
                "acks": -1,
                "timeout_ms": 9_000,
                "topic_data": [
                    {"name": name, "partition_data": [{"index": 0, "records": batch(b"a")}]} for name in names
                ],
            },
        ),
        (
            "Fetch",
            12,
            {
                "replica_id": -1,
                "max_wait_ms": 0,
                "min_bytes": 1,
                "max_bytes": 1_000,
                "session_epoch": -1,
                "topics": [{"topic": name, "partitions": fetched} for name in names],
                "rack_id": "",
            },
        ),
        ("ListOffsets", 7, {"replica_id": -1, "topics": [{"name": name, "partitions": latest} for name in names]}),
        ("FindCoordinator", 4, {"key_type": 0, "coordinator_keys": [group, "named-other"]}),
        ("FindCoordinator", 4, {"key_type": 1, "coordinator_keys": ["named-transaction-1", "named-other"]}),
        (
            "OffsetCommit",
            8,
            {
                "group_id": group,
                "generation_id_or_member_epoch": -1,
                "member_id": "",
                "topics": [{"name": name, "partitions": committed} for name in names],
            },
        ),
        (
            "OffsetFetch",
            8,
            {
                "groups": [{"group_id": each, "topics": None} for each in (group, "named-other")],
                "require_stable": False,
            },
        ),
        ("DescribeGroups", 5, {"groups": [group, "named-other"], "include_authorized_operations": True}),
        (
            "CreateTopics",
            7,
            {
                "topics": [{"name": name, **creation} for name in ("named-new-1", "named-1")],
                "timeout_ms": 9_000,
                "validate_only": True,
            },
        ),
        (
            "DescribeConfigs",
            4,
            {"resources": [{"resource_type": 2, "resource_name": name, "configuration_keys": []} for name in names]},
        ),
        ("InitProducerId", 4, {"transactional_id": "named-other", "transaction_timeout_ms": 60_000}),
        ("DescribeCluster", 1, {"include_cluster_authorized_operations": True, "endpoint_type": 1}),
        ("DescribeAcls", 3, acls.wanted(principal_filter="User:nobody")),
        ("DescribeUserScramCredentials", 0, {"users": [{"name": BERT}]}),
        ("DescribeClientQuotas", 1, {"components": [], "strict": False}),
        ("DescribeDelegationToken", 3, {"owners": None}),
    ]


def ask_mixed(user: Broker, who: str, connection: Connection | None = None) -> None:
    for api, version, fields in mixed_requests():
        narrow = of_topics if api == "Metadata" else None
        if api == "DescribeDelegationToken":
            narrow = tokens.of_users
        user.begin(api, version, who, connection, **fields).reply(narrow)


@scenario
def mixed_requests_of_users(broker: Broker) -> None:
    for name in (MINE, OTHERS):
        broker.prepare_topic(name)
    broker.wait_for_coordinator(f"{GROUPS}1")
    transactions.prepare(broker, "named-transaction-1")
    with known(broker) as both, existing(broker, *granted()):
        for name, user in both.items():
            ask_mixed(user, name)
        try:
            made = both[ANNA].quietly("CreateDelegationToken", 3, **tokens.creation())
            hmac = bytes(made["hmac"])
            broker.wait_until(lambda: hmac in tokens.seen(both[ANNA], ANNA), "the token")
            with users.logged_in(broker, users.by_token(made["token_id"], hmac)) as holder:
                ask_mixed(holder, "the holder of a token")
        finally:
            tokens.end_all(both[ANNA], ANNA)
