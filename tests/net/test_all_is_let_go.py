"""Whatever handlers answer with and whenever clients leave: no received byte, place or turn is kept for nobody."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from pybroker import limits
from pybroker.handlers.context import CloseConnection, Parked, Steps
from pybroker.net.fast_paths import FastPaths
from tests.net.fake_network import API_KEY, FakeNetwork, FakeTransport, frame, post

KB = 1 << 10
SIZES = (0, 100, 20 * KB, 90 * KB, limits.WHOLE_FRAME_BYTES + 1, 700 * KB, 3 << 20)


class Handlers:
    """Answers with whatever chance has, and completes what it parked later."""

    def __init__(self, network: FakeNetwork, random: Random) -> None:
        self.network = network
        self.random = random
        self.parked: list[Parked] = []
        self.held: list[Any] = []

    def handle(self, ctx: Any, _request: memoryview) -> Any:
        self._take_time()
        self._maybe_hold(ctx)
        match self.random.randrange(6):
            case 0:
                return self._park()
            case 1:
                raise CloseConnection("chance")
            case 2:
                return b""
            case _:
                return self._steps(ctx)

    def _steps(self, ctx: Any) -> Steps:
        for _ in range(self.random.randrange(5)):
            self._take_time()
            yield
        self._maybe_hold(ctx)
        match self.random.randrange(6):
            case 0:
                yield self._park()
            case 1:
                return self._park()
            case 2:
                raise CloseConnection("chance")
            case 3:
                raise ZeroDivisionError
        return b""

    def _take_time(self) -> None:
        self.network.world.clock.pass_ns(
            self.random.choice((10_000, limits.TIME_SLICE_NS // 2, 2 * limits.TIME_SLICE_NS))
        )

    def _maybe_hold(self, ctx: Any) -> None:
        match self.random.randrange(4):
            case 0:
                self.held.append(ctx.connection.hold_copy(self.random.randrange(1, 10_000)))
            case 1 if ctx.connection._current is not None:
                self.held.append(ctx.connection.hold_request())

    def _park(self) -> Parked:
        parked = Parked()
        parked.holds_back = self.random.random() < 0.5
        self.parked.append(parked)
        return parked

    def complete_some(self, share: float) -> None:
        self.random.shuffle(self.parked)
        for parked in [self.parked.pop() for _ in range(int(len(self.parked) * share))]:
            parked.complete(b"")
        for held in [self.held.pop() for _ in range(int(len(self.held) * share))]:
            held.release()


@pytest.mark.parametrize("seed", range(30))
def test_nothing_is_kept_once_all_are_gone(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    settings = dict.fromkeys(("queued.max.request.bytes", "socket.request.max.bytes"), str(8 << 20))
    network, random = FakeNetwork(monkeypatch, settings), Random(seed)
    monkeypatch.setattr(FastPaths, "learn", lambda *_: None)
    handlers = Handlers(network, random)
    for api_key in (0, API_KEY):
        network.serve(handlers.handle, api_key)
    processor = network.processor
    counted = processor.budget.bytes_counted
    clients: list[FakeTransport] = []
    for _ in range(300):
        clients = [client for client in clients if not client.closing]
        match random.randrange(6):
            case 0:
                clients.append(network.connect(f"10.0.0.{random.randrange(4)}"))
            case 1 if clients:
                random.choice(clients).close()
            case 2 | 3 if clients:
                sent = frame(bytes(random.choice(SIZES)), random.choice((0, API_KEY)))
                post(random.choice(clients), sent[: random.choice((len(sent), len(sent), len(sent) // 2))])
            case 4:
                handlers.complete_some(0.3)
            case 5:
                network.pass_ms(random.choice((1, 300, 5_000)))
        network.turn()
    for client in clients:
        client.close()
    network.turn()
    handlers.complete_some(1)
    for _ in range(50):
        network.turn()
    assert processor.budget.bytes_counted == counted
    assert not processor.connections
    assert not processor.long_requests._ready
    assert not processor.long_requests._waiting
    assert processor.long_requests._places == limits.LARGE_REQUESTS_AT_ONCE
    assert not processor.long_requests.unsent._sent
    assert not processor.scheduler._waiting
    assert not processor.scheduler._new_connections
