"""A partition that is led here and mirrored from another cluster: what is asked of the source, and what becomes of it.

Owns: where the next fetch begins, that what comes is appended at the source's offsets and under its epochs, and when
the log may be cut.  Does not own when the source is asked (``mirror_fetcher``), nor the partition, its high watermark
and its followers (``partition``): what is appended here is committed as any leader's batch is.

Invariants
- It lives as long as one leader epoch of the partition here.  Nothing is asked while the source's leader epoch is above
  that, so that no batch is appended whose epoch is.
- Only what consumers of the source may see is fetched: what lies below its high watermark.
- The log is cut, where the source has other records, only before anything is appended in this leader epoch.  Else the
  controller is asked for another one, so that followers hear that a cut may have come.
- Nothing is appended behind a cut before another leader epoch begins.  Consumers look where their position stands once
  they hear of one, and at no other time: they would go on behind what stands in the place of the records.

It is followed as a leader of this cluster is (``FollowedPartition``), but for these.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from pybroker.cluster.image.link_states import ADOPTED, DIVERGED, ENDED, FAILED, PARTED, PROMOTING
from pybroker.replication.followed_partition import FollowedPartition, Question
from pybroker.replication.replication_quota import SlidingRate
from pybroker.storage.results import CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR, LACKS_MARKER, NONE
from pybroker_protocol.errors import error_name
from pybroker_protocol.records import CURRENT_MAGIC, HEADER_BYTES, MAGIC_AT

if TYPE_CHECKING:
    from pybroker.cluster.image.cluster_image import PartitionImage
    from pybroker.cluster.image.link_states import MirroredTopic
    from pybroker.env import Clock
    from pybroker.replication.partition import Partition

logger = logging.getLogger(__name__)

NO_NODE = -1

# For so long a source may not know the last epoch of what is here, before it counts as one with another history.
HISTORY_PATIENCE_MS: Final = 30_000

# For so long a link may lack the right to read a topic before the topic stops.
RIGHT_PATIENCE_MS: Final = 30_000
_NO_RIGHT: Final = "the link may not read it at the source"

# The rate counts what came in so much time.
RATE_SAMPLES, RATE_SAMPLE_MS = 10, 1_000


class MirroredPartition(FollowedPartition):
    """``topic`` and ``topic_id`` are the source's, ``leader_epoch`` is that of the partition here.

    ``tell(partition, kind, reason)`` has the controller hear what was found.
    """

    __slots__ = (
        "_clock",
        "_has_appended",
        "_lacks_room",
        "_suspected_end",
        "_tell",
        "_unknown_since_ms",
        "_unreached",
        "_unreadable_since_ms",
        "is_cut",
        "link",
        "partition",
        "rate",
        "source_end",
        "source_epoch",
        "source_leader",
        "source_stable",
        "start_offset",
        "state",
    )

    def __init__(
        self,
        mirror: MirroredTopic,
        partition: Partition,
        state: PartitionImage,
        tell: Callable[[MirroredPartition, int, str], None],
        clock: Clock,
    ) -> None:
        super().__init__(
            mirror.source_topic, mirror.source_topic_id, partition.index, state, partition.partition_log, lambda _: None
        )
        self.link = mirror.link
        self.partition = partition
        self.state = mirror.state
        self.source_leader = NO_NODE
        self.source_epoch = -1
        self.start_offset = 0  # the source's, as it was told last
        self.source_end = -1  # what its consumers see ends there, as it was told last
        self.source_stable = -1  # below it no transaction is open at the source, as it was told last
        self.rate: SlidingRate | None = None  # of the bytes that came; None before the first
        self._has_appended = self._lacks_room = False
        self.is_cut = False  # it is so short now that nothing comes before another leader epoch
        self._suspected_end = -1  # see ``may_lack_end``
        self._unknown_since_ms = -1  # see ``has_another_history``
        self._unreadable_since_ms = -1  # see ``has_no_right``
        self._unreached = ""  # why nothing comes of the source, as long as it does not
        self._tell = tell
        self._clock = clock

    def __repr__(self) -> str:
        return str(self.partition)

    @property
    def is_promoting(self) -> bool:
        """Whether its end at the source is looked for."""
        return self.state == PROMOTING

    @property
    def is_adopted(self) -> bool:
        """Whether only that is looked for where both histories part."""
        return self.state == ADOPTED

    @property
    def may_be_fetched(self) -> bool:
        """Whether the source has a leader, whose epoch is not above that of the leader here."""
        return self.source_leader != NO_NODE and self.source_epoch <= self.leader_epoch

    def question(self) -> Question:
        """What is to be asked of the source now."""
        return super().question()._replace(leader_epoch=self.source_epoch)

    def append(self, records: bytes | bytearray | memoryview, high_watermark: int, log_start_offset: int) -> int:
        """Append what was fetched; one of Kafka's error codes."""
        log, error_code = self.log, NONE
        self._unknown_since_ms = -1
        self._unreached = ""
        view = memoryview(records)
        if len(view) >= HEADER_BYTES and view[MAGIC_AT] != CURRENT_MAGIC:
            self.fail("the source has records in a format older than Apache Kafka 0.11's")
            error_code = CORRUPT_MESSAGE
        elif len(view) >= HEADER_BYTES:
            self._begin_inside_of_batch(view)
            self._has_appended = True
            self._count(len(view))
            error_code = log.append_as_follower(view).error_code
            if error_code == LACKS_MARKER:
                error_code = NONE
                self._begin_anew(log_start_offset, "it lacks the end of a transaction, which the source's cleaner took")
        elif log.refuses:
            error_code = KAFKA_STORAGE_ERROR
        if error_code not in (NONE, KAFKA_STORAGE_ERROR):
            self._unreached = f"what the source sends cannot be appended: {error_name(error_code)}"
        # Of a log that takes nothing any more the log dir tells; what lacks here alone passes by itself.
        self._lacks_room = error_code == KAFKA_STORAGE_ERROR and not log.refuses
        if not log.refuses:
            self.start_offset, self.source_end = log_start_offset, high_watermark
            self.lags = high_watermark > log.log_end_offset
            self.partition.on_appended()
            self._follow_start()
            self._look_for_lost_end()
        return error_code

    def on_unreached(self, problem: str) -> None:
        """The source is not reached from this broker, or gives nothing of the partition, for that reason."""
        self._unreached = problem
        self._unknown_since_ms = -1

    def _count(self, size: int) -> None:
        if self.rate is None:
            self.rate = SlidingRate(RATE_SAMPLES, RATE_SAMPLE_MS)
        self.rate.record(size, self._clock.monotonic_ms())

    def progress(self) -> dict[str, str | int]:
        """How far it is: offsets here and at the source, records that lack here, and bytes per second of late.

        What was not told yet is -1.  ``problem`` is there while nothing comes of the source, what comes finds no room,
        or the source has less.
        """
        end, source_end = self.log.log_end_offset, self.source_end
        problem = self._unreached
        if self._lacks_room:
            problem = f"there is no room in {self.log.path.parent}"
        elif self._unknown_since_ms >= 0:
            problem = "the source does not know the last leader epoch here"
        elif 0 <= source_end < end:
            problem = f"the source ends at offset {source_end}, {end - source_end} before the end here"
        return {
            **({"problem": problem} if problem else {}),
            "topic": self.partition.topic,
            "partition": self.index,
            "end": end,
            "sourceEnd": source_end,
            "lag": -1 if source_end < 0 else max(source_end - end, 0),
            "rate": 0 if self.rate is None else self.rate.per_second(self._clock.monotonic_ms()),
        }

    def _follow_start(self) -> None:
        """Forget what the source has forgotten, as far as it is committed here."""
        log = self.log
        offset = min(self.start_offset, log.high_watermark)
        if offset > log.log_start_offset:
            log.increment_log_start_offset(offset)
            if self.partition.followers is not None:
                self.partition.followers.tell_more()
        is_held_up = self.start_offset > log.high_watermark
        if is_held_up != (self.partition.high_watermark_listener is not None):
            self.partition.high_watermark_listener = self._on_high_watermark if is_held_up else None

    def _on_high_watermark(self, _index: int, _offset: int) -> None:
        """More is committed here, at whose end no fetch may tell anything: go on to where the source begins."""
        if self.retired:
            self.partition.high_watermark_listener = None
        else:
            self._follow_start()

    @property
    def may_lack_end(self) -> bool:
        """Whether it may have a transaction open of whose end the source has nothing left.

        A source reads its two ends one after the other, so that an answer may have the last stable offset of a
        transaction whose end came meanwhile.  The next answer to a question of its own has that end, if there is one.
        """
        return self._suspected_end >= 0

    def _look_for_lost_end(self) -> None:
        """Begin anew where all is here that the source has, and a transaction is open that has ended there.

        It would hold up who reads what is committed, and be aborted by a promotion.  Two answers have to say so.
        """
        log, suspected_end = self.log, self._suspected_end
        end = log.log_end_offset
        first = next(iter(log.producers.ongoing_txns), None)
        self._suspected_end = -1
        if first is None or end < self.source_end or max(first, self.start_offset) >= self.source_stable:
            return
        if end == suspected_end:
            self._begin_anew(
                self.start_offset, "it lacks the end of a transaction, of which the source has nothing left"
            )
        else:
            self._suspected_end = end

    @property
    def may_have_ended(self) -> bool:
        """Whether nothing is known of that lacks here, or is not committed."""
        log = self.log
        return not self.is_cut and self.source_end <= log.log_end_offset == log.high_watermark

    def ends_at(self, source_end: int) -> bool:
        """What the source's consumers see ends there; whether the log does, with all of it committed.

        A log that goes on behind that is not at its end: it is cut, or the source's high watermark comes up to it.
        """
        log = self.log
        self.source_end = source_end
        return source_end == log.log_end_offset == log.high_watermark

    def tell_if_ended(self, source_end: int, asked: int, epoch: int, end_offset: int) -> bool:
        """Tell the controller if all that the source's consumers see is here, and nothing else; whether it is so.

        The source's log has ``epoch``, the last one up to ``asked``, up to ``end_offset``.  Where it has the last epoch
        of the log, up to the log's end, both have the same records (KIP-101).
        """
        log = self.log
        is_same = asked == log.leader_epochs.latest_epoch and (
            asked < 0 or (epoch == asked and end_offset >= log.log_end_offset)
        )
        if self.is_cut or not (is_same and self.ends_at(source_end)):
            return False
        self._tell(self, ENDED, "")
        return True

    def look_for_parting(self, asked: int, epoch: int, end_offset: int) -> int | None:
        """The source's log has ``epoch``, the last one up to ``asked``, up to ``end_offset``; -1 where it has none.

        Returns the epoch to ask for next; None once it is known where both histories part, which the controller hears.
        """
        log = self.log
        self._unreached = ""
        parting = log.log_start_offset
        if epoch >= 0:
            own_epoch, own_end = log.leader_epochs.end_offset_for(epoch, log.log_end_offset)
            if 0 <= own_epoch < epoch:
                return own_epoch
            parting = end_offset if own_epoch < 0 else min(own_end, end_offset)
        elif earlier := [own for own, _ in log.leader_epochs.entries if own < asked]:
            return earlier[-1]
        parting = min(max(parting, log.log_start_offset), log.log_end_offset)
        count = log.log_end_offset - parting
        self._tell(self, PARTED, f"{parting} {count}" if count else "")
        return None

    def parts_before(self, source_start: int) -> bool:
        """The source's log begins at ``source_start``: whether that is behind all that is here.

        Then it lacks all of that, also what is its own, and the controller hears so.
        """
        log = self.log
        count = log.log_end_offset - log.log_start_offset
        if not count or source_start <= log.log_end_offset:
            return False
        self._unreached = ""
        self._tell(self, PARTED, f"{log.log_start_offset} {count}")
        return True

    def fail(self, reason: str) -> None:
        """It cannot go on."""
        self._tell(self, FAILED, reason)

    def has_another_history(self) -> bool:
        """The source does not know the log's last epoch: whether it has been so for long, and the partition fails.

        For a moment it may be so of a broker that leads no more.
        """
        now_ms = self._clock.monotonic_ms()
        if self._unknown_since_ms < 0:
            self._unknown_since_ms = now_ms
        is_certain = now_ms - self._unknown_since_ms >= HISTORY_PATIENCE_MS
        if is_certain:
            self.fail("the source has another history: its leader epochs went back, as by a backup")
        return is_certain

    def has_no_right(self) -> bool:
        """The link may not read the topic at the source: whether it has been so for long, and the partition fails.

        An ACL that is replaced lacks for a moment, and a broker of the source that starts may not have it yet.
        """
        now_ms = self._clock.monotonic_ms()
        if self._unreached != _NO_RIGHT:
            self._unreadable_since_ms = now_ms
        self.on_unreached(_NO_RIGHT)
        is_certain = now_ms - self._unreadable_since_ms >= RIGHT_PATIENCE_MS
        if is_certain:
            self.fail(_NO_RIGHT)
        return is_certain

    def has_to_begin_anew(self) -> bool:
        """The source has other records at our offsets: whether the log may not be cut before another leader epoch.

        The controller is asked for one.
        """
        if self._has_appended:
            self._tell(self, DIVERGED, "")
        return self._has_appended

    def _truncate(self, offset: int) -> bool:
        end = self.log.log_end_offset
        cut = super()._truncate(offset)
        self._after_cut(end)
        return cut

    def _begin_anew(self, offset: int, why: str) -> None:
        end = self.log.log_end_offset
        super()._begin_anew(offset, why)
        self._after_cut(end)

    def _after_cut(self, former_end: int) -> None:
        """Ask for the leader epoch that says so to consumers, where the log ends before the former end.

        The high watermark says not how far they have read: a leader begins with one that may be behind.
        """
        self.partition.on_cut()
        if self.log.log_end_offset < former_end:
            self.is_cut = self.partition.was_cut = True
            self._tell(self, DIVERGED, "")

    def _begin_inside_of_batch(self, records: memoryview) -> None:
        super()._begin_inside_of_batch(records)
        if self.log.log_start_offset == self.log.log_end_offset:
            self.partition.on_cut()
