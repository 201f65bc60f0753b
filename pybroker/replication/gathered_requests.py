"""Requests to other brokers that gather what is asked meanwhile: one to each broker is under way at a time.

Owns: what waits for the next request to a broker, and what goes into it.  Owns neither the requests nor what is done
with a response (the caller does), nor trying again.

Invariants:
- Each item is answered exactly once, after ``ask`` has returned.
- Items of one key never share a request, and keep their order.
- What waits for a broker waits for one answer of it at the most, or for its time-out.

The other broker answers the requests of a connection one after another, and what it is asked here waits there for its
followers. Item by item each would wait for the followers of all before it.

Kafka counterpart: TransactionMarkerChannelManager and AddPartitionsToTxnManager, each with a queue per broker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from pybroker import cluster_limits

if TYPE_CHECKING:
    from pybroker.cluster.membership.peers import Peers
    from pybroker_protocol.schema import Request

Item = TypeVar("Item")
# ``answer(response, part)``: both are None where nobody answered, and the part where the response leaves it out.
Answer = Callable[[Any | None, Any | None], None]

log = logging.getLogger(__name__)


class _Asked(NamedTuple, Generic[Item]):
    key: Hashable
    item: Item
    size: int
    answer: Answer


class GatheredRequests(Generic[Item]):
    """``request_of(items)`` makes a request, ``parts_of(response)`` gives its parts by key.

    Each kind of question has one of its own.
    """

    def __init__(
        self,
        peers: Peers,
        channel: str,
        request_of: Callable[[list[Item]], Request],
        parts_of: Callable[[Any], Mapping[Hashable, Any]],
        version: int,
        timeout_ms: int,
    ) -> None:
        self._peers = peers
        self._channel = channel
        self._request_of = request_of
        self._parts_of = parts_of
        self._version = version
        self._timeout_ms = timeout_ms
        self._waiting: dict[int, list[_Asked[Item]]] = {}  # by broker, as long as a request to it is under way

    def ask(self, broker_id: int, key: Hashable, item: Item, size: int, answer: Answer) -> None:
        """Have the item asked; ``size`` counts towards what one request may hold."""
        asked = _Asked(key, item, size, answer)
        if broker_id in self._waiting:
            self._waiting[broker_id].append(asked)
        else:
            self._waiting[broker_id] = []
            self._send(broker_id, [asked])

    def _send(self, broker_id: int, together: list[_Asked[Item]]) -> None:
        def done(response: Any | None, _: object) -> None:
            waiting = self._waiting[broker_id]
            if waiting:
                first, self._waiting[broker_id] = _first_of(waiting)
                self._send(broker_id, first)
            else:
                del self._waiting[broker_id]
            parts = {} if response is None else self._parts_of(response)
            for asked in together:
                try:
                    asked.answer(response, parts.get(asked.key))
                except Exception:  # the others are to be answered, too
                    log.exception("what was asked of broker %d (%s) failed", broker_id, self._channel)

        request = self._request_of([asked.item for asked in together])
        self._peers.ask(broker_id, request, self._version, done, timeout_ms=self._timeout_ms, channel=self._channel)


def _first_of(waiting: list[_Asked[Item]]) -> tuple[list[_Asked[Item]], list[_Asked[Item]]]:
    """What goes into one request, and what waits on."""
    together: list[_Asked[Item]] = []
    rest: list[_Asked[Item]] = []
    keys: set[Hashable] = set()
    size = 0
    for asked in waiting:
        if asked.key in keys or (together and size + asked.size > cluster_limits.GATHERED_PARTITIONS_MAX):
            rest.append(asked)
        else:
            together.append(asked)
            size += asked.size
        keys.add(asked.key)  # what is left behind is not overtaken
    return together, rest
