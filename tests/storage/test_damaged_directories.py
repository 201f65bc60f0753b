"""Any damage to a partition's directory: a start either brings up a sound log or says why not, and never hangs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from harness.virtual_world import VirtualWorld
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pybroker.storage.results import StorageError
from tests.storage.logs import Client, Storage, read_all


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with several segments, producers and an aborted transaction."""
    path = tmp_path_factory.mktemp("template") / "data"
    storage = Storage(path, VirtualWorld())
    log = storage.log()
    client = Client(log)
    for sequence in range(30):
        client.send(values=[bytes(400)], producer_id=1, producer_epoch=0, sequence=sequence)
    client.send(attributes=0x10, producer_id=2, producer_epoch=0, sequence=0)
    assert Client(log).end(2, 0, commit=False).error_code == 0
    client.fill(10)
    log.update_high_watermark(42)
    storage.close()
    return path


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), clean=st.booleans())
def test_any_damage_leaves_a_sound_log_or_an_error(
    template: Path, tmp_path: Path, data: st.DataObject, clean: bool
) -> None:
    path = tmp_path / "data"
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(template, path)
    if not clean:
        # Nothing counts as synced: everything is looked at.
        (path / ".kafka_cleanshutdown").unlink()
        (path / "recovery-point-offset-checkpoint").unlink()
    files = sorted(file for file in (path / "t-0").iterdir())
    for _ in range(data.draw(st.integers(1, 3))):
        file = data.draw(st.sampled_from(files))
        content = bytearray(file.read_bytes()) if file.exists() else bytearray()
        kind = data.draw(st.sampled_from(["cut", "flip", "grow", "remove"]))
        if kind == "remove":
            file.unlink(missing_ok=True)
            continue
        if kind == "cut":
            del content[data.draw(st.integers(0, len(content))) :]
        elif kind == "grow":
            content += data.draw(st.binary(min_size=1, max_size=200))
        elif content:
            content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        file.write_bytes(content)
    world = VirtualWorld()
    try:
        storage = Storage(path, world)
    except StorageError:
        return
    try:
        log = storage.log()
        end_offset = log.log_end_offset
        if storage.all_failed:
            return
        assert 0 <= log.log_start_offset <= end_offset
        result = Client(log, leader_epoch=9).send_now(values=[b"after"])
        assert (result.error_code, result.base_offset) == (0, end_offset)
        if not clean:
            assert [base for base, _, _ in read_all(log)][-1:] == [end_offset]
        log.offset_for_timestamp(0)
        log.offset_of_max_timestamp()
        log.update_high_watermark(end_offset)
        log.apply_retention()
    finally:
        storage.kill()
