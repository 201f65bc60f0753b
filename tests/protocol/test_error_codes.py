"""Kafka's table of error codes."""

from __future__ import annotations

import kafka.errors
from kafka.errors import BrokerResponseError

from pybroker_protocol.errors import ErrorCode

# Where kafka-python has an older name, or one of its own.
NAMES_OF_KAFKA_PYTHON = {
    "NOT_LEADER_OR_FOLLOWER": "NOT_LEADER_FOR_PARTITION",
    "MESSAGE_TOO_LARGE": "MESSAGE_SIZE_TOO_LARGE",
    "INVALID_TOPIC_EXCEPTION": "INVALID_TOPIC",
    "INVALID_REPLICA_ASSIGNMENT": "INVALID_REPLICATION_ASSIGNMENT",
}


def test_codes_have_no_gap() -> None:
    assert [int(code) for code in ErrorCode] == list(range(-1, 137))


def test_names_agree_with_kafka_python() -> None:
    errors: list[type[BrokerResponseError]] = [
        error
        for error in vars(kafka.errors).values()
        if isinstance(error, type) and issubclass(error, BrokerResponseError)
    ]
    theirs = {error.errno: error.message for error in errors if error.errno is not None}
    shared = [code for code in ErrorCode if code > 0 and code.value in theirs]
    assert len(shared) > 80
    different = {code.name: theirs[code.value] for code in shared if code.name != theirs[code.value]}
    assert different == NAMES_OF_KAFKA_PYTHON


def test_code_is_a_number_with_a_meaning() -> None:
    code = ErrorCode(3)
    assert code == 3
    assert code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.retriable
    assert not ErrorCode.INVALID_TOPIC_EXCEPTION.retriable
    assert all(code.message for code in ErrorCode)
