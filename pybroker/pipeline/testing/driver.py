"""Runs a job without a broker: records in, results out, event time and processing time by hand, restarts.

Owns nothing of Spark's: a `SteppedQuery` per output of the job runs for real, on its own checkpoint, with state where
the session keeps it.

What stands for a broker: an input topic is a folder (`PipedTopics`), an output a list in memory.  As with
``format("pybroker")`` a micro-batch that runs again after a crash writes nothing twice.

Counterpart: Kafka Streams' TopologyTestDriver, whose stream time is Spark's watermark here.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession

from pybroker.pipeline.records import Record, Timestamp, as_ms, as_text
from pybroker.pipeline.streams.jobs import Job, keep_state_in_rocksdb, outputs_of
from pybroker.pipeline.testing.piped_topics import PipedTopics
from pybroker.pipeline.testing.stepped_query import HandClock, SteppedQuery
from pybroker.pipeline.topics.rows import check_columns, header_key, partition_of, timestamp_of

BEGIN_DEFAULT = "2026-01-01T00:00:00Z"


class JobDriver:
    """One job under test.

    ``begin`` is what the job takes for the time of day at first; it stands still until `advance_wall_clock`.  Close the
    driver, or use it as a context manager.
    """

    def __init__(self, spark: SparkSession, job: Job, *, begin: Timestamp = BEGIN_DEFAULT) -> None:
        keep_state_in_rocksdb(spark)
        self._spark = spark
        self._folder = TemporaryDirectory(prefix="pybroker-job-")
        self._time = HandClock(as_ms(begin))
        self._topics = PipedTopics(spark, Path(self._folder.name) / "topics")
        self._written: dict[str, list[Record]] = {}
        self._read: dict[str, int] = {}
        self._queries: dict[str, SteppedQuery] = {}
        self._names_topics = False
        self._is_closed = False
        try:
            for topic, output in outputs_of(job, self._topics).items():
                check_columns(output.rows.schema, topic)
                self._queries[topic] = SteppedQuery(spark, topic, output, str(self._checkpoint(topic)), self._time)
                self._written[topic] = []
                self._names_topics |= "topic" in output.rows.columns
            self._start()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "JobDriver":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the job and forget its state; nothing can be asked of it any more."""
        self._is_closed = True
        for query in self._queries.values():
            query.stop()
        self._folder.cleanup()

    def pipe(self, topic: str, *records: Record) -> None:
        """Give the job ``records`` as one micro-batch, and have it run until it has nothing to do."""
        self.pipe_all({topic: records})

    def pipe_all(self, records: Mapping[str, Sequence[Record]]) -> None:
        """Give the job records of several topics as one micro-batch, all of them or, where one is none, nothing.

        Raises what ends a query of the job, and RuntimeError from then on until `restart`.
        """
        self._check_runs()
        self._topics.add(records, self._time.now_ms)
        self._run()

    def advance_watermark(self, to: Timestamp) -> None:
        """Move event time on without a record: windows before ``to`` close, timers up to it fire.

        Where a query has no watermark this does nothing.  After a restart state is looked at with the next record only,
        as always in Spark.
        """
        self._check_runs()
        for query in self._queries.values():
            query.advance_watermark(as_ms(to))
        self._run()

    def advance_wall_clock(self, by: timedelta) -> None:
        """Move processing time on: its timers fire, state ends by its time to live, ``current_timestamp`` moves."""
        self._check_runs()
        self._time.now_ms += round(by.total_seconds() * 1_000)
        self._run()

    def restart(self, *, lose_last_commit: bool = False) -> None:
        """End the job and start it on its checkpoint.

        With ``lose_last_commit`` as after a driver that died when its last micro-batch had been written, but not noted:
        Spark runs that batch again.
        """
        for query in self._queries.values():
            query.stop(lose_last_commit=lose_last_commit)
        self._start()

    def read(self, topic: str) -> list[Record]:
        """What the job has written since the last call.  Records of one key are in order; others are as tasks end."""
        written = self._all_written(topic)
        begin, self._read[topic] = self._read.get(topic, 0), len(written)
        return written[begin:]

    def read_pairs(self, topic: str, value: Callable[[bytes], Any] = json.loads) -> list[tuple[str | None, Any]]:
        """`read`, as keys of text and values as ``value`` makes them of bytes, by keys."""
        pairs = [(as_text(record.key), _made(record, value)) for record in self.read(topic)]
        return sorted(pairs, key=lambda pair: pair[0] or "")

    def table(self, topic: str, value: Callable[[bytes], Any] = json.loads) -> dict[str | None, Any]:
        """What a reader of all that was written ends with: the last value per key, without deleted ones."""
        last = {as_text(record.key): record for record in self._all_written(topic)}
        return {key: _made(record, value) for key, record in last.items() if record.value is not None}

    def late_rows(self, topic: str) -> int:
        """How many rows the query of ``topic`` has dropped since its start, because the watermark was beyond them.

        Rows of state, by Spark's count: an aggregation drops a group of a micro-batch's late records as one row.
        """
        return self._query(topic).late_rows()

    def state(self, topic: str, **options: str) -> DataFrame:
        """The state behind an output topic, by Spark's data source ``statestore``, whose options these are."""
        return self._spark.read.format("statestore").options(**options).load(str(self._checkpoint(topic)))

    def _start(self) -> None:
        for query in self._queries.values():
            query.start()

    def _check_runs(self) -> None:
        """Raise RuntimeError where the driver is closed or a query has ended."""
        self._check_open()
        for query in self._queries.values():
            query.running()

    def _check_open(self) -> None:
        if self._is_closed:
            raise RuntimeError("the driver is closed")

    def _run(self) -> None:
        """Until nothing is to do, what the job writes to topics that it reads included."""
        while True:
            for query in self._queries.values():
                query.run()
            again = {topic: records for topic, records in self._collect().items() if topic in self._topics.read}
            if not again:
                return
            self._topics.add(again, self._time.now_ms)

    def _collect(self) -> dict[str, list[Record]]:
        """What was written since the last look, by topic; `read` gives it later.  RuntimeError once it is closed."""
        self._check_open()
        found: dict[str, list[Record]] = {}
        for output, query in self._queries.items():
            for row in query.rows():
                topic = row.asDict().get("topic", output)
                found.setdefault(topic, []).append(_record(row))
        for topic, records in found.items():
            self._written.setdefault(topic, []).extend(records)
        return found

    def _all_written(self, topic: str) -> list[Record]:
        self._collect()
        if topic not in self._written and not self._names_topics:
            raise self._not_written(topic)
        return self._written.get(topic, [])

    def _query(self, topic: str) -> SteppedQuery:
        if topic not in self._queries:
            raise self._not_written(topic)
        return self._queries[topic]

    def _not_written(self, topic: str) -> ValueError:
        return ValueError(f"the job does not write {topic}: it writes {', '.join(sorted(self._queries))}")

    def _checkpoint(self, topic: str) -> Path:
        return Path(self._folder.name) / "checkpoints" / topic


def _record(row: Row) -> Record:
    """Raises ValueError for a row that the sink of a broker would refuse."""
    cells = row.asDict()
    headers = [
        (header_key(None if header is None else header["key"]), None if header is None else _bytes(header["value"]))
        for header in cells.get("headers") or ()
    ]
    at_us, partition = cells.get("timestamp"), cells.get("partition")
    return Record(
        _bytes(cells.get("key")),
        _bytes(cells["value"]),
        None if at_us is None else timestamp_of(at_us),
        tuple(headers),
        None if partition is None else partition_of(partition),
    )


def _bytes(cell: str | bytes | bytearray | None) -> bytes | None:
    if cell is None:
        return None
    return cell.encode() if isinstance(cell, str) else bytes(cell)


def _made(record: Record, value: Callable[[bytes], Any]) -> Any:
    return None if record.value is None else value(record.value)
