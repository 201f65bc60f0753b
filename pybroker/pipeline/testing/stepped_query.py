"""A streaming query that runs one trigger at a call, by a clock and a watermark that are set by hand.

This is the only place that reaches behind PySpark's public functions, which have neither. Spark's manager of queries
takes a clock, as its own tests have it, and a query's watermark can be set. Names are those of Spark 4.2; a Spark that
lacks them raises `UnsupportedSpark`.

Invariants: between two calls the query waits in its clock, so that nothing runs beside a test.
"""

import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

from py4j.protocol import Py4JError
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from pybroker.pipeline.query_failure import reason_in
from pybroker.pipeline.streams.jobs import Output

TRIGGER_INTERVAL_MS = 1
TRIGGERS_MAX = 1_000
HANGS_AFTER_S = 240.0
_LOOK_S = 0.2
# Of the threads of Spark's process, those that a trigger runs on, and how much is shown of each.
_FRAMES_SHOWN = 16
_TRIGGERS_THREADS = ("stream execution thread", "Executor task launch worker", "stateConnectionListenerThread")
_ALL_BATCHES = 1 << 62


class UnsupportedSpark(RuntimeError):
    """This Spark lacks what the driver sets its clock by."""


class TriggerHangs(RuntimeError):
    """Spark has not ended a trigger within `HANGS_AFTER_S`; the text tells where its threads are."""


class HandClock:
    """The time of all queries of a driver, ms since 1970."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms


class _QueryClock:
    """Spark's org.apache.spark.util.Clock for one query, which waits in it between two triggers."""

    class Java:
        """What Py4J wants to know."""

        implements = ("org.apache.spark.util.Clock",)

    def __init__(self, time: HandClock) -> None:
        self._time = time
        self._changed = threading.Condition()
        self._is_waiting = False
        self._is_released = False

    def getTimeMillis(self) -> int:
        """Spark asks."""
        return self._time.now_ms

    def nanoTime(self) -> int:
        """Spark asks."""
        return self._time.now_ms * 1_000_000

    def waitTillTime(self, _target_ms: int) -> int:
        """Spark has ended a trigger, and waits for the time of the next."""
        with self._changed:
            self._is_waiting = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._is_released)
            self._is_waiting = self._is_released = False
        return self._time.now_ms

    def release(self) -> None:
        """Let the next trigger begin."""
        with self._changed:
            self._is_released = True
            self._changed.notify_all()

    def is_waiting(self, timeout_s: float) -> bool:
        """Whether a trigger has ended and no other was begun; waits for that."""
        with self._changed:
            return self._changed.wait_for(lambda: self._is_waiting and not self._is_released, timeout_s)


