"""Makes the archive of Connect's classes that JVMs of tests start with: ``python -m kafka_connect.classes``, once.

A worker copies a file as ``docs/connect.md`` has it, and its JVM leaves its classes as it ends.  MirrorMaker has most
of them, too, and the same class path.  ``scripts/connect-jars`` removes an archive of other jars, which a JVM would
pass over.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from kafka_connect.jars import CLASS_ARCHIVE, CONNECT_PAGE, JARS_OF_PAGES
from kafka_connect.reader import Reader

_DUMPED_WITHIN_S = 120


def make() -> None:
    """Make the archive unless it is there.  Raises what the page's commands raise."""
    if CLASS_ARCHIVE.exists():
        return
    made = CLASS_ARCHIVE.with_suffix(".partial")
    with tempfile.TemporaryDirectory(prefix="connect-classes-") as directory:
        reader = Reader(CONNECT_PAGE, Path(directory), JARS_OF_PAGES)
        reader.environment["JAVA_TOOL_OPTIONS"] = f"-XX:ArchiveClassesAtExit={made}"
        try:
            reader.read("Brokers", "User and rights of the workers", "Workers", "Files, exactly once")
            *_, worker, other = reader.processes
            other.kill()
            worker.end(_DUMPED_WITHIN_S)
        finally:
            reader.kill()
    if made.exists():
        made.replace(CLASS_ARCHIVE)


if __name__ == "__main__":
    make()
