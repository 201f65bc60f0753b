"""librdkafka's own tests, those that are about security: logins, TLS and permissions.

They come with the sources that the crate rdkafka-sys brings, pinned by ``librdkafka/Cargo.lock``, and are built with
the library, these alone: the program passes over tests that it does not have.  Each is run by itself, as
``LISTENER/TEST``, by a file that says how to get in; of keys they learn from the environment.  The two of permissions
call a script of Kafka's, for which Kafka's tool is called.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, NamedTuple

from conformance.client_folder import ToolchainMissing, run_build_step
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from harness import process_tree
from harness.apache_kafka import (
    ACL_COMMAND,
    KAFKA_VERSION,
    TOOL_JVM_OPTIONS,
    class_archive_options,
    java_command,
    missing_requirement,
)

from client_suites.secured_broker import PASSWORD, USER, SecuredBroker, secured_broker
from client_suites.suite import Outcome, Suite
from pybroker.security import plain, scram
from pybroker.security.certificate_authority import CA_FILE, PASSWORD_FILE, write_certificates

CRATE = "rdkafka-sys"
# What the tests do not need, and would be there on one machine and not on another.
CONFIGURATION = (
    *("--disable-curl", "--disable-gssapi", "--disable-zstd", "--disable-zlib", "--disable-lz4-ext"),
    *("--disable-optimization", "--disable-debug-symbols"),
)
DECLARED = re.compile(r"^_TEST_DECL\((\w+)\);", re.MULTILINE)
DEFINED = re.compile(r"^int main_(\w+)\(", re.MULTILINE)
STATE = re.compile(r'"name": "(?P<test>\w+)", "state": "(?P<state>\w+)"')
OUTCOMES = {"PASSED": Outcome.PASSED, "SKIPPED": Outcome.SKIPPED}
# The others would be run with less than they have.  This one would only be run again, by a consumer's client.
QUICK_TESTS = frozenset({"0081_admin"})
TEST_TIMEOUT_S = 600


class Login(NamedTuple):
    """By which listener of a ``SecuredBroker`` a test gets in, and by which mechanism, if it is asked for one."""

    listener: str
    protocol: str
    mechanism: str | None = None


LOGINS = {
    "plaintext": Login("PLAINTEXT", "PLAINTEXT"),
    "plain": Login("SASL_PLAINTEXT", "SASL_PLAINTEXT", plain.MECHANISM),
    "scram-256": Login("SASL_PLAINTEXT", "SASL_PLAINTEXT", scram.SHA_256.name),
    "scram-512-tls": Login("SASL_SSL", "SASL_SSL", scram.SHA_512.name),
    "ssl": Login("SSL", "SSL"),
    "mtls": Login("MTLS", "SSL"),
}


class Round(NamedTuple):
    """Tests, as ``LISTENER/TEST``, that are run one after another with the same brokers.

    By themselves they are patient for half a minute, or for as long as they say; ``patience`` is how often that.
    """

    name: str
    brokers: int
    properties: Mapping[str, str]
    tests: tuple[str, ...]
    patience: int = 2


# What no ACL concerns is everybody's, as the tests want it.
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
# A broker's own requests, which are nobody's: 0081_admin has ACLs that concern the cluster.
WITH_BROKERS = {**AUTHORIZER, "super.users": "User:ANONYMOUS"}
SESSION_MS = 10_000

ROUNDS = (
    Round(
        "logins",
        1,
        WITH_BROKERS,
        (
            *("plain/0001_multiobj", "plain/0135_sasl_credentials"),
            *("scram-256/0001_multiobj", "scram-256/0135_sasl_credentials"),
            *("scram-512-tls/0001_multiobj", "scram-512-tls/0081_admin"),
            *("scram-512-tls/0097_ssl_verify", "scram-512-tls/0135_sasl_credentials"),
            *("ssl/0001_multiobj", "ssl/0097_ssl_verify"),
            *("mtls/0001_multiobj", "mtls/0097_ssl_verify"),
        ),
    ),
    # Each waits for up to four starts of a JVM.
    Round("permissions", 1, AUTHORIZER, ("plaintext/0115_producer_auth", "plaintext/0119_consumer_auth"), patience=6),
    Round(
        "sessions",
        3,
        {"connections.max.reauth.ms": str(SESSION_MS)},
        ("plain/0142_reauthentication", "scram-512-tls/0142_reauthentication"),
    ),
)


class LibrdkafkaSecurity(Suite):
    """The tests of ``ROUNDS``."""

    name: ClassVar[str] = "librdkafka-security"
    version: ClassVar[str] = "2.12.1"
    part_of: ClassVar[str | None] = "librdkafka"
    allow_list: ClassVar[str] = "security.allow"
    toolchains: ClassVar[tuple[str, ...]] = ("cargo", "g++", "make")
    starts_its_broker: ClassVar[bool] = True

    @property
    def _sources(self) -> Path:
        return self.cache / "librdkafka"

    @property
    def _program(self) -> Path:
        return self._sources / "tests" / "test-runner"

    def prepare(self) -> None:
        """As of every suite; what is missing may also be Kafka's tools."""
        if (reason := missing_requirement()) is not None:
            raise ToolchainMissing(reason)
        super().prepare()

    def build(self, environment: Mapping[str, str]) -> None:
        check_headers(self.cache, environment)
        vendor_sources(self.folder, self.cache, self._sources, environment)
        run_build_step(["./configure", *CONFIGURATION], self._sources, environment)
        make = ["make", f"-j{os.cpu_count() or 1}"]
        run_build_step([*make, "libs"], self._sources, environment)
        run_build_step([*make, "-C", "tests", *arguments_of_make(self._program.parent)], self._sources, environment)

    def run(
        self, bootstrap: str, log: Path, selected: Sequence[str] = (), *, replicas: int = 1, apache: bool = False
    ) -> dict[str, Outcome]:
        outcomes = {}
        for round_ in ROUNDS:
            wanted = [test for test in round_.tests if not selected or test in selected]
            if not wanted:
                continue
            directory = log.with_suffix("") / round_.name
            with secured_broker(
                directory, apache=apache, brokers=round_.brokers, properties=round_.properties
            ) as secured:
                scene = Scene(directory / "tests", secured, self._sources, round_.patience)
                for test in wanted:
                    outcomes[test] = self._run(test, scene, log)
        return outcomes

    def _run(self, test: str, scene: Scene, log: Path) -> Outcome:
        login, _, name = test.partition("/")
        report = scene.directory / f"{login}-{name}.json"
        variables = {**scene.variables(LOGINS[login]), "TESTS": name.partition("_")[0], "TEST_REPORT": str(report)}
        with log.open("ab") as output:
            output.write(f"\n=== {test}\n".encode())
            output.flush()
            try:
                process_tree.run(
                    [str(self._program), "-p1", *(("-Q",) if name in QUICK_TESTS else ())],
                    cwd=scene.directory,
                    env=self.environment(variables),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    timeout=TEST_TIMEOUT_S,
                )
            except subprocess.TimeoutExpired:
                return Outcome.FAILED
        # One that hangs is ended by the program with itself.
        return outcome_of(name, report.read_text(errors="replace") if report.exists() else "")


