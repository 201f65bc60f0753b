"""franz-go's integration tests: producing, groups of every kind, transactions and what its issues told.

They come with the module, pinned by ``franz-go/go.sum``; those that open a client to a broker are run.  They take the
address from KGO_SEEDS, and their size from the variables below.  Those of logins have addresses of their own, and some
others are run over TLS beside them.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from conformance.client_folder import run_build_step
from harness import process_tree

from client_suites.secured_broker import PASSWORD, USER, secured_broker
from client_suites.suite import Outcome, Suite

PACKAGE = "github.com/twmb/franz-go/pkg/kgo"
TEST = re.compile(r"^func (?P<name>Test\w+)\(.*?^}", re.MULTILINE | re.DOTALL)
OPENS_A_CLIENT = re.compile(r"\b(newTestClient|testClientOpts|getSeedBrokers|tmpTopic|tmpTopicPartitions|tmpGroup)\(")
RESULT = re.compile(r"^\s*--- (PASS|FAIL|SKIP): (\S+) \(", re.MULTILINE)
OUTCOMES = {"PASS": Outcome.PASSED, "FAIL": Outcome.FAILED, "SKIP": Outcome.SKIPPED}
RUN_TIMEOUT_S = 1200
# By itself it sends half a million records through eleven groups of consumers to topics of three replicas.
SIZE = {"KGO_TEST_RECORDS": "10000", "KGO_LOG_LEVEL": "none"}


class FranzGo(Suite):
    """The tests of package kgo."""

    name: ClassVar[str] = "franz-go"
    version: ClassVar[str] = "v1.22.2"
    toolchains: ClassVar[tuple[str, ...]] = ("go",)

    @property
    def _program(self) -> Path:
        return self.cache / "kgo.test"

    @property
    def _tests(self) -> Path:
        return self.cache / "tests"

    def build(self, environment: Mapping[str, str]) -> None:
        for pins in ("go.mod", "go.sum"):
            shutil.copy(self.folder / pins, self.cache)
        run_build_step(["go", "test", "-c", "-o", str(self._program), PACKAGE], self.cache, environment)
        source = Path(run_build_step(["go", "list", "-f", "{{.Dir}}", PACKAGE], self.cache, environment).strip())
        tests = [test for path in sorted(source.glob("*_test.go")) for test in TEST.finditer(path.read_text())]
        self._tests.write_text("\n".join(test["name"] for test in tests if OPENS_A_CLIENT.search(test[0])))

    def run(
        self, bootstrap: str, log: Path, selected: Sequence[str] = (), *, replicas: int = 1, apache: bool = False
    ) -> dict[str, Outcome]:
        tests = self._tests.read_text().split()
        return self._run(selected or tests, {"KGO_SEEDS": bootstrap, "KGO_TEST_RF": str(replicas)}, log)

    def _run(self, wanted: Sequence[str], variables: Mapping[str, str], log: Path) -> dict[str, Outcome]:
        tests = sorted({test.partition("/")[0] for test in wanted})
        pattern = f"^({'|'.join(tests)})$"
        with log.open("wb") as output:
            process_tree.run(
                [str(self._program), "-test.v", "-test.run", pattern, "-test.timeout", f"{RUN_TIMEOUT_S}s"],
                cwd=self.cache,
                env=self.environment({**variables, **SIZE}),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=RUN_TIMEOUT_S + 60,
            )
        return {test: OUTCOMES[result] for result, test in RESULT.findall(log.read_text(errors="replace"))}


class FranzGoSecurity(FranzGo):
    """Logins by SCRAM, good and bad ones, and what clients do most over TLS."""

    name: ClassVar[str] = "franz-go-security"
    part_of: ClassVar[str | None] = FranzGo.name
    allow_list: ClassVar[str] = "security.allow"
    starts_its_broker: ClassVar[bool] = True

    def run(
        self, bootstrap: str, log: Path, selected: Sequence[str] = (), *, replicas: int = 1, apache: bool = False
    ) -> dict[str, Outcome]:
        with secured_broker(log.with_suffix(""), apache=apache) as secured:
            variables = {
                "KGO_SEEDS": secured.listeners["SSL"],
                "KGO_TEST_TLS": f"ca:{secured.ca}",
                "KGO_TEST_SCRAM_SEEDS": secured.listeners["SASL_PLAINTEXT"],
                "KGO_TEST_SCRAM": f"{USER}:{PASSWORD}",
                "KGO_TEST_RF": str(replicas),
            }
            return self._run(selected or self.allowed(), variables, log)
