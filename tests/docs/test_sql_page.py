"""The pages on SQL: their commands print what they say."""

from __future__ import annotations

import pytest

from pybroker.testing import Broker
from tests.docs.consoles import check_console
from tests.source_tree import ROOT


@pytest.mark.parametrize(("page", "commands_min"), [("sql.md", 9), ("ksqldb.md", 6)])
def test_the_pages_commands_print_what_it_says(page: str, commands_min: int) -> None:
    with Broker() as broker:
        assert check_console(ROOT / "docs" / page, broker.bootstrap) >= commands_min
