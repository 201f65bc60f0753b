"""What a streaming query observes of its rows (``DataFrame.observe``), told to one function by each micro-batch.

Owns the listener and its end.  Owns no metric.
"""

from collections.abc import Callable
from typing import TypeVar

from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

Started = TypeVar("Started")


def hear_nothing_more(spark: SparkSession, listener: StreamingQueryListener) -> None:
    """End what ``addListener`` began, and leave nothing of it behind."""
    spark.streams.removeListener(listener)
    # PySpark's, through which the JVM and the listener would keep each other for the life of the driver.
    listener.__dict__.pop("_jlistenerobj", None)


class ObservedMetrics(StreamingQueryListener):
    """Hears of each micro-batch of the query of a name, on a thread of Spark's, from `begin` until `close`.

    ``tell`` is given a metric's name and its values.
    """

    def __init__(self, spark: SparkSession, query: str, tell: Callable[[str, Row], None]) -> None:
        super().__init__()
        self._spark, self._query, self._tell = spark, query, tell
        self._run: str | None = None  # a former run's news, which come late, are not told

    def begin(self, start: Callable[[], Started]) -> Started:
        """What ``start`` gives, which starts the query: it is heard of from its first micro-batch on.

        Nothing more is heard where it does not start.
        """
        self._spark.streams.addListener(self)
        try:
            return start()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Hear of nothing more."""
        hear_nothing_more(self._spark, self)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Spark calls it before the query's ``start`` returns."""
        if self._run is None and event.name == self._query:
            self._run = str(event.runId)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """A micro-batch is done."""
        if str(event.progress.runId) == self._run:
            for name, values in event.progress.observedMetrics.items():
                self._tell(name, values)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """The one that began it closes it."""
