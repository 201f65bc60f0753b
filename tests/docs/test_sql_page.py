"""The page on SQL: its commands print what it says."""

from __future__ import annotations

from pybroker.testing import Broker
from tests.docs.consoles import check_console
from tests.source_tree import ROOT


def test_the_pages_commands_print_what_it_says() -> None:
    with Broker() as broker:
        assert check_console(ROOT / "docs" / "sql.md", broker.bootstrap) > 8
