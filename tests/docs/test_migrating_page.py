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
from pybroker.testing import Broker, Security
from tests.docs.consoles import check_block
from tests.docs.pages import Example, examples
from tests.links.linked import committed, produce
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


def within_prose(beginning: str, **meant: str) -> str:
    """A command that stands within the page's sentences, with what a word of it is meant for."""
    sentences = re.sub(r"```.*?```", "", PAGE.read_text(), flags=re.DOTALL)
    (found,) = {match for match in re.findall(r"`([^`]+)`", sentences) if match.startswith(beginning)}
    command = " ".join(found.split())
    for word, text in meant.items():
        command = re.sub(rf"\b{word}\b", text, command)
    return command


def console(*lines: str) -> Example:
    """A block as a page has it: commands behind ``$``, and what they print."""
    return Example(PAGE, "console", "".join(f"{line}\n" for line in lines), None)


def test_a_link_is_created_from_the_pages_file_of_a_login(tmp_path: Path) -> None:
    with Broker(security=Security("SASL_SSL", {"link": "change-me"})) as old, Broker() as new:
        login = tmp_path / "old.properties"
        (of_client, _) = examples("properties", PAGE)
        assert old.certificates is not None
        login.write_text(of_client.code.replace("/etc/pybroker/old-ca.pem", str(old.certificates / "ca.pem")))
        login.chmod(0o600)
        old.create_topic("orders")
        block = console(
            f"$ {within_prose('pybroker links create old')} | cut -f 1,4",
            "LINK\tSTATUS",
            "old\tcreated",
            "$ until pybroker links describe old | grep -q mirroring; do sleep 0.1; done",
        )
        assert check_block(block, tmp_path, new.bootstrap, {"OLD": old.bootstrap}) == 2


def test_commands_within_the_sentences_do_what_these_say(tmp_path: Path) -> None:
    with Broker() as old, Broker() as new:
        for topic in ("orders", "invoices"):
            old.create_topic(topic)
            produce(old, topic, 10)
        environment = {"OLD": old.bootstrap}
        mirrored = "until [ \"$(pybroker links describe old --json | jq -c '[.topics[].lag]')\" = '[0,0]' ]"
        set_up = console(
            "$ pybroker consume orders --group billing -o beginning --count 6 -b $OLD > read.txt",
            "$ pybroker links create old --source $OLD --topic orders --topic invoices > created.txt",
            f"$ {mirrored}; do sleep 0.1; done",
        )
        check_block(set_up, tmp_path, new.bootstrap, environment)
        assert committed(old, "billing") == {0: 6}
        reset = within_prose("pybroker groups reset-offsets", N="3")
        check_block(console(f"$ {reset} > reset.txt"), tmp_path, new.bootstrap, environment)
        assert committed(old, "billing") == {0: 3}
        fail_over = console(
            f"$ {within_prose('pybroker links failover old')} | sort",
            "TOPIC\tSTATE",
            "invoices\tfailed-over",
            "orders\tfailed-over",
        )
        check_block(fail_over, tmp_path, new.bootstrap, environment)
        produce(old, "invoices", 10)
        way_back = console(
            "$ pybroker links create back --source $PYBROKER_BOOTSTRAP --topic invoices -b $OLD > b.txt 2> refused.txt",
            "$ pybroker links adopt back invoices -b $OLD 2> next.txt | cut -f 1,2",
            "TOPIC\tSTATE",
            "invoices\tadopted",
            f"$ {within_prose('pybroker links failover back')}",
            "TOPIC\tSTATE",
            "invoices\tfailed-over",
        )
        check_block(way_back, tmp_path, new.bootstrap, environment)
        produce(old, "invoices", 10)
