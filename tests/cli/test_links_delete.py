"""``pybroker links delete``: when a link may go, what is left of it, and who has that then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from harness.waiting import wait_until

from pybroker.cluster.image.link_states import MIRRORING, PAUSED, PROMOTED, STOPPED
from pybroker.cluster.links import mirror_reasons
from pybroker.net.source_client import SourceClient
from pybroker.testing import Broker
from pybroker_protocol.messages.list_groups import ListGroupsRequest
from tests.cli.command import CommandLine
from tests.links.linked import commit, committed, mirror_of, produce, set_link, wait_for_state, wait_until_mirrored

OFTEN = ("--set", "refresh.interval.ms=100")


@pytest.fixture
def source() -> Iterator[Broker]:
    with Broker() as running:
        running.create_topic("orders")
        produce(running, "orders", 20)
        yield running


class Looks:
    """Looks at the source's groups, which wait while they are held."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.are_held = False
        self.told = 0  # so often a command has heard that they are to come
        self._held: list[Callable[[], None]] = []
        ask, reason_of = SourceClient.ask, mirror_reasons.reason_of

        def held(client: SourceClient, broker_id: int, request: Any, *rest: Any, **named: Any) -> None:
            if self.are_held and isinstance(request, ListGroupsRequest):
                self._held.append(lambda: ask(client, broker_id, request, *rest, **named))
            else:
                ask(client, broker_id, request, *rest, **named)

        def counted(*given: Any) -> str:
            reason = reason_of(*given)
            self.told += reason == mirror_reasons.LAST_LOOK
            return reason

        monkeypatch.setattr(SourceClient, "ask", held)
        monkeypatch.setattr(mirror_reasons, "reason_of", counted)

    def go_on(self, here: Broker) -> None:
        self.are_held = False
        for look in self._held:
            here._alive().call_soon(look)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    return Looks(monkeypatch)


@pytest.fixture
def here(source: Broker, looks: Looks) -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def links(here: Broker) -> CommandLine:
    return CommandLine(here.bootstrap)


def mirror_with_a_group(links: CommandLine, source: Broker, here: Broker, looks: Looks) -> None:
    """The group has gone on at the source, and has not been looked at since."""
    commit(source, "billing", {0: 5})
    links.ok("links", "create", "west", "--source", source.bootstrap, "-t", "orders", "-g", "billing", *OFTEN)
    wait_until(lambda: committed(here, "billing") == {0: 5}, "the group's offsets")
    wait_until_mirrored(source, here, "orders", 1)
    looks.are_held = True
    wait_until(lambda: looks._held, "a look")
    commit(source, "billing", {0: 9})


@pytest.mark.parametrize("command", ["promote west orders --timeout 300", "delete west"])
def test_a_command_behind_a_promotion_ends_once_the_offsets_of_groups_are_here(
    links: CommandLine, source: Broker, here: Broker, looks: Looks, command: str
) -> None:
    mirror_with_a_group(links, source, here, looks)
    if command == "delete west":
        set_link(here.bootstrap, promote="orders")
        wait_for_state(here, "orders", PROMOTED)
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(links.run, "links", *command.split())
        wait_until(lambda: done.done() or looks.told > 2, "the command to wait")
        looks.go_on(here)
        finished = done.result()
    assert (finished.returncode, finished.stderr) == (0, b"")
    assert committed(here, "billing") == {0: 9}


def test_a_last_look_that_is_to_come_is_told_and_given_up_by_force(
    links: CommandLine, source: Broker, here: Broker, looks: Looks
) -> None:
    mirror_with_a_group(links, source, here, looks)
    set_link(here.bootstrap, promote="orders")
    wait_for_state(here, "orders", PROMOTED)
    done = links.run("links", "promote", "west", "orders", "--timeout", "0")
    assert done.returncode == 0
    told = f"of 1 topic {mirror_reasons.LAST_LOOK}: see links describe west"
    assert done.stderr.decode() == f"pybroker: {told}\n"
    (topic,) = links.json("links", "describe", "west")["topics"]
    assert (topic["state"], topic["reason"]) == (PROMOTED, mirror_reasons.LAST_LOOK)
    links.ok("links", "delete", "west", "--force")
    looks.go_on(here)


