"""What a burst has left free in the heap goes back to the system once there is time for it."""

from __future__ import annotations

import socket
import ssl
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
from harness.pybroker_process import COMMAND, serving
from harness.virtual_world import VirtualClock
from harness.waiting import wait_until

from pybroker.net.heap_trim import HEAP_TRIM_BYTES, QUIET_PERCENT, HeapTrim, heap_trim
from tests.certificates import Authority

MB = 1 << 20
LOOK_MS = 2_000
HALF_OPEN = 300  # each takes 40 KB while it stands


class FakeHeap:
    """A heap of so many bytes in use, resident besides, and free."""

    def __init__(self) -> None:
        self.used = 30 * MB
        self.free = self.free_resident = 0
        self.given_back: list[int] = []

    def burst(self, size: int) -> None:
        """So much is taken; what is free comes first."""
        taken = min(size, self.free)
        self.free -= taken
        self.free_resident -= min(taken, self.free_resident)
        self.used += size

    def over(self, size: int) -> None:
        """So much is freed."""
        self.used -= size
        self.free += size
        self.free_resident += size

    def resident_bytes(self) -> int:
        return self.used + self.free_resident

    def free_bytes(self) -> int:
        return self.free

    def give_back(self) -> None:
        self.given_back.append(self.free_resident)
        self.free_resident = 0


class Looked:
    """A HeapTrim whose time a test drives."""

    def __init__(self) -> None:
        self.heap, self._clock, self._busy_ns = FakeHeap(), VirtualClock(), 0
        self._memory = HeapTrim(self._clock, self.heap, lambda: self._busy_ns)

    def look(self, busy_percent: int = 0) -> list[int]:
        """The next look, after a time of which the process has used a part; what was given back in all."""
        self._clock.pass_ms(LOOK_MS)
        self._busy_ns += LOOK_MS * 10_000 * busy_percent
        self._memory.look()
        return self.heap.given_back


@pytest.fixture
def looked() -> Looked:
    return Looked()


def test_what_a_burst_has_freed_is_given_back_once(looked: Looked) -> None:
    looked.heap.burst(200 * MB)
    looked.heap.over(200 * MB)
    assert looked.look() == [200 * MB]
    assert looked.look() == [200 * MB]


def test_what_is_in_use_is_not_looked_for_again_and_again(looked: Looked) -> None:
    looked.heap.burst(200 * MB)
    assert looked.look() == []
    looked.heap.over(200 * MB)
    assert looked.look() == [200 * MB], "and goes back when it is freed"


@pytest.mark.parametrize("is_seen", [False, True])
def test_a_burst_that_takes_what_was_given_back_before_is_given_back_too(looked: Looked, is_seen: bool) -> None:
    for _ in range(3):
        looked.heap.burst(100 * MB)
        if is_seen:
            looked.look()
        looked.heap.over(100 * MB)
        looked.look()
    assert looked.heap.given_back == [100 * MB] * 3


def test_a_busy_process_keeps_what_it_may_need_again(looked: Looked) -> None:
    looked.heap.burst(200 * MB)
    looked.heap.over(200 * MB)
    assert looked.look(busy_percent=QUIET_PERCENT) == []
    assert looked.look(busy_percent=QUIET_PERCENT - 1) == [200 * MB]


def test_little_is_left_where_it_is(looked: Looked) -> None:
    looked.heap.burst(HEAP_TRIM_BYTES)
    looked.heap.over(HEAP_TRIM_BYTES - 1)
    assert looked.look() == []


def test_the_memory_of_another_ones_process_is_left_alone() -> None:
    assert heap_trim(VirtualClock(), own_process=False) is None


# --- a real process --------------------------------------------------------------------------------------------------


def hello() -> bytes:
    outgoing = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


def half_a_frame() -> bytes:
    return (100_000).to_bytes(4, "big") + bytes(20_000)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's heap alone gives memory back")
@pytest.mark.parametrize(("protocol", "said"), [("SSL", hello), ("PLAINTEXT", half_a_frame)], ids=["TLS", "a frame"])
def test_memory_of_what_was_half_open_comes_back(tmp_path: Path, protocol: str, said: Callable[[], bytes]) -> None:
    if heap_trim(VirtualClock(), own_process=True) is None:
        pytest.skip("this C library gives nothing back")
    keys = Authority(tmp_path).pem("broker")
    settings: list[str | Path] = ["--set", "ssl.keystore.type=PEM", "--set", f"ssl.keystore.location={keys}"]
    settings += ["--data-dir", tmp_path / "data", "--listen", f"{protocol}://127.0.0.1:0"]
    with serving([COMMAND, "serve", *settings]) as process, ExitStack() as stack:
        memory, bytes_said = psutil.Process(process.process.pid).memory_info, said()

        def half_open() -> socket.socket:
            stranger = stack.enter_context(socket.create_connection((process.host, process.port)))
            stranger.sendall(bytes_said)
            return stranger

        half_open().close()
        before = memory().rss
        for _ in range(HALF_OPEN):
            half_open()
        wait_until(lambda: memory().rss > before * 1.2, "all are half open", 60)
        stack.close()
        wait_until(lambda: memory().rss < before * 1.2, "their memory comes back", 60)
