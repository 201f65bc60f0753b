"""A sealed segment that ends inside a batch: what is whole is served, the torn batch is corrupt, never its bytes.

After a clean stop nobody looks at sealed segments, so that a read is the first to notice.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from harness.virtual_world import VirtualWorld

from pybroker.storage.files.leader_epoch_cache import LEADER_EPOCH_CHECKPOINT
from pybroker.storage.files.segment import Segment
from pybroker.storage.log.cold_read import ColdRead
from pybroker.storage.results import CORRUPT_MESSAGE, NONE, ReadResult
from pybroker_protocol.records import HEADER_BYTES
from tests.storage.batches import parse
from tests.storage.logs import Client, Storage

MakeStorage = Callable[..., Storage]


def finish(world: VirtualWorld, result: ReadResult | ColdRead) -> ReadResult:
    if isinstance(result, ReadResult):
        return result
    done: list[ReadResult] = []
    result.start(done.append)
    world.run()
    return done[0]


@pytest.mark.parametrize("min_one_batch", [True, False])
@pytest.mark.parametrize("cold", [False, True])
@pytest.mark.parametrize("max_bytes", [1, 400, 1 << 20])
def test_torn_batch_of_a_sealed_segment_is_corrupt_and_all_before_it_is_served(
    make_storage: MakeStorage,
    world: VirtualWorld,
    monkeypatch: pytest.MonkeyPatch,
    max_bytes: int,
    cold: bool,
    min_one_batch: bool,
) -> None:
    storage = make_storage()
    log = storage.log()
    Client(log).fill(80)
    sealed = log.segments[1]
    end_offset = log.segments[2].base_offset
    with sealed.path().open("rb") as file:
        batches = parse(file.read())
    storage.close()
    size = sealed.path().stat().st_size
    if cold:
        monkeypatch.setattr(Segment, "is_warm", lambda *_: False)
    sizes = [len(piece) for _, _, piece in batches]
    for cut in range(1, sizes[-1] + sizes[-2] + 1, 7):
        os.truncate(sealed.path(), size - cut)
        whole = len(batches) - 1 - (cut > sizes[-1])
        if cut in {sizes[-1], sizes[-1] + sizes[-2]}:
            continue  # nothing is torn: a compacted segment may look so
        storage = make_storage()
        log = storage.log()
        for i, (base_offset, _, _) in enumerate(batches):
            found = finish(world, log.read(base_offset, max_bytes, log.log_end_offset, min_one_batch))
            served = parse(found.records)
            assert all(piece in batches[i:whole] for piece in served), (cut, base_offset)
            if i >= whole and (min_one_batch or max_bytes > sizes[-1] + sizes[-2]):
                assert found.error_code == CORRUPT_MESSAGE, (cut, base_offset)
            elif i < whole:
                assert found.error_code == NONE
                assert served or not min_one_batch
        after = finish(world, log.read(end_offset, max_bytes, log.log_end_offset, True))
        assert parse(after.records)[0][0] == end_offset
        assert not storage.all_failed
        storage.close()


def test_leader_epochs_are_made_anew_where_a_sealed_segment_ends_inside_a_batch(make_storage: MakeStorage) -> None:
    """Its index may name a batch whose header is not whole any more."""
    storage = make_storage()
    log = storage.log(index_interval_bytes=1)
    Client(log, leader_epoch=0).fill(40)
    Client(log, leader_epoch=2).fill(40)
    sealed, epochs = log.segments[-2], log.leader_epochs.entries
    last_indexed, _ = sealed.offset_index.last()
    checkpoint = log.path / LEADER_EPOCH_CHECKPOINT
    storage.close()
    for left in range(1, HEADER_BYTES + 1, 6):
        os.truncate(sealed.path(), last_indexed + left)
        checkpoint.unlink()
        storage = make_storage()
        assert storage.log().leader_epochs.entries == epochs, left
        assert not storage.all_failed
        storage.close()
