"""The differences that are meant, each with its reason.

Owns: the list.  A key that has a row in ``pybroker.apis`` is served, and has no entry.  An entry covers a difference
when its scenario, step and path patterns match (as in file names: ``*`` stands for anything, ``?`` for one character)
and both values are what it says.  An entry that covers nothing in a whole run is stale, and the run fails.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import NamedTuple

from comparator.diff import Difference
from pybroker.apis import BY_KEY


class Meant(NamedTuple):
    """``scenario``, ``step`` and ``path`` are patterns; ``step`` is matched against ``Api vN (note)``.

    ``kafka`` and ``ours`` are patterns of the two values as ``repr`` shows them.  Neither has a default: whoever leaves
    open what pybroker says has every mistake meant, down to a closed connection.
    """

    scenario: str
    step: str
    path: str
    kafka: str
    ours: str
    reason: str

    def covers(self, scenario: str, step: str, difference: Difference) -> bool:
        return (
            fnmatchcase(scenario, self.scenario)
            and fnmatchcase(step, _plain_brackets(self.step))
            and fnmatchcase(difference.path, _plain_brackets(self.path))
            and fnmatchcase(repr(difference.kafka), _plain_brackets(self.kafka))
            and fnmatchcase(repr(difference.ours), _plain_brackets(self.ours))
        )


class AnsweredAs(NamedTuple):
    """Where Kafka fails and pybroker does not: what it answers is what Kafka answers to ``example``, an earlier note.

    Entries say which values may differ; that nothing is missing among ours no list of differences can say.
    """

    scenario: str
    note: str
    example: str

    def covers(self, scenario: str, note: str) -> bool:
        return fnmatchcase(scenario, self.scenario) and fnmatchcase(note, _plain_brackets(self.note))


def _plain_brackets(pattern: str) -> str:
    """Brackets are part of paths and values here, not character classes of a pattern."""
    return pattern.replace("[", "[[]")


def each(scenario: str, step: str, reason: str, *values: tuple[str, str, str]) -> tuple[Meant, ...]:
    """An entry for each path, with what Kafka says there and what pybroker does."""
    return tuple(Meant(scenario, step, path, kafka, ours, reason) for path, kafka, ours in values)


def _unserved_keys(keys: tuple[int, ...], reason: str) -> tuple[Meant, ...]:
    """An entry for each of these keys that is not served."""
    return tuple(
        Meant("*", "ApiVersions *", f"api_keys[api_key={key}]", f"{{'api_key': {key}, *", ABSENT, reason)
        for key in keys
        if key not in BY_KEY
    )


def _unserved_features(*names: str) -> tuple[Meant, ...]:
    return tuple(
        Meant(
            "*", "ApiVersions *", f"*_features[name={name}]", "{*", ABSENT, "nothing is announced before it is served"
        )
        for name in names
    )


# Values that many entries have, as ``repr`` shows them.
ABSENT, SOME_TEXT = "(absent)", "'<text>'"
INVALID_REQUEST, NOT_LEADER = "42", "6"
RESOURCE_NOT_FOUND, UNACCEPTABLE_CREDENTIAL = "91", "93"

NOT_SERVED_YET = (
    *_unserved_keys((76, 77, 78, 79, 83, 84, 85, 86, 87, 90, 91, 92), "share groups are not served yet"),
    *_unserved_keys((88, 89, 93), "streams groups are not served yet"),
    *_unserved_keys((80, 81), "there is no KRaft quorum to change"),
    *_unserved_features("share.version", "streams.version"),
)

_VALUE_KAFKA_TRIPS_OVER = "Kafka fails with UNKNOWN_SERVER_ERROR on it; INVALID_REQUEST says whose fault it is"
_BYTES_BEHIND = "bytes behind the batch are refused, not ignored"
_NO_FOLLOWERS = "who fetches as a replica proves first that it is a broker of the cluster"
_UNKNOWN_ISOLATION_LEVEL = "an unknown isolation level is taken for read_uncommitted; Kafka fails on it"
_TWICE = "everything that is asked for is answered for; Kafka takes the last of two and says nothing of the first"
_NEGATIVE_LIMIT = "a negative limit is none; Kafka fails on it"
_NO_SUCH_SESSION = "a session that is not there is none, whatever its id; Kafka fails on some ids"
_NO_SUCH_ACL = "a number that stands for no kind of ACL is refused or matches nothing; Kafka closes the connection"
_TOO_LONG_A_TEXT = "the text of an error is cut to what the wire can carry; Kafka fails on it"
_NOT_ANSWERED = "a request that makes no sense is answered all the same; Kafka fails, and leaves its connection waiting"
_STILL_HELD = "what a member holds, not the target, and that a rebalance is due: nobody owns what another still has"
_ONE_PLACE = "all that there is to say of a topic stands in one place, however often a request names the topic"
_NOBODYS_ID = "an id that was given out, and comes with an instance's, is nobody's; Kafka fails on it"
_OWNERS_ARE_USERS = (
    "owners of tokens are users: Kafka lets the holder in as the user who has the name of whatever it is"
)
_NOT_DECODED = "of strangers nothing is decoded but what a login is made of; Kafka answers the request with an error"
_NOT_THEIR_CLOCK = "no client may claim the broker's clock for its batch"
_ABORTED_THERE = "those transactions are named that touch what is sent; Kafka names more, by the precision of its index"
_REFUSED_TWICE = "{'error_code': 42, 'error_message': '<text>', 'resource_type': 2, 'resource_name': 'replaced-twice'}"
# How many partitions an assignment names, as ``repr`` shows it.
_COUNTED_TWO, _COUNTED_FOUR = r"\x00\x00\x00\x02", r"\x00\x00\x00\x04"

# What comes out of a log of twelve records in batches of three (fetch.prepare_log) where Kafka's reply is an error.
_A_BATCH = "{'base_offset': ?, 'batch_length': 253, 'partition_leader_epoch': 0, 'magic': 2, *'record_count': 3, *"
_READ_ALL_THE_SAME = (
    ("*.error_code", "-1", "0"),
    ("*.high_watermark", "-1", "12"),
    ("*.last_stable_offset", "-1", "12"),
    ("*.log_start_offset", "-1", "0"),
    ("*.records[?]", ABSENT, _A_BATCH),
)
# The same where Kafka's error is of the whole request: partitions are listed with empty lists, topics with ids not.
_READ_WHOLE_ALL_THE_SAME = (
    *_READ_ALL_THE_SAME,
    ("error_code", "-1", "0"),
    ("*.aborted_transactions", "[]", "None"),
)
_A_TOPIC_READ = (
    "responses[topic_id=*]",
    ABSENT,
    "{'topic_id': '<topic_id 1>', 'partitions': [{'partition_index': 0, 'error_code': 0, 'high_watermark': 12, "
    "'last_stable_offset': 12, 'log_start_offset': 0, *",
)
_A_LISTED_OFFSET = (("*.error_code", "-1", "0"), ("*.leader_epoch", "-1", "0"))
_NO_TOKEN = (("token_id", "'<token>'", "''"), ("hmac", "'<hmac>'", "b''"))
# What Kafka answers requests of others with in the middle of a login.
_ERRORS_IN_THE_MIDDLE = (
    ("error_code", "34", ABSENT),
    *((name, "[]", ABSENT) for name in ("brokers", "topics", "groups", "responses")),
    ("cluster_id", "None", ABSENT),
    ("controller_id", "-1", ABSENT),
    ("cluster_authorized_operations", "-2147483648", ABSENT),
)
_NO_REPLY = ("connection", "'no reply'", ABSENT)


def _refused(place: str, error: str) -> tuple[tuple[str, str, str], ...]:
    """Kafka fails there without a word (UNKNOWN_SERVER_ERROR), and ours says what is wrong."""
    return (f"{place}.error_code", "-1", error), (f"{place}.error_message", "None", SOME_TEXT)


MEANT: tuple[Meant, ...] = (
    *NOT_SERVED_YET,
    *each(
        "quorum.*",
        "DescribeQuorum v2 *",
        "there is no listener of controllers: whoever decides is a broker, and is reached as one",
        ("nodes[*].listeners[name=CONTROLLER]", "{'name': 'CONTROLLER', *", ABSENT),
        ("nodes[*].listeners[name=PLAINTEXT]", ABSENT, "{'name': 'PLAINTEXT', *"),
        ("nodes[*].listeners[name=SASL_PLAINTEXT]", ABSENT, "{'name': 'SASL_PLAINTEXT', *"),
    ),
    *each(
        "acls.what_is_no_acl",
        "CreateAcls *",
        _VALUE_KAFKA_TRIPS_OVER,
        *_refused("results[0]", INVALID_REQUEST),
    ),
    *each(
        "acls.boundaries_of_acls",
        "CreateAcls *creations[0].principal: longest)",
        _TOO_LONG_A_TEXT,
        *_refused("results[0]", INVALID_REQUEST),
    ),
    Meant("acls.boundaries_of_acls", "* 0)", "connection", "'closed without a reply'", ABSENT, _NO_SUCH_ACL),
    *each(
        "acls.boundaries_of_acls",
        "* 0)",
        _NO_SUCH_ACL,
        ("results", ABSENT, "[{'error_code': 42, 'error_message': '<text>'}]"),
        ("filter_results", ABSENT, "[{'error_code': 42, 'error_message': '<text>', *"),
        ("error_code", ABSENT, "0"),
        ("error_message", ABSENT, "''"),
        ("resources", ABSENT, "[]"),
    ),
    # Delegation tokens.
    *each(
        "tokens.who_sees_and_makes_whose_tokens",
        "CreateDelegationToken v3 (a group's)",
        _OWNERS_ARE_USERS,
        ("error_code", "0", "67"),
        ("issue_timestamp_ms", "0", "-1"),
        ("expiry_timestamp_ms", "1", "-1"),
        ("max_timestamp_ms", "1", "-1"),
        *_NO_TOKEN,
    ),
    *each(
        "tokens.boundaries_of_tokens",
        "CreateDelegationToken v3 (owner_principal_name: unknown)",
        _OWNERS_ARE_USERS,
        ("error_code", "0", "67"),
        ("issue_timestamp_ms", "0", "-1"),
        ("expiry_timestamp_ms", "60000", "-1"),
        ("max_timestamp_ms", "60000", "-1"),
        *_NO_TOKEN,
    ),
    *each(
        "tokens.boundaries_of_tokens",
        "CreateDelegationToken v3 (owner_principal_name: longest)",
        _OWNERS_ARE_USERS,
        ("error_code", "-1", "67"),
        ("principal_type", "'User'", "''"),
        ("principal_name", "'ANONYMOUS'", "'createdelegationtoken-*"),
        ("token_requester_principal_name", "'ANONYMOUS'", "'alice'"),
    ),
    *each(
        "tokens.boundaries_of_tokens",
        "CreateDelegationToken * (renewers[0].principal_name: longest)",
        "a name as long as a request can carry is kept; Kafka has no room for it in a record, and fails on it",
        ("error_code", "-1", "0"),
        ("principal_name", "'ANONYMOUS'", "'alice'"),
        ("token_requester_principal_name", "'ANONYMOUS'", "'alice'"),
        ("issue_timestamp_ms", "-1", "0"),
        ("expiry_timestamp_ms", "-1", "60000"),
        ("max_timestamp_ms", "-1", "60000"),
        ("token_id", "''", "'<token>'"),
        ("hmac", "b''", "'<hmac>'"),
    ),
    # Logins.
    *each(
        "logins.requests_in_the_middle_of_a_login",
        "*(in the middle: something else)",
        _NOT_DECODED,
        ("connection", ABSENT, "'closed without a reply'"),
        *_ERRORS_IN_THE_MIDDLE,
    ),
    *each(
        "logins.logins_anew",
        "*in the middle of a login anew: in the middle)",
        _NOT_DECODED,
        ("connection", ABSENT, "'closed without a reply'"),
        *_ERRORS_IN_THE_MIDDLE,
    ),
    *(
        Meant(
            "logins.exchanges_of_scram",
            f"*({who})",
            "observed.steps",
            "1",
            "2",
            "who does not exist is asked for a proof like everybody else; Kafka refuses it at once",
        )
        for who in ("an unknown user", "a user of PLAIN", "a token that is none")
    ),
    *each(
        "logins.logins_anew",
        "*(anew, by an old handshake: *)",
        "a login anew comes in requests; tokens without them are of clients that never log in anew",
        ("error_code", "0", ABSENT),
        ("mechanisms", "['PLAIN', 'SCRAM-SHA-256']", ABSENT),
        ("connection", ABSENT, "'closed without a reply'"),
    ),
    *each(
        "logins.exchanges_of_scram",
        "*proof*)",
        "a proof of another length is refused like any that is wrong; Kafka fails on it",
        ("observed.error", "'closed without a reply'", "58"),
        ("observed.text", ABSENT, "'Authentication failed during authentication due to invalid credentials *"),
    ),
    *each(
        "logins.exchanges_of_scram",
        "*(an extension that has to be known*)",
        "who asks for what nobody knows, and says that it has to be known, is refused (RFC 5802); Kafka passes over it",
        ("observed.steps", "2", "1"),
        ("observed.text", "''", "'Authentication failed during authentication due to invalid credentials *"),
        ("observed.error", "0", "58"),
        ("observed.is in", "True", "False"),
    ),
    # Users of SCRAM.
    *each(
        "sasl.boundaries_of_users_of_scram",
        "AlterUserScramCredentials *salted_password: empty)",
        _VALUE_KAFKA_TRIPS_OVER,
        *_refused("results[0]", UNACCEPTABLE_CREDENTIAL),
    ),
    *each(
        "sasl.boundaries_of_users_of_scram",
        "DescribeUserScramCredentials *users[0].name: longest)",
        _TOO_LONG_A_TEXT,
        ("error_code", "-1", "0"),
        ("error_message", "None", "''"),
        ("results[0].user", "''", "'describeuserscramcredentials-*"),
        *_refused("results[0]", RESOURCE_NOT_FOUND),
    ),
    # Requests.
    *each(
        "connections.*",
        "ApiVersions v0 (client id that is not UTF-8)",
        "strings are UTF-8",
        ("connection", ABSENT, "'closed without a reply'"),
        ("error_code", "0", ABSENT),
        ("api_keys", "[{'api_key': *", ABSENT),
    ),
    *each(
        "connections.*",
        "ApiVersions v0 (client id of length -2)",
        "null has the length -1 and no other",
        ("connection", ABSENT, "'closed without a reply'"),
        ("error_code", "0", ABSENT),
        ("api_keys", "[{'api_key': *", ABSENT),
    ),
    *each(
        "configs.topic_configs_change_at_once",
        "*(unknown operation)",
        _VALUE_KAFKA_TRIPS_OVER,
        *_refused("responses[*]", INVALID_REQUEST),
    ),
    *each(
        "boundaries_topics.incremental_alter_configs",
        "*.config_operation: *)",
        _VALUE_KAFKA_TRIPS_OVER,
        *_refused("responses[*]", INVALID_REQUEST),
    ),
    *each(
        "metadata.topics_by_id",
        "*(neither id nor name)",
        _VALUE_KAFKA_TRIPS_OVER,
        ("topics[*].error_code", "-1", INVALID_REQUEST),
        ("error_code", "-1", "0"),
    ),
    *each(
        "boundaries_data.metadata",
        "*(topics[0].name: null)",
        _VALUE_KAFKA_TRIPS_OVER,
        ("topics[*].error_code", "-1", INVALID_REQUEST),
        ("error_code", "-1", "0"),
    ),
    Meant(
        "boundaries_data.describe_topic_partitions",
        "*(cursor.partition_index: max)",
        "next_cursor",
        "{'topic_name': 'ends-partitions', 'partition_index': -*",
        "None",
        "what is behind the last partition is nowhere; Kafka's sum overflows",
    ),
    # Settings.
    *each(
        "configs.replacing_one_resource_twice",
        "AlterConfigs *",
        _NOT_ANSWERED,
        _NO_REPLY,
        ("responses", ABSENT, f"[{_REFUSED_TWICE}, {_REFUSED_TWICE}]"),
    ),
    Meant(
        "*",
        "DescribeConfigs *",
        "*configs[name=pybroker.*]",
        ABSENT,
        "{'name': 'pybroker.*', 'value': *, 'read_only': *, 'config_source': 5, *",
        "settings that are pybroker's own",
    ),
    *each(
        "configs.describe_the_broker",
        "*",
        "Kafka alone has to be told of it",
        ("*[name=controller.quorum.voters].config_source", "4", "5"),
        ("*[name=controller.quorum.voters].synonyms[0].source", "4", "5"),
        (
            "*[name=controller.quorum.voters].synonyms[1]",
            "{'name': 'controller.quorum.voters', 'value': '<local>', 'source': 5}",
            ABSENT,
        ),
    ),
    # Produce.
    Meant("*", "Produce *", "*.error_message", "None", SOME_TEXT, "every error of a batch says why"),
    Meant("*", "Produce *", "*.log_start_offset", "-1", "0", "every error of a log says where it starts"),
    *each(
        "produce.broken_batches",
        "Produce *(trailing bytes)",
        _BYTES_BEHIND,
        ("*.error_code", "0", "87"),
        ("*.base_offset", "?", "-1"),
    ),
    *each(
        "produce.broken_batches",
        "Fetch *(trailing bytes)",
        _BYTES_BEHIND,
        ("*.high_watermark", "9", "0"),
        ("*.last_stable_offset", "9", "0"),
        ("*.records[?]", "{'base_offset': ?, *", ABSENT),
    ),
    *each(
        "produce.broken_batches",
        "Produce *(log append time flag)",
        _NOT_THEIR_CLOCK,
        ("*.error_code", "0", "32"),
        ("*.base_offset", "?", "-1"),
        ("*.record_errors[0]", ABSENT, "{'batch_index': 0, 'batch_index_error_message': '<text>'}"),
    ),
    *each(
        "produce.broken_batches",
        "Fetch *(log append time flag)",
        _NOT_THEIR_CLOCK,
        ("*.high_watermark", "3", "0"),
        ("*.last_stable_offset", "3", "0"),
        ("*.records[?]", "{'base_offset': ?, *", ABSENT),
    ),
    Meant(
        "produce.broken_batches",
        "*(unknown codec)",
        "*.error_code",
        "-1",
        "87",
        "INVALID_RECORD says whose fault it is",
    ),
    Meant(
        "produce.compressed_bytes_that_are_not",
        "Produce *claimed only)",
        "*.error_code",
        "-1",
        "87",
        "INVALID_RECORD says whose fault it is",
    ),
    Meant(
        "produce.records_that_lie",
        "Produce *",
        "*.error_code",
        "-1",
        "87",
        "INVALID_RECORD says whose fault it is",
    ),
    *each(
        "produce.records_that_lie",
        "Produce *: *offset*)",
        "offsets that are not in order would be read twice; Kafka looks at those of compressed records only",
        ("*.error_code", "0", "87"),
        ("*.base_offset", "0", "-1"),
    ),
    *each(
        "produce.records_that_lie",
        "Produce *: a record *th*)",
        "a record's length is looked at in compressed batches, too: clients go by it",
        ("*.error_code", "0", "87"),
        ("*.base_offset", "0", "-1"),
    ),
    Meant(
        "produce.one_partition_twice",
        "Produce *",
        "*.partition_responses[1]",
        ABSENT,
        "{'index': 0, 'error_code': 0, 'base_offset': 1, 'log_append_time_ms': -1*}",
        _TWICE,
    ),
    *each(
        "produce.one_partition_twice",
        "Fetch *",
        _TWICE,
        ("*.high_watermark", "1", "2"),
        ("*.last_stable_offset", "1", "2"),
        ("*.records[0].batch_length", "62", "61"),
        ("*.records[0].records", "'58b345ccaacbe71b'", "'a9f722392c6b30d7'"),
        ("*.records[1]", ABSENT, "{'base_offset': 1, 'batch_length': 62, *'records': '58b345ccaacbe71b'}"),
    ),
    *each(
        "produce.null_records_are_not_answered",
        "Produce *",
        _NOT_ANSWERED,
        _NO_REPLY,
        (
            "responses",
            ABSENT,
            "[{'name': 'null-records', 'partition_responses': [{'index': 0, 'error_code': 87, 'base_offset': -1, "
            "'log_append_time_ms': -1, 'log_start_offset': 0, 'record_errors': [], 'error_message': '<text>'}]}]",
        ),
    ),
    Meant(
        "produce.an_idempotent_producer",
        "*(older than the five remembered: *)",
        "*.error_code",
        "45",
        "46",
        "clients take DUPLICATE_SEQUENCE_NUMBER for delivered, which it was, and OUT_OF_ORDER for a failure",
    ),
    Meant(
        "*",
        "Produce *(duplicate of *)",
        "*.log_append_time_ms",
        "'<time>'",
        "-1",
        "Kafka gives a repeated batch's largest create time as if it were the log's; the records' own are right",
    ),
    # Groups.
    Meant(
        "consumer_groups.offsets_of_members",
        "OffsetFetch *(only an epoch)",
        "groups[*].error_code",
        "-1",
        "25",
        _VALUE_KAFKA_TRIPS_OVER,
    ),
    *each(
        "groups.one_protocol_twice",
        "JoinGroup *",
        _NOT_ANSWERED,
        _NO_REPLY,
        ("error_code", ABSENT, "0"),
        ("generation_id", ABSENT, "1"),
        ("protocol_name", ABSENT, "'range'"),
        ("leader", ABSENT, "'comparator-<uuid 1>'"),
        ("member_id", ABSENT, "'comparator-<uuid 1>'"),
        ("members", ABSENT, "[{'member_id': 'comparator-<uuid 1>', 'metadata': *}]"),
    ),
    Meant("boundaries_groups.join_group", "*(group_instance_id: *)", "error_code", "-1", "25", _NOBODYS_ID),
    Meant(
        "boundaries_groups.join_group",
        "*(group_instance_id: *)",
        "member_id",
        "''",
        "'comparator-<uuid *>'",
        "who is refused is told who it is",
    ),
    *each(
        "boundaries_groups.offset_delete",
        "*(topics: twice)",
        _ONE_PLACE,
        ("topics[0].partitions[1]", ABSENT, "{'partition_index': 0, 'error_code': 0}"),
        ("topics[1]", "{'name': 'ends-forgotten', 'partitions': [{'partition_index': 0, 'error_code': 0}]}", ABSENT),
    ),
    *each(
        "boundaries_transactions.txn_offset_commit",
        "*(topics: twice)",
        _ONE_PLACE,
        ("topics[0].partitions[1]", ABSENT, "{'partition_index': 0, 'error_code': 0}"),
        ("topics[1]", "{'*': '*', 'partitions': [{'partition_index': 0, 'error_code': 0}]}", ABSENT),
    ),
    *each(
        "boundaries_transactions.write_txn_markers",
        "*(markers[0].producer_*)",
        "a marker of a producer that there cannot be is refused; Kafka writes one and fails on others",
        ("*.error_code", "-1", INVALID_REQUEST),
        ("*.error_code", "0", INVALID_REQUEST),
        ("*.error_code", "47", INVALID_REQUEST),
    ),
    Meant(
        "classic_groups.groups_that_were_*",
        "*(after the refusal)",
        "observed.group_state",
        "'Empty'",
        "'Dead'",
        "who is refused founds no group",
    ),
    # Topics.
    Meant(
        "elections.*",
        "*(negative type)",
        "error_code",
        "0",
        INVALID_REQUEST,
        "an election of no type that there is is refused, though it is of no partition",
    ),
    Meant(
        "topics.create_with_configs",
        "*(spaces around)",
        "*.value",
        "' 1000 '",
        "'1000'",
        "values are kept without the spaces around them",
    ),
    # Fetch.
    *each("fetch.limits_of_bytes", "*(isolation level *)", _UNKNOWN_ISOLATION_LEVEL, *_READ_WHOLE_ALL_THE_SAME),
    *each(
        "boundaries_data.fetch",
        "* (isolation_level: *)",
        _UNKNOWN_ISOLATION_LEVEL,
        *_READ_WHOLE_ALL_THE_SAME,
        _A_TOPIC_READ,
    ),
    *each(
        "boundaries_data.list_offsets",
        "* (isolation_level: *)",
        _UNKNOWN_ISOLATION_LEVEL,
        *_A_LISTED_OFFSET,
        ("*.offset", "-1", "12"),
    ),
    *each(
        "offsets.partitions_*",
        "*(isolation level *)",
        _UNKNOWN_ISOLATION_LEVEL,
        *_A_LISTED_OFFSET,
        ("*.offset", "-1", "8"),
    ),
    *each("boundaries_data.fetch", "*max_bytes: -1)", _NEGATIVE_LIMIT, *_READ_ALL_THE_SAME),
    *each("boundaries_data.fetch", "*max_bytes: min)", _NEGATIVE_LIMIT, *_READ_ALL_THE_SAME),
    *each("fetch.limits_of_bytes", "*(negative *limit)", _NEGATIVE_LIMIT, *_READ_ALL_THE_SAME),
    *each(
        "boundaries_data.fetch",
        "*replica_id: *)",
        _NO_FOLLOWERS,
        ("*.error_code", NOT_LEADER, "31"),
        ("error_code", "0", "31"),
        ("*.current_leader.leader_id", "'<node 1>'", "-1"),
        ("*.current_leader.leader_epoch", "0", "-1"),
    ),
    *each(
        "boundaries_data.fetch",
        "*(session_id: *)",
        _NO_SUCH_SESSION,
        *_READ_WHOLE_ALL_THE_SAME,
        _A_TOPIC_READ,
        ("session_id", "'<session ?>'", "0"),
    ),
    Meant(
        "boundaries_data.fetch",
        "*: twice)",
        "responses[*].partitions[1]",
        ABSENT,
        "{'partition_index': 0, 'error_code': 0, 'high_watermark': 12, 'last_stable_offset': 12, *"
        f"'aborted_transactions': None, *'records': [{_A_BATCH}, {_A_BATCH}, {_A_BATCH}]}}",
        _TWICE,
    ),
    *each(
        "fetch.limits_of_bytes",
        "*limit 400)",
        "a batch is sent whole or not at all",
        ("*.records[1]", "{'base_offset': -1, 'batch_length': -1, *", ABSENT),
    ),
    *each(
        "fetch.a_replica_*",
        "*(as replica *)",
        _NO_FOLLOWERS,
        ("*.error_code", NOT_LEADER, "31"),
        ("error_code", "0", "31"),
    ),
    # One byte from offset 0 is the plain batch, from offset 1 the first producer's: what ours names is pinned by that.
    *each(
        "transactional_data.committed_readers_*",
        "Fetch *, from 0, 1 bytes)",
        _ABORTED_THERE,
        ("*.aborted_transactions[0]", "{'producer_id': '<producer 2>', 'first_offset': 2}", ABSENT),
        ("*.aborted_transactions[1]", "{'producer_id': '<producer 1>', 'first_offset': 1}", ABSENT),
    ),
    Meant(
        "transactional_data.committed_readers_*",
        "Fetch *(one aborted, from 0, 1048576 bytes)",
        "*.aborted_transactions[0]",
        "{'producer_id': '<producer 2>', 'first_offset': 2}",
        ABSENT,
        _ABORTED_THERE,
    ),
    *each(
        "transactional_data.committed_readers_*",
        "Fetch *, from 1, 1 bytes)",
        _ABORTED_THERE,
        ("*.aborted_transactions[0].producer_id", "'<producer 2>'", "'<producer 1>'"),
        ("*.aborted_transactions[0].first_offset", "2", "1"),
        ("*.aborted_transactions[1]", "{'producer_id': '<producer 1>', 'first_offset': 1}", ABSENT),
    ),
    Meant(
        "lifecycle.a_parked_*",
        "Fetch *",
        "*.aborted_transactions",
        "None",
        "[]",
        "no list and an empty one say the same of an error",
    ),
    # Transactions.
    Meant(
        "boundaries_transactions.write_txn_markers",
        "*(markers[0].coordinator_epoch: min)",
        "*.error_code",
        "52",
        "0",
        "a coordinator's epoch is compared with one that was seen; Kafka compares it with none at all, too",
    ),
    Meant(
        "boundaries_transactions.write_txn_markers",
        "*(markers[0].transaction_version: -1)",
        "*.error_code",
        "-1",
        "0",
        "a version that is none is below 2; Kafka fails on it",
    ),
    *each(
        "transactions.no_transactions_at_all",
        "AddPartitionsToTxn *",
        _NOT_ANSWERED,
        _NO_REPLY,
        ("error_code", ABSENT, "0"),
        ("results_by_transaction", ABSENT, "[]"),
    ),
    *each(
        "transactional_data.one_partition_marked_twice",
        "WriteTxnMarkers *",
        _NOT_ANSWERED,
        _NO_REPLY,
        (
            "markers",
            ABSENT,
            "[{'producer_id': '<producer 1>', 'topics': [{'name': 'txn-marked-twice', "
            "'partitions': [{'partition_index': 0, 'error_code': 0}]}]}]",
        ),
    ),
    Meant(
        "transactional_data.markers_by_hand",
        "*(no epoch)",
        "*.error_code",
        "-1",
        INVALID_REQUEST,
        _VALUE_KAFKA_TRIPS_OVER,
    ),
    # What the coordinator's log holds.
    Meant("consumer_group_records.a_migration", "*", "*.current_state_timestamp", "True", "False", _STILL_HELD),
    Meant(
        "consumer_group_records.a_migration",
        "*",
        "observed.value.members[member_id=*].assignment",
        f"b'*kip848-log-moves{_COUNTED_TWO}*'",
        f"b'*kip848-log-moves{_COUNTED_FOUR}*'",
        _STILL_HELD,
    ),
    # Whatever the API: errors that quote a string of 32,767 bytes.
    *each(
        "boundaries_topics.describe_client_quotas",
        "DescribeClientQuotas *(components[0].entity_type: longest)",
        _NOT_ANSWERED,
        _NO_REPLY,
        ("error_code", ABSENT, "35"),
        ("error_message", ABSENT, SOME_TEXT),
        ("entries", ABSENT, "None"),
    ),
    *(
        Meant("boundaries_*", f"{step}: longest)", path, "-1", ours, _TOO_LONG_A_TEXT)
        for step, path, ours in (
            ("DescribeProducers *(topics[0].name", "topics[*].partitions[*].error_code", "17"),
            ("ConsumerGroupHeartbeat *(server_assignor", "error_code", "112"),
            ("AlterClientQuotas *(entries[0].entity[0].entity_type", "entries[*].error_code", "42"),
            ("AlterClientQuotas *(entries[0].ops[0].key", "entries[*].error_code", "42"),
            ("ConsumerGroupDescribe *(group_ids[0]", "groups[*].error_code", "69"),
            ("DescribeGroups *(groups[0]", "groups[*].error_code", "69"),
            ("CreateTopics *topics[0].name", "topics[*].error_code", "17"),
            ("CreateTopics *(topics[0].configs[0].*", "topics[*].error_code", "40"),
            ("DescribeConfigs *(resources[0].resource_name", "results[*].error_code", "17"),
            ("AlterConfigs *(resources[0].resource_name", "responses[*].error_code", "17"),
            ("AlterConfigs *(resources[0].configs[0].*", "responses[*].error_code", "40"),
            ("IncrementalAlterConfigs *(resources[0].resource_name", "responses[*].error_code", "17"),
            ("IncrementalAlterConfigs *(resources[0].configs[0].*", "responses[*].error_code", "40"),
            ("UpdateFeatures *(feature_updates[0].feature", "error_code", "95"),
            ("ElectLeaders *(topic_partitions[0].topic", "error_code", "0"),
            ("AlterPartitionReassignments *(topics[0].name", "error_code", "0"),
            ("AlterPartitionReassignments *(topics[0].name", "responses[*].partitions[*].error_code", "3"),
        )
    ),
    Meant("boundaries_*", "*: longest)", "*error_message", "None", SOME_TEXT, _TOO_LONG_A_TEXT),
    Meant("boundaries_*", "DescribeGroups *: longest)", "groups[*].group_state", "''", "'Dead'", _TOO_LONG_A_TEXT),
)

ANSWERED_AS = (
    AnsweredAs("boundaries_data.fetch", "isolation_level: *", "ordinary"),
    AnsweredAs("boundaries_data.fetch", "*max_bytes: -1", "ordinary"),
    AnsweredAs("boundaries_data.fetch", "*max_bytes: min", "ordinary"),
    AnsweredAs("boundaries_data.fetch", "session_id: *", "ordinary"),
    AnsweredAs("boundaries_data.list_offsets", "isolation_level: *", "ordinary"),
    AnsweredAs("fetch.limits_of_bytes", "negative *limit", "partition limit 10000"),
    AnsweredAs("fetch.limits_of_bytes", "isolation level *", "partition limit 10000"),
)