class Scene:
    """What the tests of a round find: the files of their logins, keys in every format, and Kafka's script."""

    def __init__(self, directory: Path, secured: SecuredBroker, sources: Path, patience: int) -> None:
        self.directory = directory
        self._secured, self._patience = secured, patience
        self._libraries = os.pathsep.join(str(sources / library) for library in ("src", "src-cpp"))
        directory.mkdir(parents=True)
        (directory / "fixtures").symlink_to(sources / "tests" / "fixtures")  # certificates that nobody here trusts
        script = directory / "kafka" / "bin" / "kafka-acls.sh"
        script.parent.mkdir(parents=True)
        command = java_command(ACL_COMMAND, jvm_options=(*TOOL_JVM_OPTIONS, *class_archive_options()))
        script.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
        script.chmod(0o755)
        self._keys = keys_in_every_format(secured.certificates, directory)
        self._password = (secured.certificates / PASSWORD_FILE).read_text().strip()

    def variables(self, login: Login) -> dict[str, str]:
        """What a test that gets in by ``login`` has in its environment."""
        configuration = self.directory / "test.conf"
        settings = self._settings(login)
        configuration.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return {
            "RDKAFKA_TEST_CONF": str(configuration),
            "TEST_KAFKA_VERSION": KAFKA_VERSION,
            "LD_LIBRARY_PATH": self._libraries,
            "KAFKA_PATH": str(self.directory / "kafka"),
            "BROKERS": self._secured.listeners[login.listener],
            "SSL_password": self._password,
            "SSL_client_auth": "required" if login.listener == "MTLS" else "none",
            **{name: str(path) for name, path in self._keys.items()},
        }

    def _settings(self, login: Login) -> dict[str, str]:
        settings = {
            "bootstrap.servers": self._secured.listeners[login.listener],
            "security.protocol": login.protocol,
            "test.timeout.multiplier": str(self._patience),
            "test.topic.random": "true",
        }
        if login.mechanism is not None:
            settings |= {"sasl.mechanism": login.mechanism, "sasl.username": USER, "sasl.password": PASSWORD}
        if login.protocol.endswith("SSL"):
            key = str(self._secured.certificates / f"{USER}.pem")
            settings |= {
                "ssl.ca.location": str(self._secured.ca),
                "ssl.certificate.location": key,
                "ssl.key.location": key,
                "ssl.key.password": self._password,
            }
        return settings


