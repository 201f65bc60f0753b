"""``pybroker links`` between two brokers: what each command does, what it waits for, and what it prints."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.waiting import wait_until

from pybroker.replication.mirrors import Mirrors
from pybroker.testing import Broker
from tests.cli.command import CommandLine
from tests.links.linked import all_stored, produce, wait_until_mirrored

ORDERS = 3


@pytest.fixture
def source() -> Iterator[Broker]:
    with Broker() as running:
        running.create_topic("orders", partitions=ORDERS)
        running.create_topic("payments")
        yield running


@pytest.fixture
def here(source: Broker) -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def links(here: Broker) -> CommandLine:
    return CommandLine(here.bootstrap)


def create(links: CommandLine, source: Broker, *more: str, topics: str = "*") -> list[str]:
    """What ``create`` prints of a link that looks at its source often."""
    often = ("--set", "refresh.interval.ms=100")
    return links.lines("links", "create", "west", "--source", source.bootstrap, "-t", topics, *often, *more)


def states(links: CommandLine) -> dict[str, str]:
    """By topic."""
    return {each["topic"]: each["state"] for each in links.json("links", "describe", "west")["topics"]}


def refusal(links: CommandLine, *arguments: str) -> str:
    """The only line on stderr of a command that fails, and prints no result."""
    done = links.run("links", *arguments)
    assert (done.returncode, done.stdout) == (1, b""), done
    (line,) = done.stderr.decode().splitlines()
    return line


# --- create, list, describe, alter -----------------------------------------------------------------------------------


def test_a_link_is_created_once_its_source_has_answered(links: CommandLine, source: Broker) -> None:
    heading, row = create(links, source)
    cluster = CommandLine(source.bootstrap).json("cluster", "describe")["cluster"]
    assert heading.split("\t") == ["LINK", "SOURCE", "SOURCE-CLUSTER", "STATUS"]
    assert row.split("\t") == ["west", source.bootstrap, cluster, "created"]
    assert states(links) == {"orders": "mirroring", "payments": "mirroring"}


def test_a_link_that_is_only_tried_is_not_there(links: CommandLine, source: Broker) -> None:
    assert create(links, source, "--dry-run")[1].endswith("\tvalid")
    assert links.json("links", "list") == []


def test_a_link_that_is_there_is_not_created_again(links: CommandLine, source: Broker) -> None:
    create(links, source)
    again = refusal(links, "create", "west", "--source", source.bootstrap, "-t", "orders")
    assert again == "pybroker: there is a link west already: alter or delete it"


@pytest.mark.parametrize(
    "arguments",
    [
        ["create", "west", "-t", "*"],
        ["create", "west", "--source", "a:1"],
        ["create", "we.st", "--source", "a:1", "-t", "*"],
        ["create", "west", "--source", "a:1", "-t", "*", "--set", "topics=b"],
        ["create", "west", "--source", "a:1", "-t", "*", "--set", "nonsense"],
        ["alter", "west"],
        ["alter", "west", "--unset", "bootstrap.servers"],
        ["describe", "west", "--partitions", "--settings"],
        ["promote", "west"],
        ["promote", "west", "orders", "--all"],
        ["failover", "west"],
    ],
    ids=" ".join,
)
def test_wrong_use_is_told_before_a_broker_is_asked(arguments: list[str]) -> None:
    assert CommandLine("127.0.0.1:1").run("links", *arguments).returncode == 2


def test_a_list_has_how_many_topics_of_each_link_are_in_which_state(links: CommandLine, source: Broker) -> None:
    assert links.lines("links", "list") == ["LINK\tSOURCE\tTOPICS\tPROBLEM"]
    create(links, source)
    links.ok("links", "pause", "west", "payments")
    assert links.lines("links", "list")[1:] == [f"west\t{source.bootstrap}\t1 mirroring, 1 paused\t-"]
    (listed,) = links.json("links", "list")
    assert (listed["link"], listed["states"]) == ("west", {"mirroring": 1, "paused": 1})


def test_a_description_has_lag_and_rate_of_topics_and_partitions(
    links: CommandLine, source: Broker, here: Broker
) -> None:
    create(links, source, "--prefix", "west.", topics="orders")
    produce(source, "orders", 100)
    wait_until(lambda: described_end(links) == 100, "all to be mirrored")
    (topic,) = links.json("links", "describe", "west")["topics"]
    assert (topic["topic"], topic["source_topic"], topic["lag"]) == ("west.orders", "orders", 0)
    assert [each["partition"] for each in topic["partitions"]] == list(range(ORDERS))
    assert all(each["source_end"] == each["end"] for each in topic["partitions"])
    assert topic["bytes_per_second"] is not None
    head, _, heading, row = links.lines("links", "describe", "west")
    assert head.split("\t") == ["LINK", "SOURCE", "SOURCE-CLUSTER"]
    assert heading.split("\t") == ["TOPIC", "SOURCE-TOPIC", "STATE", "LAG", "RATE"]
    assert row.split("\t")[:4] == ["west.orders", "orders", "mirroring", "0"]
    rows = links.lines("links", "describe", "west", "--partitions")
    assert rows[0].split("\t") == ["TOPIC", "PARTITION", "END", "SOURCE-END", "LAG", "RATE"]
    assert len(rows) == 1 + ORDERS


def described_end(links: CommandLine) -> int:
    """Records that are here, by the description."""
    return sum(
        each["end"] or 0 for topic in links.json("links", "describe", "west")["topics"] for each in topic["partitions"]
    )


def test_a_topic_that_has_stopped_has_its_reason_beside_it(links: CommandLine, source: Broker) -> None:
    create(links, source)
    CommandLine(source.bootstrap).ok("topics", "delete", "orders")
    wait_until(lambda: states(links)["orders"] == "stopped", "orders to stop")
    described = links.lines("links", "describe", "west")
    assert described[2].split("\t") == ["TOPIC", "STATE", "LAG", "RATE", "REASON"]
    assert described[3].split("\t")[4] == "the source has no such topic, or the link may not see it"


def test_settings_are_altered_all_or_none(links: CommandLine, source: Broker) -> None:
    create(links, source, topics="orders")
    done = links.run("links", "alter", "west", "-t", "orders,payments", "--set", "refresh.interval.ms=1")
    assert done.returncode == 1
    assert b"refresh.interval.ms" in done.stderr
    assert links.json("links", "describe", "west")["settings"]["topics"] == "orders"
    links.ok("links", "alter", "west", "--append", "topics=payments", "--unset", "refresh.interval.ms")
    assert links.json("links", "describe", "west")["settings"] == {
        "bootstrap.servers": source.bootstrap,
        "topics": "orders,payments",
    }
    assert links.lines("links", "describe", "west", "--settings")[0] == "NAME\tVALUE"


def test_a_secret_is_never_shown_nor_taken_from_a_command_line(
    links: CommandLine, source: Broker, tmp_path: Path
) -> None:
    login = tmp_path / "source.properties"
    login.write_text(
        "# of a client\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
        'sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="u" '
        'password="unguessable";\ngroup.id=passed-over\n'
    )
    login.chmod(stat.S_IRUSR)
    done = links.run("links", "create", "west", "--source", source.bootstrap, "-t", "*", "--source-config", str(login))
    seen = done.stdout + done.stderr
    for shape in ((), ("--settings",), ("--json",), ("--partitions",)):
        seen += links.ok("links", "describe", "west", *shape)
    seen += links.ok("links", "list", "--json") + links.ok("configs", "describe", "--broker-defaults", "--json")
    assert b"unguessable" not in seen
    assert links.json("links", "describe", "west")["settings"]["sasl.jaas.config"] is None
    assert "sasl.jaas.config\t(secret)" in links.lines("links", "describe", "west", "--settings")
    done = links.run("links", "alter", "west", "--set", "sasl.jaas.config=unguessable")
    assert done.returncode == 2
    assert b"unguessable" not in done.stderr


def test_a_file_that_others_may_read_is_told_of(links: CommandLine, tmp_path: Path) -> None:
    login = tmp_path / "source.properties"
    login.write_text("ssl.key.password=unguessable\nbootstrap.servers=127.0.0.1:1\n")
    login.chmod(0o644)
    done = links.run("links", "create", "west", "-t", "*", "--source-config", str(login), "--dry-run")
    assert b"chmod 600" in done.stderr
    assert b"unguessable" not in done.stderr
    assert done.returncode == 0
    login.write_text("ssl.engine.factory.class=x\n")
    assert refusal(links, "create", "west", "--source", "a:1", "-t", "*", "--source-config", str(login)).endswith(
        "a link has no setting ssl.engine.factory.class"
    )
    missing = str(tmp_path / "nowhere")
    assert refusal(links, "create", "west", "--source-config", missing) == (
        f"pybroker: --source-config {missing}: no such file"
    )


def test_a_description_has_as_many_partitions_as_there_are(
    links: CommandLine, source: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(links, source, topics="orders")
    found = [
        {"topic": "orders", "partition": index, "end": 10**9, "sourceEnd": 10**9, "lag": 0, "rate": 0}
        for index in range(5_000)
    ]
    monkeypatch.setattr(Mirrors, "progress", lambda self, link: found)
    (topic,) = links.json("links", "describe", "west")["topics"]
    assert [each["partition"] for each in topic["partitions"]] == list(range(5_000))


# --- pause, resume, promote, failover, delete ------------------------------------------------------------------------


def test_a_paused_topic_goes_on_when_it_is_resumed(links: CommandLine, source: Broker, here: Broker) -> None:
    create(links, source)
    assert links.lines("links", "pause", "west", "orders") == ["TOPIC\tSTATE", "orders\tpaused"]
    produce(source, "orders", 30)
    assert states(links) == {"orders": "paused", "payments": "mirroring"}
    assert links.lines("links", "resume", "west", "orders") == ["TOPIC\tSTATE", "orders\tmirroring"]
    wait_until_mirrored(source, here, "orders", ORDERS)
    links.ok("links", "pause", "west")
    assert set(states(links).values()) == {"paused"}
    assert refusal(links, "resume", "west", "orders") == "pybroker: orders is paused by *: resume that"
    links.ok("links", "resume", "west")
    assert set(states(links).values()) == {"mirroring"}


def test_a_stopped_topic_goes_on_when_it_is_resumed(links: CommandLine, source: Broker, here: Broker) -> None:
    create(links, source)
    links.ok("links", "alter", "west", "--exclude", "orders")
    wait_until(lambda: states(links)["orders"] == "stopped", "orders to stop")
    links.ok("links", "alter", "west", "--unset", "topics.exclude")
    links.ok("links", "resume", "west", "orders")
    produce(source, "orders", 30)
    wait_until_mirrored(source, here, "orders", ORDERS)
    assert states(links) == {"orders": "mirroring", "payments": "mirroring"}


def test_a_promotion_waits_until_all_is_here(links: CommandLine, source: Broker, here: Broker) -> None:
    create(links, source)
    produce(source, "orders", 300)
    assert links.lines("links", "promote", "west", "orders") == ["TOPIC\tSTATE", "orders\tpromoted"]
    assert all_stored(source, "orders", ORDERS) == all_stored(here, "orders", ORDERS)
    produce(here, "orders", 10)
    assert states(links) == {"orders": "promoted", "payments": "mirroring"}


def test_a_promotion_that_takes_longer_goes_on(links: CommandLine, source: Broker) -> None:
    create(links, source)
    source.stop()
    done = links.run("links", "promote", "west", "orders", "--timeout", "0.5")
    assert done.returncode == 1
    assert done.stderr.decode().startswith("pybroker: orders is promoting still")
    assert states(links)["orders"] == "promoting"


@pytest.mark.parametrize(("command", "state"), [("promote", "promoted"), ("failover", "failed-over")])
def test_all_topics_are_those_of_now(links: CommandLine, source: Broker, command: str, state: str) -> None:
    create(links, source)
    links.ok("links", command, "west", "--all")
    source.create_topic("later")
    wait_until(lambda: "later" in states(links), "a later topic")
    assert states(links) == {"later": "mirroring", "orders": state, "payments": state}


def test_a_failover_asks_no_source(links: CommandLine, source: Broker, here: Broker) -> None:
    create(links, source)
    source.stop()
    rows = links.lines("links", "failover", "west", "--all")
    assert rows == ["TOPIC\tSTATE", "orders\tfailed-over", "payments\tfailed-over"]
    produce(here, "orders", 10)


@pytest.mark.parametrize("command", ["pause", "resume", "promote", "failover"])
def test_a_topic_that_the_link_does_not_mirror_is_named(links: CommandLine, source: Broker, command: str) -> None:
    create(links, source)
    assert refusal(links, command, "west", "orderz") == "pybroker: link west mirrors no topic orderz"
    assert refusal(links, command, "east", "orders") == "pybroker: there is no link east"


def test_a_link_with_topics_that_are_not_promoted_is_deleted_by_force_alone(links: CommandLine, source: Broker) -> None:
    create(links, source)
    links.ok("links", "promote", "west", "orders")
    assert "1 topic that is not promoted" in refusal(links, "delete", "west")
    assert links.lines("links", "delete", "west", "--force")[1:] == ["west\tdeleted\tpayments"]
    assert links.json("links", "list") == []
    assert refusal(links, "describe", "west") == "pybroker: there is no link west"
    refused = links.run("produce", "payments", "-X", "message.timeout.ms=5000", stdin=b"no\n")
    assert refused.returncode == 1
    assert b"TOPIC_AUTHORIZATION_FAILED" in refused.stderr


def test_a_link_in_the_files_of_brokers_is_shown_and_not_deleted(source: Broker) -> None:
    settings = {"pybroker.links.west.bootstrap.servers": source.bootstrap, "pybroker.links.west.topics": "orders"}
    with Broker(settings) as here:
        links = CommandLine(here.bootstrap)
        wait_until(lambda: states(links) == {"orders": "mirroring"}, "orders to be mirrored")
        assert "set in the files of the brokers" in refusal(links, "delete", "west")
        links.ok("links", "pause", "west")
        assert states(links) == {"orders": "paused"}


def test_json_of_a_description_is_one_document_of_all(links: CommandLine, source: Broker) -> None:
    create(links, source, topics="orders")
    document = json.loads(links.ok("links", "describe", "west", "--json"))
    assert [*document] == [
        "link",
        "source_cluster",
        "problem",
        "settings",
        "topics",
        "refused",
        "refused_more",
        "not_carried",
    ]
