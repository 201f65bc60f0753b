"""Where the jars of Kafka Connect, MirrorMaker 2 and Debezium lie, and how Kafka's scripts start them.

Owns: the class path and the main classes.  ``scripts/connect-jars`` resolves the jars; nothing is downloaded here.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence

from harness.apache_kafka import LOG4J_CONFIGURATION, ROOT, class_archive_options

_CACHE = ROOT / ".cache" / "jars"
CONNECT_JARS = _CACHE / "connect"
PLUGINS = _CACHE / "connect-plugins"
# Connect's classes as a JVM keeps them (class-data sharing): ``kafka_connect.classes`` makes it.
CLASS_ARCHIVE = _CACHE / "connect-classes.jsa"
CONNECT_PAGE = ROOT / "docs" / "connect.md"
_POM = (ROOT / "scripts" / "poms" / "connect" / "pom.xml").read_text()
CONNECT_VERSION = re.findall(r"<connect\.version>(.+)</", _POM)[0]
# Kafka's scripts leave this one out of the class path: it is a plugin.
_PLUGIN_IN_LIBS = f"connect-file-{CONNECT_VERSION}.jar"
# Where pages say that plugins lie, and where they lie here.
JARS_OF_PAGES = {
    f"/opt/kafka/libs/{_PLUGIN_IN_LIBS}": str(CONNECT_JARS / _PLUGIN_IN_LIBS),
    "/opt/connect-plugins": str(PLUGINS),
}
MAIN_CLASSES = {
    "connect-distributed.sh": "org.apache.kafka.connect.cli.ConnectDistributed",
    "connect-mirror-maker.sh": "org.apache.kafka.connect.mirror.MirrorMaker",
}
_JVM_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Djava.awt.headless=true")


def missing_requirement() -> str | None:
    """Why Connect cannot be run here, as one sentence; ``None`` when it can."""
    for program in ("java", "curl", "psql"):
        if shutil.which(program) is None:
            return f"there is no {program} on the PATH"
    if not (any(CONNECT_JARS.glob("connect-runtime-*.jar")) and any(PLUGINS.glob("debezium/*.jar"))):
        return "Kafka Connect's jars are missing: run scripts/connect-jars"
    return None


def java_command(script: str, arguments: Sequence[str]) -> list[str]:
    """What a script of Kafka's with these arguments comes to."""
    jars = (str(jar) for jar in sorted(CONNECT_JARS.glob("*.jar")) if jar.name != _PLUGIN_IN_LIBS)
    log4j = f"-Dlog4j2.configurationFile={LOG4J_CONFIGURATION}"
    archive = class_archive_options(CLASS_ARCHIVE)
    return ["java", *_JVM_OPTIONS, *archive, log4j, "-cp", ":".join(jars), MAIN_CLASSES[script], *arguments]
