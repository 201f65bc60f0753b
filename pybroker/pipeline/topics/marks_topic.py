"""Where the sink keeps what it knows of a query's writes: the metadata of offsets of one consumer group per query.

An offset carries text, and moves with a transaction's rows or not at all. A group has one offset per partition, and
tasks commit at once. Each task number has a partition of its own, in a topic that is there for that alone and that all
queries share. Partition 0 is the claim's, 1 the decision's, and those from 2 on are the task numbers'.

Owns the topic, and the reading and committing of texts; what they say is ``claims``' and ``epoch_transactions``'.

Invariants: no record is ever written to the topic, and each offset that is committed is 0, where its partition ends.
So the group has no lag, by whatever tool it is looked at.
"""

import time
from collections.abc import Iterable, Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as ClientTopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from pybroker.pipeline.topics.client_calls import (
    REQUEST_TIMEOUT_S,
    NoAnswer,
    admin,
    answered,
    commit_by,
    committing_consumer,
    connection,
    offsets_of,
    once_coordinated,
)
from pybroker.pipeline.topics.client_log import with_client_log
from pybroker.pipeline.topics.task_commits import QueryRun

CLAIM_AT = 0
DECISION_AT = 1
_FIRST_SLOT_AT = 2

PARTITIONS_MIN = 16

# librdkafka does not look at the timeout that it is given for a transaction's offsets (its issue 5456): where the
# group's coordinator dies meanwhile it may wait for ever.  With a broker it takes milliseconds; a task that is given up
# is retried.
SENT_WITHIN_S = 20.0

_PAUSE_S = 0.05
_NO_OFFSET_BUT_TEXT = 0

# Another task, or another query, is about to make the partitions that are wanted.
_AT_WORK = frozenset(
    {
        KafkaError.TOPIC_ALREADY_EXISTS,
        KafkaError.INVALID_PARTITIONS,
        KafkaError.REASSIGNMENT_IN_PROGRESS,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.NOT_CONTROLLER,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError._TIMED_OUT,
    }
)


_REFUSALS = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)


class MarksRefused(RuntimeError):
    """The topic of the marks may not be read, or has too few partitions, and the user may not have more be made."""


def slot_at(task: int) -> int:
    """The partition of a task number."""
    return _FIRST_SLOT_AT + task


def read(
    client: Mapping[str, str],
    query_run: QueryRun,
    partitions: Iterable[int],
    within_s: float = REQUEST_TIMEOUT_S,
    *,
    is_stable: bool = True,
) -> dict[int, str]:
    """The texts by partition, of those that have one; ``is_stable``: none that a transaction may still change.

    Raises `MarksRefused`, and `KafkaException` for what could not be read: _TIMED_OUT where such a transaction does not
    end.
    """
    asked = [ClientTopicPartition(query_run.marks_topic, at) for at in partitions]
    settings = {**connection(client), "isolation.level": "read_committed" if is_stable else "read_uncommitted"}
    try:
        found = offsets_of(settings, query_run.marks, asked, within_s)
    except KafkaException as error:
        if error.args[0].code() in _REFUSALS:
            raise _refused(query_run, f"this user may not read it: {error.args[0].str()}") from error
        raise
    return {at.partition: at.metadata for at in found if at.metadata}


def send(producer: Producer, group: object, query_run: QueryRun, texts: Mapping[int, str]) -> None:
    """Have texts by partition be part of the producer's transaction; ``group`` as `group_metadata` gives it."""
    arguments = (_offsets(query_run, texts), group, REQUEST_TIMEOUT_S)
    answered(producer.send_offsets_to_transaction, *arguments, within_s=SENT_WITHIN_S)


def commit(client: Mapping[str, str], query_run: QueryRun, at: int, text: str) -> None:
    """Commit a text outside of any transaction; raises `NoAnswer` and `KafkaException`."""
    offsets = _offsets(query_run, {at: text})
    consumer = committing_consumer(client, query_run.marks, REQUEST_TIMEOUT_S)
    try:
        once_coordinated(lambda left_s: commit_by(consumer, offsets, left_s), REQUEST_TIMEOUT_S)
    finally:
        consumer.close()


def group_metadata(client: Mapping[str, str], query_run: QueryRun) -> object:
    """What a producer needs to commit offsets of a group without members."""
    consumer = Consumer(with_client_log({**connection(client), "group.id": query_run.marks}))
    found: object = consumer.consumer_group_metadata()
    consumer.close()
    return found


def slots(client: Mapping[str, str], query_run: QueryRun) -> int:
    """How many task numbers have a partition."""
    return max(_partitions(admin(client), query_run.marks_topic) - _FIRST_SLOT_AT, 0)


def ensure_slots(client: Mapping[str, str], query_run: QueryRun, wanted: int) -> None:
    """Have each of so many task numbers have a partition; raises `MarksRefused`, `NoAnswer` and `KafkaException`."""
    topic, partitions = query_run.marks_topic, max(slot_at(wanted), PARTITIONS_MIN)
    deadline = time.monotonic() + REQUEST_TIMEOUT_S
    while (found := _partitions(admin(client), topic)) < partitions:
        if time.monotonic() > deadline:
            raise NoAnswer(f"topic {topic} has {found} of {partitions} partitions after {REQUEST_TIMEOUT_S:.0f} s")
        try:
            _make(admin(client), topic, found, partitions)
        except KafkaException as error:
            if error.args[0].code() in _REFUSALS:
                lacking = f"it has {found} of the {partitions} partitions that are wanted, which this user may not make"
                raise _refused(query_run, f"{lacking}: {error.args[0].str()}") from error
            if error.args[0].code() not in _AT_WORK:
                raise
        time.sleep(_PAUSE_S)


def _make(client: AdminClient, topic: str, found: int, wanted: int) -> None:
    if found:
        made = client.create_partitions([NewPartitions(topic, wanted)], request_timeout=REQUEST_TIMEOUT_S)
    else:
        made = client.create_topics([NewTopic(topic, wanted)], request_timeout=REQUEST_TIMEOUT_S)
    made[topic].result(REQUEST_TIMEOUT_S)


def _refused(query_run: QueryRun, why: str) -> MarksRefused:
    return MarksRefused(
        f"rows that are written are marked in the topic {query_run.marks_topic}, and {why}. An administrator can make "
        "the topic and give READ for it; the option marksTopic names another one"
    )


def _partitions(client: AdminClient, topic: str) -> int:
    """How many it has; all topics are asked for, since a question for one has the broker make it, where it may."""
    found = client.list_topics(timeout=REQUEST_TIMEOUT_S).topics.get(topic)
    return 0 if found is None else len(found.partitions)


def _offsets(query_run: QueryRun, texts: Mapping[int, str]) -> list[ClientTopicPartition]:
    return [
        ClientTopicPartition(query_run.marks_topic, at, _NO_OFFSET_BUT_TEXT, metadata=text)
        for at, text in texts.items()
    ]
