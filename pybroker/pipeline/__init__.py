"""The data pipeline: PySpark jobs over topics, talking to the broker by the Kafka protocol alone.

Nothing here imports another part of the broker: a job must run unchanged against any Kafka cluster.  Nothing is
imported before it is asked for, so that this package can be where Spark is not.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pybroker.pipeline.jars import JarsMissing
    from pybroker.pipeline.progress import ProgressMirror, group_offsets, mirror_progress
    from pybroker.pipeline.query_failure import what_ended
    from pybroker.pipeline.spark_python import register
    from pybroker.pipeline.spark_session import SHORT_LIVED, end_session, session
    from pybroker.pipeline.streams.foreign_key_join import join_foreign_key
    from pybroker.pipeline.streams.jobs import BrokerTopics, Job, Output, Topics, start
    from pybroker.pipeline.streams.regrouping import regroup
    from pybroker.pipeline.streams.stream_table_join import join_stream_table
    from pybroker.pipeline.streams.table_join import join_tables
    from pybroker.pipeline.streams.tables import changes, latest

_MODULES = {
    "BrokerTopics": "streams.jobs",
    "JarsMissing": "jars",
    "Job": "streams.jobs",
    "Output": "streams.jobs",
    "ProgressMirror": "progress",
    "SHORT_LIVED": "spark_session",
    "Topics": "streams.jobs",
    "changes": "streams.tables",
    "end_session": "spark_session",
    "group_offsets": "progress",
    "join_foreign_key": "streams.foreign_key_join",
    "join_stream_table": "streams.stream_table_join",
    "join_tables": "streams.table_join",
    "latest": "streams.tables",
    "mirror_progress": "progress",
    "register": "spark_python",
    "regroup": "streams.regrouping",
    "session": "spark_session",
    "start": "streams.jobs",
    "what_ended": "query_failure",
}

__all__ = [
    "SHORT_LIVED",
    "BrokerTopics",
    "JarsMissing",
    "Job",
    "Output",
    "ProgressMirror",
    "Topics",
    "changes",
    "end_session",
    "group_offsets",
    "join_foreign_key",
    "join_stream_table",
    "join_tables",
    "latest",
    "mirror_progress",
    "register",
    "regroup",
    "session",
    "start",
    "what_ended",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
