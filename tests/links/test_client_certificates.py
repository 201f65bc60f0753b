"""Links whose login is a client certificate (mTLS): ``security.protocol=SSL`` at a source that asks for one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.waiting import wait_until

from pybroker.security.standard_authorizer import STANDARD_AUTHORIZER
from pybroker.testing import Broker, Security
from tests.certificates import Authority
from tests.cli.command import CommandLine
from tests.links.linked import produce, wait_until_mirrored
from tests.links.test_wrong_links import create, described, states

ASKS = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:alice"}
WITHOUT_STORE = ("ssl.keystore.type", "ssl.keystore.location")


@pytest.fixture
def source() -> Iterator[Broker]:
    """Who has alice's certificate may do everything there, and without one of its authority's no connection lives."""
    with Broker(ASKS, security=Security("SSL", {"alice": "", "bob": ""}, client_auth=True)) as running:
        running.create_topic("orders")
        yield running


@pytest.fixture
def here(source: Broker) -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def links(here: Broker) -> CommandLine:
    return CommandLine(here.bootstrap)


def file_of(path: Path, source: Broker, *left_out: str, user: str = "alice", **changed: str) -> str:
    """A file of a Java client's settings, with some of them left out or others (``_`` for ``.``)."""
    settings = source.client_settings("java", user=user) | {
        key.replace("_", "."): text for key, text in changed.items()
    }
    path.write_text("".join(f"{key}={text}\n" for key, text in settings.items() if key not in left_out))
    path.chmod(0o600)
    return str(path)


def problem_of(links: CommandLine) -> str:
    return str(described(links)["problem"]).lower()


def test_a_link_logs_in_by_its_certificate(links: CommandLine, here: Broker, source: Broker, tmp_path: Path) -> None:
    right = file_of(tmp_path / "right", source)
    assert "ssl.keystore.location" in Path(right).read_text()
    assert "sasl" not in Path(right).read_text()
    assert create(links, "west", source.bootstrap, "-t", "*", "--source-config", right) == (0, "")
    produce(source, "orders", 20, **source.client_settings("confluent-kafka"))
    wait_until_mirrored(source, here, "orders", 1)


def test_a_source_that_wants_a_certificate_is_named_and_one_mends_it(
    links: CommandLine, source: Broker, tmp_path: Path
) -> None:
    none = file_of(tmp_path / "none", source, *WITHOUT_STORE)
    code, said = create(links, "west", source.bootstrap, "-t", "*", "--source-config", none)
    assert code == 1
    assert len(said.splitlines()) == 1
    wait_until(lambda: "certificate required" in problem_of(links), "what the source wants")
    links.ok("links", "alter", "west", "--source-config", file_of(tmp_path / "right", source))
    wait_until(lambda: states(links) == {"orders": "mirroring"}, "the source to be mirrored")
    wait_until(lambda: described(links)["problem"] is None, "an end of the problem")


def test_a_certificate_of_another_authority_is_named(links: CommandLine, source: Broker, tmp_path: Path) -> None:
    strange = Authority(tmp_path).pem("alice")
    wrong = file_of(tmp_path / "wrong", source, ssl_keystore_location=str(strange), ssl_keystore_type="PEM")
    code, said = create(links, "west", source.bootstrap, "-t", "*", "--source-config", wrong)
    assert code == 1
    assert len(said.splitlines()) == 1
    wait_until(lambda: "unknown ca" in problem_of(links), "what the source does not trust")


def test_a_certificate_whose_owner_has_no_rights_gets_in_and_sees_nothing(
    links: CommandLine, source: Broker, tmp_path: Path
) -> None:
    bobs = file_of(tmp_path / "bob", source, user="bob")
    code, said = create(links, "west", source.bootstrap, "-t", "orders", "--source-config", bobs)
    assert (code, said) == (0, "pybroker: orders is not mirrored: the link may not see it at the source\n")


def test_a_source_of_another_authority_is_named(links: CommandLine, source: Broker, tmp_path: Path) -> None:
    other = Authority(tmp_path, "other")
    wrong = file_of(tmp_path / "wrong", source, ssl_truststore_location=str(other.ca))
    code, said = create(links, "west", source.bootstrap, "-t", "*", "--source-config", wrong)
    assert code == 1
    assert "verify failed" in said.lower()
    assert "verify failed" in problem_of(links)


def test_a_file_of_a_key_that_is_not_there_is_named(links: CommandLine, source: Broker, tmp_path: Path) -> None:
    lost = file_of(tmp_path / "lost", source, ssl_keystore_location=str(tmp_path / "no-such.pem"))
    code, said = create(links, "west", source.bootstrap, "-t", "*", "--source-config", lost)
    assert code == 1
    assert "no-such.pem" in said
