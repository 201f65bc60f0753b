"""100,000 mutated frames of real clients at a running broker: it answers or closes, and serves everybody else."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.batches import batch
from harness.pybroker_process import PybrokerProcess
from harness.sockets import connect
from harness.waiting import PATIENCE_S
from harness.wire import request_frame

from pybroker.apis import APIS
from pybroker_protocol import messages
from tests.broker.wire_client import WireClient
from tests.protocol.random_messages import random_message

FRAMES = 100_000
ANSWER_TIMEOUT_S = 0.003  # parked and acks=0 requests give no sign: then the connection is left
MEMORY_GROWTH_MAX = 160 << 20
GOLDEN_FRAMES = Path(__file__).parents[1] / "protocol" / "golden_frames.txt"
BYTES = (0, 1, 2, 3, 5, 8, 13, 45, 97, 122, 127)  # most of a frame is text and small numbers
BOUNDARIES = (0, 1, -1, 2, 127, 128, 255, 32_767, 65_535, (1 << 31) - 1, -(1 << 31), 1_000_001)


def real_frames() -> list[bytes]:
    """What stock clients sent to Apache Kafka, for the APIs that are served."""
    served = {api.key for api in APIS}
    frames = []
    for line in GOLDEN_FRAMES.read_text().splitlines():
        if line.startswith("#") or not line.strip():
            continue
        name, _, data = line.split()
        frame = bytes.fromhex(data)
        if name.endswith("Request") and int.from_bytes(frame[:2], "big") in served:
            frames.append(frame)
    assert len(frames) > 50
    return frames


def made_frames(chance: random.Random) -> Iterator[bytes]:
    """Valid requests with random contents, of every served API and version."""
    for api in APIS:
        cls = messages.request_class(api.key)
        for version in range(api.versions[0], api.versions[1] + 1):
            yield request_frame(random_message(chance, cls, version), version, correlation_id=7)[4:]


def mutated(chance: random.Random, frame: bytes, corpus: list[bytes]) -> bytes:
    """Mostly changes that keep the length and spare the header, so that what decodes reaches the handlers."""
    data = bytearray(frame)
    for _ in range(chance.choice((1, 1, 1, 1, 2, 4))):
        first = 0 if chance.random() < 0.1 else min(8, len(data) - 1)
        position = chance.randrange(first, len(data)) if data else 0
        match chance.choice((0, 0, 0, 0, 3, 3, 3, 4, 4, 1, 2, 5, 6)):
            case 0:
                data[position : position + 1] = bytes(
                    [chance.choice(BYTES) if chance.random() < 0.8 else chance.randrange(256)]
                )
            case 1:
                del data[position:]
            case 2:
                data[position:position] = chance.randbytes(chance.randrange(1, 9))
            case 3:
                value = chance.choice(BOUNDARIES)
                data[position : position + 4] = struct.pack(">i", value)
            case 4:
                data[position : position + 2] = struct.pack(">H", chance.choice((0, 1, 0x7FFF, 0x8000, 0xFFFF)))
            case 5:
                other = chance.choice(corpus)
                data[position:] = other[chance.randrange(len(other)) :]
            case 6:
                del data[position : position + chance.randrange(1, 9)]
    return bytes(data)


def anonymous_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) * 1024


def throw(address: tuple[str, int], frames: Iterator[bytes]) -> None:
    """Send each frame and wait for a sign; a connection lasts until the broker closes it or keeps silent."""
    connection: socket.socket | None = None
    for frame in frames:
        if connection is None:
            connection = connect(address, 15)
        try:
            connection.settimeout(PATIENCE_S)
            connection.sendall(struct.pack(">i", len(frame)) + frame)
            connection.settimeout(ANSWER_TIMEOUT_S)
            alive = connection.recv(1 << 20) != b""
        except (TimeoutError, ConnectionResetError, BrokenPipeError):
            alive = False
        if not alive:
            connection.close()
            connection = None
    if connection is not None:
        connection.close()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [1])
def test_hundred_thousand_mutated_frames_leave_the_broker_serving(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    corpus = real_frames() + list(made_frames(chance))
    with PybrokerProcess(tmp_path / "broker", arguments=["--dev"]) as broker:
        address = (broker.host, broker.port)
        throw(address, iter(corpus))  # warm: every handler is loaded
        before = anonymous_bytes(broker.pid)
        throw(address, (mutated(chance, chance.choice(corpus), corpus) for _ in range(FRAMES)))
        growth = anonymous_bytes(broker.pid) - before
        with WireClient(address) as client:
            client.create_topic("after")
            assert client.produce("after", batch(b"still here")).base_offset == 0
            assert client.fetch("after", 0).responses[0].partitions[0].records
        log = broker.log_path.read_text(errors="replace")
    failures = [line for line in log.splitlines() if " ERROR " in line or line.startswith("Traceback")]
    assert not failures, failures[:5]
    assert growth < MEMORY_GROWTH_MAX, f"the broker grew by {growth >> 20} MiB"
