"""Whether a session of Spark is one in which topics can be read and written, said before a query begins.

Owns what is refused: Spark Connect, whose sessions are in another process, and a Python of Spark's that is another
than this one and lacks what tasks need.  What such a Python is asked by itself is ``data_source.check_python``'s.
"""

import os
import sys
from typing import Any

from pyspark.sql import SparkSession

from pybroker.pipeline.topics.data_source import NEEDED, TopicDataSource

# By which a program's sessions become those of Spark Connect.
REMOTE_VARIABLE = "SPARK_REMOTE"
_CONNECT = "pyspark.sql.connect."
_NOT_SERVED = "pybroker needs a Spark session in this process, and one of Spark Connect is not"
_OURS = ("pybroker", "pyspark_pybroker")
_OTHER_VERSION = "PYTHON_VERSION_MISMATCH"


def register(spark: SparkSession) -> None:
    """Have ``format("pybroker")`` in a session of your own, and its tasks looked at, by one that looks around.

    Sessions find it by themselves. This says beforehand, as RuntimeError and in one sentence, why it cannot be. The
    session is one of Spark Connect, or the Python of Spark's tasks is not the environment of this process.
    """
    refuse_connect(spark)
    needed = (*_OURS, *NEEDED)

    def look(_: int) -> tuple[str, list[str]]:
        """In a task, by value: nothing of pybroker need be there."""
        import sys
        from importlib.util import find_spec

        return sys.executable, [name for name in needed if find_spec(name) is None]

    context = spark.sparkContext
    try:
        ((python, missing),) = context.parallelize([0], 1).map(look).collect()
    except Exception as error:
        if _OTHER_VERSION not in str(error):
            raise
        raise _another_python(str(context.pythonExec), "is of another version") from None
    if missing:
        raise _another_python(python, f"has no {' and no '.join(missing)}")
    spark.dataSource.register(TopicDataSource)


def _another_python(python: str, what: str) -> RuntimeError:
    return RuntimeError(
        f"Spark's tasks run in {python}, which {what}, and not in {sys.executable}: set PYSPARK_PYTHON to that before "
        "the session begins, or activate its environment"
    )


def refuse_connect(spark: Any) -> None:
    """Raise RuntimeError for a session of Spark Connect."""
    if type(spark).__module__.startswith(_CONNECT):
        raise RuntimeError(_NOT_SERVED)


def refuse_remote() -> None:
    """Raise RuntimeError where the environment would make a session one of Spark Connect."""
    if os.environ.get(REMOTE_VARIABLE):
        raise RuntimeError(f"{_NOT_SERVED}: unset {REMOTE_VARIABLE}")
