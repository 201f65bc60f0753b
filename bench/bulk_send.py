"""What a GB of a log costs to send over loopback, from its map and by ``sendfile``: ``python -m bench.bulk_send``.

A bulk fetch's reply is a header and resident pages of a segment.  Two ways send it, without a broker around them: one
vectored write from the map, and the header by ``send`` with ``MSG_MORE`` and the pages by ``os.sendfile``.  Both find
the socket full, wait until it takes more, and go on.  The figure is the sender's processor time, with what the kernel
does in its name; the reader only receives, and is not counted.

Owns: the measurement.  Which way the broker takes is ``pybroker/net/file_sender.py``'s.
"""

from __future__ import annotations

import argparse
import mmap
import os
import select
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Final

from bench.process_stats import cpu_seconds

GB: Final = 1_000_000_000
FILE_BYTES: Final = 512 << 20
HEADER: Final = bytes(100)
RECEIVED_AT_ONCE: Final = 1 << 20
PIECES: Final = (128 << 10, 1 << 20, 8 << 20)

Send = Callable[[socket.socket, int, mmap.mmap, int, int], None]


def by_map(sock: socket.socket, _file: int, pages: mmap.mmap, start: int, length: int) -> None:
    """One vectored write, gone on with where the socket is full."""
    header, body = memoryview(HEADER), memoryview(pages)[start : start + length]
    try:
        while header or body:
            try:
                sent = sock.sendmsg([header, body])
            except BlockingIOError:
                select.select([], [sock], [])
                continue
            header, sent = header[sent:], max(0, sent - len(header))
            rest = body[sent:]
            body.release()
            body = rest
    finally:
        body.release()


def by_sendfile(sock: socket.socket, file: int, _pages: mmap.mmap, start: int, length: int) -> None:
    """The header waits for the pages in the kernel, and the pages are not copied into it."""
    header, end = memoryview(HEADER), start + length
    while header or start < end:
        try:
            if header:
                header = header[sock.send(header, socket.MSG_MORE) :]
            else:
                start += os.sendfile(sock.fileno(), file, start, end - start)
        except BlockingIOError:
            select.select([], [sock], [])


WAYS: Final[dict[str, Send]] = {"map": by_map, "sendfile": by_sendfile}


def cost(path: Path, send: Send, piece: int, total: int) -> float:
    """Seconds of processor time per GB."""
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    if (reader := os.fork()) == 0:
        listener.close()
        _read_all(address)
        os._exit(0)
    sock, _ = listener.accept()
    sock.setblocking(False)
    with listener, sock, path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as pages:
        pages[:: mmap.PAGESIZE]  # each page is mapped before the time counts
        before = cpu_seconds(os.getpid())
        for number in range(total // piece):
            send(sock, file.fileno(), pages, number * piece % (FILE_BYTES - piece + 1), piece)
        used = cpu_seconds(os.getpid()) - before
    os.waitpid(reader, 0)
    return used / (total // piece * piece / GB)


def _read_all(address: tuple[str, int]) -> None:
    with socket.create_connection(address) as sock:
        buffer = bytearray(RECEIVED_AT_ONCE)
        while sock.recv_into(buffer):
            pass


def main() -> None:
    """Both ways in turn, for pieces of three sizes."""
    parser = argparse.ArgumentParser(prog="python -m bench.bulk_send", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="how often each way is measured")
    parser.add_argument("--gigabytes", type=float, default=4, help="how much is sent each time")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "segment"
        path.write_bytes(os.urandom(1 << 20) * (FILE_BYTES >> 20))
        for piece in PIECES:
            costs: dict[str, list[float]] = {way: [] for way in WAYS}
            for _ in range(arguments.rounds):
                for way, send in WAYS.items():
                    costs[way].append(cost(path, send, piece, int(arguments.gigabytes * GB)))
            told = ", ".join(
                f"{way} {median(each):.3f} ({min(each):.3f}–{max(each):.3f})" for way, each in costs.items()
            )
            print(f"pieces of {piece >> 10:,} KiB, s/GB: {told}")


if __name__ == "__main__":
    main()
