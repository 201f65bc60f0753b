"""Apache Kafka as a test partner: one broker in KRaft combined mode, and Kafka's own tools.

Owns: the class path, formatting, start, stop and kill -9 of one broker on free loopback ports, and running its
command-line tools.  Which Kafka is the reference says ``scripts/poms/kafka/pom.xml`` alone.  The jars come from
``scripts/kafka-jars``; nothing is downloaded here.

    with ApacheKafka(tmp_path / "kafka", properties={"offsets.topic.num.partitions": "5"}) as kafka:
        run_kafka_tool(TOPIC_COMMAND, "--bootstrap-server", kafka.bootstrap, "--list")
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from harness.broker_probe import free_port, wait_until_ready
from harness.broker_process import BrokerProcess
from harness.child_process import ChildProcess

ROOT = Path(__file__).resolve().parents[2]
POM = ROOT / "scripts" / "poms" / "kafka" / "pom.xml"
JARS_SCRIPT = ROOT / "scripts" / "kafka-jars"
JARS_VARIABLE = "PYBROKER_KAFKA_JARS"  # names another directory of the same jars
SOURCES_VARIABLE = "PYBROKER_KAFKA_SOURCES"  # names other versions of older sources of cluster links, by commas


def _reference_version() -> str:
    """The version that the pom's property ``kafka.version`` says."""
    found = re.search(r"<kafka\.version>(.+)</kafka\.version>", POM.read_text())
    assert found is not None, f"{POM} does not say which Kafka is the reference"
    return found[1]


def older_sources() -> tuple[str, ...]:
    """The versions that tests start as older sources of cluster links: what ``scripts/kafka-jars --sources`` has."""
    found = re.search(rf"{SOURCES_VARIABLE}:-(.+)\}}", JARS_SCRIPT.read_text())
    assert found is not None, f"{JARS_SCRIPT} does not say which Kafkas are older sources"
    return tuple((os.environ.get(SOURCES_VARIABLE) or found[1]).split(","))


KAFKA_VERSION = _reference_version()
JARS_DIRECTORY = Path(os.environ.get(JARS_VARIABLE, ROOT / ".cache" / "jars" / f"kafka-{KAFKA_VERSION}" / "lib"))
LOG4J_CONFIGURATION = Path(__file__).resolve().parent / "log4j2.properties"
CLUSTER_ID = "pybrokerCompatTestsIdA"  # 22 characters of base64: 16 bytes, as Kafka wants them

# Main classes of Kafka's tools, which moved between packages over the years.
ACL_COMMAND = "org.apache.kafka.tools.AclCommand"
BROKER_API_VERSIONS_COMMAND = "org.apache.kafka.tools.BrokerApiVersionsCommand"
CLUSTER_TOOL = "org.apache.kafka.tools.ClusterTool"
METADATA_QUORUM_COMMAND = "org.apache.kafka.tools.MetadataQuorumCommand"
CONFIG_COMMAND = "org.apache.kafka.tools.ConfigCommand"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSUMER_GROUP_COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONSUMER_PERFORMANCE = "org.apache.kafka.tools.ConsumerPerformance"
DELETE_RECORDS_COMMAND = "org.apache.kafka.tools.DeleteRecordsCommand"
DUMP_LOG_SEGMENTS = "org.apache.kafka.tools.DumpLogSegments"
FEATURE_COMMAND = "org.apache.kafka.tools.FeatureCommand"
GET_OFFSET_SHELL = "org.apache.kafka.tools.GetOffsetShell"
GROUPS_COMMAND = "org.apache.kafka.tools.GroupsCommand"
LEADER_ELECTION_COMMAND = "org.apache.kafka.tools.LeaderElectionCommand"
LOG_DIRS_COMMAND = "org.apache.kafka.tools.LogDirsCommand"
PRODUCER_PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
STORAGE_TOOL = "kafka.tools.StorageTool"
REASSIGN_PARTITIONS_COMMAND = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
STREAMS_RESETTER = "org.apache.kafka.tools.StreamsResetter"
TOPIC_COMMAND = "org.apache.kafka.tools.TopicCommand"
TRANSACTIONS_COMMAND = "org.apache.kafka.tools.TransactionsCommand"
VERIFIABLE_CONSUMER = "org.apache.kafka.tools.VerifiableConsumer"

# What Kafka's own start script hands to the JVM.
SERVER_JVM_OPTIONS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
# Internal topics' defaults ask for three brokers.
SINGLE_BROKER_PROPERTIES = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
TOOL_JVM_OPTIONS = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
# Kafka's classes as a JVM keeps them (class-data sharing): scripts/kafka-jars makes it, by ``harness.kafka_classes``.
CLASS_ARCHIVE = JARS_DIRECTORY.parent / "classes.jsa"


def missing_requirement() -> str | None:
    """Why Apache Kafka cannot be run here, as one sentence; ``None`` when it can."""
    if shutil.which("java") is None:
        return "there is no java on the PATH"
    if not any(JARS_DIRECTORY.glob("kafka_2.13-*.jar")):
        return "Kafka's jars are missing: run scripts/kafka-jars"
    return None


