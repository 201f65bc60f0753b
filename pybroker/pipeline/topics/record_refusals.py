"""Which of many records a cluster refuses: found by transactions that are aborted, so that nothing is left of them.

A batch is refused as a whole, its transaction fails with it, and nothing behind it is sent.  So the records of such a
batch are tried one by one, and what is behind them in a new transaction.  Topics are tried one after the other: where a
topic is gone, may not be written, or is mirrored by a link, all of its records are refused at once.

Owns what a record's refusal is, and what is a topic's.  All else, such as a cluster that is away, is raised.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from pybroker.pipeline.topics.client_calls import REQUEST_TIMEOUT_S, NoAnswer, answered, without_calls
from pybroker.pipeline.topics.client_log import with_client_log
from pybroker.pipeline.topics.rows import ProducerRecord

OF_A_RECORD: Final = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError._UNKNOWN_PARTITION,
    }
)
OF_A_TOPIC: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.TOPIC_EXCEPTION,  # no topic can have such a name
        KafkaError.TOPIC_AUTHORIZATION_FAILED,  # as of a topic that a link mirrors
    }
)
# What a transaction that has failed throws away.
PURGED: Final = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})
# Of one transaction, which must not be open for long, and of one batch of it.
_AT_ONCE: Final = 20_000
_TOGETHER: Final = 500
# Longer than a topic is looked for (topic.metadata.propagation.max.ms).
_DELIVERED_WITHIN_S: Final = 60.0
_POLL_S: Final = 0.1
_PURGED_WITHIN_S: Final = 2.0
_TOLD_WITHIN_S: Final = 10.0

_log = logging.getLogger(__name__)


def refusal(topic: str, size: int, error: KafkaError) -> str:
    """What is said of a record that was refused."""
    said = f"a record for {topic} was refused: {error.str()}"
    if error.code() != KafkaError.MSG_SIZE_TOO_LARGE:
        return said
    return f"{said} ({size} bytes; the topic's max.message.bytes and the option kafka.message.max.bytes bound it)"


def refused_records(
    client: Mapping[str, str], transactional_id: str, records: Sequence[ProducerRecord]
) -> Iterator[tuple[int, str]]:
    """The positions of those that are refused, each with the reason; topic by topic.

    Raises KafkaException for what is no record's and no topic's, and `NoAnswer`.
    """
    by_topic: dict[str, list[int]] = defaultdict(list)
    for position, record in enumerate(records):
        by_topic[record.topic].append(position)
    together = _Trials(client, transactional_id, _TOGETHER)
    alone = _Trials(client, f"{transactional_id}-alone", 1)
    for topic, positions in by_topic.items():
        left = {position: records[position] for position in positions}
        while left:
            found = together.run(dict(islice(left.items(), _AT_ONCE)))
            suspects = {position: left[position] for position in found.refused}
            _leave_out(left, found._replace(refused={}))
            while suspects and found.of_topic is None:
                found = alone.run(suspects)
                for position, error in found.refused.items():
                    record = left.pop(position)
                    yield position, refusal(topic, len(record.value or b"") + len(record.key or b""), error)
                _leave_out(suspects, found)
                _leave_out(left, found)
            if found.of_topic is not None:
                yield from ((position, refusal(topic, 0, found.of_topic)) for position in left)
                break


class _Found(NamedTuple):
    """What a trial has decided: records that were taken, those that were not, and why the topic takes none."""

    taken: Collection[int]
    refused: Mapping[int, KafkaError]
    of_topic: KafkaError | None = None


def _leave_out(left: dict[int, ProducerRecord], found: _Found) -> None:
    for position in (*found.taken, *found.refused):
        left.pop(position, None)


def _told(reported: Mapping[int, KafkaError | None]) -> list[KafkaError]:
    """What was said of records, without those that a transaction that has failed throws away."""
    return [error for error in reported.values() if error is not None and error.code() not in PURGED]


def failed_by(producer: Producer) -> KafkaError:
    """Why a transaction that has failed, so that it can only be aborted, has failed."""
    try:
        answered(producer.commit_transaction, REQUEST_TIMEOUT_S)
    except KafkaException as error:
        found: KafkaError = error.args[0]
        return found
    raise AssertionError("a transaction that has failed was committed")


class _Trials:
    """Transactions of one id, one after another, whose batches have so many records at most."""

    def __init__(self, client: Mapping[str, str], transactional_id: str, together: int) -> None:
        self._settings = {
            **client,
            "transactional.id": transactional_id,
            "batch.num.messages": str(together),
            # Behind a batch that is refused others would be so for their numbers.
            "max.in.flight.requests.per.connection": "1",
            "linger.ms": "0" if together == 1 else "5",
            "message.timeout.ms": str(int(_DELIVERED_WITHIN_S * 1_000)),
        }
        self._producer: Producer | None = None
        self._has_failed = False

    def run(self, records: Mapping[int, ProducerRecord]) -> _Found:
        """Try them, in their order, until some are refused."""
        producer = self._registered()
        reported: dict[int, KafkaError | None] = {}
        self._has_failed = False
        producer.begin_transaction()
        try:
            self._send(producer, records, reported)
            # Behind a refused record some are neither sent nor thrown away before they time out.
            while len(producer) and not self._has_failed:
                producer.poll(_POLL_S)
            # A transaction fails a moment before the report of the record that it fails by.
            told_by = time.monotonic() + _TOLD_WITHIN_S
            while self._has_failed and len(producer) and not _told(reported) and time.monotonic() < told_by:
                producer.poll(_POLL_S)
            return self._judged(producer, reported)
        finally:
            self._abort(producer)

    def _registered(self) -> Producer:
        if self._producer is None:
            self._producer = Producer(with_client_log(self._settings))
            answered(self._producer.init_transactions, REQUEST_TIMEOUT_S)
        return self._producer

    def _send(
        self, producer: Producer, records: Mapping[int, ProducerRecord], reported: dict[int, KafkaError | None]
    ) -> None:
        """Until the transaction has failed."""

        def report(position: int, error: KafkaError | None, _: Message) -> None:
            reported[position] = error
            self._has_failed |= error is not None

        for position, record in records.items():
            if self._has_failed:
                return
            more: dict[str, Any] = {} if record.headers is None else {"headers": record.headers}
            while True:
                try:
                    producer.produce(
                        *record[:4], timestamp=record.timestamp, on_delivery=partial(report, position), **more
                    )
                except BufferError:
                    producer.poll(_POLL_S)
                    continue
                except KafkaException as error:
                    if error.args[0].code() == KafkaError._STATE:
                        self._has_failed = True
                        return
                    reported[position] = error.args[0]
                break
            producer.poll(0)

    def _judged(self, producer: Producer, reported: Mapping[int, KafkaError | None]) -> _Found:
        errors = _told(reported)
        if self._has_failed and not errors:
            errors = [failed_by(producer)]
        # What a broker has said tells more than what the library makes of it for the next records.
        errors.sort(key=lambda error: error.code() < 0)
        if of_topic := next((error for error in errors if error.code() in OF_A_TOPIC), None):
            return _Found((), {}, of_topic)
        refused = {at: error for at, error in reported.items() if error is not None and error.code() in OF_A_RECORD}
        if errors and not refused:
            raise KafkaException(errors[0])
        return _Found([at for at, error in reported.items() if error is None], refused)

    def _abort(self, producer: Producer) -> None:
        """Leave nothing; a producer that goes on behind a refused record skips numbers, so that the next one is new."""
        try:
            answered(producer.abort_transaction, REQUEST_TIMEOUT_S)
        except (KafkaException, NoAnswer) as error:
            # As behind a topic that was refused: the coordinator knows no transaction.
            _log.debug("a trial was not aborted: %s", error)
            without_calls(error)
            self._has_failed = True
        if self._has_failed:
            self._producer = None
            forget_records(producer)


def forget_records(producer: Producer) -> None:
    """Take from a producer what it has not sent or reported: each record refers to it, and it would never end."""
    producer.purge()
    deadline = time.monotonic() + _PURGED_WITHIN_S
    while len(producer) and time.monotonic() < deadline:
        try:
            producer.poll(_POLL_S)
        except KafkaException as error:
            without_calls(error)
