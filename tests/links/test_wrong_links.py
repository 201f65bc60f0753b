"""Links that cannot be as they are asked for, as a user of the commands sees them.

Each has one line that names it, and a place in ``links describe``; what else the link mirrors goes on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.broker_probe import refusing_port
from harness.waiting import wait_until

from pybroker.security.standard_authorizer import STANDARD_AUTHORIZER
from pybroker.testing import Broker, Security
from pybroker_protocol.messages.metadata import MetadataRequest
from tests.cli.command import CommandLine
from tests.cli.scripted_broker import scripted_broker
from tests.links.linked import committed, produce, stored, wait_until_mirrored

OFTEN = ("--set", "refresh.interval.ms=100")


@pytest.fixture
def source() -> Iterator[Broker]:
    with Broker() as running:
        running.create_topic("orders")
        running.create_topic("payments")
        yield running


@pytest.fixture
def here() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def links(here: Broker) -> CommandLine:
    return CommandLine(here.bootstrap)


def create(links: CommandLine, name: str, source: str, *more: str) -> tuple[int, str]:
    """The exit code, and what stands on stderr."""
    done = links.run("links", "create", name, "--source", source, *more, *OFTEN)
    return done.returncode, done.stderr.decode()


def described(links: CommandLine, name: str = "west") -> Any:
    return links.json("links", "describe", name)


def states(links: CommandLine, name: str = "west") -> dict[str, str]:
    return {each["topic"]: each["state"] for each in described(links, name)["topics"]}


def reason(links: CommandLine, topic: str) -> str:
    """Why a topic is stopped, or is not mirrored; "" for one with which nothing is the matter."""
    told = described(links)
    reasons = {each["topic"]: each["reason"] or "" for each in told["topics"]}
    return str(told["refused"].get(topic) or reasons.get(topic, ""))


def login_file(path: Path, broker: Broker, user: str) -> str:
    """A file of a Java client's settings for a broker."""
    settings = broker.client_settings("java", user=user)
    path.write_text("".join(f"{key}={text}\n" for key, text in settings.items()))
    path.chmod(0o600)
    return str(path)


def test_link_to_its_own_cluster_is_told_and_mirrors_nothing(links: CommandLine, here: Broker, source: Broker) -> None:
    create(links, "east", source.bootstrap, "-t", "orders")
    code, said = create(links, "west", here.bootstrap, "-t", "*", "--prefix", "x.")
    assert (code, said) == (1, "pybroker: link west is there, and mirrors nothing: its source is this cluster itself\n")
    assert described(links)["problem"] == "its source is this cluster itself"
    assert described(links)["topics"] == []
    assert states(links, "east") == {"orders": "mirroring"}


def test_circle_of_links_without_a_prefix_mirrors_nothing_back(
    links: CommandLine, here: Broker, source: Broker
) -> None:
    there = CommandLine(source.bootstrap)
    assert create(links, "west", source.bootstrap, "-t", "*") == (0, "")
    code, said = create(there, "west", here.bootstrap, "-t", "*")
    assert code == 0
    assert [line.split(": ")[1] for line in said.splitlines()] == ["orders is not mirrored", "payments is not mirrored"]
    assert set(described(there)["refused"]) == {"orders", "payments"}
    assert states(links) == {"orders": "mirroring", "payments": "mirroring"}


def test_circle_of_links_with_prefixes_mirrors_each_topic_once_on_each_side(
    links: CommandLine, here: Broker, source: Broker
) -> None:
    there = CommandLine(source.bootstrap)
    here.create_topic("invoices")
    create(links, "west", source.bootstrap, "-t", "*", "--prefix", "west.")
    create(there, "east", here.bootstrap, "-t", "*", "--prefix", "east.")
    wait_until(lambda: described(links)["refused"], "the circle to be seen")
    assert states(links) == {"west.orders": "mirroring", "west.payments": "mirroring"}
    assert states(there, "east") == {"east.invoices": "mirroring"}
    assert described(links)["refused"]["east.invoices"].startswith("it is mirrored at the source")
    produce(source, "orders", 30)
    wait_until(lambda: stored(here, "west.orders", 0) == stored(source, "orders", 0), "the records to be mirrored")


