"""What is asked of another broker while a request to it is under way is gathered for the next one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from pybroker import cluster_limits
from pybroker.cluster.membership.peers import MARKERS, PeerDone, PeerError, PeerFailure
from pybroker.replication.gathered_requests import GatheredRequests

DISCONNECTED = PeerError(PeerFailure.DISCONNECTED, may_be_done=True)


class Peers:
    """Requests are lists of items here; a test answers them one after another."""

    def __init__(self) -> None:
        self.on_broken: Callable[[int], None] = lambda broker_id: None
        self.requests: list[tuple[int, list[str]]] = []
        self._waiting: list[PeerDone] = []

    def ask(
        self, broker_id: int, request: Any, version: int, done: PeerDone, *, timeout_ms: int, channel: str = ""
    ) -> None:
        assert (version, timeout_ms, channel) == (2, 100, MARKERS)
        self.requests.append((broker_id, request))
        self._waiting.append(done)

    def answer(self, parts: dict[str, int] | None) -> None:
        self._waiting.pop(0)(parts, DISCONNECTED if parts is None else None)

    def forward(self, *_: Any, **__: Any) -> None:
        raise AssertionError("no client's request is forwarded")

    def close(self) -> None: ...


class Asking:
    """Items are their keys, but for what stands behind a dash."""

    def __init__(self) -> None:
        self.peers = Peers()
        self.answers: dict[str, Any] = {}
        self.gathered: GatheredRequests[str] = GatheredRequests(
            self.peers,
            MARKERS,
            list,  # type: ignore[arg-type]
            dict,
            2,
            100,
        )

    def ask(self, item: str, broker_id: int = 1, size: int = 1) -> None:
        def answer(response: Any, part: Any) -> None:
            assert item not in self.answers
            self.answers[item] = part

        self.gathered.ask(broker_id, item.partition("-")[0], item, size, answer)


@pytest.fixture
def asking() -> Asking:
    return Asking()


def test_first_leaves_at_once_and_what_comes_meanwhile_leaves_together(asking: Asking) -> None:
    for item in ("a", "b", "c"):
        asking.ask(item)
    assert asking.peers.requests == [(1, ["a"])]
    asking.peers.answer({"a": 1})
    assert asking.peers.requests[1:] == [(1, ["b", "c"])]
    asking.peers.answer({"b": 2, "c": 3})
    assert asking.answers == {"a": 1, "b": 2, "c": 3}
    asking.ask("d")
    assert asking.peers.requests[2:] == [(1, ["d"])]


def test_brokers_do_not_wait_for_one_another(asking: Asking) -> None:
    asking.ask("a", broker_id=1)
    asking.ask("b", broker_id=2)
    assert asking.peers.requests == [(1, ["a"]), (2, ["b"])]


def test_items_of_one_key_keep_their_order_and_share_no_request(asking: Asking) -> None:
    for item in ("x", "a-1", "a-2", "b", "a-3"):
        asking.ask(item)
    for parts in ({"x": 0}, {"a": 1, "b": 2}, {"a": 3}, {"a": 4}):
        asking.peers.answer(parts)
    assert [items for _, items in asking.peers.requests] == [["x"], ["a-1", "b"], ["a-2"], ["a-3"]]
    assert asking.answers == {"x": 0, "a-1": 1, "b": 2, "a-2": 3, "a-3": 4}


def test_request_names_a_bounded_number_of_partitions_and_never_none(
    asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_limits, "GATHERED_PARTITIONS_MAX", 10)
    asking.ask("first")
    for item, size in (("a", 6), ("b", 5), ("c", 4), ("d", 50)):
        asking.ask(item, size=size)
    for _ in range(4):
        asking.peers.answer({})
    assert [items for _, items in asking.peers.requests] == [["first"], ["a", "c"], ["b"], ["d"]]


def test_what_nobody_answered_or_left_out_has_no_part(asking: Asking) -> None:
    asking.ask("a")
    asking.ask("b")
    asking.peers.answer(None)
    asking.peers.answer({"c": 1})
    assert asking.answers == {"a": None, "b": None}


def test_answer_that_fails_holds_up_no_other(asking: Asking, caplog: pytest.LogCaptureFixture) -> None:
    def fail(*_: Any) -> None:
        raise ZeroDivisionError

    asking.ask("first")
    asking.gathered.ask(1, "a", "a", 1, fail)
    asking.ask("b")
    asking.peers.answer({})
    with caplog.at_level(logging.ERROR):
        asking.peers.answer({"b": 2})
    assert asking.answers["b"] == 2
    assert "ZeroDivisionError" in caplog.text
