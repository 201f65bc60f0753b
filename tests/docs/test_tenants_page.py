"""The page on tenants: its settings make a broker, and its commands print what it says."""

from __future__ import annotations

from pathlib import Path

from pybroker.testing import Broker
from tests.certificates import Authority
from tests.docs.consoles import check_console
from tests.docs.pages import examples
from tests.source_tree import ROOT

PAGE = ROOT / "docs" / "tenants.md"


def test_the_pages_commands_print_what_it_says(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    of_broker, of_root = examples("properties", PAGE)
    settings = dict(line.split("=", 1) for line in of_broker.code.splitlines())
    assert settings.pop("listeners") == "SASL_SSL://:9093"
    settings["ssl.keystore.location"] = str(authority.pem("broker"))
    assert "/etc/pybroker/ca.pem" in of_root.code
    root = tmp_path / "root.properties"
    root.touch(0o600)
    root.write_text(of_root.code.replace("/etc/pybroker/ca.pem", str(authority.ca)))
    with Broker(settings, listen="SASL_SSL://127.0.0.1:0") as broker:
        assert check_console(PAGE, broker.bootstrap, {"PYBROKER_COMMAND_CONFIG": str(root)}) > 4


def test_no_password_is_an_argument_on_the_page() -> None:
    commands = [line for example in examples("console", PAGE) for line in example.code.splitlines() if line[:1] == "$"]
    assert commands
    assert not [line for line in commands if "-X" in line or "$ROOT" in line]
