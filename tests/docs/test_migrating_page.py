"""The page on migration: its commands print what it says, whichever broker is the old cluster."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.apache_kafka import ApacheKafka, missing_requirement

from pybroker.config.broker import BrokerConfig
from pybroker.config.link_config import links_of
from pybroker.config.link_settings import row_of
from pybroker.config.properties import parse_properties
from pybroker.testing import Broker
from tests.docs.consoles import check_block
from tests.docs.pages import examples
from tests.source_tree import ROOT

PAGE = ROOT / "docs" / "migrating.md"
# Apache Kafka has no links.
OF_PYBROKER = re.compile(r"links \w+ back\b")


@pytest.fixture(params=["pybroker", pytest.param("apache", marks=pytest.mark.jvm)])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker | ApacheKafka]:
    """The cluster that is left."""
    if request.param == "apache" and (reason := missing_requirement()) is not None:
        pytest.skip(reason)
    if request.param == "pybroker":
        with Broker() as broker:
            yield broker
    else:
        with ApacheKafka(tmp_path / "kafka") as kafka:
            yield kafka


@pytest.mark.skipif(shutil.which("jq") is None, reason="the page asks jq")
def test_commands_of_the_migration_print_what_it_says(old: Broker | ApacheKafka, tmp_path: Path) -> None:
    typed = examples("console", PAGE)
    blocks = [each for each in typed if isinstance(old, Broker) or not OF_PYBROKER.search(each.code)]
    with Broker() as new:
        assert sum(check_block(block, tmp_path, new.bootstrap, {"OLD": old.bootstrap}) for block in blocks) > 20


def test_settings_of_the_migration_are_a_links() -> None:
    of_client, of_broker = (parse_properties(example.code) for example in examples("properties", PAGE))
    assert all(row_of(name) is not None for name in of_client)
    links = links_of(BrokerConfig(of_broker))
    assert links["old"].mirrors("orders-of-today")