def vendor_sources(pins: Path, scratch: Path, sources: Path, environment: Mapping[str, str]) -> None:
    """Fetch librdkafka's sources into ``sources``, by the crate's pins in the folder ``pins``; ``scratch`` has room.

    Raises ``RuntimeError`` where cargo cannot fetch them.
    """
    crate = scratch / "crate"
    crate.mkdir()
    for name in ("Cargo.toml", "Cargo.lock"):
        shutil.copy(pins / name, crate)
    (crate / "lib.rs").touch()
    run_build_step(["cargo", "vendor", "--quiet", "--locked"], crate, environment)
    shutil.move(crate / "vendor" / CRATE / "librdkafka", sources)
    shutil.rmtree(crate)


def arguments_of_make(directory: Path) -> list[str]:
    """What has the program of the tests in ``directory`` made with the tests of ``ROUNDS`` alone.

    There are some 170 files; of a test whose function is at address zero the program takes no notice.
    """
    numbers = {test.partition("/")[2].partition("_")[0] for each in ROUNDS for test in each.tests}
    sources = [path for path in sorted(directory.glob("*-*.c*")) if path.name.partition("-")[0] in numbers]
    defined = {name for path in sources for name in DEFINED.findall(path.read_text())}
    absent = [name for name in DECLARED.findall((directory / "test.c").read_text()) if name not in defined]
    by_kind = {kind: " ".join(path.name for path in sources if path.suffix == kind) for kind in (".c", ".cpp")}
    linker = " ".join(("g++", *(f"-Wl,--defsym=main_{name}=0" for name in absent)))
    return ["test-runner", f"TESTSRCS_C={by_kind['.c']}", f"TESTSRCS_CXX={by_kind['.cpp']}", f"CC_LD={linker}"]


def keys_in_every_format(certificates: Path, directory: Path) -> Mapping[str, Path]:
    """The user's key and certificate and its authority's, by the names of 0097_ssl_verify.

    What is not there yet is written into ``directory``.
    """
    pem = certificates / f"{USER}.pem"
    written = {
        "SSL_pub_der": directory / "user.der",
        "SSL_ca_der": directory / "authority.der",
        "SSL_all_cas_pem": directory / "authorities.pem",
    }
    own, ca = (x509.load_pem_x509_certificate(path.read_bytes()) for path in (pem, certificates / CA_FILE))
    written["SSL_pub_der"].write_bytes(own.public_bytes(Encoding.DER))
    written["SSL_ca_der"].write_bytes(ca.public_bytes(Encoding.DER))
    write_certificates(directory / "stranger", servers={}, days=1, for_java=False)
    authorities = [path.read_bytes() for path in (certificates / CA_FILE, directory / "stranger" / CA_FILE)]
    written["SSL_all_cas_pem"].write_bytes(b"".join(authorities))
    return MappingProxyType({"SSL_pkcs": pem.with_suffix(".p12"), "SSL_pub_pem": pem, "SSL_priv_pem": pem, **written})


def outcome_of(test: str, report: str) -> Outcome:
    """A test's in the program's report; a test that ended the program before it wrote one has failed."""
    states = {found["test"]: found["state"] for found in STATE.finditer(report)}
    return OUTCOMES.get(states.get(test, ""), Outcome.FAILED)


def check_headers(directory: Path, environment: Mapping[str, str]) -> None:
    """Raises ``ToolchainMissing`` where librdkafka would be built without TLS."""
    try:
        run_build_step(
            ["g++", "-fsyntax-only", "-include", "openssl/ssl.h", "-x", "c++", os.devnull], directory, environment
        )
    except RuntimeError:
        raise ToolchainMissing("OpenSSL's headers (Debian: libssl-dev) are not on this machine") from None
