"""What ``links`` makes of what brokers tell, and of what is given on a command line; no broker is asked."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer

from pybroker.cli.commands.link_options import check_name, given_settings
from pybroker.cli.commands.link_tables import LinkView, counted_topics, show_link, show_partitions
from pybroker.cli.requests import config_requests, link_requests
from pybroker.cli.requests.link_requests import Link, Mirror, Progress
from pybroker.cli.terminal.failure import CommandFailed
from pybroker.cli.terminal.output import Output

WEST = Link("west", {"bootstrap.servers": "far:9092"}, frozenset(), "c1")


def shown(show: Any, view: LinkView) -> list[list[str]]:
    """The cells of the table in a pipe."""
    stream = io.BytesIO()
    show(Output(stream=stream), view)
    return [line.split("\t") for line in stream.getvalue().decode().splitlines()]


def mirror(topic: str = "orders", state: str = "mirroring", reason: str | None = None) -> Mirror:
    return Mirror(topic, "west", topic, state, reason)


def given(**options: Any) -> dict[str, str]:
    """``given_settings`` of these alone."""
    none: dict[str, Any] = {
        "source": None,
        "topics": [],
        "exclude": [],
        "prefix": None,
        "groups": [],
        "replication_factor": None,
        "source_config": None,
        "settings": [],
    }
    return given_settings(**{**none, **options})


def test_columns_that_would_say_nothing_are_left_out() -> None:
    table = shown(show_link, LinkView.of(WEST, [mirror()], []))
    assert table == [
        ["LINK", "SOURCE", "SOURCE-CLUSTER"],
        ["west", "far:9092", "c1"],
        ["TOPIC", "STATE", "LAG", "RATE"],
        ["orders", "mirroring", "-", "-"],
    ]


def test_list_counts_the_topics_that_a_link_refuses() -> None:
    assert counted_topics({"mirroring": 3, "stopped": 1}, 2) == "3 mirroring, 1 stopped, 2 refused"
    assert counted_topics({}, 2) == "2 refused"
    assert not counted_topics({}, 0)


def test_what_is_wrong_stands_beside_what_it_is_wrong_with() -> None:
    link = WEST._replace(problem="its source does not answer", refused={"payments": "a topic payments is here already"})
    table = shown(show_link, LinkView.of(link, [mirror(state="stopped", reason="gone")], []))
    assert table[1][3] == "its source does not answer"
    assert table[3:] == [
        ["orders", "stopped", "-", "-", "gone"],
        ["payments", "refused", "-", "-", "a topic payments is here already"],
    ]


def test_lag_and_rate_of_a_topic_are_those_of_all_its_partitions_or_unknown() -> None:
    known = [Progress("orders", 0, 5, 7, 2, 1_500), Progress("orders", 1, 9, 9, 0, 500)]
    view = LinkView.of(WEST, [mirror(), mirror("other")], known)
    assert view.lags() == {"orders": 2, "other": None}
    assert shown(show_link, view)[3] == ["orders", "mirroring", "2", "2.0 kB/s"]
    unknown = [*known, Progress("orders", 2, 1, None, None, 0)]
    assert LinkView.of(WEST, [mirror()], unknown).lags() == {"orders": None}
    assert shown(show_partitions, LinkView.of(WEST, [mirror()], unknown))[1:] == [
        ["orders", "0", "5", "7", "2", "1.5 kB/s"],
        ["orders", "1", "9", "9", "0", "500 B/s"],
        ["orders", "2", "1", "-", "-", "0 B/s"],
    ]


def test_what_keeps_a_partition_from_going_on_stands_beside_it_and_beside_its_topic() -> None:
    known = [Progress("orders", 0, 5, 7, 2, 0, "it has no leader at the source"), Progress("orders", 1, 9, 9, 0, 0)]
    view = LinkView.of(WEST, [mirror(reason="without a leader here: partition 2")], known)
    heading, first, second = shown(show_partitions, view)
    assert (heading[6], first[6], second[6]) == ("PROBLEM", "it has no leader at the source", "-")
    reason = "without a leader here: partition 2; partition 0: it has no leader at the source"
    assert view.document()["topics"][0]["reason"] == reason


def test_progress_of_other_topics_is_left_out() -> None:
    assert LinkView.of(WEST, [mirror()], [Progress("else", 0, 1, 1, 0, 0)]).partitions == {"orders": []}


def entry(name: str, value: str | None, source: str = "DYNAMIC_DEFAULT_BROKER_CONFIG", read_only: bool = False) -> Any:
    return {"name": name, "value": value, "source": source, "read_only": read_only, "sensitive": value is None}


def links_told(monkeypatch: pytest.MonkeyPatch, of_all: list[Any], of_one: list[Any]) -> dict[str, Link]:
    monkeypatch.setattr(config_requests, "described", lambda client, kind, name: of_all)
    monkeypatch.setattr(link_requests, "_of_any_broker", lambda client: of_one)
    told: Any = None
    return link_requests.links(told)


def test_a_link_is_one_that_has_a_source_wherever_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    of_one = [
        entry("pybroker.links.filed.bootstrap.servers", "a:1", "STATIC_BROKER_CONFIG"),
        entry("pybroker.links.half.topics", "*"),
        entry("log.dirs", "x", "STATIC_BROKER_CONFIG"),
    ]
    of_all = [
        entry("pybroker.links.west.bootstrap.servers", "b:1"),
        entry("pybroker.links.west.sasl.jaas.config", None),
        entry("pybroker.links.west.source.cluster.id", "c1", read_only=True),
        entry("pybroker.links.filed.problem", "it is away", read_only=True),
    ]
    found = links_told(monkeypatch, of_all, of_one)
    assert [*found] == ["filed", "west"]
    assert (found["filed"].removable, found["filed"].problem) == (frozenset(), "it is away")
    assert found["west"].settings == {"bootstrap.servers": "b:1", "sasl.jaas.config": None}
    assert found["west"].removable == {"bootstrap.servers", "sasl.jaas.config"}
    assert found["west"].source_cluster == "c1"


def test_refused_topics_are_told_apart_whatever_their_reasons_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    of_all = [
        entry("pybroker.links.west.bootstrap.servers", "b:1"),
        entry("pybroker.links.west.refused", "a: why not; b-c: it has; no room", read_only=True),
    ]
    assert links_told(monkeypatch, of_all, [])["west"].refused == {"a": "why not", "b-c": "it has; no room"}


@pytest.mark.parametrize(("name", "known"), [("pybroker.fsync.before.ack", True), ("log.dirs", False)])
def test_brokers_that_are_not_pybrokers_have_no_links(monkeypatch: pytest.MonkeyPatch, name: str, known: bool) -> None:
    monkeypatch.setattr(link_requests, "_of_any_broker", lambda client: [entry(name, "x")])
    client: Any = None
    assert link_requests.knows_links(client) is known


@pytest.mark.parametrize("name", ["", "we.st", "we st", "ü", "x" * 101, "west\n"])
def test_a_name_that_is_no_links_is_wrong_use(name: str) -> None:
    with pytest.raises(typer.BadParameter):
        check_name(name)


def test_options_come_to_settings_of_the_link() -> None:
    assert given(
        source="a:1",
        topics=["orders", "pay*"],
        exclude=["pay-x"],
        prefix="",
        groups=["g*"],
        replication_factor=3,
        settings=["refresh.interval.ms=100"],
    ) == {
        "bootstrap.servers": "a:1",
        "topics": "orders,pay*",
        "topics.exclude": "pay-x",
        "prefix": "",
        "groups": "g*",
        "replication.factor": "3",
        "refresh.interval.ms": "100",
    }


def test_options_win_over_the_file_of_a_client(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("bootstrap.servers=a:1\nsecurity.protocol=SSL\nclient.id=x\n")
    assert given(source="b:1", source_config=str(path)) == {"bootstrap.servers": "b:1", "security.protocol": "SSL"}
    assert given(source_config=str(path))["bootstrap.servers"] == "a:1"


def test_references_of_the_file_are_resolved_where_the_command_runs(tmp_path: Path) -> None:
    (tmp_path / "secrets").write_text("line=of-elsewhere\n")
    path = tmp_path / "f"
    path.write_text(
        "config.providers=file\n"
        "config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider\n"
        f"sasl.jaas.config=${{file:{tmp_path}/secrets:line}}\n"
    )
    path.chmod(0o600)
    assert given(source_config=str(path)) == {"sasl.jaas.config": "of-elsewhere"}


@pytest.mark.parametrize("text", [b"\xff", b"ssl.provider=x\n"])
def test_a_file_that_a_link_cannot_follow_is_refused(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "f"
    path.write_bytes(text)
    with pytest.raises(CommandFailed, match=str(path)):
        given(source_config=str(path))


def test_refused_topics_whose_names_are_not_told_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    of_all = [
        entry("pybroker.links.west.bootstrap.servers", "b:1"),
        entry("pybroker.links.west.refused", "a: why not; b: it is here; and 17 more", read_only=True),
    ]
    link = links_told(monkeypatch, of_all, [])["west"]
    assert (link.refused, link.refused_more) == ({"a": "why not", "b": "it is here"}, 17)
    view = LinkView.of(link, [], [])
    assert shown(show_link, view)[-1] == ["and 17 more", "refused", "-", "-", "-"]
    assert view.document()["refused_more"] == 17


def test_partitions_are_read_of_as_many_values_as_a_broker_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "pybroker.links.west.partitions"
    lists = [[{"topic": "orders", "partition": index} for index in part] for part in (range(3), range(3, 5))]
    entries = [{"name": f"{name}.{number}", "value": json.dumps(each)} for number, each in enumerate(lists)]
    asked = [(None, [*entries, {"name": "pybroker.links.westward.partitions.0", "value": "[{}]"}])]
    monkeypatch.setattr(config_requests, "described_all", lambda client, resources, broker: asked)
    brokers: Any = SimpleNamespace(metadata=lambda: SimpleNamespace(brokers=[SimpleNamespace(node_id=1)]))
    assert [each.partition for each in link_requests.progress(brokers, "west")] == list(range(5))


def test_a_description_of_thousands_of_topics_looks_at_each_of_them_once() -> None:
    class Counting(dict[str, list[Progress]]):
        looks = 0

        def __iter__(self) -> Iterator[str]:
            Counting.looks += 1
            return super().__iter__()

        def items(self) -> Any:
            Counting.looks += 1
            return super().items()

    topics = [mirror(f"t{number}") for number in range(50)]
    LinkView(WEST, topics, Counting((each.topic, []) for each in topics)).document()
    assert Counting.looks == 1
