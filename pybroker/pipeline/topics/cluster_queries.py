"""Asks a cluster about its topics: their partitions and ids, where a partition begins and ends, and who leads it.

Owns the retries: a question is asked again where a leader moves or a broker is gone, which librdkafka's admin client
leaves to its caller.  Owns this process's clients for the questions of tasks, too.  No answer is remembered, for topics
and partitions come and go under a running query.  What a query wants to know of them is `directory`'s and
`range_reader`'s.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, KafkaException, TopicCollection, Uuid
from confluent_kafka import TopicPartition as ClientTopicPartition
from confluent_kafka.admin import ClusterMetadata, ListOffsetsResultInfo, OffsetSpec

from pybroker.pipeline.topics.admin_logins import admin_client
from pybroker.pipeline.topics.topic_partitions import TopicPartition

# How long a question is asked again: brokers may start anew meanwhile.  Twice what a write gives each of its calls:
# Spark repeats a task that fails, but ends a query whose look does.
REQUEST_TIMEOUT_S = 60.0
# A request to a broker that is gone waits for its timeout, while another one leads already.
ASKED_AGAIN_AFTER_S = 5.0
_PAUSE_S = 0.1

# Of tasks' questions: a process reads from one cluster, or joins a few.
KEPT_CLIENTS_MAX = 4

T = TypeVar("T")
At = TypeVar("At", bound=Hashable)

_OffsetAnswer = Callable[[], ListOffsetsResultInfo]

_NO_ID = str(Uuid(0, 0))
_NO_EPOCH = -1

# What passes by itself: a leader moves or begins, or a broker is gone.
_PASSING = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._TRANSPORT,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.UNKNOWN_LEADER_EPOCH,
    }
)

# What is said of the leader of a partition that went since it was asked for.
_GONE = frozenset({KafkaError._NOENT, KafkaError.UNKNOWN_TOPIC_OR_PART})


class ClusterUnreachable(RuntimeError):
    """No broker says which topics there are, or no leader where its partition ends."""


class PartitionStatus(NamedTuple):
    """How a partition stands: the id of its topic, its leader's epoch, where it begins and ends.

    The id is empty where the cluster gives topics none (before KIP-516).
    """

    topic_id: str
    leader_epoch: int
    begin: int
    end: int

    def has_history_of(self, before: "PartitionStatus") -> bool:
        """Whether records that were fetched since ``before`` are the partition's, but for those that it has deleted.

        A leader cuts nothing from its log's end, and each leader has an epoch of its own.
        """
        is_same = (self.topic_id, self.leader_epoch) == (before.topic_id, before.leader_epoch)
        return is_same and self.topic_id != "" and self.leader_epoch != _NO_EPOCH


class ClusterQueries:
    """One admin client's; raises `ClusterUnreachable` where the cluster is gone, RuntimeError for what is refused.

    A refused login is raised when the client is made (`LoginRefused`).
    """

    def __init__(self, client: Mapping[str, str]) -> None:
        committed = client["isolation.level"] == "read_committed"
        self._isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        consumers_alone = {"group.id", "isolation.level"}
        settings = {name: at for name, at in client.items() if name not in consumers_alone}
        # A connection to a broker that stands still is given up, or each request for metadata would take it again.
        settings.setdefault("socket.timeout.ms", str(int(ASKED_AGAIN_AFTER_S * 1_000)))
        self._bootstrap = client["bootstrap.servers"]
        self._admin = admin_client(settings, REQUEST_TIMEOUT_S)

    def partitions(self) -> dict[str, list[int]]:
        """Those of each topic."""
        return _partitions_of(self._metadata(_TimeLeft(REQUEST_TIMEOUT_S)))

    def topic_ids(self, names: Collection[str], within_s: float | None = None) -> dict[str, str]:
        """What tells a topic from a former one of its name, of those that are there; empty before KIP-516."""
        return {name: _id_of(topic) for name, topic in self._described(names, within_s).items()}

    def internal(self, names: Collection[str]) -> set[str]:
        """Those that the cluster keeps for itself, such as ``__consumer_offsets``."""
        return {name for name, topic in self._described(names, None).items() if topic.is_internal}

    def _described(self, names: Collection[str], within_s: float | None) -> dict[str, Any]:
        """What the cluster says of the topics that are there."""
        if not names:
            return {}

        def ask(names: Collection[str], within_s: float) -> Mapping[str, Callable[[], Any]]:
            futures = self._admin.describe_topics(TopicCollection([*names]), request_timeout=within_s)
            return {name: future.result for name, future in futures.items()}

        who = f"broker of {self._bootstrap}"
        found, failed = self._answers(names, ask, lambda name, known: name in known, lambda _: who, within_s)
        _refuse(failed, lambda name: f"the id of {name}")
        return found

    def offsets_left(
        self,
        specs: Mapping[TopicPartition, Any],
        within_s: float | None = None,
        *,
        isolation: IsolationLevel | None = None,
    ) -> tuple[dict[TopicPartition, int], Collection[TopicPartition]]:
        """Offsets of the partitions that are there, and which are not; one request per leader.

        ``isolation`` is the client's where it is None.
        """
        if not specs:
            return {}, ()
        level = self._isolation if isolation is None else isolation

        def ask(partitions: Collection[TopicPartition], within_s: float) -> Mapping[TopicPartition, _OffsetAnswer]:
            asked = {ClientTopicPartition(*at): specs[at] for at in partitions}
            futures = self._admin.list_offsets(asked, isolation_level=level, request_timeout=within_s)
            return {TopicPartition(at.topic, at.partition): partial(_found, each) for at, each in futures.items()}

        found, failed = self._answers(specs.keys(), ask, _is_there, lambda at: f"leader of {at}", within_s)
        return {at: each.offset for at, each in found.items()}, _refuse(failed, lambda at: f"the offset of {at}")

    def status(self, at: TopicPartition, within_s: float) -> PartitionStatus | None:
        """How a partition stands now, asked at once; None where it is not there."""
        place = ClientTopicPartition(*at)
        specs = {"beginning": OffsetSpec.earliest(), "end": OffsetSpec.latest()}

        def answer(what: str, within_s: float) -> Callable[[], Any]:
            if what == "topic":
                described = self._admin.describe_topics(TopicCollection([at.topic]), request_timeout=within_s)
                return partial(described[at.topic].result)
            asked = {place: specs[what]}
            (future,) = self._admin.list_offsets(
                asked, isolation_level=self._isolation, request_timeout=within_s
            ).values()
            return partial(_found, future)

        def ask(parts: Collection[str], within_s: float) -> Mapping[str, Callable[[], Any]]:
            return {what: answer(what, within_s) for what in parts}

        found, failed = self._answers(
            ["topic", *specs], ask, lambda _, known: _is_there(at, known), lambda _: f"leader of {at}", within_s
        )
        if _refuse(failed, lambda what: f"the {what} of {at}"):
            return None
        end = found["end"]
        epoch = _NO_EPOCH if end.leader_epoch is None else end.leader_epoch
        return PartitionStatus(_id_of(found["topic"]), epoch, found["beginning"].offset, end.offset)

    def _metadata(self, time_left: "_TimeLeft") -> ClusterMetadata:
        """What there is and who leads it; librdkafka asks those leaders from then on."""
        while True:
            try:
                return self._admin.list_topics(timeout=time_left.next_s)
            except KafkaException as error:
                if error.args[0].code() not in _PASSING or time_left.is_over:
                    raise time_left.unreachable(f"broker of {self._bootstrap}", error.args[0]) from error
            time.sleep(_PAUSE_S)

    def _answers(
        self,
        asked: Collection[At],
        ask: Callable[[Collection[At], float], Mapping[At, Callable[[], T]]],
        is_there: Callable[[At, Mapping[str, Collection[int]]], bool],
        who: Callable[[At], str],
        within_s: float | None = None,
    ) -> tuple[dict[At, T], dict[At, KafkaError]]:
        """What is answered to each, and what has failed for good; raises `ClusterUnreachable`, about the ``who`` of
        one."""
        time_left = _TimeLeft(REQUEST_TIMEOUT_S if within_s is None else within_s)
        found: dict[At, T] = {}
        failed: dict[At, KafkaError] = {}
        while True:
            for at, answer in ask(asked, time_left.next_s).items():
                failed.pop(at, None)
                try:
                    found[at] = answer()
                except KafkaException as error:
                    failed[at] = error.args[0]
            again = [at for at, error in failed.items() if error.code() in _PASSING | _GONE]
            if not again:
                return found, failed
            if time_left.is_over:
                raise time_left.unreachable(who(again[0]), failed[again[0]])
            time.sleep(_PAUSE_S)
            # A partition that changes its leader has none for a moment, as one that is gone.
            known = _partitions_of(self._metadata(time_left))
            asked = [at for at in again if failed[at].code() in _PASSING or is_there(at, known)]
            if not asked:
                return found, failed


class _TimeLeft:
    """With one question, however often it is asked."""

    def __init__(self, within_s: float) -> None:
        self._within_s = within_s
        self._deadline = time.monotonic() + within_s

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self._deadline

    @property
    def next_s(self) -> float:
        """How long the next request may take; librdkafka wants some time in any case."""
        return max(min(ASKED_AGAIN_AFTER_S, self._deadline - time.monotonic()), _PAUSE_S)

    def unreachable(self, who: str, error: KafkaError) -> ClusterUnreachable:
        return ClusterUnreachable(
            f"no {who} answered within {self._within_s:.0f} s ({error.str()}); "
            "started again on its checkpoint, a query goes on where it stood"
        )


_kept: OrderedDict[object, ClusterQueries] = OrderedDict()


def kept_queries(client: Mapping[str, str]) -> ClusterQueries:
    """This process's for tasks, which ask a few for each range: a client of their own would cost more than the answers.

    Raises `LoginRefused`.
    """
    key = tuple(sorted(client.items()))
    cluster_queries = _kept.pop(key, None) or ClusterQueries(client)
    _kept[key] = cluster_queries
    if len(_kept) > KEPT_CLIENTS_MAX:
        _kept.popitem(last=False)
    return cluster_queries


def close_idle() -> None:
    """Let go of this process's clients, which would look for their clusters for ever."""
    _kept.clear()


def _partitions_of(metadata: ClusterMetadata) -> dict[str, list[int]]:
    return {name: sorted(topic.partitions) for name, topic in metadata.topics.items() if topic.error is None}


def _is_there(at: TopicPartition, known: Mapping[str, Collection[int]]) -> bool:
    return at.partition in known.get(at.topic, ())


def _id_of(topic: Any) -> str:
    topic_id = str(topic.topic_id)
    return "" if topic_id == _NO_ID else topic_id


def _found(answer: Future[ListOffsetsResultInfo]) -> ListOffsetsResultInfo:
    """What a leader said; of one that said nothing in time librdkafka may give no error, but an offset instead."""
    found = answer.result()
    if found.offset == OFFSET_INVALID:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
    return found


def _refuse(failed: Mapping[At, KafkaError], what: Callable[[At], str]) -> list[At]:
    """What is gone of what has failed; raises RuntimeError for what is refused."""
    for at, error in failed.items():
        if error.code() not in _GONE:
            raise RuntimeError(f"{what(at)}: {error.str()}")
    return [*failed]
