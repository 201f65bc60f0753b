"""The simulated network: connections by address, of simulated clients to brokers and of brokers to each other.

Owns: who listens where; when bytes arrive, in which pieces, and whether; broken connections, of which the two ends
learn at different times; directions between two hosts that carry nothing for a while.  Owns no choice of what goes
wrong when (``faults``).

The model is TCP's.  Bytes of one connection and direction arrive in order; connections overtake each other.  A
direction that is cut loses nothing: what was sent is held, and arrives when it is whole again; so is the news of an
end.  A process that is stopped has its bytes wait for it.  A process that died has its ends closed by its kernel; a
machine that lost its power tells nobody, and who sends to it hears of that once it is up again.

What an end hands to its transport is copied at its arrival only, so that a buffer that changes after it was handed over
shows as a damaged reply.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tests.simulation.datagrams import DatagramEnd
from tests.simulation.scheduler import Life, Scheduler

if TYPE_CHECKING:
    from tests.simulation.processes import Process

LATENCY_US = (50, 3_000)
SLOW_LATENCY_US = (1_000, 400_000)
CONNECT_AGAIN_US = 1_000_000  # a kernel's first repetition of a SYN
CONNECT_TIMEOUT_US = 127_000_000  # Linux gives up then
RETRANSMISSION_US = (1_000, 200_000)  # how late bytes come that were held
FIRST_FREE_PORT = 20_000
CLIENT_NETWORK = "10.0.3."
CLIENTS = "clients"  # all hosts of simulated clients, for ``cut``

Address = tuple[str, int]
Factory = Callable[[], Any]


class End(asyncio.Transport):
    """One end of a connection: the transport of its protocol, and the kernel's side of it."""

    def __init__(self, link: Link, host: str, life: Life | None) -> None:
        super().__init__()
        self.host = host
        self.life = life
        self.protocol: Any = None  # until the connection is accepted
        self.peer: End  # set by the link
        self.reading = True
        self.closing = False
        self.lost = False  # its protocol knows, or is no more
        self.gone = False  # nothing is left of it: its machine lost power
        self.has_sent_in_vain = False  # to an end that is gone
        self.held: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()  # arrives when the way to it is whole
        self.unsent_bytes = 0
        self._link = link
        self._inbox: deque[bytes] = deque()
        self._last_arrival_us = 0  # when what was sent last arrives at the peer
        self._high = 64 << 10
        self._writing_paused = False

    # --- the transport -----------------------------------------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "peername":
            return self.peer.host, 50_000
        return (self.host, 50_000) if name == "sockname" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = high or self._high

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def write(self, data: Any) -> None:
        self.writelines([data])

    def writelines(self, list_of_data: Any) -> None:
        if self.closing:
            return
        parts = list(list_of_data)
        size = sum(map(len, parts))
        self.unsent_bytes += size
        self._send(self.peer.receive, parts, size)
        if self.unsent_bytes > self._high and not self._writing_paused and self.life is not None:
            self._writing_paused = True
            self.protocol.pause_writing()

    def is_closing(self) -> bool:
        return self.closing

    def is_reading(self) -> bool:
        return self.reading

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True
        self.read_on()

    def close(self) -> None:
        """What was written arrives before the peer hears of the end."""
        if not self.closing:
            self.closing = True
            self._link.scheduler.soon(self.life, self.lose)
            self._send(self.peer.lose)

    def abort(self) -> None:
        self.close()

    def hang_up(self) -> None:
        """The process has closed without a word: what is on its way to the peer may be lost."""
        self.closing = self.lost = True
        self._link.network.forget_if_over(self._link)
        self.tell_of_a_break()

    # --- on the way to the peer --------------------------------------------------------------------------------------

    @property
    def _latency_us(self) -> int:
        return self._link.network.latency_us(self._link.random)

    def takes_us(self) -> int:
        """How long what is sent now takes, behind what was sent before."""
        now_us = self._link.scheduler.now_us
        self._last_arrival_us = max(self._last_arrival_us, now_us + self._latency_us)
        return self._last_arrival_us - now_us

    def _send(self, arrive: Callable[..., None], *args: Any) -> None:
        self.peer.on_its_way(self.takes_us(), arrive, *args)
        if self.peer.gone:
            self.has_sent_in_vain = True
            self._link.network.hear_of_the_dead(self)

    def on_its_way(self, delay_us: int, arrive: Callable[..., None], *args: Any) -> None:
        """Something arrives here, unless the way is cut then."""
        self._link.scheduler.after(delay_us, self.life, self._arrives, arrive, args)

    def _arrives(self, arrive: Callable[..., None], args: tuple[Any, ...]) -> None:
        if self.held or self._link.network.is_cut(self.peer.host, self.host):
            self.held.append((arrive, args))
        else:
            arrive(*args)

    def deliver_held(self) -> None:
        """The way is whole again."""
        while self.held and not self._link.network.is_cut(self.peer.host, self.host):
            arrive, args = self.held.popleft()
            arrive(*args)

    def tell_of_a_break(self) -> None:
        """The peer hears of an end that nobody prepared: in order, or before what was sent last has arrived."""
        random, now_us = self._link.random, self._link.scheduler.now_us
        delay_us = max(self._last_arrival_us - now_us, 0) + 500 if random.random() < 0.6 else 0
        delay_us += random.choice((0, 1_000, 300_000))
        self.peer.on_its_way(delay_us, self.peer.lose)

    def tell_of_the_death(self) -> None:
        """The process is gone; its kernel may still send what was handed to it."""
        now_us = self._link.scheduler.now_us
        sent_us = max(self._last_arrival_us - now_us, 0) if self._link.random.random() < 0.5 else 0
        self.peer.on_its_way(sent_us + self._latency_us, self.peer.lose)

    # --- what arrives ------------------------------------------------------------------------------------------------

    def accept(self, address: Address, factory: Factory) -> None:
        """The process takes the connection, unless it has closed its socket meanwhile."""
        if self.lost:
            return
        if address not in self._link.network.listeners:
            self.lost = True
            self.tell_of_the_death()
            return
        self.protocol = factory()
        self.protocol.connection_made(self)

    def receive(self, parts: list[Any], size: int) -> None:
        """Bytes have arrived; their sender may write on."""
        data = b"".join(parts)
        parts.clear()
        if self.peer.life is not None:
            self._link.scheduler.after(0, self.peer.life, self.peer.sent, size)
        if not self.lost:
            self._inbox.append(data)
            self.read_on()

    def read_on(self) -> None:
        """Let the protocol read what has arrived."""
        while self._inbox and self.reading and not self.closing:
            data = self._inbox.popleft()
            if isinstance(self.protocol, asyncio.BufferedProtocol):
                self._read_into_buffer(data)
            else:
                self.protocol.data_received(data)

    def _read_into_buffer(self, data: bytes) -> None:
        random = self._link.random
        if random.random() < 0.1 and len(data) > 1:
            cut = random.randrange(1, len(data))
            self._inbox.appendleft(data[cut:])
            data = data[:cut]
        buffer = self.protocol.get_buffer(-1)
        count = min(len(buffer), len(data))
        buffer[:count] = data[:count]
        if count < len(data):
            self._inbox.appendleft(data[count:])
        self.protocol.buffer_updated(count)

    def sent(self, size: int) -> None:
        """Bytes have left: the protocol may write on."""
        self.unsent_bytes -= size
        if self._writing_paused and self.unsent_bytes <= self._high // 4 and not self.closing:
            self._writing_paused = False
            self.protocol.resume_writing()

    def lose(self) -> None:
        """The connection has ended, as far as this end is told."""
        if not self.lost:
            self.lost = self.closing = True
            self._inbox.clear()
            self._link.network.forget_if_over(self._link)
            if self.protocol is not None:
                self.protocol.connection_lost(None)


