"""The account of received bytes: it holds on every path, and honest progress goes first while it is full."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pybroker import limits
from pybroker.config.broker import OVERRIDDEN_DEFAULTS
from pybroker.handlers.context import HeldRequest, Parked
from pybroker.net import receive_budget
from pybroker.net.dispatch import PRODUCE_KEY
from pybroker.net.receive_budget import FRAME_WAIT_MAX_MS
from tests.net.fake_network import FakeNetwork, FakeTransport, frame, post, replies, work

MB = 1 << 20
BUDGET_BYTES = 16 * MB
FRAME_BYTES_MAX = 12 * MB
LARGE = 3 * MB  # above limits.LARGE_FRAME_BYTES
CROWD = 50
# How long a look and what leads to a peer's end take.
PATIENCE_MS = limits.SLOW_FRAME_MS + 3 * limits.SHORTAGE_LOOK_MS


def make_network(patch: pytest.MonkeyPatch) -> FakeNetwork:
    return FakeNetwork(
        patch, {"socket.request.max.bytes": str(FRAME_BYTES_MAX), "queued.max.request.bytes": str(BUDGET_BYTES)}
    )


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> FakeNetwork:
    return make_network(monkeypatch)


@pytest.mark.parametrize("unset", [{}, {"queued.max.request.bytes": "-1"}])
def test_bound_where_none_is_set_stands_in_the_table_of_defaults_that_are_not_kafkas(
    monkeypatch: pytest.MonkeyPatch, unset: dict[str, str]
) -> None:
    (row,) = (row for row in OVERRIDDEN_DEFAULTS if row.names == "queued.max.request.bytes")
    assert FakeNetwork(monkeypatch, unset).processor.budget.bytes_max == int(row.default.split()[0]) == 256 * MB


def bound(network: FakeNetwork) -> int:
    """What the account may come to: one frame of each kind beyond it, and a small buffer of each connection."""
    beyond = FRAME_BYTES_MAX + limits.LARGE_FRAME_BYTES + receive_budget.RECEIVE_BUFFER_BYTES
    return BUDGET_BYTES + beyond * 9 // 8 + len(network.transports) * limits.FRAME_BUFFER_MIN_BYTES


def turns(network: FakeNetwork, count: int = 30) -> None:
    for _ in range(count):
        network.turn()
        assert network.processor.budget.bytes_counted <= bound(network)


def later(network: FakeNetwork, ms: int) -> None:
    """Let time pass in small steps, as it does for a loop that nothing holds."""
    for _ in range(0, ms, 50):
        network.world.clock.pass_ns(50_000_000)
        turns(network, 3)


def unfinished(client: FakeTransport, size: int, missing: int = 1_000) -> bytes:
    """Send all of a frame but its end, which is given back."""
    whole = work(0, size)
    post(client, whole[:-missing])
    return whole[-missing:]


class Disk:
    """Keeps requests until the test says that they are written."""

    def __init__(self, network: FakeNetwork, hold: Callable[[Any, memoryview], HeldRequest]) -> None:
        self._hold = hold
        self.waiting: list[tuple[HeldRequest, Parked]] = []
        network.serve(self._handle, PRODUCE_KEY)

    def _handle(self, ctx: Any, request: memoryview) -> Parked:
        parked = Parked()
        self.waiting.append((self._hold(ctx.connection, request), parked))
        return parked

    def write(self, count: int) -> None:
        written, self.waiting = self.waiting[:count], self.waiting[count:]
        for held, parked in written:
            held.release()
            parked.complete(b"")


def hold_the_request(connection: Any, _: memoryview) -> HeldRequest:
    held: HeldRequest = connection.hold_request()
    return held


def hold_a_copy(connection: Any, request: memoryview) -> HeldRequest:
    held: HeldRequest = connection.hold_copy(len(request))
    return held


@pytest.mark.parametrize(
    ("size", "hold"), [(MB, hold_the_request), (300_000, hold_the_request), (100_000, hold_a_copy)]
)
def test_flood_that_the_disk_does_not_keep_up_with_stays_in_the_account(
    network: FakeNetwork, size: int, hold: Callable[[Any, memoryview], HeldRequest]
) -> None:
    disk = Disk(network, hold)
    clients = [network.connect() for _ in range(CROWD)]
    requests = 2 * BUDGET_BYTES // size // CROWD + 5
    for client in clients:
        for _ in range(requests):
            post(client, frame(bytes(size), PRODUCE_KEY))
    turns(network, 300)
    assert network.processor.budget.bytes_counted <= BUDGET_BYTES + CROWD * limits.FRAME_BUFFER_MIN_BYTES + 3 * MB
    honest = network.connect("10.0.0.2")
    post(honest, work(0))
    turns(network, 5)
    assert replies(honest) == 1, "a small request needs no place"
    while any(replies(client) < requests for client in clients):
        assert disk.waiting, "nobody waits for nothing"
        disk.write(5)
        turns(network, 10)
    assert network.processor.budget.bytes_counted == receive_budget.RECEIVE_BUFFER_BYTES


def test_who_pipelines_waits_for_the_others_before_the_account_is_full(network: FakeNetwork) -> None:
    disk = Disk(network, hold_the_request)
    clients = [network.connect() for _ in range(3)]
    for client in clients:
        for _ in range(BUDGET_BYTES // MB):
            post(client, frame(bytes(MB), PRODUCE_KEY))
    turns(network, 100)
    # Whoever comes next waits for these only, not for all that there is room for.
    assert len(disk.waiting) * MB <= BUDGET_BYTES // 4 + len(clients) * MB


def test_unfinished_large_frames_keep_nobody_else_waiting(network: FakeNetwork) -> None:
    for _ in range(CROWD):
        unfinished(network.connect(), FRAME_BYTES_MAX, missing=6 * MB)
    turns(network, 100)
    before_ns = network.world.clock.elapsed_ns
    honest = network.connect()
    for _ in range(5):
        post(honest, work(0, 500_000))
    turns(network, 100)
    assert replies(honest) == 5
    assert network.world.clock.elapsed_ns == before_ns


def test_unfinished_small_frames_that_fill_the_account_are_closed_all_at_once(network: FakeNetwork) -> None:
    crowd = [network.connect() for _ in range(CROWD)]
    for client in crowd:
        unfinished(client, 900_000)
    turns(network, 100)
    honest = network.connect("10.0.0.2")
    post(honest, work(0, 500_000))
    later(network, PATIENCE_MS)
    assert replies(honest) == 1


def test_reconnecting_gains_nothing(network: FakeNetwork) -> None:
    """Each of the crowd that is closed comes back at once, from the host of the honest one."""
    crowd = [network.connect() for _ in range(CROWD)]
    for client in crowd:
        unfinished(client, 900_000)
    turns(network, 100)
    honest = network.connect()
    for served in range(1, 6):
        post(honest, work(0, 500_000))
        for _ in range(0, PATIENCE_MS, 50):
            for position, client in enumerate(crowd):
                if client.closing:
                    crowd[position] = network.connect()
                    unfinished(crowd[position], 900_000)
            later(network, 50)
        assert replies(honest) == served


def test_frame_that_lacks_least_reads_on_first(network: FakeNetwork) -> None:
    disk = Disk(network, hold_the_request)
    while network.processor.budget.may_take(300_000, is_large=False):
        post(network.connect("10.0.0.9"), frame(bytes(MB), PRODUCE_KEY))
        turns(network, 10)
    clients = [network.connect() for _ in range(3)]
    sizes = [1_400_000, 400_000, 900_000]
    for client, size in zip(clients, sizes, strict=True):
        post(client, work(0, size))
    turns(network)
    assert [replies(client) for client in clients] == [0, 0, 0]
    order: list[int] = []
    while len(order) < len(clients) and disk.waiting:
        disk.write(1)
        for _ in range(10):
            network.turn()
            order += [
                size for client, size in zip(clients, sizes, strict=True) if replies(client) and size not in order
            ]
    assert order == sorted(sizes)


def test_host_that_keeps_least_reads_on_first(network: FakeNetwork) -> None:
    disk = Disk(network, hold_the_request)
    while network.processor.budget.may_take(4 * MB, is_large=False):
        post(network.connect("10.0.0.9"), frame(bytes(MB), PRODUCE_KEY))
        turns(network, 10)
    crowd = [network.connect() for _ in range(CROWD)]
    for client in crowd:
        unfinished(client, 600_000, missing=200_000)
    turns(network, 50)
    honest = network.connect("10.0.0.2")
    post(honest, work(0, 1_500_000))
    turns(network, 50)
    assert replies(honest) == 0
    while not replies(honest):
        assert len(disk.waiting) > 5, "with the first places that came free it read on"
        disk.write(1)
        turns(network)


def test_frames_that_fill_the_account_together_are_finished_one_after_another(network: FakeNetwork) -> None:
    clients = [network.connect(f"10.0.0.{number}") for number in range(10)]
    for client in clients:
        post(client, work(0, FRAME_BYTES_MAX - 100))
    turns(network, 2_000)
    assert [replies(client) for client in clients] == [1] * len(clients)
    assert network.processor.budget.bytes_counted == receive_budget.RECEIVE_BUFFER_BYTES


def test_largest_frame_has_its_turn_where_small_ones_come_without_end(network: FakeNetwork) -> None:
    disk = Disk(network, hold_the_request)
    clients = [network.connect() for _ in range(CROWD)]

    def flood() -> None:
        for client in clients:
            if not client.unread:
                post(client, frame(bytes(300_000), PRODUCE_KEY))
        disk.write(3)
        later(network, 50)

    for _ in range(10):
        flood()
    small, large = network.connect(), network.connect()
    post(small, work(0, limits.LARGE_FRAME_BYTES - 1_000))
    post(large, work(0, BUDGET_BYTES // 2))
    for _ in range(0, 2 * FRAME_WAIT_MAX_MS, 50):
        flood()
    assert [replies(small), replies(large)] == [1, 1]


def test_nobody_is_closed_while_nobody_waits(network: FakeNetwork) -> None:
    slow = network.connect()
    rest = unfinished(slow, FRAME_BYTES_MAX - 100, missing=100)
    turns(network, 100)
    later(network, 4 * PATIENCE_MS)
    post(slow, rest)
    turns(network)
    assert replies(slow) == 1


def shortage(network: FakeNetwork) -> tuple[FakeTransport, bytes, FakeTransport, Disk]:
    """A peer that may read on, the end of its frame, one that waits for the place, and what fills the rest."""
    disk = Disk(network, hold_the_request)
    while network.processor.budget.may_take(3 * MB, is_large=False):
        post(network.connect("10.0.0.9"), frame(bytes(MB), PRODUCE_KEY))
        turns(network, 10)
    reading, waiting = network.connect(), network.connect()
    rest = unfinished(reading, 1_800_000, missing=100_000)
    turns(network)
    assert reading.is_reading
    post(waiting, work(0, 1_800_000))
    turns(network)
    assert not waiting.is_reading
    return reading, rest, waiting, disk


def test_peer_that_does_not_finish_its_frame_in_a_shortage_is_closed_and_the_next_may_read_on(
    network: FakeNetwork,
) -> None:
    reading, _, waiting, _ = shortage(network)
    later(network, PATIENCE_MS)
    assert reading.closing
    assert replies(waiting) == 1


def test_peer_may_take_its_time_again_once_the_shortage_is_over(network: FakeNetwork) -> None:
    reading, rest, waiting, disk = shortage(network)
    disk.write(len(disk.waiting))
    turns(network)
    assert replies(waiting) == 1
    later(network, 2 * PATIENCE_MS)
    post(reading, rest)
    turns(network)
    assert replies(reading) == 1


def test_peer_that_brings_enough_is_not_closed_however_long_its_frame_takes(network: FakeNetwork) -> None:
    reading, rest, waiting, _ = shortage(network)
    piece = receive_budget.SLOW_FRAME_BYTES_PER_S // 20 + 1
    assert len(rest) > 20 * piece
    for start in range(0, len(rest), piece):
        post(reading, rest[start : start + piece])
        later(network, 50)
    turns(network)
    assert not reading.closing
    assert [replies(reading), replies(waiting)] == [1, 1]


def test_who_waits_for_room_is_not_closed(network: FakeNetwork) -> None:
    _, _, waiting, disk = shortage(network)
    others = [network.connect() for _ in range(5)]
    for client in others:
        post(client, work(0, 1_500_000))
    later(network, 3 * PATIENCE_MS)
    assert not waiting.closing
    assert not any(client.closing for client in others)
    disk.write(len(disk.waiting))
    turns(network, 100)
    assert [replies(client) for client in others] == [1] * len(others)


def test_loop_that_was_held_closes_nobody_for_what_it_has_not_read(network: FakeNetwork) -> None:
    reading, rest, _, _ = shortage(network)
    later(network, limits.SLOW_FRAME_MS - 2 * limits.SHORTAGE_LOOK_MS)
    network.world.clock.pass_ns(10_000_000_000)
    network.world.turn()
    assert not reading.closing
    post(reading, rest)
    turns(network)
    assert replies(reading) == 1


def test_whole_frame_that_waits_for_its_turn_closes_nobody_and_lets_the_next_read_on(network: FakeNetwork) -> None:
    parked = Parked()
    network.serve(lambda _ctx, _request: parked, api_key=1)
    reading, rest, waiting, _ = shortage(network)
    behind = network.connect()
    post(behind, frame(b"", api_key=1))
    turns(network, 3)
    post(behind, work(0, 10_000))
    post(reading, rest)
    turns(network)
    assert replies(reading) == 1
    assert replies(waiting) == 1, "it was its turn"
    later(network, 2 * PATIENCE_MS)
    assert not behind.closing
    parked.complete(b"")
    later(network, 50)
    assert replies(behind) == 2


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_every_frame_is_served_and_every_byte_given_back_whatever_comes_in_which_pieces(data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        network = make_network(patch)
        disk = Disk(network, hold_the_request)
        sizes = st.sampled_from([4, 10_000, 60_000, 200_000, MB, LARGE, 8 * MB])
        clients = [network.connect(f"10.0.0.{number % 3}") for number in range(data.draw(st.integers(1, 12)))]
        asked = []
        for client in clients:
            frames = [
                frame(bytes(size), PRODUCE_KEY if data.draw(st.booleans()) else 3)
                for size in data.draw(st.lists(sizes, max_size=4))
            ]
            asked.append(len(frames))
            sent = b"".join(frames)
            cut = data.draw(st.integers(0, len(sent)))
            post(client, sent[:cut])
            post(client, sent[cut:])
        for _ in range(300):
            turns(network, 5)
            if data.draw(st.booleans()):
                disk.write(data.draw(st.integers(0, 3)))
            if all(replies(client) >= count for client, count in zip(clients, asked, strict=True)):
                break
        while disk.waiting:
            disk.write(1)
            turns(network, 20)
        turns(network, 300)
        assert [replies(client) for client in clients] == asked
        assert network.processor.budget.bytes_counted == receive_budget.RECEIVE_BUFFER_BYTES
