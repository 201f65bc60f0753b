"""Settings of cluster links: their names, their sets of topics, how they are altered and what of them is shown."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from pybroker.cluster.image.link_states import LinkState
from pybroker.config import link_config
from pybroker.config.alter import change_broker
from pybroker.config.broker import BrokerConfig
from pybroker.config.describe import broker_default_entries, link_entries
from pybroker.config.documentation import documentation
from pybroker.config.link_config import LinkConfig, links_of
from pybroker.config.link_settings import LINK_DOCUMENTATION, LINK_SETTINGS, link_setting
from pybroker.config.resources import APPEND, BROKER, Alteration, AlterConfigOp, ConfigFailure
from pybroker.config.schema import ConfigError
from pybroker_protocol.primitives import STRING_BYTES_MAX

SECRET = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="unguessable";'


def link(**texts: str) -> LinkConfig:
    return LinkConfig("west", {"bootstrap.servers": "a:1", **{name.replace("_", "."): texts[name] for name in texts}})


def alter(*operations: AlterConfigOp, name: str = "", **current: str) -> dict[str, str | None]:
    change = change_broker(Alteration(BROKER, name, operations), 1, current, BrokerConfig())
    return dict(change.updates)


def test_a_link_exists_while_its_servers_are_set() -> None:
    prefix = "pybroker.links."
    config = BrokerConfig({f"{prefix}west.bootstrap.servers": "a:1,[::1]:2", f"{prefix}east.topics": "t"})
    config.apply_dynamic({f"{prefix}west.topics": "a", f"{prefix}north-2.bootstrap.servers": "b:1"}, {})
    links = links_of(config)
    assert set(links) == {"west", "north-2"}
    assert links["west"].get("bootstrap.servers") == ("a:1", "[::1]:2")
    assert links["west"].get("topics") == ("a",)


@pytest.mark.parametrize(
    ("topics", "excluded", "topic", "is_mirrored"),
    [
        ("orders", "", "orders", True),
        ("orders", "", "orders2", False),
        ("ord*", "", "orders", True),
        ("*", "", "orders", True),
        ("*", "", "__consumer_offsets", False),
        ("__*", "", "__mine", False),
        ("__mine", "", "__mine", True),
        ("*", "orders,pay*", "payments", False),
        ("a*c*e", "", "abcde", True),
        ("a*c*e", "", "abcd", False),
        ("a.c", "", "abc", False),
        ("", "", "orders", False),
    ],
)
def test_sets_of_topics(topics: str, excluded: str, topic: str, is_mirrored: bool) -> None:
    assert link(topics=topics, topics_exclude=excluded).mirrors(topic) == is_mirrored


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ("bootstrap.servers", "nowhere"),
        ("bootstrap.servers", "host:port"),
        ("topics", "a b"),
        ("topics", "(a|b)+"),
        ("topics", "*a*b*c*"),
        ("prefix", "a/b"),
        ("security.protocol", "TLS"),
        ("sasl.mechanism", "GSSAPI"),
        ("refresh.interval.ms", "1"),
        ("replication.factor", "-2"),
        ("topik", "orders"),
    ],
)
def test_what_a_link_cannot_be_set_to_is_refused_in_a_file_and_by_a_tool(setting: str, text: str) -> None:
    name = f"pybroker.links.west.{setting}"
    with pytest.raises(ConfigError):
        BrokerConfig.load(settings=[(name, text)])
    with pytest.raises(ConfigFailure):
        alter(AlterConfigOp(name, text))


def test_names_of_a_long_list_are_looked_up_and_patterns_alone_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    pattern_of = link_config._pattern

    def pattern(names: Sequence[str]) -> re.Pattern[str]:
        tried.extend(names)
        return pattern_of(names)

    monkeypatch.setattr(link_config, "_pattern", pattern)
    names = [f"orders-{number}" for number in range(1_000)]
    config = link(topics=",".join([*names, "pay*"]), promote=",".join([*names, "pay*s"]), pause="*")
    assert [config.wish(topic) for topic in (*names, "payments", "payroll")] == ["promote"] * 1_001 + ["pause"]
    assert all(map(config.mirrors, (*names, "payments")))
    assert sorted(tried) == ["*", "pay*", "pay*s"]


def test_a_link_is_set_for_all_brokers_together() -> None:
    operation = AlterConfigOp("pybroker.links.west.topics", "orders")
    assert alter(operation) == {"pybroker.links.west.topics": "orders"}
    with pytest.raises(ConfigFailure):
        alter(operation, name="1")


def test_topics_are_appended() -> None:
    name = "pybroker.links.west.promote"
    assert alter(AlterConfigOp(name, "b", APPEND)) == {name: "b"}
    assert alter(AlterConfigOp(name, "b", APPEND), **{name: "a"}) == {name: "a,b"}


def test_what_is_told_of_links_is_cut_before_no_reply_could_have_it_and_the_rest_is_counted() -> None:
    refused = tuple(
        (f"{number:03}{'t' * 246}", f"a topic {'p' * 240}{number:03} is here already") for number in range(100)
    )
    notes = tuple(f"acls: {number} {'é' * 400}" for number in range(60))
    problem = "é" * 40_000
    entries = link_entries({"west": LinkState("c", problem, refused, notes)}, None)
    told = {entry.name: entry.value or "" for entry in entries}
    assert max(len(text.encode()) for text in told.values()) <= STRING_BYTES_MAX
    shown = told["pybroker.links.west.refused"].split("; ")
    left = len(refused) - len(shown) + 1
    assert shown == [*(f"{topic}: {why}" for topic, why in refused[: len(shown) - 1]), f"and {left} more"]
    assert told["pybroker.links.west.not.carried"].endswith(" more")
    assert told["pybroker.links.west.problem"].endswith("é…")
    few = {entry.name: entry.value for entry in link_entries({"west": LinkState("c", "", refused[:2])}, None)}
    assert few["pybroker.links.west.refused"] == "; ".join(f"{topic}: {why}" for topic, why in refused[:2])
    more = link_entries({"west": LinkState("c", refused=refused[:2], refused_more=5)}, None)
    assert more[-1].value == few["pybroker.links.west.refused"] + "; and 5 more"


def test_what_is_shown_of_a_link_has_no_secret() -> None:
    config = BrokerConfig()
    config.apply_dynamic({"pybroker.links.west.topics": "orders", "pybroker.links.west.sasl.jaas.config": SECRET}, {})
    shown = {entry.name: entry for entry in broker_default_entries(config, None)}
    assert shown["pybroker.links.west.topics"].value == "orders"
    assert shown["pybroker.links.west.sasl.jaas.config"].value is None
    assert shown["pybroker.links.west.sasl.jaas.config"].is_sensitive
    assert "unguessable" not in repr(links_of(config)) + repr(link(sasl_jaas_config=SECRET))


def test_another_way_to_the_source_is_another_connection_and_nothing_else_is() -> None:
    assert link().connection() == link(topics="a", pause="b").connection()
    assert link().connection() != link(security_protocol="SSL").connection()
    assert link().connection() != link(ssl_truststore_location="/ca.pem").connection()


@pytest.mark.parametrize("setting", LINK_SETTINGS)
def test_every_setting_says_what_it_is_for(setting: str) -> None:
    assert documentation(BROKER, f"pybroker.links.west.{setting}") == LINK_DOCUMENTATION[setting]


@pytest.mark.parametrize("name", ["pybroker.links.west", "pybroker.links.a.b.topics", "pybroker.links..topics"])
def test_what_has_no_link_and_no_setting_is_no_setting_of_a_link(name: str) -> None:
    assert link_setting(name) is None
