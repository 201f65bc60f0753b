"""Kill -9 under load: nothing acknowledged is missing, and no offset is ever served with two contents."""

from __future__ import annotations

import random
import struct
import threading
from pathlib import Path

import pytest
from harness.batches import batch
from harness.pybroker_process import PybrokerProcess

from pybroker_protocol.record_codec import decode_records
from pybroker_protocol.records import batches
from tests.broker.wire_client import WireClient, produce_request

TOPIC = "crash"
PARTITIONS = 3
ROUNDS = 50
IN_FLIGHT = 5
SMALL, LARGE = 100, 300_000  # the loop writes the small ones, the log dir's writer thread the large ones


class Writer(threading.Thread):
    """Produces numbered records to one partition, several in flight, until its connection breaks."""

    def __init__(self, address: tuple[str, int], partition: int, seed: int, first_number: int) -> None:
        super().__init__(name=f"crash-writer-{partition}")
        self.partition = partition
        self.next_number = first_number
        self.acknowledged: dict[int, bytes] = {}  # offset -> value
        self._address = address
        self._random = random.Random(seed)

    def run(self) -> None:
        try:
            with WireClient(self._address) as client:
                waiting: list[list[bytes]] = []
                while True:
                    while len(waiting) < IN_FLIGHT:
                        values = self._values()
                        client.send(produce_request(TOPIC, batch(*values), self.partition), 9)
                        waiting.append(values)
                    if not self._acknowledge(client, waiting.pop(0)):
                        return
        except OSError:
            return

    def _values(self) -> list[bytes]:
        count = self._random.choice((1, 1, 1, 4))
        size = LARGE if self._random.random() < 0.03 else SMALL
        values = []
        for _ in range(count):
            values.append(struct.pack(">iq", self.partition, self.next_number) + bytes(size))
            self.next_number += 1
        return values

    def _acknowledge(self, client: WireClient, values: list[bytes]) -> bool:
        response = client.receive()
        if response is None:
            return False
        reply = response.responses[0].partition_responses[0]
        if reply.error_code == 0:
            for index, value in enumerate(values):
                self.acknowledged[reply.base_offset + index] = value
        return True


def read_all(address: tuple[str, int], partition: int) -> dict[int, bytes]:
    """Every record of the partition by its offset; offsets must grow by one."""
    found: dict[int, bytes] = {}
    with WireClient(address) as client:
        offset = 0
        while True:
            data = client.fetch(TOPIC, offset, partition=partition, partition_max_bytes=16 << 20, max_bytes=16 << 20)
            answer = data.responses[0].partitions[0]
            assert answer.error_code == 0
            view = memoryview(answer.records or b"")
            if not view:
                assert offset == answer.high_watermark
                return found
            for position, header in batches(view):
                assert header.base_offset == offset
                for record in decode_records(view[position : position + header.size_bytes]):
                    assert record.value is not None
                    found[record.offset] = bytes(record.value)
                offset = header.base_offset + header.last_offset_delta + 1


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_fifty_kills_under_load_lose_nothing_acknowledged_and_serve_no_offset_twice(tmp_path: Path) -> None:
    chance = random.Random(2024)
    settings = {"num.partitions": str(PARTITIONS), "log.segment.bytes": str(2 << 20)}
    broker = PybrokerProcess(tmp_path / "broker", settings)
    acknowledged: list[dict[int, bytes]] = [{} for _ in range(PARTITIONS)]
    seen: list[dict[int, bytes]] = [{} for _ in range(PARTITIONS)]
    numbers = [0] * PARTITIONS
    try:
        for round_number in range(ROUNDS):
            broker.start()
            address = (broker.host, broker.port)
            for partition in range(PARTITIONS):
                if round_number:
                    check(acknowledged[partition], seen[partition], read_all(address, partition))
            writers = [
                Writer(address, partition, chance.randrange(1 << 30), numbers[partition])
                for partition in range(PARTITIONS)
            ]
            if not round_number:
                create(address)
            for writer in writers:
                writer.start()
            writers[0].join(chance.uniform(0.01, 0.25))  # they end only by the kill
            broker.kill()
            for writer in writers:
                writer.join()
                acknowledged[writer.partition].update(writer.acknowledged)
                numbers[writer.partition] = writer.next_number
        assert sum(map(len, acknowledged)) > ROUNDS, "the load never got anywhere"
    finally:
        broker.kill()


def create(address: tuple[str, int]) -> None:
    with WireClient(address) as client:
        client.create_topic(TOPIC)


def check(acknowledged: dict[int, bytes], seen: dict[int, bytes], found: dict[int, bytes]) -> None:
    missing = [offset for offset, value in acknowledged.items() if found.get(offset) != value]
    assert not missing, f"acknowledged, but missing or changed: {missing[:5]} (of {len(missing)})"
    changed = [offset for offset, value in seen.items() if found.get(offset) != value]
    assert not changed, f"served before with other contents: {changed[:5]} (of {len(changed)})"
    seen.update(found)
