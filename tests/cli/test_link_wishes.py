"""What commands write into a link's settings: the names of the topics of now, and no more than there is room for."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pytest

from pybroker.cli.commands.link_wishes import (
    NAMES_BYTES_MAX,
    adoption,
    chosen_topics,
    ended_pauses,
    fulfil,
    pause_stopped,
    taken_back,
)
from pybroker.cli.requests import config_requests, link_requests
from pybroker.cli.requests.link_requests import FAILED_OVER, MIRRORING, PAUSED, PROMOTED, STOPPED, Link, Mirror
from pybroker.cli.terminal.failure import CommandFailed

CLIENT: Any = None


def link(**settings: str) -> Link:
    return Link("west", {"bootstrap.servers": "far:9092", **settings}, frozenset())


class Brokers:
    """A link, its topics, and what becomes of them by each change; ``slow`` topics stay as they are."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, names: Sequence[str], state: str = MIRRORING) -> None:
        self.settings: dict[str, str] = {}
        self.states = dict.fromkeys(names, state)
        self.slow: set[str] = set()
        self.changes: list[tuple[str, str, list[str]]] = []
        self.longest = 0
        for name in ("links", "mirrors_of", "change", "await_states"):
            monkeypatch.setattr(link_requests, name, getattr(self, name))
        monkeypatch.setattr(link_requests, "link_named", lambda client, name: link(**self.settings))

    def links(self, client: Any) -> dict[str, Link]:
        return {"west": link(**self.settings)}

    def mirrors_of(self, client: Any, name: str) -> list[Mirror]:
        return [Mirror(topic, name, topic, state) for topic, state in self.states.items()]

    def change(self, client: Any, name: str, changes: Mapping[str, tuple[str, str | None]]) -> None:
        for setting, (how, text) in changes.items():
            names = (text or "").split(",")
            self.changes.append((setting, how, names))
            held = [each for each in self.settings.get(setting, "").split(",") if each and each not in names]
            self.settings[setting] = ",".join([*held, *(names if how == "APPEND" else [])])
            self.longest = max(self.longest, len(self.settings[setting]))
            became = {"promote": PROMOTED, "failover": FAILED_OVER, "pause": PAUSED}[setting]
            if how == "APPEND":
                self.states.update((each, became) for each in names if each not in self.slow)

    def await_states(
        self, client: Any, chosen: Sequence[Mirror], states: Collection[str], timeout_s: float
    ) -> list[Mirror]:
        return [each._replace(state=self.states[each.topic]) for each in chosen]


@pytest.mark.parametrize("wanted", ["*", "orders*"])
def test_a_pattern_means_the_topics_of_now_and_a_wish_that_is_fulfilled_is_taken_back(
    monkeypatch: pytest.MonkeyPatch, wanted: str
) -> None:
    brokers = Brokers(monkeypatch, ["orders-a", "orders-b"])
    chosen = chosen_topics(CLIENT, link(), [wanted])
    found = fulfil(CLIENT, "west", "failover", chosen, (FAILED_OVER,), 1)
    assert [each.state for each in found] == [FAILED_OVER, FAILED_OVER]
    both = ["orders-a", "orders-b"]
    assert brokers.changes == [("failover", "APPEND", both), ("failover", "SUBTRACT", both)]
    assert brokers.settings == {"failover": ""}


def test_what_takes_longer_is_wanted_still(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(monkeypatch, ["a", "b"])
    brokers.slow = {"b"}
    found = fulfil(CLIENT, "west", "promote", chosen_topics(CLIENT, link(), ["*"]), (PROMOTED,), 1)
    assert [each.state for each in found] == [PROMOTED, MIRRORING]
    assert brokers.settings == {"promote": "b"}


def test_thousands_of_topics_are_wanted_in_portions_that_a_setting_has_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    brokers = Brokers(monkeypatch, [f"topic-{'x' * 60}-{number:04}" for number in range(2_000)])
    found = fulfil(CLIENT, "west", "failover", chosen_topics(CLIENT, link(), ["*"]), (FAILED_OVER,), 1)
    assert len(found) == 2_000
    assert set(brokers.states.values()) == {FAILED_OVER}
    assert 0 < brokers.longest <= NAMES_BYTES_MAX


def test_without_room_nothing_is_wanted_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(monkeypatch, ["a"])
    brokers.settings["promote"] = "x" * NAMES_BYTES_MAX
    with pytest.raises(CommandFailed, match="no room for more topics"):
        fulfil(CLIENT, "west", "promote", chosen_topics(CLIENT, link(), ["a"]), (PROMOTED,), 1)
    assert brokers.changes == []


def test_what_takes_writes_already_is_not_wanted_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(monkeypatch, ["a"], PROMOTED)
    (found,) = fulfil(CLIENT, "west", "failover", chosen_topics(CLIENT, link(), ["a"]), (FAILED_OVER,), 1)
    assert found.state == PROMOTED
    assert brokers.changes == []


def test_a_stopped_topic_that_a_pattern_promotes_is_resumed_once_the_pattern_is_taken_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    brokers = Brokers(monkeypatch, ["orders"], STOPPED)
    stopped = chosen_topics(CLIENT, link(), ["orders"])
    with pytest.raises(CommandFailed, match=r"promote=\*, which .* --subtract 'promote=\*' takes back"):
        pause_stopped(CLIENT, link(promote="*"), stopped)
    assert brokers.changes == []
    pause_stopped(CLIENT, link(promote="orders,other"), stopped)
    assert brokers.changes == [("pause", "APPEND", ["orders"]), ("promote", "SUBTRACT", ["orders"])]


def test_an_adoption_takes_back_what_was_wanted_of_the_same_topics() -> None:
    before = link(promote="a,b", failover="c", discard="b")
    assert adoption(before, ["b"]) == {
        "adopt": ("APPEND", "b"),
        "discard": ("SUBTRACT", "b"),
        "promote": ("SUBTRACT", "b"),
    }
    assert taken_back(link(promote="x*"), ("promote",), ["b"]) == {}
    with pytest.raises(CommandFailed, match="b is named by failover="):
        adoption(link(failover="b*"), ["b"])


def test_what_is_added_to_a_list_is_added_by_the_controller_whatever_a_broker_that_lags_shows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    setting = "pybroker.links.west.pause"
    asked: list[Mapping[str, tuple[str, str | None]]] = []
    of_file = {"name": setting, "value": "a", "source": "STATIC_BROKER_CONFIG", "read_only": True, "sensitive": False}
    monkeypatch.setattr(link_requests, "_of_any_broker", lambda client: [of_file])
    monkeypatch.setattr(config_requests, "described", lambda client, kind, name: [])
    monkeypatch.setattr(config_requests, "alter", lambda client, kind, name, changes, **_: asked.append(changes))
    link_requests.change(CLIENT, "west", {"pause": ("APPEND", "b")})
    assert asked == [{setting: ("APPEND", "b")}]


def test_a_pause_ends_by_its_own_name_or_with_all() -> None:
    topics = [Mirror("a", "west", "a", PAUSED), Mirror("b", "west", "b", PAUSED)]
    assert ended_pauses(link(pause="a,b"), ["a"], topics[:1]) == ["a"]
    assert ended_pauses(link(pause="*,a"), None, topics) == ["*", "a"]
    with pytest.raises(CommandFailed, match=r"a is paused by \*"):
        ended_pauses(link(pause="*,a"), ["a"], topics[:1])
