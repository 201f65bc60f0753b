"""The home that Spark's processes are given: the installed PySpark without its zip.

Spark puts ``python/lib/pyspark.zip`` of its home first on the path of each of its Python processes. What is in a zip is
compiled anew by every process that imports it: 0.8 s of a processor instead of 0.2. A query has eight such processes,
one after another, before its first micro-batch is done. In a home without the zip they import the installed package.

Owns the folder of links that is such a home, in the user's cache.  Imports no Spark.
"""

import hashlib
import os
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from pybroker.pipeline.jars import jars_dir

SPARK_HOME = "SPARK_HOME"

_ZIP = Path("python", "lib", "pyspark.zip")
_NEEDED = ("bin", "conf", "jars", "sbin")


def use_spark_home() -> None:
    """Have Spark's processes that this one starts be given that home, unless the environment names another."""
    if SPARK_HOME not in os.environ and (home := spark_home()) is not None:
        os.environ[SPARK_HOME] = str(home)


def spark_home() -> Path | None:
    """The home; ``None`` where PySpark was not installed by pip, or no folder can be made."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        return None
    installed = Path(spec.origin).parent
    if not (installed / _ZIP).exists():
        return None
    name = hashlib.sha256(os.fsencode(installed)).hexdigest()[:16]
    home = jars_dir().parent / "spark-home" / name
    try:
        home.mkdir(parents=True, exist_ok=True)
        for needed in _NEEDED:
            if (installed / needed).exists():
                with suppress(FileExistsError):  # by an earlier session, or by one that begins just now
                    (home / needed).symlink_to(installed / needed)
    except OSError:
        return None
    return home
