"""Spark's Python processes, begun as copies of one that has imported what they need.

A query has some ten Python processes, most of them one after another before its first micro-batch is done. Each imports
PySpark, Arrow and pandas anew: between 0.3 and 1 s of a processor. Here one process, the `server`, imports them while
Spark's JVM starts, and forks for each. What the JVM runs in place of ``python`` is the `launcher`.

Owns the server's life and the launcher's file: `launcher_path` tells where it is, `end` is for the session's end.  It
is for a session in this process alone (``local[...]``), on Linux, where libraries with threads of their own (OpenBLAS,
Arrow) take being forked.  Wherever anything is not as it should be the launcher becomes the ordinary ``python``.
"""

from pybroker.pipeline.warm_python.running import end, launcher_path

__all__ = ["end", "launcher_path"]
