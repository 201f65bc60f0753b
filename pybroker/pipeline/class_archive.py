"""Spark's classes as a JVM keeps them, in a file that sessions map: they start, and plan first, twice as fast.

A session reads some 20,000 classes before its first query is done, each out of a jar, parsed and checked anew.  An
archive (JEP 350, dynamic class-data sharing) has them ready.  `python -m pybroker.pipeline.class_archive` makes one,
once for each Java and PySpark: it takes about a minute, and 170 MB of the user's cache.  A session without one starts
as ever.

Owns where the archive lies, of which Java and PySpark it is, and how it is made.  Spark runs a small job, and the JVM
writes down at its end what it has.  A JVM that is another one than it seems passes over the archive by itself.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from pybroker.extras import how_to_install
from pybroker.pipeline.jars import jars_dir, java

MADE_WITHIN_S = 600

# Of an archive that does not fit nothing is said on standard error: it is passed over.
_USE = "-XX:SharedArchiveFile={} -Xlog:cds=off -Xlog:cds+dynamic=off"


def java_options() -> str:
    """What has a JVM of Spark's on this machine use the archive; nothing where there is none."""
    path = archive_path()
    return _USE.format(path) if path is not None and path.exists() else ""


def archive_path() -> Path | None:
    """Where the archive of this Java and this PySpark lies or would lie; None without either of them."""
    spec = find_spec("pyspark")
    executable = Path(java()).resolve()
    if spec is None or spec.origin is None or not executable.is_file():
        return None
    jars = Path(spec.origin).parent / "jars"
    release = executable.parent.parent / "release"  # of the Java: its version and build
    marks = [
        os.fsencode(executable),
        *(str(path.stat().st_mtime_ns).encode() for path in (jars, release) if path.exists()),
    ]
    return jars_dir().parent / "spark-classes" / f"{_hash(os.fsencode(jars))}-{_hash(*marks)}.jsa"


def _hash(*parts: bytes) -> str:
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def make() -> Path:
    """Make the archive unless it is there; its path.  Raises RuntimeError with what went wrong."""
    path = archive_path()
    if path is None:
        raise RuntimeError(f"there is no Java, or no PySpark: {how_to_install('spark')}")
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".made-", dir=path.parent) as scratch:
        made = Path(scratch) / path.name
        command = [sys.executable, "-m", "pybroker.pipeline.class_archive_training", str(made)]
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=MADE_WITHIN_S,
            check=False,
        )
        if done.returncode or not made.exists():
            raise RuntimeError(f"no archive of Spark's classes could be made: {done.stdout.strip()[-2000:]}")
        for former in path.parent.glob(f"{path.name.partition('-')[0]}-*.jsa"):
            former.unlink()  # of another Java, or of a PySpark that was there
        made.replace(path)
    return path


if __name__ == "__main__":
    try:
        found = make()
    except RuntimeError as error:
        sys.exit(str(error))
    sys.stdout.write(f"Spark's classes: {found} ({found.stat().st_size >> 20} MB)\n")
