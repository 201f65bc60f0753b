"""Whether a peer has hung up while nothing is read from it, or speaks something else altogether.

A loop notices the end of a stream by reading. While a whole request waits behind one that is being answered nothing is
read, and what the first one asks may take its time. So the kernel has to be asked.
"""

from __future__ import annotations

import select
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

# Linux tells of the end of a stream by an event of its own, others by that of a hang-up, which needs no asking for.
_END_OF_STREAM = getattr(select, "POLLRDHUP", 0)


def has_hung_up(transport: asyncio.Transport) -> bool:
    """Whether the peer sends nothing more, or is gone: either ends a connection that is read from."""
    sock = transport.get_extra_info("socket")
    if sock is None or sock.fileno() < 0:
        return False
    poll = select.poll()
    poll.register(sock.fileno(), _END_OF_STREAM)
    return bool(poll.poll(0))


def is_hello_of_tls(received: bytes | bytearray | memoryview) -> bool:
    """Whether these are the first bytes of a TLS client: a handshake record of any version."""
    return len(received) >= 3 and received[0] == 0x16 and received[1] == 0x03
