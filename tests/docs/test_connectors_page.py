"""The page on connectors: its commands print what it says, and its declarations can be meant."""

from __future__ import annotations

import re

from pybroker.connectors.declared.declaration_files import declarations
from pybroker.connectors.declared.plugin_kinds import KINDS
from pybroker.connectors.declared.transforms import TRANSFORMS
from pybroker.connectors.declared.validation import findings
from tests.connectors.rest_requests import DIFFERENCES, REQUESTS
from tests.docs.consoles import check_console
from tests.source_tree import ROOT

PAGE = ROOT / "docs" / "connectors.md"
FROM_CONNECT = ROOT / "docs" / "connectors-from-connect.md"


def test_the_pages_commands_print_what_it_says() -> None:
    assert check_console(PAGE, "127.0.0.1:1") > 3


def test_the_pages_declarations_can_be_meant() -> None:
    *whole, transforms = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    found = [each for text in whole for each in declarations(text, "page.yaml")]
    assert len(found) >= 3
    assert [finding for each in found for finding in findings(each)] == []
    (source,) = (each for each in found if each.config["connector.class"] == "FileSource")
    (changed,) = declarations(f"{transforms}name: a\n", "page.yaml")
    both = {**source.config, **changed.config, "name": source.name}
    text = "".join(f"{key}: '{value}'\n" for key, value in both.items())
    assert findings(declarations(text, "page.yaml")[0]) == []


def test_each_kind_says_what_it_guarantees() -> None:
    guarantees = PAGE.read_text().partition("## Guarantees")[2].partition("\n## ")[0]
    assert [kind.name for kind in KINDS if f"| `{kind.name}` |" not in guarantees] == []


def test_each_difference_of_the_rest_interface_is_listed() -> None:
    listed = FROM_CONNECT.read_text()
    assert sorted({each.page for each in DIFFERENCES.values() if f"| {each.page}" not in listed}) == []
    assert DIFFERENCES.keys() <= {request.name for request in REQUESTS}


def test_each_transform_of_connect_that_is_taken_is_listed() -> None:
    listed = FROM_CONNECT.read_text()
    names = {name.partition("$")[0] if name.startswith("SetSchema") else name for name in TRANSFORMS}
    assert sorted(name for name in names - {"sql"} if f"`{name}`" not in listed) == []
