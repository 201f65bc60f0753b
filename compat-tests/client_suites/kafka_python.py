"""kafka-python's integration tests: its producer, consumer and admin client, each in the ways its users found wanting.

They come with its source distribution, pinned below.  Their fixtures take a broker that runs already from KAFKA_URI;
the two modules of the tests that the distribution leaves out are put beside them.  Those of TLS and SASL would start
brokers, and take listeners of one that runs instead (``kafka_python_secured``).
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar
from xml.etree import ElementTree

from conformance.client_folder import run_build_step
from harness import process_tree

from client_suites.secured_broker import secured_broker
from client_suites.suite import Outcome, Suite

SHA256 = "4ccda3616b9aa5c353d74a97f2770d6cd1b950890d77ab0e8890e09a48eeed65"
MODULES = ("admin", "consumer", "producer")
MODULES_OF_SECURITY = ("sasl", "ssl")
# What the tests take the broker for, by which some are skipped, and where they would look for Kafka's scripts.
FIXTURES = {"KAFKA_VERSION": "4.3", "KAFKA_ROOT": "/"}
TEST_TIMEOUT_S = 60
RUN_TIMEOUT_S = 1200


class KafkaPython(Suite):
    """The tests of test/integration."""

    name: ClassVar[str] = "kafka-python"
    version: ClassVar[str] = "3.0.12"
    properties: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"num.partitions": "4", "group.min.session.timeout.ms": "1000"}
    )

    @property
    def _source(self) -> Path:
        return self.cache / f"kafka_python-{self.version}"

    @property
    def _python(self) -> str:
        return str(self.cache / "venv" / "bin" / "python")

    def build(self, environment: Mapping[str, str]) -> None:
        run_build_step([sys.executable, "-m", "venv", "venv"], self.cache, environment)
        pip = [self._python, "-m", "pip", "--disable-pip-version-check", "-q"]
        pinned = f"kafka-python=={self.version}"
        run_build_step([*pip, "download", "--no-deps", "--no-binary", ":all:", pinned], self.cache, environment)
        archive = self._source.with_name(f"{self._source.name}.tar.gz")
        if (found := hashlib.sha256(archive.read_bytes()).hexdigest()) != SHA256:
            raise RuntimeError(f"{archive.name} has the checksum {found}, not the pinned one")
        requirements = str(self.folder / "requirements.txt")
        run_build_step([*pip, "install", archive.name, "-r", requirements], self.cache, environment)
        with tarfile.open(archive) as opened:
            opened.extractall(self.cache, filter="data")
        (self._source / "test" / "__init__.py").touch()
        for module in ("service", "secured"):
            shutil.copy(self.folder / f"kafka_python_{module}.py", self._source / "test" / f"{module}.py")

    def run(
        self, bootstrap: str, log: Path, selected: Sequence[str] = (), *, replicas: int = 1, apache: bool = False
    ) -> dict[str, Outcome]:
        first, _, _ = bootstrap.partition(",")  # their fixtures take one
        return self._run(selected or files_of(MODULES), {"KAFKA_URI": f"kafka://{first}"}, log)

    def _run(
        self, tests: Sequence[str], variables: Mapping[str, str], log: Path, options: Sequence[str] = ()
    ) -> dict[str, Outcome]:
        report = log.with_suffix(".xml")
        command = [self._python, "-m", "pytest", "-p", "no:cacheprovider", "--tb=native", *options]
        limit = [f"--timeout={TEST_TIMEOUT_S}", "--timeout-method=signal"]
        with log.open("wb") as output:
            process_tree.run(
                [*command, *limit, f"--junitxml={report}", *(f"test/integration/{test}" for test in tests)],
                cwd=self._source,
                env=self.environment({**variables, **FIXTURES}),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=RUN_TIMEOUT_S,
            )
        if not report.exists():
            raise RuntimeError(f"pytest left no report\n{log.read_text(errors='replace')}")
        return outcomes_of(report)


class KafkaPythonSecurity(KafkaPython):
    """Its logins by PLAIN and both kinds of SCRAM, and its clients over TLS."""

    name: ClassVar[str] = "kafka-python-security"
    part_of: ClassVar[str | None] = KafkaPython.name
    allow_list: ClassVar[str] = "security.allow"
    starts_its_broker: ClassVar[bool] = True

    def run(
        self, bootstrap: str, log: Path, selected: Sequence[str] = (), *, replicas: int = 1, apache: bool = False
    ) -> dict[str, Outcome]:
        directory = log.with_suffix("")
        with secured_broker(directory, apache=apache) as secured:
            shutil.copy(secured.ca, directory / "ca-cert")  # as it is called there
            variables = {"SECURED_LISTENERS": json.dumps({**secured.listeners, "ssl_dir": str(directory)})}
            return self._run(selected or files_of(MODULES_OF_SECURITY), variables, log, ("-p", "test.secured"))


def files_of(modules: Sequence[str]) -> list[str]:
    """As they are called below test/integration."""
    return [f"test_{module}_integration.py" for module in modules]


def outcomes_of(report: Path) -> dict[str, Outcome]:
    """Each test of a report in JUnit's format, as module::name, or module::class::name."""
    outcomes = {}
    for case in ElementTree.parse(report).iter("testcase"):
        *packages, module = case.attrib["classname"].split(".")
        kind = () if module.startswith("test_") else (module,)
        test = "::".join((f"{packages[-1] if kind else module}.py", *kind, case.attrib["name"]))
        marks = {child.tag for child in case}
        outcomes[test] = (
            Outcome.FAILED
            if marks & {"failure", "error"}
            else Outcome.SKIPPED
            if "skipped" in marks
            else Outcome.PASSED
        )
    return outcomes
