"""What librdkafka's tests are given, and what is made of their reports; none of them is run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from conformance.client_folder import ToolchainMissing
from cryptography import x509

from client_suites import librdkafka
from client_suites.librdkafka import LOGINS, ROUNDS, LibrdkafkaSecurity, Scene, outcome_of
from client_suites.secured_broker import USER, SecuredBroker
from client_suites.suite import Outcome
from pybroker.security.certificate_authority import write_certificates

REPORT = """{ "id": "1_bare", "tests": {"<MAIN>": {"name": "<MAIN>", "state": "PASSED", "report": [ ] },
"0097_ssl_verify": {"name": "0097_ssl_verify", "state": "FAILED", "extra": "", "report": [ "it says "why"" ] },
"0097_ssl_verify_local": {"name": "0097_ssl_verify_local", "state": "PASSED", "known_issue": false},
"0126_oauthbearer_oidc": {"name": "0126_oauthbearer_oidc", "state": "SKIPPED"},
"0142_reauthentication": {"name": "0142_reauthentication", "state": "RUNNING"}}}"""


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    certificates = tmp_path / "certificates"
    write_certificates(certificates, servers={}, clients=(USER,), days=1)
    secured = SecuredBroker({"MTLS": "here:1", "SASL_PLAINTEXT": "here:2,here:3"}, certificates)
    return Scene(tmp_path / "tests", secured, tmp_path / "librdkafka", patience=2)


@pytest.mark.parametrize(
    ("test", "outcome"),
    [
        ("0097_ssl_verify", Outcome.FAILED),
        ("0097_ssl_verify_local", Outcome.PASSED),
        ("0126_oauthbearer_oidc", Outcome.SKIPPED),
        pytest.param("0142_reauthentication", Outcome.FAILED, id="still running"),
        pytest.param("0001_multiobj", Outcome.FAILED, id="not in the report"),
    ],
)
def test_outcome_is_what_the_report_says_even_where_it_is_no_json(test: str, outcome: Outcome) -> None:
    assert outcome_of(test, REPORT) is outcome


def test_listed_tests_are_run_and_every_test_has_a_login() -> None:
    tests = [test for each in ROUNDS for test in each.tests]
    assert len(set(tests)) == len(tests)
    assert set(LibrdkafkaSecurity().allowed()) <= set(tests)
    assert {test.partition("/")[0] for test in tests} == set(LOGINS)


def configuration(variables: Mapping[str, str]) -> dict[str, str]:
    lines = Path(variables["RDKAFKA_TEST_CONF"]).read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_who_logs_in_over_several_brokers_is_told_all_addresses(scene: Scene) -> None:
    settings = configuration(scene.variables(LOGINS["scram-256"]))
    assert settings["bootstrap.servers"] == "here:2,here:3"
    assert settings["sasl.mechanism"] == "SCRAM-SHA-256"
    assert settings["sasl.username"] == USER
    assert "ssl.key.location" not in settings


def test_certificates_are_there_in_the_formats_that_are_asked_for(scene: Scene) -> None:
    variables = scene.variables(LOGINS["mtls"])
    settings = configuration(variables)
    own = x509.load_der_x509_certificate(Path(variables["SSL_pub_der"]).read_bytes())
    assert own == x509.load_pem_x509_certificate(Path(settings["ssl.certificate.location"]).read_bytes())
    authority = x509.load_der_x509_certificate(Path(variables["SSL_ca_der"]).read_bytes())
    assert own.issuer == authority.subject
    both = x509.load_pem_x509_certificates(Path(variables["SSL_all_cas_pem"]).read_bytes())
    assert len(both) == 2
    assert both[0] == authority
    assert variables["SSL_client_auth"] == "required"
    assert scene.variables(LOGINS["plain"])["SSL_client_auth"] == "none"


def test_other_tests_are_no_part_of_the_program(tmp_path: Path) -> None:
    (tmp_path / "test.c").write_text(
        "".join(f"_TEST_DECL({name});\n" for name in ("0001_multiobj", "0002_unkpart", "0097_ssl_verify_local"))
    )
    (tmp_path / "0001-multiobj.c").write_text("int main_0001_multiobj(int argc, char **argv) {\n")
    (tmp_path / "0002-unkpart.c").write_text("int main_0002_unkpart(int argc, char **argv) {\n")
    (tmp_path / "0097-ssl_verify.cpp").write_text("int main_0097_ssl_verify_local(int argc, char **argv) {\n")
    assert librdkafka.arguments_of_make(tmp_path) == [
        "test-runner",
        "TESTSRCS_C=0001-multiobj.c",
        "TESTSRCS_CXX=0097-ssl_verify.cpp",
        "CC_LD=g++ -Wl,--defsym=main_0002_unkpart=0",
    ]


def test_library_without_tls_is_not_built(tmp_path: Path) -> None:
    (tmp_path / "g++").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "g++").chmod(0o755)
    with pytest.raises(ToolchainMissing, match="OpenSSL's headers"):
        librdkafka.check_headers(tmp_path, {"PATH": str(tmp_path)})


def test_suite_is_missing_where_kafkas_tool_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(librdkafka, "missing_requirement", lambda: "there is no java on the PATH")
    with pytest.raises(ToolchainMissing, match="no java"):
        LibrdkafkaSecurity().prepare()