def test_a_topic_that_a_deleted_link_has_left_is_had_by_another_one(
    links: CommandLine, source: Broker, here: Broker
) -> None:
    links.ok("links", "create", "west", "--source", source.bootstrap, "-t", "orders", *OFTEN)
    wait_until_mirrored(source, here, "orders", 1)
    links.ok("links", "delete", "west", "--force")
    assert wait_for_state(here, "orders", STOPPED).reason == "there is no link west any more"
    done = links.run("links", "create", "east", "--source", source.bootstrap, "-t", "orders", *OFTEN)
    assert b"orders was mirrored by the link west, which is deleted: `adopt` has it by this one" in done.stderr
    links.ok("links", "adopt", "east", "orders")
    produce(source, "orders", 20)
    wait_until_mirrored(source, here, "orders", 1)
    mirror = mirror_of(here, "orders")
    assert mirror is not None
    assert (mirror.link, mirror.state) == ("east", MIRRORING)


def test_a_topic_that_a_deleted_link_has_left_goes_on_by_a_link_of_the_same_name(
    links: CommandLine, source: Broker, here: Broker
) -> None:
    for _ in range(2):
        links.ok("links", "create", "west", "--source", source.bootstrap, "-t", "orders", *OFTEN)
        wait_for_state(here, "orders", MIRRORING)
        produce(source, "orders", 20)
        wait_until_mirrored(source, here, "orders", 1)
        links.ok("links", "delete", "west", "--force")
        assert wait_for_state(here, "orders", STOPPED).reason == "there is no link west any more"


# --- links that stand in a broker's file, too ------------------------------------------------------------------------


def filed(source: Broker, **settings: str) -> dict[str, str | int | float]:
    named = {"bootstrap.servers": source.bootstrap, "topics": "orders", "refresh.interval.ms": "100", **settings}
    return {f"pybroker.links.west.{name}": text for name, text in named.items()}


def test_a_link_in_a_file_is_not_deleted_whatever_commands_have_set_besides(source: Broker) -> None:
    with Broker(filed(source)) as here:
        links = CommandLine(here.bootstrap)
        wait_for_state(here, "orders", MIRRORING)
        links.ok("links", "alter", "west", "--set", "throttled.rate=100000")
        done = links.run("links", "delete", "west", "--force")
        assert done.returncode == 1
        assert done.stderr == b"pybroker: link west is set in the files of the brokers: take it out there\n"
        links.ok("links", "alter", "west", "--source", source.bootstrap)
        done = links.run("links", "delete", "west", "--force")
        assert done.returncode == 1
        assert b"link west goes on as the files of the brokers have it: take it out there, too" in done.stderr
        assert "throttled.rate" not in links.json("links", "describe", "west")["settings"]


def test_a_name_that_is_added_to_a_list_of_a_file_leaves_the_others_of_it(source: Broker) -> None:
    source.create_topic("payments")
    with Broker(filed(source, pause="orders")) as here:
        links = CommandLine(here.bootstrap)
        wait_for_state(here, "orders", PAUSED)
        links.ok("links", "alter", "west", "--append", "topics=payments")
        wait_for_state(here, "payments", MIRRORING)
        links.ok("links", "pause", "west", "payments")
        assert [each["state"] for each in links.json("links", "describe", "west")["topics"]] == [PAUSED, PAUSED]
        links.ok("links", "resume", "west", "orders")
        wait_for_state(here, "orders", MIRRORING)
        wait_for_state(here, "payments", PAUSED)


def test_what_a_former_link_has_left_in_its_settings_is_no_wish_of_the_next(source: Broker, here: Broker) -> None:
    set_link(here.bootstrap, failover="*")  # without a source it is no link
    links = CommandLine(here.bootstrap)
    links.ok("links", "create", "west", "--source", source.bootstrap, "-t", "orders", *OFTEN)
    wait_for_state(here, "orders", MIRRORING)
    assert "failover" not in links.json("links", "describe", "west")["settings"]
