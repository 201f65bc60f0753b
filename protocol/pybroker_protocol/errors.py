"""Kafka's error codes, and the one exception for bytes that are not Kafka's protocol.

A member of ``ErrorCode`` costs more to compare and to pack than an int: hot modules keep ``int(ErrorCode.X)`` as
constants (``storage.results`` for storage).

Kafka counterpart: org.apache.kafka.common.protocol.Errors; the short messages are our own.
"""

from enum import IntEnum


class ProtocolError(Exception):
    """The peer's bytes are not what the protocol says; the connection they came from cannot be used any longer."""


class ErrorCode(IntEnum):
    """An error code as it travels in responses: its number, whether a client may retry, and what it means.

    ``retriable`` is about Kafka's clients: true where the Java client's exception is a RetriableException.
    """

    retriable: bool
    message: str

    # Every code has all three; the defaults let type checkers accept ``ErrorCode(3)``.
    def __new__(cls, code: int, retriable: bool = False, message: str = "") -> "ErrorCode":
        error = int.__new__(cls, code)
        error._value_ = code
        error.retriable = retriable
        error.message = message
        return error

    UNKNOWN_SERVER_ERROR = -1, False, "Something went wrong in the broker that no other code describes."
    NONE = 0, False, "NONE"
    OFFSET_OUT_OF_RANGE = 1, False, "The offset lies outside of the partition's log."
    CORRUPT_MESSAGE = 2, True, "The record batch is damaged: wrong checksum, size or key."
    UNKNOWN_TOPIC_OR_PARTITION = 3, True, "This broker does not have that topic or partition."
    INVALID_FETCH_SIZE = 4, False, "The fetch size is not valid."
    LEADER_NOT_AVAILABLE = 5, True, "The partition has no leader at the moment."
    NOT_LEADER_OR_FOLLOWER = 6, True, "This broker is not the partition's leader, or not one of its replicas."
    REQUEST_TIMED_OUT = 7, True, "The request was not completed in time."
    BROKER_NOT_AVAILABLE = 8, False, "The broker cannot be reached."
    REPLICA_NOT_AVAILABLE = 9, True, "The partition's replica is not on this broker."
    MESSAGE_TOO_LARGE = 10, False, "The record batch is larger than the topic allows."
    STALE_CONTROLLER_EPOCH = 11, False, "The controller epoch is out of date."
    OFFSET_METADATA_TOO_LARGE = 12, False, "The metadata of a committed offset is too long."
    NETWORK_EXCEPTION = 13, True, "The connection was lost before the response came."
    COORDINATOR_LOAD_IN_PROGRESS = 14, True, "The coordinator is still loading its state."
    COORDINATOR_NOT_AVAILABLE = 15, True, "The coordinator is not available."
    NOT_COORDINATOR = 16, True, "This broker is not the coordinator."
    INVALID_TOPIC_EXCEPTION = 17, False, "The topic's name is not valid, or the topic may not be used so."
    RECORD_LIST_TOO_LARGE = 18, False, "The record batch is larger than a segment of the log."
    NOT_ENOUGH_REPLICAS = 19, True, "Fewer replicas are in sync than the topic requires."
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, True, "The records were written, but to fewer replicas than required."
    INVALID_REQUIRED_ACKS = 21, False, "The acks of the produce request are not 0, 1 or -1."
    ILLEGAL_GENERATION = 22, False, "The generation id is not the group's current one."
    INCONSISTENT_GROUP_PROTOCOL = 23, False, "The member's protocols do not fit those of the group."
    INVALID_GROUP_ID = 24, False, "The group id is not valid."
    UNKNOWN_MEMBER_ID = 25, False, "The group has no such member."
    INVALID_SESSION_TIMEOUT = 26, False, "The session timeout is outside of what the broker allows."
    REBALANCE_IN_PROGRESS = 27, False, "The group is rebalancing; join it again."
    INVALID_COMMIT_OFFSET_SIZE = 28, False, "The committed offsets are too large."
    TOPIC_AUTHORIZATION_FAILED = 29, False, "Not authorized for the topic."
    GROUP_AUTHORIZATION_FAILED = 30, False, "Not authorized for the group."
    CLUSTER_AUTHORIZATION_FAILED = 31, False, "Not authorized for the cluster."
    INVALID_TIMESTAMP = 32, False, "A record's timestamp is outside of what the topic allows."
    UNSUPPORTED_SASL_MECHANISM = 33, False, "The SASL mechanism is not enabled."
    ILLEGAL_SASL_STATE = 34, False, "The request does not fit the state of the SASL exchange."
    UNSUPPORTED_VERSION = 35, False, "The version of the API is not supported."
    TOPIC_ALREADY_EXISTS = 36, False, "A topic of that name exists already."
    INVALID_PARTITIONS = 37, False, "The number of partitions is not valid."
    INVALID_REPLICATION_FACTOR = 38, False, "The replication factor is below 1 or above the number of brokers."
    INVALID_REPLICA_ASSIGNMENT = 39, False, "The assignment of replicas is not valid."
    INVALID_CONFIG = 40, False, "The configuration is not valid."
    NOT_CONTROLLER = 41, True, "This broker is not the controller."
    INVALID_REQUEST = 42, False, "The request contradicts itself or the protocol."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, False, "The message format does not support the request."
    POLICY_VIOLATION = 44, False, "A policy of the broker forbids the request."
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, False, "The sequence number does not follow the last one of the producer."
    DUPLICATE_SEQUENCE_NUMBER = 46, False, "The sequence number was used before by the producer."
    INVALID_PRODUCER_EPOCH = 47, False, "The producer's epoch is out of date."
    INVALID_TXN_STATE = 48, False, "The transaction's state does not allow the operation."
    INVALID_PRODUCER_ID_MAPPING = 49, False, "The producer id does not belong to the transactional id."
    INVALID_TRANSACTION_TIMEOUT = 50, False, "The transaction timeout is longer than the broker allows."
    CONCURRENT_TRANSACTIONS = 51, True, "Another operation on the transaction is still under way."
    TRANSACTION_COORDINATOR_FENCED = (
        52,
        False,
        "The transaction coordinator that writes the marker is no longer the current one.",
    )
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, False, "Not authorized for the transactional id."
    SECURITY_DISABLED = 54, False, "Security features are switched off."
    OPERATION_NOT_ATTEMPTED = 55, False, "The operation was not attempted, because another one of the request failed."
    KAFKA_STORAGE_ERROR = 56, True, "The disk failed to read or write the log."
    LOG_DIR_NOT_FOUND = 57, False, "The log dir is not one of the broker's."
    SASL_AUTHENTICATION_FAILED = 58, False, "SASL authentication failed."
    UNKNOWN_PRODUCER_ID = 59, False, "The broker knows nothing (any more) of the producer id."
    REASSIGNMENT_IN_PROGRESS = 60, False, "The partition is being reassigned."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, False, "Delegation tokens are not enabled."
    DELEGATION_TOKEN_NOT_FOUND = 62, False, "The delegation token does not exist."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, False, "The principal is neither owner nor renewer of the delegation token."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = (
        64,
        False,
        "Delegation tokens cannot be asked for on this kind of connection.",
    )
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, False, "Not authorized for the delegation token."
    DELEGATION_TOKEN_EXPIRED = 66, False, "The delegation token has expired."
    INVALID_PRINCIPAL_TYPE = 67, False, "The principal's type is not supported."
    NON_EMPTY_GROUP = 68, False, "The group still has members."
    GROUP_ID_NOT_FOUND = 69, False, "The group does not exist."
    FETCH_SESSION_ID_NOT_FOUND = 70, True, "The fetch session does not exist (any more)."
    INVALID_FETCH_SESSION_EPOCH = 71, True, "The fetch session's epoch is not the expected one."
    LISTENER_NOT_FOUND = 72, True, "The leader has no listener of the name that the request came in on."
    TOPIC_DELETION_DISABLED = 73, False, "Deleting topics is switched off."
    FENCED_LEADER_EPOCH = 74, True, "The leader epoch of the request is older than the broker's."
    UNKNOWN_LEADER_EPOCH = 75, True, "The leader epoch of the request is newer than the broker's."
    UNSUPPORTED_COMPRESSION_TYPE = 76, False, "The client's version cannot read the compression of the records."
    STALE_BROKER_EPOCH = 77, False, "The broker epoch is out of date."
    OFFSET_NOT_AVAILABLE = 78, True, "The new leader's high watermark has not caught up yet."
    MEMBER_ID_REQUIRED = 79, False, "Join again with the member id of this response."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, True, "The preferred leader is not available."
    GROUP_MAX_SIZE_REACHED = 81, False, "The group has as many members as it may have."
    FENCED_INSTANCE_ID = 82, False, "Another member has registered with the same group instance id."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, True, "No eligible leader is available."
    ELECTION_NOT_NEEDED = 84, True, "The partition needs no election."
    NO_REASSIGNMENT_IN_PROGRESS = 85, False, "The partition is not being reassigned."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, False, "The group is subscribed to the topic."
    INVALID_RECORD = 87, False, "The broker refuses a record of the batch."
    UNSTABLE_OFFSET_COMMIT = 88, True, "Offsets of an unfinished transaction are pending."
    THROTTLING_QUOTA_EXCEEDED = 89, True, "The quota is used up for now."
    PRODUCER_FENCED = 90, False, "A newer producer uses the same transactional id."
    RESOURCE_NOT_FOUND = 91, False, "The resource does not exist."
    DUPLICATE_RESOURCE = 92, False, "The request names a resource twice."
    UNACCEPTABLE_CREDENTIAL = 93, False, "The credential does not meet the requirements."
    INCONSISTENT_VOTER_SET = 94, False, "Sender or receiver is not one of the expected voters."
    INVALID_UPDATE_VERSION = 95, False, "The version that the update started from is not valid."
    FEATURE_UPDATE_FAILED = 96, False, "The finalized features could not be changed."
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, False, "The forwarded principal cannot be read."
    SNAPSHOT_NOT_FOUND = 98, False, "The snapshot does not exist."
    POSITION_OUT_OF_RANGE = 99, False, "The position lies outside of the snapshot."
    UNKNOWN_TOPIC_ID = 100, True, "This broker does not have a topic of that id."
    DUPLICATE_BROKER_REGISTRATION = 101, False, "The broker id is in use."
    BROKER_ID_NOT_REGISTERED = 102, False, "The broker id is not registered."
    INCONSISTENT_TOPIC_ID = 103, True, "The log belongs to another topic id."
    INCONSISTENT_CLUSTER_ID = 104, False, "The cluster id is another one."
    TRANSACTIONAL_ID_NOT_FOUND = 105, False, "The transactional id does not exist."
    FETCH_SESSION_TOPIC_ID_ERROR = 106, True, "The fetch session mixes topic names and topic ids."
    INELIGIBLE_REPLICA = 107, False, "A replica of the wanted ISR may not be in it."
    NEW_LEADER_ELECTED = 108, False, "The partition was changed, but has another leader now."
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, False, "The offset is only in tiered storage."
    FENCED_MEMBER_EPOCH = 110, False, "The member epoch is fenced: give up all partitions and join again."
    UNRELEASED_INSTANCE_ID = 111, False, "Another member still uses the instance id."
    UNSUPPORTED_ASSIGNOR = 112, False, "The group does not support the assignor."
    STALE_MEMBER_EPOCH = 113, False, "The member epoch is out of date: retry after the next heartbeat."
    MISMATCHED_ENDPOINT_TYPE = 114, False, "The endpoint is of another type."
    UNSUPPORTED_ENDPOINT_TYPE = 115, False, "The endpoint type is not supported."
    UNKNOWN_CONTROLLER_ID = 116, False, "The controller id is not known."
    UNKNOWN_SUBSCRIPTION_ID = 117, False, "The telemetry subscription id is out of date."
    TELEMETRY_TOO_LARGE = 118, False, "The pushed metrics are too large."
    INVALID_REGISTRATION = 119, False, "The registration is not valid."
    TRANSACTION_ABORTABLE = 120, False, "The transaction failed and can be aborted."
    INVALID_RECORD_STATE = 121, False, "The record's state does not allow the acknowledgement."
    SHARE_SESSION_NOT_FOUND = 122, True, "The share session does not exist (any more)."
    INVALID_SHARE_SESSION_EPOCH = 123, True, "The share session's epoch is not the expected one."
    FENCED_STATE_EPOCH = 124, False, "The state epoch is out of date."
    INVALID_VOTER_KEY = 125, False, "The voter key is not the receiver's."
    DUPLICATE_VOTER = 126, False, "The voter is one already."
    VOTER_NOT_FOUND = 127, False, "The voter is not one."
    INVALID_REGULAR_EXPRESSION = 128, False, "The regular expression is not valid."
    REBOOTSTRAP_REQUIRED = 129, False, "The client's metadata is out of date: start over from the bootstrap servers."
    STREAMS_INVALID_TOPOLOGY = 130, False, "The topology is not valid."
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, False, "The topology epoch is not valid."
    STREAMS_TOPOLOGY_FENCED = 132, False, "The topology epoch is out of date."
    SHARE_SESSION_LIMIT_REACHED = 133, True, "No more share sessions are possible."
    GROUP_DELETION_FAILED = 134, False, "The group could not be deleted; the group's message says why."
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED = 135, False, "The topology description could not be taken."
    CONTROLLER_ID_NOT_REGISTERED = 136, False, "No controller is registered under the id."


def error_name(code: int) -> str:
    """The name of an error as the protocol guide spells it; "error code 12345" for one that is of a later Kafka."""
    return next((error.name for error in ErrorCode if error == code), f"error code {code}")


# Of four bytes each at most, so many characters fit into any string of the wire (32,767 bytes).
READABLE_CHARS_MAX = 8_000


def readable(message: str) -> str:
    """What a client reads of an error, cut to what the wire can carry: it may quote all that the client has sent."""
    return message if len(message) <= READABLE_CHARS_MAX else f"{message[: READABLE_CHARS_MAX - 1]}…"