class Link:
    """One connection; ``ends[0]`` is that of who connected."""

    def __init__(self, network: Network, near: tuple[str, Life | None], far: tuple[str, Life | None]) -> None:
        self.network = network
        self.scheduler = network.scheduler
        self.random = Random(network.random.getrandbits(64))
        self.ends = End(self, *near), End(self, *far)
        self.ends[0].peer, self.ends[1].peer = self.ends[1], self.ends[0]

    def break_(self) -> None:
        """The network loses the connection: one end hears of it now, the other one later."""
        first = self.ends[0] if self.ends[0].life is None or self.random.random() < 0.5 else self.ends[1]
        self.scheduler.after(0, first.life, first.lose)
        first.tell_of_a_break()


class _ListeningServer:
    """What ``create_server`` gives: the part of ``asyncio.Server`` that the broker uses."""

    def __init__(self, network: Network, process: Process, factory: Factory, port: int) -> None:
        self._network = network
        self._factory = factory
        self._address = process.host, port
        self._life = process.life
        # Who connects before ``start_serving`` is refused here, though the kernel would have him wait.
        without_backlog = nullcontext(SimpleNamespace(listen=lambda _: None))
        address = self._address
        self.sockets = [
            SimpleNamespace(getsockname=lambda: address, setsockopt=lambda *_: None, dup=lambda: without_backlog)
        ]

    async def start_serving(self) -> None:
        assert self._life is not None
        self._network.listeners[self._address] = self._factory, self._life

    def close(self) -> None:
        self._network.listeners.pop(self._address, None)