class SteppedQuery:
    """One output of a job under test, for ``topic``."""

    def __init__(self, spark: SparkSession, topic: str, output: Output, checkpoint: str, time: HandClock) -> None:
        self._spark = spark
        self._topic = topic
        self._output = output
        self._checkpoint = checkpoint
        self._time = time
        self._sink = _jvm(spark).org.apache.spark.sql.execution.streaming.sources.MemorySink()
        self._batch_read = -1
        # What was written and not yet given: the sink forgets older batches where the mode is complete.
        self._rows: list[Row] = []
        self._late_rows = 0
        # The last progress whose late rows are counted.
        self._counted: Any = None
        self._why_ended = "it was stopped"
        self.query: StreamingQuery | None = None

    def start(self) -> None:
        """Begin, or go on from the checkpoint; what a micro-batch before wrote is not written again."""
        self._clock = _QueryClock(self._time)
        self._late_rows, self._counted = 0, None
        try:
            self.query = StreamingQuery(self._start())
        except Py4JError as error:
            if "does not exist" in str(error):
                raise UnsupportedSpark(str(error)) from error
            raise
        self._await_trigger()
        self.run()

    def run(self) -> None:
        """Run triggers until there is nothing to do; raises what ends the query, and RuntimeError once it has ended."""
        self.running()
        last = self._last_batch()
        for _ in range(TRIGGERS_MAX):
            self._clock.release()
            self._await_trigger()
            batch = self._last_batch()
            if batch == last or (batch.rows == 0 and batch.watermark == last.watermark):
                return
            last = batch
        raise RuntimeError(f"the query had work for more than {TRIGGERS_MAX} triggers")

    def advance_watermark(self, to_ms: int) -> None:
        """Have the watermark be at ``to_ms``, and what waits for that happen.  It never goes back."""
        stream = self._stream()
        tracker = stream.watermarkTracker()
        if to_ms > tracker.currentWatermark():
            tracker.setWatermark(to_ms)
            _forget_propagated_watermarks(stream)
            self.run()

    def stop(self, *, lose_last_commit: bool = False) -> None:
        """End; with ``lose_last_commit`` as a driver that dies before it has noted its last micro-batch as done."""
        query, self.query = self.query, None
        if query is None:
            return
        # Spark waits for the query's thread, which waits in our clock: let go only when it will begin nothing more.
        stopping = threading.Thread(target=query.stop, name="stop of a query under test")
        stopping.start()
        while stopping.is_alive() and query.isActive:
            stopping.join(_LOOK_S / 100)
        self._clock.release()
        stopping.join()
        if lose_last_commit:
            forget_last_commit(Path(self._checkpoint))

    def running(self) -> StreamingQuery:
        """The query; raises RuntimeError, with the reason, where it has ended."""
        if self.query is None:
            raise RuntimeError(f"the query of {self._topic} has ended: {self._why_ended}")
        return self.query

    def rows(self) -> list[Row]:
        """What was written since the last call, in the order of micro-batches; timestamps as µs since 1970."""
        rows, self._rows = self._rows, []
        return rows

    def late_rows(self) -> int:
        """How many rows were dropped since the start, because the watermark was beyond them."""
        return self._late_rows

    def _fetch_rows(self) -> None:
        latest = self._sink.latestBatchId()
        if latest.isEmpty() or latest.get() == self._batch_read:
            return
        java_rows = _jvm(self._spark).scala.jdk.javaapi.CollectionConverters.asJava(
            self._sink.dataSinceBatch(self._batch_read)
        )
        self._batch_read = latest.get()
        java_frame = self._spark._jsparkSession.createDataFrame(java_rows, self._output.rows._jdf.schema())
        frame = DataFrame(java_frame, self._spark)
        if "timestamp" in frame.columns:
            # Python's form of it would be that of this machine's zone.
            frame = frame.withColumn("timestamp", F.unix_micros("timestamp"))
        self._rows += frame.collect()

    def _count_late_rows(self) -> None:
        """Of the last trigger; Spark keeps the progress of the last hundred alone."""
        progress = self.running()._jsq.lastProgress()
        # A trigger that had nothing to do leaves the last one's.
        if progress is None or progress == self._counted:
            return
        self._counted = progress
        self._late_rows += sum(state.numRowsDroppedByWatermark() for state in progress.stateOperators())

    def _start(self) -> Any:
        spark, jvm = self._spark, _jvm(self._spark)
        ensure_callback_server_started(spark.sparkContext._gateway)  # type: ignore[no-untyped-call,unused-ignore]
        some, none = jvm.scala.Option.apply, jvm.scala.Option.empty
        streaming = jvm.org.apache.spark.sql.streaming
        modes = {
            "append": streaming.OutputMode.Append,
            "update": streaming.OutputMode.Update,
            "complete": streaming.OutputMode.Complete,
        }
        return spark._jsparkSession.streams().startQuery(
            none(),  # name
            none(),  # name of the sink
            some(self._checkpoint),
            self._output.rows._jdf,
            jvm.PythonUtils.toScalaMap({}),  # options
            self._sink,
            modes[self._output.mode](),
            False,  # no temporary checkpoint
            True,  # goes on from the checkpoint
            streaming.Trigger.ProcessingTime(TRIGGER_INTERVAL_MS),
            self._clock,
            none(),  # catalog
            none(),  # its table
        )

    def _stream(self) -> Any:
        return self.running()._jsq.streamingQuery()

    def _await_trigger(self) -> None:
        query, deadline = self.running(), time.monotonic() + HANGS_AFTER_S
        while not self._clock.is_waiting(_LOOK_S):
            if time.monotonic() > deadline:
                raise TriggerHangs(f"a trigger of {self._topic} takes over {HANGS_AFTER_S:.0f} s: {self._threads()}")
            if not query.isActive:
                self.query = None
                self._fetch_rows()
                error = query.exception() or RuntimeError("the query has ended by itself")
                self._why_ended = reason_in(str(error))
                raise error
        self._fetch_rows()
        self._count_late_rows()

    def _threads(self) -> str:
        """Where the trigger's threads are, as Java says it."""
        found = _jvm(self._spark).org.apache.spark.util.Utils.getThreadDump()
        threads = (each.toString().splitlines()[:_FRAMES_SHOWN] for each in found)
        shown = (each for each in threads if any(name in each[0] for name in _TRIGGERS_THREADS))
        return "\n".join(line for each in shown for line in each)

    def _last_batch(self) -> "_Batch":
        # Python's form of a progress wants rates, which a clock that stands still has none of.
        progress = self.query._jsq.lastProgress() if self.query is not None else None
        if progress is None:
            return _Batch(-1, 0, "")
        return _Batch(progress.batchId(), progress.numInputRows(), progress.eventTime().get("watermark") or "")


class _Batch(NamedTuple):
    number: int
    rows: int
    watermark: str


def _jvm(spark: SparkSession) -> Any:
    return spark.sparkContext._jvm


def _forget_propagated_watermarks(stream: Any) -> None:
    """Spark has made up its mind what the next micro-batch's watermark is at each operator: it does so anew."""
    field = stream.getClass().getDeclaredField("watermarkPropagator")
    field.setAccessible(True)
    field.get(stream).purge(_ALL_BATCHES)


def forget_last_commit(checkpoint: Path) -> None:
    """As if the driver had died before it noted that the last micro-batch is done."""
    commits = checkpoint / "commits"
    last = max((int(path.name) for path in commits.iterdir() if path.name.isdecimal()), default=None)
    if last is not None:
        (commits / str(last)).unlink()
        (commits / f".{last}.crc").unlink(missing_ok=True)
