"""The run of a source that is asked again and again: records go to the topic with their offset, in one transaction.

Owns the thread, the producer and the order of things, which is that of KIP-618: fence the run before, read the offsets,
and only then ask the source.  What a source gives at once is one transaction, however much it is.  So each record is
written once for readers of committed records, as far as the source gives the same again after the same offset.  A
failure ends the run; the supervisor starts it again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final, Protocol

from confluent_kafka import KafkaException, Producer

from pybroker.connectors.kinds.connector_runs import Work
from pybroker.pipeline.topics.client_calls import REQUEST_TIMEOUT_S
from pybroker.pipeline.topics.client_log import with_client_log
from pybroker.pipeline.topics.librdkafka_settings import client_settings, without_prefix

# What is passed over may come as fast as a network has it.
_LOGGED_EVERY_S: Final = 5.0
# For how long an end waits for a source that is asked, and for one that is opened or closed.
_ANSWERED_WITHIN_S: Final = 2.0
_ENDS_WITHIN_S: Final = 60.0

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Polled:
    """What a source has given: keys and values of records, and the offset behind them by the source's partition.

    ``topics`` has the topic of each record, where they do not all go to the connector's.  Where there are records and
    it ``has_more``, it is asked again at once, else after the interval.  ``passed_over`` counts what came and is no
    record, of which ``reason`` says why the last one is none.
    """

    records: list[tuple[bytes | None, bytes | None]] = field(default_factory=list)
    offsets: list[tuple[Mapping[str, Any], Mapping[str, Any]]] = field(default_factory=list)
    topics: list[str] = field(default_factory=list)
    has_more: bool = True
    passed_over: int = 0
    reason: str = ""


class Poller(Protocol):
    """A source; used by one thread."""

    def poll(self) -> Polled:
        """What there is now; raises what is wrong.  May wait for a source that is away."""
        ...

    def close(self) -> None:
        """It is not asked any more."""
        ...


# Makes the source, given its offsets by partition, which is JSON text.
Open = Callable[[Mapping[str, Mapping[str, Any]]], Poller]


class PolledRun:
    """A source that runs on a thread."""

    def __init__(self, work: Work, opened: Open) -> None:
        self._work, self._open = work, opened
        self._failure: str | None = None
        self._passed_over = 0
        self._logged_at_s = -_LOGGED_EVERY_S
        self._remark: str | None = None
        self._topic: str = "" if work.kind.names_topics else work.value("topic")
        self._interval_s: float = work.value("poll.interval.ms") / 1_000
        self._writes = threading.Lock()
        self._asked: _Asked | None = None
        self._thread = threading.Thread(target=self._run, name=f"connector-{work.name}", daemon=True)
        self._thread.start()

    @property
    def failure(self) -> str | None:
        """See `Run`."""
        return self._failure

    @property
    def remark(self) -> str | None:
        """See `Run`."""
        return self._remark

    def stop(self) -> None:
        """See `Run`.  A source that takes long to answer is not waited for: what it gives is not written."""
        self._work.ends.set()
        with self._writes:
            pass  # What is written next sees that it may not be.
        deadline = monotonic() + _ENDS_WITHIN_S
        while self._thread.is_alive() and monotonic() < deadline:
            self._thread.join(_ANSWERED_WITHIN_S)
            if self._asked is not None and self._asked.is_under_way:
                break
        if self._thread.is_alive():
            _log.warning("%s: its source has not answered yet; what comes is not written", self._work.name)

    def _run(self) -> None:
        try:
            self._poll_until_it_ends()
        except KafkaException as error:
            self._failure = f"KafkaException: {error.args[0].str()}"
        except Exception as error:  # whatever a source says
            self._failure = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"

    def _poll_until_it_ends(self) -> None:
        place, ends = self._work.place, self._work.ends
        client = client_settings(without_prefix(self._work.cluster))
        own = {"transactional.id": place.transactional_id, "linger.ms": 20, "partitioner": "murmur2_random"}
        producer = Producer(with_client_log({**client, **own}))
        producer.init_transactions(REQUEST_TIMEOUT_S)
        poller = self._asked = _Asked(self._open(place.read()))
        try:
            while not ends.is_set():
                polled = poller.poll()
                self._count(polled)
                if polled.records:
                    topics = polled.topics or [self._topic] * len(polled.records)
                    records = [(topic, *record) for topic, record in zip(topics, polled.records, strict=True)]
                    self._write(producer, records, place.records(polled.offsets))
                if not (polled.records and polled.has_more):
                    ends.wait(self._interval_s)
        finally:
            poller.close()

    def _count(self, polled: Polled) -> None:
        if not polled.passed_over:
            return
        self._passed_over += polled.passed_over
        self._remark = f"passed over since the start: {self._passed_over}, the last one: {polled.reason}"
        if self._work.value("errors.log.enable") and monotonic() >= self._logged_at_s + _LOGGED_EVERY_S:
            self._logged_at_s = monotonic()
            _log.warning("%s: %s", self._work.name, self._remark)

    def _write(
        self,
        producer: Producer,
        records: Sequence[tuple[str, bytes | None, bytes | None]],
        offsets: Sequence[tuple[bytes, bytes | None]],
    ) -> None:
        with self._writes:
            if self._work.ends.is_set():
                return
            producer.begin_transaction()
            try:
                for topic, key, value in records:
                    while True:
                        try:
                            producer.produce(topic, value, key)
                            break
                        except BufferError:
                            producer.poll(0.1)
                for key, value in offsets:
                    producer.produce(self._work.place.topic, value, key)
                producer.commit_transaction(REQUEST_TIMEOUT_S)
            except KafkaException:
                # Else the topic's readers wait until it times out.  The first error is the reason.
                with suppress(KafkaException):
                    producer.abort_transaction(REQUEST_TIMEOUT_S)
                raise
            self._work.place.remember(offsets)


class _Asked:
    """A source, and whether it is being asked now."""

    def __init__(self, poller: Poller) -> None:
        self._poller = poller
        self.is_under_way = False

    def poll(self) -> Polled:
        self.is_under_way = True
        try:
            return self._poller.poll()
        finally:
            self.is_under_way = False

    def close(self) -> None:
        self._poller.close()
