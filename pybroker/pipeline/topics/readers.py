"""Plans a read, in the driver: the ranges of a batch, and the offsets of a stream's micro-batches.

Owns when a micro-batch is due and what has been lost between two of them; ``directory`` asks the cluster, ``admission``
and ``ranges`` do the arithmetic, ``range_reader`` reads.  Spark keeps the offsets in the query's checkpoint.

Counterparts: Spark's KafkaBatch and KafkaMicroBatchStream.
"""

import logging
import math
import time
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from pybroker.pipeline.topics.admission import available, limited
from pybroker.pipeline.topics.planned_ids import PlannedIds, distinguishable
from pybroker.pipeline.topics.process_end import end_quietly, is_hung_up
from pybroker.pipeline.topics.ranges import OffsetRange, divide
from pybroker.pipeline.topics.source_options import ByOffset, SourceOptions
from pybroker.pipeline.topics.topic_partitions import (
    Offsets,
    OffsetTree,
    TopicPartition,
    listed,
    offsets_of_tree,
    tree_of_offsets,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from pybroker.pipeline.topics.directory import Directory
    from pybroker.pipeline.topics.range_reader import Reading


_log = logging.getLogger(__name__)


class RangePartition(InputPartition):
    """One task's range."""

    def __init__(self, found: OffsetRange) -> None:
        super().__init__(found)
        self.found = found


class _Tasks:
    """The part of a reader that goes to the tasks, pickled: it holds no client."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self.options = options
        self._schema = schema

    def reading(self) -> "Reading":
        from pyspark.sql.pandas.types import to_arrow_schema

        from pybroker.pipeline.topics.range_reader import Reading

        options = self.options
        return Reading(
            client=options.client,
            schema=to_arrow_schema(self._schema, timezone="UTC"),
            poll_timeout_s=options.poll_timeout_ms / 1_000,
            fail_on_data_loss=options.fail_on_data_loss,
        )

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        from pybroker.pipeline.topics.range_reader import read_range

        assert isinstance(partition, RangePartition)
        end_quietly()
        return read_range(self.reading(), partition.found)

    def divided(self, ranges: Iterator[OffsetRange]) -> list[InputPartition]:
        options = self.options
        pieces = divide(ranges, options.min_partitions, options.records_per_partition_max)
        return [RangePartition(piece) for piece in pieces]


def _directory(options: SourceOptions) -> "Directory":
    from pybroker.pipeline.topics.directory import Directory

    return Directory(options)


class BatchReader(DataSourceReader):
    """Reads what is there between two bounds when the query begins."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._tasks = _Tasks(options, schema)

    def partitions(self) -> list[InputPartition]:
        """The tasks; of nothing to read, one empty task, as Spark wants one."""
        options = self._tasks.options
        directory = _directory(options)
        topic_partitions = directory.partitions()
        # Before the offsets: of a topic that is made anew meanwhile they are never taken for the former one's.
        ids = directory.topic_ids({at.topic for at in topic_partitions})
        starts = directory.starts(topic_partitions, options.starting)
        ends = directory.ends(topic_partitions, options.ending)
        _check_order(starts, ends)
        if isinstance(options.ending, ByOffset):
            ends = self._as_far_as_there_is(ends, directory.latest(topic_partitions))
        tasks = self._tasks.divided(
            OffsetRange(at, starts[at], ends[at], ids.get(at.topic, "")) for at in sorted(topic_partitions)
        )
        return tasks or [RangePartition(OffsetRange(TopicPartition("", 0), 0, 0))]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """The rows of one task."""
        return self._tasks.read(partition)

    def _as_far_as_there_is(self, ends: Offsets, newest: Offsets) -> dict[TopicPartition, int]:
        """The ends that were asked for; one behind the partition's is refused, or moved where loss is allowed.

        Spark's connector polls in vain for what is not there, and tells it as a loss then.
        """
        for at in sorted(ends):
            if ends[at] > newest[at]:
                self._tasks.reading().tell_loss(f"endingOffsets has {ends[at]} for {at}, which ends at {newest[at]}")
        return {at: min(offset, newest[at]) for at, offset in ends.items()}


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads on for as long as its query runs; one object per query, in a process of its own beside the driver."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._tasks = _Tasks(options, schema)
        self._opened: Directory | None = None
        self._planned_ids = PlannedIds()
        self._newest: dict[TopicPartition, int] | None = None
        # The end of a query that reads what is there and ends, and its topics' ids; ``None`` for one that goes on.
        self._available_now: tuple[dict[TopicPartition, int], dict[str, str]] | None = None
        self._is_available_now = False
        # The partitions that ended before their positions when they were looked at, and where: each is reported once.
        self._behind: dict[TopicPartition, int] = {}
        self._last_trigger_s = -math.inf  # the first micro-batch does not wait

    @property
    def _directory(self) -> "Directory":
        if self._opened is None:
            self._opened = _directory(self._tasks.options)
        return self._opened

    def __getstate__(self) -> dict[str, Any]:
        """For tasks: what is open, and what is known of offsets, stays with the driver."""
        return {**self.__dict__, "_opened": None, "_planned_ids": PlannedIds()}

    def initialOffset(self) -> OffsetTree:
        """Where a new query starts."""
        directory = self._directory
        topic_partitions = directory.partitions()
        ids = directory.topic_ids({at.topic for at in topic_partitions})  # before the offsets, as in a batch
        starts = directory.starts(topic_partitions, self._tasks.options.starting)
        if isinstance(self._tasks.options.starting, ByOffset):
            _check_order(starts, directory.latest(starts))
        return self._planned_ids.give(starts, ids)

    def getDefaultReadLimit(self) -> ReadLimit:
        """What ``maxOffsetsPerTrigger`` says; the minimum is looked at with either limit, for Spark takes one."""
        options = self._tasks.options
        if options.offsets_per_trigger_max is not None:
            return ReadMaxRows(options.offsets_per_trigger_max)
        if options.offsets_per_trigger_min is not None:
            return ReadMinRows(options.offsets_per_trigger_min)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> OffsetTree:
        """Where the next micro-batch ends; ``start`` itself where none is due."""
        starts, known_ids = offsets_of_tree(start), self._planned_ids.of(start)
        ends, ids = self._ends(starts, known_ids)
        self._newest = ends
        anew = made_anew(known_ids, ids)
        if not isinstance(limit, ReadAllAvailable):
            begun = self._begun(starts, ends, anew)
            ends = {at: offset for at, offset in ends.items() if at in begun}
            if self._is_too_early(begun, ends):
                return start
            if isinstance(limit, ReadMaxRows):
                ends = limited(begun, ends, limit.max_rows)
        return self._planned_ids.give(distinguishable(starts, ends, anew), ids)

    def reportLatestOffset(self) -> OffsetTree | None:
        """The ends that the last look found, for the query's progress."""
        return tree_of_offsets(self._newest) if self._newest else None

    def prepareForTriggerAvailableNow(self) -> None:
        """Have the ends that the next look finds be the last ones."""
        self._is_available_now = True

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of a micro-batch."""
        starts, ends = offsets_of_tree(start), offsets_of_tree(end)
        known_ids, planned_ids = self._planned_ids.of(start), self._planned_ids.of(end)
        if gone := starts.keys() - ends.keys():
            self._tell_loss(f"{listed(gone)} are gone, with what was not read of them")
        if self._newest is None:
            ends = self._still_there(starts, ends, planned_ids)
        ids = dict(planned_ids)
        if unknown := {at.topic for at in ends} - ids.keys():  # an earlier run has planned it
            ids |= self._directory.topic_ids(unknown)
            self._planned_ids.give(offsets_of_tree(end), ids)
        begun = self._begun(starts, ends, made_anew(known_ids, ids))
        for at in sorted(begun.keys() - starts.keys()):
            if begun[at] > 0:
                self._tell_loss(f"{at} is new and begins at {begun[at]}: what was before is lost")
        same = known_ids.keys() & planned_ids.keys()
        return self._tasks.divided(iter(self._ranges(begun, ends, same, ids)))

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """The rows of one task."""
        return self._tasks.read(partition)

    def stop(self) -> None:
        """The query has ended, or a call has failed."""
        if is_hung_up():
            end_quietly()

    def _still_there(self, starts: Offsets, ends: Offsets, planned_ids: Mapping[str, str]) -> dict[TopicPartition, int]:
        """The ends of a micro-batch that an earlier run planned, without topics that were made anew since.

        What those have now is no part of it: the next look finds it, and reads it from its beginning.
        """
        anew = made_anew(planned_ids, self._directory.topic_ids(planned_ids.keys()))
        for at in sorted(ends):
            if at.topic in anew and starts.get(at, 0) != ends[at]:
                self._tell_loss(f"{at} was made anew: what was not read of the former one is lost")
        return {at: offset for at, offset in ends.items() if at.topic not in anew}

    def _begun(self, starts: Offsets, ends: Offsets, anew: Collection[str]) -> dict[TopicPartition, int]:
        """Where each partition is read from: a new one from where it begins, all of what was made anew.

        A new one that is gone again is left out.
        """
        new = self._directory.earliest_left(ends.keys() - starts.keys())
        if gone := ends.keys() - starts.keys() - new.keys():
            self._tell_loss(f"{listed(gone)} were new and are gone, with what they had")
        return {at: 0 if at.topic in anew else offset for at, offset in {**new, **starts}.items()}

    def _ends(
        self, starts: Mapping[TopicPartition, int], known_ids: Mapping[str, str]
    ) -> tuple[dict[TopicPartition, int], dict[str, str]]:
        """Where partitions end, and the ids of their topics."""
        if self._available_now is not None:
            return self._available_now
        from pybroker.pipeline.topics.directory import MissingTopics

        try:
            found = self._known()
            ids = {**known_ids, **self._directory.topic_ids({at.topic for at in found})}
            ends = self._directory.latest(found)
        except MissingTopics as missing:
            if self._tasks.options.fail_on_data_loss:
                raise
            # Gone between two questions: the next look tells more.
            _log.warning("%s", missing)
            return dict(starts), dict(known_ids)
        anew = made_anew(known_ids, ids)
        same = known_ids.keys() | self._open_behind(starts, ends, known_ids)
        for at in sorted(ends.keys() & starts.keys()):
            if at.topic in anew:
                self._tell_loss(f"{at} was made anew: what was not read of the former one is lost")
            elif ends[at] < starts[at] and at.topic in same:
                self._tell_behind(at, ends[at], starts[at])
                # What is behind the position is read when the end has passed it, and nothing twice.
                ends[at] = starts[at]
            elif ends[at] < starts[at]:
                self._tell_loss(f"{at} ends at {ends[at]}, before {starts[at]}, to where it was read: it was made anew")
            else:
                self._behind.pop(at, None)
        if self._is_available_now:
            self._available_now = ends, ids
        return ends, ids

    def _open_behind(self, starts: Offsets, ends: Offsets, known_ids: Collection[str]) -> set[str]:
        """The topics without a known id that go on to where they were read, behind a transaction that is open."""
        behind = [at for at in ends.keys() & starts.keys() if ends[at] < starts[at] and at.topic not in known_ids]
        return {at.topic for at, end in self._directory.high_watermarks(behind).items() if end >= starts[at]}

    def _known(self) -> frozenset[TopicPartition]:
        """The partitions that there are, where some may be missing."""
        from pybroker.pipeline.topics.directory import MissingTopics

        try:
            return self._directory.partitions()
        except MissingTopics as missing:
            self._tell_loss(str(missing))
            return self._directory.partitions_left()

    def _is_too_early(self, starts: Offsets, ends: Offsets) -> bool:
        options = self._tasks.options
        least, now = options.offsets_per_trigger_min, time.monotonic()
        waited_ms = (now - self._last_trigger_s) * 1_000
        if least is not None and waited_ms < options.trigger_delay_max_ms and available(starts, ends) < least:
            return True
        self._last_trigger_s = now
        return False

    def _ranges(
        self, starts: Offsets, ends: Offsets, same: Collection[str], ids: Mapping[str, str]
    ) -> list[OffsetRange]:
        """Of a partition that ends before its position what it has now is read, unless it is known to be the ``same``.

        Without ids nothing else tells that it was made anew.
        """
        return [
            OffsetRange(
                at,
                starts[at] if starts[at] <= ends[at] or at.topic in same else 0,
                ends[at],
                ids.get(at.topic, ""),
            )
            for at in sorted(ends.keys() & starts.keys())
        ]

    def _tell_behind(self, at: TopicPartition, end: int, position: int) -> None:
        if self._behind.get(at) != end:
            self._tell_loss(
                f"{at} ends at {end}, before {position}, to where it was read: "
                "its log was cut, or a transaction is open there"
            )
            self._behind[at] = end

    def _tell_loss(self, what: str) -> None:
        self._tasks.reading().tell_loss(what)


class RefusedStream(DataSourceStreamReader):
    """Says, whatever it is asked first, why its query cannot be."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def initialOffset(self) -> OffsetTree:
        """Raises ValueError, as do the others."""
        raise ValueError(self._reason)

    def getDefaultReadLimit(self) -> ReadLimit:
        raise ValueError(self._reason)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> OffsetTree:
        raise ValueError(self._reason)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        raise ValueError(self._reason)

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        raise ValueError(self._reason)


def _check_order(starts: Offsets, ends: Offsets) -> None:
    """Raise ValueError where a partition would be read from behind its end."""
    for at in sorted(starts.keys() & ends.keys()):
        if starts[at] > ends[at]:
            raise ValueError(f"{at} would be read from offset {starts[at]}, which is behind {ends[at]}, where it ends")


def made_anew(before: Mapping[str, str], now: Mapping[str, str]) -> set[str]:
    """The topics that have another id: what a checkpoint says of them was said of others."""
    return {topic for topic, at in now.items() if before.get(topic, at) != at}