def class_archive_options(archive: Path = CLASS_ARCHIVE) -> list[str]:
    """What halves the start of a JVM of Kafka's, for tests; figures are taken without."""
    if not archive.exists():
        return []
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]


def _archive_options_of(jars: Path) -> list[str]:
    """The archive has the classes of the reference alone."""
    return class_archive_options() if jars == JARS_DIRECTORY else []


def jars_of(version: str) -> Path:
    """Where ``scripts/kafka-jars`` puts an older Kafka."""
    return ROOT / ".cache" / "jars" / f"kafka-{version}" / "lib"


def java_command(
    main_class: str, *arguments: str, jvm_options: Sequence[str], jars: Path = JARS_DIRECTORY
) -> list[str]:
    """The command line of a Java program on Kafka's class path."""
    log4j = f"-Dlog4j2.configurationFile={LOG4J_CONFIGURATION}"
    return ["java", *jvm_options, log4j, "-cp", f"{jars}/*", main_class, *arguments]


def run_kafka_tool(
    main_class: str,
    *arguments: str,
    timeout_s: float = 60,
    check: bool = True,
    standard_input: str | None = None,
    jvm_options: Sequence[str] | None = None,
    jars: Path = JARS_DIRECTORY,
) -> subprocess.CompletedProcess[str]:
    """Run one of Kafka's tools to its end; with ``check`` a failure raises ``RuntimeError`` with all of its output."""
    if jvm_options is None:
        jvm_options = (*TOOL_JVM_OPTIONS, *_archive_options_of(jars))
    result = subprocess.run(
        java_command(main_class, *arguments, jvm_options=jvm_options, jars=jars),
        input=standard_input,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if check and result.returncode != 0:
        raise RuntimeError(f"{main_class} exited with {result.returncode}\n{result.stdout}\n{result.stderr}")
    return result


class ApacheKafka(BrokerProcess):
    """One Apache Kafka broker; broker and controller in one process, replication factors of one.

    ``properties`` overrides any broker property; ``heap_mb`` is the JVM's fixed maximum; without ``jvm_options`` it has
    those of Kafka's own scripts, and ``class_archive_options``; ``more_listeners`` are URLs beside the first one's;
    ``jars`` are those of another version (``jars_of``).  ``start`` formats the directory the first time, so a stopped
    or killed broker starts again on its data with the same ports.
    """

    name = "Apache Kafka"

    def __init__(
        self,
        directory: Path,
        properties: Mapping[str, str] | None = None,
        heap_mb: int = 512,
        jvm_options: Sequence[str] | None = None,
        port: int | None = None,
        more_listeners: Sequence[str] = (),
        jars: Path = JARS_DIRECTORY,
    ) -> None:
        super().__init__(directory, port or free_port())
        self._jars = jars
        self._more_listeners = more_listeners
        if jvm_options is None:
            jvm_options = (*SERVER_JVM_OPTIONS, *_archive_options_of(jars))
        self._jvm_options = [f"-Xmx{heap_mb}m", *jvm_options]
        self._properties_path = directory / "server.properties"
        self._properties = {**self._default_properties(), **(properties or {})}

    def start(self, timeout_s: float = 60) -> Self:
        """Start and wait until the broker answers ApiVersions and Metadata."""
        assert self._process is None, "the broker runs already"
        self._format()
        properties = str(self._properties_path)
        command = java_command("kafka.Kafka", properties, jvm_options=self._jvm_options, jars=self._jars)
        self._process = ChildProcess(command, self.log_path)
        try:
            wait_until_ready(self.host, self.port, timeout_s, self._check_alive)
        except Exception:
            self.kill()
            raise
        return self

    def stop(self, timeout_s: float = 30) -> None:
        """Shut down cleanly; does nothing when it is not running."""
        if self._process is not None:
            self._process.terminate(timeout_s)
            self._process = None

    def _default_properties(self) -> dict[str, str]:
        controller = f"{self.host}:{free_port()}"
        return {
            "node.id": "1",
            "process.roles": "broker,controller",
            "listeners": ",".join(
                (f"PLAINTEXT://{self.host}:{self.port}", f"CONTROLLER://{controller}", *self._more_listeners)
            ),
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@{controller}",
            "log.dirs": str(self.data_directory),
            **SINGLE_BROKER_PROPERTIES,
        }

    def _format(self) -> None:
        """Write the properties, and Kafka's meta.properties and bootstrap metadata unless they are there."""
        self.directory.mkdir(parents=True, exist_ok=True)
        lines = [f"{name}={value}\n" for name, value in self._properties.items()]
        self._properties_path.write_text("".join(lines))
        if not (self.data_directory / "meta.properties").exists():
            run_kafka_tool(STORAGE_TOOL, "format", "-t", CLUSTER_ID, "-c", str(self._properties_path), jars=self._jars)
