"""The page of the container image: what it says of variables, ports and paths is what the image does."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

import pytest
from harness.broker_probe import refusing_port
from harness.waiting import PATIENCE_S

from pybroker.cli.serve.image_settings import (
    CONTAINER_PORT,
    DATA_DIR,
    HOST_PORT,
    SECRETS,
    SETTINGS_FILE,
    from_variables,
    listener_settings,
)
from pybroker.cli.serve.serve_command import build_parser
from pybroker.config.names import base_name
from pybroker.testing import Broker
from tests.docs.pages import examples
from tests.source_tree import ROOT

PAGE = ROOT / "docs" / "container.md"
TEXT = PAGE.read_text()
TABLE = re.findall(r"^\| (.*) \| (.*) \|$", TEXT, re.MULTILINE)
NAMED = sorted(set(re.findall(r"`(KAFKA_[A-Z0-9_]+)`", TEXT)) - {"KAFKA_"})
WITHOUT_EFFECT = sorted(
    variable for names, says in TABLE if "no effect" in says for variable in re.findall(r"`(KAFKA_\w+)`", names)
)


def test_there_are_variables_on_the_page() -> None:
    assert len(NAMED) > len(WITHOUT_EFFECT) > 0


@pytest.mark.parametrize("variable", NAMED)
def test_variable_does_what_the_table_says(variable: str) -> None:
    found = from_variables({variable: "x"}, lambda path, setting: "x")
    assert (variable in WITHOUT_EFFECT) == (not found.settings)
    assert [name for name in found.settings if base_name(name) is None] == []


def test_compose_file_has_the_ports_of_the_image_and_settings_that_exist() -> None:
    (compose,) = examples("yaml", PAGE)
    variables = dict(re.findall(r"^ +(KAFKA_\w+): (.*)$", compose.code, re.MULTILINE))
    settings = from_variables(variables, lambda path, setting: "").settings
    assert settings
    assert [name for name in settings if base_name(name) is None] == []
    (host,) = re.findall(r"^ +hostname: (\S+)$", compose.code, re.MULTILINE)
    told = listener_settings(settings, host)["advertised.listeners"]
    assert re.findall(r'"--bootstrap", "(\S+)"', compose.code)[0] in told
    assert f'ports: ["{HOST_PORT}:{HOST_PORT}"]' in compose.code


def test_paths_and_ports_are_those_of_the_image() -> None:
    for said in (SETTINGS_FILE, SECRETS, f"`{DATA_DIR}`", f"localhost:{HOST_PORT}", f"Port {CONTAINER_PORT}"):
        assert said in TEXT


def test_health_command_of_the_page_asks_the_port_that_it_is_given(pybroker: Broker) -> None:
    ((program, *words),) = map(shlex.split, re.findall(r"--health-cmd '([^']+)'", TEXT))
    assert program == "python"
    with refusing_port() as refusing:
        for port, status in ((pybroker.port, 0), (refusing, 1)):
            command = [sys.executable, *(word.replace("PORT", str(port)) for word in words)]
            assert subprocess.run(command, timeout=PATIENCE_S, check=False).returncode == status


def test_arguments_of_docker_run_are_those_of_serve() -> None:
    starts = [line for each in examples("sh", PAGE) for line in each.code.splitlines() if line.startswith("docker run")]
    assert len(starts) > 2
    for line in starts:
        build_parser().parse_args(re.split(r" pybroker(?= |$)", line)[-1].split())