class Network:
    """All connections, and who listens.  ``cuts`` has the directions (from, to) that carry nothing; "*" is any host."""

    def __init__(self, scheduler: Scheduler, random: Random) -> None:
        self.scheduler = scheduler
        self.random = random
        self.slow = False
        self.listeners: dict[Address, tuple[Factory, Life]] = {}
        self.cuts: set[tuple[str, str]] = set()
        self.down: set[str] = set()  # hosts without power
        self.datagram_ends: dict[Address, DatagramEnd] = {}
        self._links: dict[Link, None] = {}
        self._orphans: list[End] = []  # whose peer is gone without a word
        self._count = 0
        scheduler.network = self

    def latency_us(self, random: Random) -> int:
        low, high = SLOW_LATENCY_US if self.slow and random.random() < 0.3 else LATENCY_US
        return low + random._randbelow(high - low)  # type: ignore[attr-defined,no-any-return]  # as ``randrange``

    # --- listening and connecting ------------------------------------------------------------------------------------

    def server(self, process: Process, factory: Factory, port: int) -> _ListeningServer:
        """A server of a process, which accepts from its ``start_serving`` on."""
        self._count += 0 if port else 1
        return _ListeningServer(self, process, factory, port or FIRST_FREE_PORT + self._count)

    def connect(self, protocol: Any, address: Address) -> End | None:
        """A client's end of a new connection, or None when nobody listens.

        Where the host cannot be reached its bytes are held, or lost: the client's patience ends it.
        """
        listener = self.listeners.get(address)
        if listener is None and address[0] not in self.down:
            return None
        self._count += 1
        near: tuple[str, Life | None] = (f"{CLIENT_NETWORK}{self._count % 250 + 1}", None)
        return self._link(near, protocol, address, listener)

    def _link(
        self, near: tuple[str, Life | None], protocol: Any, address: Address, listener: tuple[Factory, Life] | None
    ) -> End:
        link = Link(self, near, (address[0], listener[1] if listener is not None else None))
        client, server = link.ends
        client.protocol = protocol
        if listener is None:
            server.gone = server.lost = True
            self._orphans.append(client)
        else:
            self._links[link] = None
            server.on_its_way(client.takes_us(), server.accept, address, listener[0])
        return client

    async def open_connection(self, life: Life, factory: Factory, address: Address) -> tuple[End, Any]:
        """``create_connection`` of a process: OSError when nobody listens, or nobody answers for two minutes."""
        assert life.process is not None
        here, there = life.process.host, address[0]
        opened: asyncio.Future[End] = self.scheduler.create_future()
        give_up_us = self.scheduler.now_us + CONNECT_TIMEOUT_US

        def probe() -> None:
            if opened.done():
                return
            if there in self.down or self.is_cut(here, there) or self.is_cut(there, here):
                if self.scheduler.now_us > give_up_us:
                    opened.set_exception(TimeoutError(f"{there} does not answer"))
                else:
                    self.scheduler.after(CONNECT_AGAIN_US, life, probe)
                return
            listener = self.listeners.get(address)
            if listener is None:
                opened.set_exception(ConnectionRefusedError(f"nobody listens at {there}:{address[1]}"))
                return
            opened.set_result(self._link((here, life), factory(), address, listener))

        self.scheduler.after(self.latency_us(self.random), life, probe)
        end = await opened
        end.protocol.connection_made(end)
        return end, end.protocol

    def open_datagrams(self, life: Life, factory: Callable[[], Any], port: int) -> tuple[DatagramEnd, Any]:
        """``create_datagram_endpoint`` of a process."""
        assert life.process is not None
        address, protocol = (life.process.host, port), factory()
        end = self.datagram_ends[address] = DatagramEnd(self, life, protocol, address)
        protocol.connection_made(end)
        return end, protocol

    # --- what goes wrong ---------------------------------------------------------------------------------------------

    def forget_if_over(self, link: Link) -> None:
        """Both ends know that it has ended."""
        near, far = link.ends
        if near.lost and far.lost:
            self._links.pop(link, None)
            self._orphans = [end for end in self._orphans if end is not near and end is not far]

    def break_one(self) -> bool:
        """Break a connection that chance picks."""
        links = [link for link in self._links if not any(end.lost for end in link.ends)]
        if links:
            self.random.choice(links).break_()
        return bool(links)

    def is_cut(self, source: str, target: str) -> bool:
        """Whether nothing goes that way now."""
        cuts = self.cuts
        if not cuts:
            return False
        source, target = (CLIENTS if host.startswith(CLIENT_NETWORK) else host for host in (source, target))
        return not cuts.isdisjoint(((source, target), (source, "*"), ("*", target)))

    def cut(self, source: str, target: str) -> None:
        """Nothing goes that way from now on; "*" is any other host."""
        self.cuts.add((source, target))

    def heal(self, source: str, target: str) -> None:
        """Undo ``cut``: what was held comes."""
        self.cuts.discard((source, target))
        self._deliver_held()

    def heal_all(self) -> None:
        self.cuts.clear()
        self._deliver_held()

    def _deliver_held(self) -> None:
        for link in list(self._links):
            for end in link.ends:
                if end.held and not self.is_cut(end.peer.host, end.host):
                    self.scheduler.after(self.random.randrange(*RETRANSMISSION_US), end.life, end.deliver_held)

    # --- ends of processes and machines ------------------------------------------------------------------------------

    def process_ended(self, life: Life, *, silently: bool = False) -> None:
        """All connections of a process are gone; ``silently``: with its machine, until ``powered``."""
        assert life.process is not None
        for address in [address for address, (_, listening) in self.listeners.items() if listening is life]:
            del self.listeners[address]
        if silently:
            self.down.add(life.process.host)
        for link in list(self._links):
            for end in link.ends:
                if end.life is life and not end.lost:
                    end.lost = True
                    self.forget_if_over(link)
                    if silently:
                        end.gone = True
                        self._orphans.append(end.peer)
                    else:
                        end.tell_of_the_death()

    def powered(self, host: str) -> None:
        """The machine is up again: whoever has sent to what it forgot hears of that."""
        self.down.discard(host)
        for end in list(self._orphans):
            if end.peer.host == host and end.has_sent_in_vain:
                self.hear_of_the_dead(end)

    def hear_of_the_dead(self, end: End) -> None:
        """An end has sent to one that is no more: its machine says so, if it is up."""
        if end in self._orphans and end.peer.host not in self.down:
            self._orphans.remove(end)
            end.on_its_way(self.latency_us(self.random), end.lose)
