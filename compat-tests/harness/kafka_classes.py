"""Makes the archive of Kafka's classes that JVMs of tests start with: ``python -m harness.kafka_classes``, once.

A broker runs once, is asked by a tool, and its JVM leaves its classes as it ends.  ``scripts/kafka-jars`` removes an
archive of other jars, which a JVM would pass over.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from harness.apache_kafka import CLASS_ARCHIVE, SERVER_JVM_OPTIONS, ApacheKafka, run_kafka_tool


def make() -> None:
    """Make the archive unless it is there."""
    if CLASS_ARCHIVE.exists():
        return
    with tempfile.TemporaryDirectory(prefix="kafka-classes-") as directory:
        made = CLASS_ARCHIVE.with_suffix(".partial")
        options = (*SERVER_JVM_OPTIONS, f"-XX:ArchiveClassesAtExit={made}")
        with ApacheKafka(Path(directory) / "kafka", jvm_options=options) as kafka:
            run_kafka_tool("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", kafka.bootstrap, "--list")
    if made.exists():
        made.replace(CLASS_ARCHIVE)


if __name__ == "__main__":
    make()
