"""librdkafka keeps its producer epoch, and writes nothing twice, where one batch of a pipeline is refused."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from harness.waiting import PATIENCE_S

from pybroker.replication.partition import Partition
from pybroker.storage.files import os_file
from pybroker.testing import Broker
from pybroker_protocol.errors import ErrorCode
from tests.simulation.model import read_directory

COUNT = 400
EVERY = 15  # so many looks at a rule, or small writes, from one refusal to the next


def refuse_by_the_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too few replicas are in sync, for a moment, again and again."""
    looks, judge = count(1), Partition._refusal

    def refusal(self: Partition, required_acks: int) -> int:
        # A fast path looks first, and what it does not take is looked at once more.
        return ErrorCode.NOT_ENOUGH_REPLICAS if next(looks) % EVERY < 2 else judge(self, required_acks)

    monkeypatch.setattr(Partition, "_refusal", refusal)


def refuse_by_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no room, for a moment, again and again."""
    writes, write = count(1), os_file.pwrite

    def pwrite(fd: int, data: Any, position: int) -> int:
        if os.readlink(f"/proc/self/fd/{fd}").endswith(".log") and next(writes) % EVERY < 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(fd, data, position)

    monkeypatch.setattr(os_file, "pwrite", pwrite)


@pytest.mark.parametrize("refuse", [refuse_by_the_leader, refuse_by_the_disk])
def test_a_refusal_in_the_middle_of_a_pipeline_costs_librdkafka_neither_its_epoch_nor_a_duplicate(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, refuse: Callable[[pytest.MonkeyPatch], None]
) -> None:
    failed: list[object] = []
    with Broker(data_dir=tmp_path) as broker:
        broker.create_topic("t")
        refuse(monkeypatch)
        settings = {"enable.idempotence": True, "linger.ms": 0, "batch.num.messages": 1, "retry.backoff.ms": 5}
        producer = Producer({"bootstrap.servers": broker.bootstrap, **settings})
        for number in range(COUNT):
            producer.produce("t", b"%d" % number, on_delivery=lambda error, _: failed.append(error) if error else None)
        assert producer.flush(PATIENCE_S) == 0
        monkeypatch.undo()
    batches = read_directory(tmp_path / "t-0")
    assert failed == []
    assert [int(value) for batch in batches for _, _, value in batch.records()] == list(range(COUNT))
    assert {batch.producer_epoch for batch in batches} == {0}