def test_mirror_of_a_mirror_is_made_by_its_name_alone(here: Broker, source: Broker) -> None:
    create(CommandLine(here.bootstrap), "west", source.bootstrap, "-t", "*", "--prefix", "w.")
    with Broker() as third:
        behind = CommandLine(third.bootstrap)
        create(behind, "west", here.bootstrap, "-t", "*", "-t", "w.orders", "--prefix", "w.")
        wait_until(lambda: states(behind) == {"w.w.orders": "mirroring"}, "the mirror's mirror")
        assert [*described(behind)["refused"]] == ["w.payments"]


def test_source_that_is_away_is_told_and_mirrored_once_it_comes_back(links: CommandLine, source: Broker) -> None:
    with refusing_port() as port:
        code, said = create(links, "west", f"127.0.0.1:{port}", "-t", "orders")
    assert code == 1
    assert said.startswith("pybroker: link west is there, and mirrors nothing: its source does not answer: ")
    assert len(said.splitlines()) == 1
    assert create(links, "east", source.bootstrap, "-t", "payments") == (0, "")
    with Broker(listen=f"127.0.0.1:{port}") as late:
        late.create_topic("orders")
        wait_until(lambda: states(links) == {"orders": "mirroring"}, "the source to be mirrored")
        assert described(links)["problem"] is None
    wait_until(lambda: "does not answer" in (described(links)["problem"] or ""), "the source to be away again")
    assert states(links) == {"orders": "mirroring"}
    assert described(links, "east")["problem"] is None


def test_adoption_of_what_is_not_mirrored_says_why(links: CommandLine, here: Broker, source: Broker) -> None:
    here.create_topic("orders")
    here.create_topic("payments")
    with refusing_port() as port:
        create(links, "away", f"127.0.0.1:{port}", "-t", "orders")
    create(links, "west", source.bootstrap, "-t", "*", "--exclude", "payments")
    for link, topic, why in (
        ("away", "orders", "its source does not answer: "),
        ("west", "payments", "the link excludes it, see --exclude"),
    ):
        done = links.run("links", "adopt", link, topic, "--timeout", "0")
        assert done.returncode == 1
        assert done.stderr.decode().startswith(f"pybroker: {topic} is not mirrored: {why}")


def test_source_that_is_another_cluster_by_now_is_not_followed(
    links: CommandLine, here: Broker, source: Broker
) -> None:
    create(links, "west", source.bootstrap, "-t", "orders")
    produce(source, "orders", 30)
    wait_until_mirrored(source, here, "orders", 1)
    before = stored(here, "orders", 0)
    with Broker() as other:
        other.create_topic("orders")
        produce(other, "orders", 100)
        links.ok("links", "alter", "west", "--source", other.bootstrap)
        wait_until(lambda: "and was" in (described(links)["problem"] or ""), "the other cluster to be seen")
        assert stored(here, "orders", 0) == before
        links.ok("links", "alter", "west", "--source", source.bootstrap)
        wait_until(lambda: described(links)["problem"] is None, "the former source to be back")
        produce(source, "orders", 30)
        wait_until_mirrored(source, here, "orders", 1)


def test_wrong_password_is_told_without_it_and_a_right_one_mends_it(links: CommandLine, tmp_path: Path) -> None:
    with Broker(security="SASL_PLAINTEXT") as source:
        source.create_topic("orders")
        right = login_file(tmp_path / "right", source, "alice")
        wrong = tmp_path / "wrong"
        wrong.write_text(Path(right).read_text().replace("alice-secret", "a-guess"))
        wrong.chmod(0o600)
        code, said = create(links, "west", source.bootstrap, "-t", "*", "--source-config", str(wrong))
        assert code == 1
        assert "login refused" in said
        assert "a-guess" not in said + json.dumps(described(links))
        links.ok("links", "alter", "west", "--source-config", right)
        wait_until(lambda: states(links) == {"orders": "mirroring"}, "the source to be mirrored")


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[tuple[Broker, CommandLine, str]]:
    """A source where alice may read what she has an ACL for; commands of its administrator; her file."""
    settings = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:admin"}
    users = {"admin": "admin-secret", "alice": "alice-secret"}
    with Broker(settings, security=Security("SASL_PLAINTEXT", users)) as source:
        admin = CommandLine(source.bootstrap)
        hers, its = (login_file(tmp_path / user, source, user) for user in ("alice", "admin"))
        for topic in ("orders", "payments"):
            admin.ok("topics", "create", topic, "--command-config", its)
        grant(admin, its, "orders", "read", "describe-configs")
        yield source, admin, hers


def grant(admin: CommandLine, login: str, topic: str, *operations: str) -> None:
    named = [word for operation in operations for word in ("-o", operation)]
    admin.ok("acls", "add", "-t", topic, "-p", "User:alice", *named, "--command-config", login)


