"""The differences that are meant, each with its reason.

Owns: the list.  An entry covers a difference when its scenario, step and path patterns match (as in file names:
``*`` stands for anything).  An entry that covers nothing in a whole run is stale, and the run fails.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import NamedTuple

from comparator.diff import Difference


class Meant(NamedTuple):
    """``scenario``, ``step`` and ``path`` are patterns; ``step`` is matched against ``Api vN (note)``.

    ``kafka`` and ``ours``, when given, are patterns of the two values as ``repr`` shows them.
    """

    scenario: str
    step: str
    path: str
    reason: str
    kafka: str = "*"
    ours: str = "*"

    def covers(self, scenario: str, step: str, difference: Difference) -> bool:
        return (
            fnmatchcase(scenario, self.scenario)
            and fnmatchcase(step, _plain_brackets(self.step))
            and fnmatchcase(difference.path, _plain_brackets(self.path))
            and fnmatchcase(repr(difference.kafka), _plain_brackets(self.kafka))
            and fnmatchcase(repr(difference.ours), _plain_brackets(self.ours))
        )


def _plain_brackets(pattern: str) -> str:
    """Brackets are part of paths and values here, not character classes of a pattern."""
    return pattern.replace("[", "[[]")


def _unserved_keys(keys: tuple[int, ...], reason: str) -> tuple[Meant, ...]:
    return tuple(Meant("*", "ApiVersions *", f"api_keys[api_key={key}]", reason, ours="(absent)") for key in keys)


def _unserved_features(*names: str) -> tuple[Meant, ...]:
    return tuple(
        Meant("*", "ApiVersions *", f"*_features[name={name}]", "nothing is announced before it is served")
        for name in names
    )


NOT_SERVED_YET = (
    *_unserved_keys((17, 29, 30, 31, 36, 38, 39, 40, 41, 48, 49, 50, 51), "security and quotas are not served yet"),
    *_unserved_keys((76, 77, 78, 79, 83, 84, 85, 86, 87, 90, 91, 92), "share groups are not served yet"),
    *_unserved_keys((88, 89), "streams groups are not served yet"),
    *_unserved_keys((34, 45, 46), "replicas are not moved yet"),
    *_unserved_keys((55, 64, 80, 81), "there is no KRaft quorum to describe or to change"),
    *_unserved_features("eligible.leader.replicas.version", "share.version", "streams.version"),
)

_ELR = "Kafka sets it for all brokers as soon as the feature eligible.leader.replicas.version is on"
_VALUE_KAFKA_TRIPS_OVER = "Kafka fails with UNKNOWN_SERVER_ERROR on it; INVALID_REQUEST says whose fault it is"
_BYTES_BEHIND = "bytes behind the batch are refused, not ignored"
_NO_FOLLOWERS = "followers are refused until replication is served"
_UNKNOWN_ISOLATION_LEVEL = "an unknown isolation level is taken for read_uncommitted; Kafka fails on it"
_TWICE = "everything that is asked for is answered for; Kafka takes the last of two and says nothing of the first"
_NEGATIVE_LIMIT = "a negative limit is none; Kafka fails on it"
_NO_SUCH_SESSION = "a session that is not there is none, whatever its id; Kafka fails on some ids"
_TOO_LONG_A_TEXT = "the text of an error is cut to what the wire can carry; Kafka fails on it"
_NOT_ANSWERED = "a request that makes no sense is answered all the same; Kafka fails, and leaves its connection waiting"
_STILL_HELD = "what a member holds, not the target, and that a rebalance is due: nobody owns what another still has"
_ONE_PLACE = "all that there is to say of a topic stands in one place, however often a request names the topic"
_NOBODYS_ID = "an id that was given out, and comes with an instance's, is nobody's; Kafka fails on it"
_OPAQUE = "records are not decoded unless a rule needs them; the header alone is judged"

MEANT: tuple[Meant, ...] = (
    *NOT_SERVED_YET,
    # Requests.
    Meant("connections.*", "*(client id that is not UTF-8)", "connection", "strings are UTF-8"),
    Meant("connections.*", "*(client id of length -2)", "connection", "null has the length -1 and no other"),
    Meant("configs.*", "*(unknown operation)", "responses[*].error_*", _VALUE_KAFKA_TRIPS_OVER),
    Meant("boundaries_*", "*.config_operation: *)", "responses[*].error_*", _VALUE_KAFKA_TRIPS_OVER),
    Meant("metadata.topics_by_id", "*(neither id nor name)", "*error_code", _VALUE_KAFKA_TRIPS_OVER, kafka="-1"),
    Meant("boundaries_data.metadata", "*(topics[0].name: null)", "*error_code", _VALUE_KAFKA_TRIPS_OVER, kafka="-1"),
    Meant(
        "boundaries_data.describe_topic_partitions",
        "*(cursor.partition_index: max)",
        "next_cursor",
        "what is behind the last partition is nowhere; Kafka's sum overflows",
        ours="None",
    ),
    # Settings.
    Meant("*", "*", "*configs[name=min.insync.replicas]*", _ELR),
    Meant("configs.replacing_one_resource_twice", "*", "*", _NOT_ANSWERED),
    Meant("configs.describe_the_broker", "*", "*configs[name=pybroker.*]", "settings that are pybroker's own"),
    Meant("configs.describe_the_broker", "*", "*[name=controller.quorum.voters]*", "Kafka alone has to be told of it"),
    # Produce.
    Meant("*", "Produce *", "*.error_message", "every error of a batch says why", kafka="None", ours="'<text>'"),
    Meant("*", "Produce *", "*.log_start_offset", "every error of a log says where it starts", kafka="-1"),
    Meant("produce.broken_*", "*(trailing bytes)", "*", _BYTES_BEHIND),
    Meant("produce.broken_*", "*(log append time flag)", "*", "no client may claim the broker's clock for its batch"),
    Meant("produce.broken_*", "*(count too *)", "*", _OPAQUE),
    Meant("produce.broken_*", "*(unknown codec)", "*.error_code", "INVALID_RECORD says whose fault it is", kafka="-1"),
    Meant("produce.compressed_*", "*claimed only)", "*", _OPAQUE),
    Meant("produce.one_partition_twice", "*", "*", _TWICE),
    Meant("produce.null_records_are_not_answered", "*", "*", _NOT_ANSWERED),
    Meant("produce.timestamps_*", "Fetch *", "*.max_timestamp", _OPAQUE),
    Meant(
        "produce.an_idempotent_producer",
        "*(older than the five remembered: *)",
        "*.error_code",
        "clients take DUPLICATE_SEQUENCE_NUMBER for delivered, which it was, and OUT_OF_ORDER for a failure",
        kafka="45",
        ours="46",
    ),
    Meant(
        "*",
        "*(duplicate of *)",
        "*.log_append_time_ms",
        "Kafka gives a repeated batch's largest create time as if it were the log's; the records' own are right",
        ours="-1",
    ),
    # Groups.
    Meant("consumer_groups.offsets_of_members", "OffsetFetch *(only an epoch)", "*error_code", _VALUE_KAFKA_TRIPS_OVER),
    Meant("groups.one_protocol_twice", "*", "*", _NOT_ANSWERED),
    Meant("boundaries_groups.join_group", "*(group_instance_id: *)", "error_code", _NOBODYS_ID, kafka="-1", ours="25"),
    Meant("boundaries_groups.join_group", "*(group_instance_id: *)", "member_id", "who is refused is told who it is"),
    Meant("boundaries_groups.offset_delete", "*(topics: twice)", "topics[*", _ONE_PLACE),
    Meant("boundaries_transactions.txn_offset_commit", "*(topics: twice)", "topics[*", _ONE_PLACE),
    Meant(
        "boundaries_transactions.write_txn_markers",
        "*(markers[0].producer_*)",
        "*error_code",
        "a marker of a producer that there cannot be is refused; Kafka writes one and fails on others",
        ours="42",
    ),
    Meant("classic_groups.groups_that_were_*", "*(after the refusal)", "*", "who is refused founds no group"),
    # Topics.
    Meant(
        "elections.*",
        "*(negative type)",
        "error_code",
        "an election of no type that there is is refused, though it is of no partition",
        kafka="0",
        ours="42",
    ),
    Meant(
        "topics.create_with_configs", "*(spaces around)", "*.value", "values are kept without the spaces around them"
    ),
    # Fetch.
    Meant("fetch.limits_of_bytes", "*(isolation level *)", "*", _UNKNOWN_ISOLATION_LEVEL),
    Meant("boundaries_data.*", "* (isolation_level: *)", "*", _UNKNOWN_ISOLATION_LEVEL),
    Meant("boundaries_data.fetch", "*max_bytes: *)", "*", _NEGATIVE_LIMIT),
    Meant("boundaries_data.fetch", "*replica_id: *)", "*error_code", _NO_FOLLOWERS, ours="31"),
    Meant("boundaries_data.fetch", "*replica_id: *)", "*.current_leader.*", _NO_FOLLOWERS, ours="-1"),
    Meant("boundaries_data.fetch", "*last_fetched_epoch: max)", "*", _NO_FOLLOWERS),
    Meant("boundaries_data.fetch", "*(session_id: *)", "*", _NO_SUCH_SESSION),
    Meant("boundaries_data.fetch", "*: twice)", "*.partitions[1]", _TWICE, kafka="(absent)"),
    Meant("offsets.partitions_*", "*(isolation level *)", "*", _UNKNOWN_ISOLATION_LEVEL),
    Meant("fetch.limits_of_bytes", "*", "*.records[*]", "a batch is sent whole or not at all", ours="(absent)"),
    Meant("fetch.limits_of_bytes", "*(negative *limit)", "*", _NEGATIVE_LIMIT),
    Meant("fetch.a_replica_*", "*(as replica *)", "*error_code", _NO_FOLLOWERS, ours="31"),
    Meant(
        "transactional_data.committed_readers_*",
        "Fetch *",
        "*.aborted_transactions*",
        "those transactions are named that touch what is sent; Kafka names more, by the precision of its index",
    ),
    Meant(
        "boundaries_transactions.write_txn_markers",
        "*(markers[0].coordinator_epoch: min)",
        "*error_code",
        "a coordinator's epoch is compared with one that was seen; Kafka compares it with none at all, too",
        kafka="52",
        ours="0",
    ),
    Meant(
        "boundaries_transactions.write_txn_markers",
        "*(markers[0].transaction_version: -1)",
        "*error_code",
        "a version that is none is below 2; Kafka fails on it",
        kafka="-1",
        ours="0",
    ),
    Meant("transactions.no_transactions_at_all", "*", "*", _NOT_ANSWERED),
    Meant("transactional_data.one_partition_marked_twice", "*", "*", _NOT_ANSWERED),
    Meant("transactional_data.markers_by_hand", "*(no epoch)", "*error_code", _VALUE_KAFKA_TRIPS_OVER),
    Meant("lifecycle.a_parked_*", "*", "*.aborted_transactions", "no list and an empty one say the same of an error"),
    Meant("fetch.leader_epochs", "*(last fetched epoch 1)", "*", _NO_FOLLOWERS),
    Meant("fetch.leader_epochs", "*(diverging: *)", "*", _NO_FOLLOWERS),
    Meant("consumer_group_records.a_migration", "*", "*.current_state_timestamp", _STILL_HELD),
    Meant("consumer_group_records.a_migration", "*", "*.assignment", _STILL_HELD),
    # Whatever the API.
    Meant("boundaries_*", "*: longest)", "*error_code", _TOO_LONG_A_TEXT, kafka="-1"),
    Meant("boundaries_*", "*: longest)", "*error_message", _TOO_LONG_A_TEXT, kafka="None", ours="'<text>'"),
    Meant("boundaries_*", "*: longest)", "*group_state", _TOO_LONG_A_TEXT, kafka="''", ours="'Dead'"),
)
