"""Kafka Connect's and MirrorMaker 2's integration tests, as Kafka publishes them, with their workers in one JVM.

They start brokers by ``KafkaClusterTestKit``.  ``kafka-connect/java`` has a class of that name and one of a broker's,
earlier in the class path, which start ``pybroker`` as processes.  With Apache Kafka the classes are Kafka's own.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar
from xml.etree import ElementTree

from conformance.client_folder import files_below, run_build_step
from harness import process_tree
from harness.apache_kafka import LOG4J_CONFIGURATION
from harness.pybroker_process import COMMAND

from client_suites.suite import Outcome, Suite

_CONNECT = "org.apache.kafka.connect.integration"
_MIRROR = "org.apache.kafka.connect.mirror.integration"
# Tests of what Connect asks of brokers; the others are of Connect alone.
PACKAGES = {
    "ExactlyOnceSourceIntegrationTest": _CONNECT,
    "OffsetsApiIntegrationTest": _CONNECT,
    "ConnectorRestartApiIntegrationTest": _CONNECT,
    "RebalanceSourceConnectorsIntegrationTest": _CONNECT,
    "ErrorHandlingIntegrationTest": _CONNECT,
    "MirrorConnectorsIntegrationBaseTest": _MIRROR,
    "MirrorConnectorsIntegrationSSLTest": _MIRROR,
    "MirrorConnectorsIntegrationTransactionsTest": _MIRROR,
    "MirrorConnectorsIntegrationExactlyOnceTest": _MIRROR,
    "MirrorConnectorsWithCustomForwardingAdminIntegrationTest": _MIRROR,
    "IdentityReplicationIntegrationTest": _MIRROR,
    "DedicatedMirrorIntegrationTest": _MIRROR,
}
_JVM_OPTIONS = ("-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_TEST_TIMEOUT_S = 600
_RUN_TIMEOUT_S = 7200


class KafkaConnect(Suite):
    """The classes of ``PACKAGES``; a test is ``CLASS::METHOD``, with its types and a number if it has parameters."""

    name: ClassVar[str] = "kafka-connect"
    version: ClassVar[str] = "4.3.1"
    toolchains: ClassVar[tuple[str, ...]] = ("javac", "mvn")
    starts_its_broker: ClassVar[bool] = True

    @property
    def _jars(self) -> str:
        return f"{self.cache}/lib/*"

    def build(self, environment: Mapping[str, str]) -> None:
        copied = (f"-DoutputDirectory={self.cache}/lib", "-DincludeScope=runtime")
        pom = ("-f", str(self.folder / "pom.xml"))
        run_build_step(
            ["mvn", "-B", "-q", "-ntp", *pom, "dependency:copy-dependencies", *copied], self.cache, environment
        )
        sources = [str(path) for path in files_below(self.folder / "java")]
        run_build_step(
            ["javac", "-nowarn", "-cp", self._jars, "-d", f"{self.cache}/classes", *sources], self.cache, environment
        )

    def run(
        self, bootstrap: str, log: Path, selected: Sequence[str] = (), *, replicas: int = 1, apache: bool = False
    ) -> dict[str, Outcome]:
        directory = log.with_suffix("")
        directory.mkdir(parents=True, exist_ok=True)
        classes = () if apache else (f"{self.cache}/classes",)
        options = {
            "log4j2.configurationFile": LOG4J_CONFIGURATION,
            "java.io.tmpdir": directory,
            "pybroker.command": COMMAND,
        }
        command = ["java", *_JVM_OPTIONS, *(f"-D{name}={value}" for name, value in options.items())]
        command += ["-cp", ":".join((*classes, self._jars)), "org.junit.platform.console.ConsoleLauncher", "execute"]
        limit = f"junit.jupiter.execution.timeout.testable.method.default={_TEST_TIMEOUT_S}s"
        told = ("--disable-banner", "--disable-ansi-colors", "--details=testfeed", "--reports-dir", str(directory))
        command += ["--config", limit, *told]
        with log.open("wb") as output:
            process_tree.run(
                [*command, *selection(selected)],
                cwd=directory,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=_RUN_TIMEOUT_S,
            )
        report = directory / "TEST-junit-jupiter.xml"
        if not report.exists():
            raise RuntimeError(f"JUnit left no report\n{log.read_text(errors='replace')[-8000:]}")
        return outcomes_of(ElementTree.parse(report).iter("testcase"))


def selection(tests: Sequence[str]) -> list[str]:
    """JUnit's options for these tests, or for all."""
    classes = dict.fromkeys(test.partition("::")[0] for test in tests) or PACKAGES
    methods = dict.fromkeys(method.partition("(")[0] for test in tests if (method := test.partition("::")[2]))
    return [
        *(f"--select-class={PACKAGES[name]}.{name}" for name in classes),
        *(f"--include-methodname=.*#{method}" for method in methods),
    ]


def outcomes_of(cases: Iterable[ElementTree.Element]) -> dict[str, Outcome]:
    """Each test of JUnit's report."""
    outcomes = {}
    for case in cases:
        marks = {child.tag for child in case}
        test = f"{case.attrib['classname'].rpartition('.')[2]}::{case.attrib['name'].removesuffix('()')}"
        outcomes[test] = (
            Outcome.FAILED
            if marks & {"failure", "error"}
            else Outcome.SKIPPED
            if "skipped" in marks
            else Outcome.PASSED
        )
    return outcomes
