"""``pybroker links create`` where a login stands under the link's name already."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pybroker.cluster.image.link_states import MIRRORING
from pybroker.config.resources import BROKER
from pybroker.testing import Broker
from tests.cli.command import CommandLine
from tests.links.linked import image_of, set_link, wait_for_state

OFTEN = ("--set", "refresh.interval.ms=100")
LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{}";'


@pytest.fixture
def source() -> Iterator[Broker]:
    with Broker() as running:
        running.create_topic("orders")
        yield running


@pytest.fixture
def here(source: Broker) -> Iterator[Broker]:
    with Broker() as running:
        yield running


def logins_of(here: Broker) -> dict[str, str]:
    """What the cluster keeps of the link's login, by the names behind the link's."""
    overrides = image_of(here).overrides(BROKER, "")
    named = {name.removeprefix("pybroker.links.west."): text for name, text in overrides.items()}
    return {name: text for name, text in named.items() if name.startswith(("sasl.", "ssl.", "security."))}


def test_a_login_that_stands_under_the_name_is_kept_by_a_link_that_is_given_none(source: Broker, here: Broker) -> None:
    secret = {"sasl.jaas.config": LOGIN.format("kept"), "sasl.mechanism": "SCRAM-SHA-256"}
    set_link(here.bootstrap, sasl_jaas_config=secret["sasl.jaas.config"], sasl_mechanism="SCRAM-SHA-256", pause="*")
    links = CommandLine(here.bootstrap)
    create = ("links", "create", "west", "--source", source.bootstrap, "-t", "orders")
    assert links.run(*create, "--set", "refresh.interval.ms=1").returncode == 1
    assert links.run(*create, *OFTEN, "--dry-run").returncode == 0
    assert logins_of(here) == secret
    done = links.run(*create, *OFTEN, "--set", "sasl.mechanism=PLAIN")
    assert done.returncode == 0
    assert b"the login that stands under the name west is the link's: sasl.jaas.config\n" in done.stderr
    assert logins_of(here) == {**secret, "sasl.mechanism": "PLAIN"}
    wait_for_state(here, "orders", MIRRORING)


def test_a_login_that_is_given_takes_the_place_of_all_that_stands_under_the_name(
    source: Broker, here: Broker, tmp_path: Path
) -> None:
    set_link(here.bootstrap, sasl_jaas_config=LOGIN.format("former"), ssl_key_password="former")
    login = tmp_path / "source.properties"
    login.write_text(f"sasl.mechanism=PLAIN\nsasl.jaas.config={LOGIN.format('given')}\n")
    login.chmod(0o600)
    links = CommandLine(here.bootstrap)
    links.ok(
        "links", "create", "west", "--source", source.bootstrap, "-t", "orders", "--source-config", str(login), *OFTEN
    )
    assert logins_of(here) == {"sasl.mechanism": "PLAIN", "sasl.jaas.config": LOGIN.format("given")}