def test_topic_that_the_link_may_not_see_is_named_and_the_others_go_on(
    links: CommandLine, guarded: tuple[Broker, CommandLine, str]
) -> None:
    source, _, login = guarded
    code, said = create(links, "west", source.bootstrap, "-t", "orders", "-t", "payments", "--source-config", login)
    assert code == 0
    assert said == ("pybroker: payments is not mirrored: the link may not see it at the source\n")
    assert states(links) == {"orders": "mirroring"}


@pytest.mark.parametrize(
    ("granted", "told"),
    [
        (["read"], "its settings at the source cannot be had: TOPIC_AUTHORIZATION_FAILED"),
        (["describe", "describe-configs"], "the link may not read it at the source"),
    ],
    ids=["settings", "records"],
)
def test_topic_that_the_link_may_see_and_not_mirror_has_the_reason_until_it_may(
    links: CommandLine, guarded: tuple[Broker, CommandLine, str], tmp_path: Path, granted: list[str], told: str
) -> None:
    source, admin, login = guarded
    its = str(tmp_path / "admin")
    grant(admin, its, "payments", *granted)
    create(links, "west", source.bootstrap, "-t", "*", "--source-config", login)
    wait_until(lambda: told in reason(links, "payments"), "the reason")
    assert states(links)["orders"] == "mirroring"
    grant(admin, its, "payments", "read", "describe-configs")
    wait_until(lambda: states(links).get("payments") == "mirroring", "the topic to be mirrored")
    wait_until(lambda: not reason(links, "payments"), "the reason to go")


def test_group_that_the_link_may_not_see_is_named_until_it_may(
    links: CommandLine, guarded: tuple[Broker, CommandLine, str], tmp_path: Path
) -> None:
    source, admin, login = guarded
    its = str(tmp_path / "admin")
    reset = ("groups", "reset-offsets", "billing", "-t", "orders", "--to-offset", "0", "--execute")
    admin.ok(*reset, "--command-config", its)
    create(links, "west", source.bootstrap, "-t", "orders", "-g", "billing", "--source-config", login)
    told = "groups: the source has no such groups, or the link's user needs DESCRIBE on them: billing"
    wait_until(lambda: described(links)["not_carried"] == [told], "the group to be named")
    admin.ok("acls", "add", "-g", "billing", "-p", "User:alice", "-o", "describe", "--command-config", its)
    wait_until(lambda: described(links)["not_carried"] == [], "the group to be seen")
    wait_until(lambda: committed(links, "billing") == {0: 0}, "the group's offsets")


def test_topic_of_two_links_is_the_first_ones_alone(links: CommandLine, source: Broker, here: Broker) -> None:
    with Broker() as other:
        other.create_topic("orders")
        other.create_topic("invoices")
        create(links, "east", source.bootstrap, "-t", "*")
        code, said = create(links, "west", other.bootstrap, "-t", "*")
        assert (code, said) == (0, "pybroker: orders is not mirrored: orders is mirrored by the link east\n")
        assert described(links)["refused"] == {"orders": "orders is mirrored by the link east"}
        assert states(links) == {"invoices": "mirroring"}
        produce(source, "orders", 30)
        wait_until_mirrored(source, here, "orders", 1)


def test_source_of_a_version_that_is_too_old_is_named(links: CommandLine) -> None:
    with scripted_broker(lambda request: None, [MetadataRequest]) as old:
        code, said = create(links, "west", old, "-t", "*")
        assert code == 1
        assert "it does not speak Fetch 13: a source is Apache Kafka 3.1 or later, or pybroker" in said
        assert len(said.splitlines()) == 1
        assert "it does not speak" in described(links)["problem"]


def test_source_that_comes_back_changes_nothing_of_a_promoted_topic(
    links: CommandLine, source: Broker, here: Broker
) -> None:
    create(links, "west", source.bootstrap, "-t", "orders")
    produce(source, "orders", 30)
    wait_until_mirrored(source, here, "orders", 1)
    source.kill()
    links.ok("links", "failover", "west", "orders")
    produce(here, "orders", 30)
    before = stored(here, "orders", 0)
    source.restart()
    produce(source, "orders", 30)
    wait_until(lambda: described(links)["problem"] is None, "the source to be back")
    produce(here, "orders", 30)
    after = stored(here, "orders", 0)
    assert before == {offset: after[offset] for offset in before}
    assert states(links) == {"orders": "failed-over"}
