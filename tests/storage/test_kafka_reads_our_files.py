"""Apache Kafka's own DumpLogSegments over our segments, indexes and snapshots: clean, live, and after a kill."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.apache_kafka import JARS_DIRECTORY as JARS
from harness.virtual_world import VirtualWorld
from harness.waiting import PATIENCE_S

from pybroker.cli.records.log_files import read_producer_snapshot, read_transaction_index
from pybroker.storage.log.log import Log
from pybroker.storage.results import StorageError
from tests.storage.logs import Client, Storage

pytestmark = [
    pytest.mark.jvm,
    pytest.mark.skipif(not JARS.is_dir() or shutil.which("java") is None, reason="needs Java and Kafka's jars"),
]


def dump(files: list[Path], *options: str) -> str:
    """The output of DumpLogSegments."""
    command = ["java", "-Xmx128m", "-cp", f"{JARS}/*", "org.apache.kafka.tools.DumpLogSegments"]
    command += [*options, "--files", ",".join(map(str, files))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def files_of(log: Log, *suffixes: str) -> list[Path]:
    return sorted(path for path in log.path.iterdir() if path.suffix in suffixes)


def fill(storage: Storage, log: Log) -> None:
    """Batches of all sorts, over several segments."""
    client = Client(log)
    start = storage.world.clock.now_ms()
    for i in range(120):
        client.send(values=[b"%d" % i, bytes(1000)], timestamp=start + i)
    for sequence in range(4):
        client.send(values=[b"x"], producer_id=77, producer_epoch=1, sequence=sequence, timestamp=start + 500)
    client.send(values=[b"t"], attributes=0x10, producer_id=78, producer_epoch=0, sequence=0, timestamp=start + 600)
    assert Client(log).end(78, 0, commit=False).error_code == 0
    client.send(values=[b"g"] * 5, attributes=1, timestamp=start + 700)
    storage.world.run()


def assert_sound(output: str, batches: int) -> None:
    lowered = output.lower()
    for complaint in ("mismatch", "invalid", "corrupt", "exception", "non-consecutive", "error"):
        assert complaint not in lowered.replace("isvalid: true", ""), output
    assert output.count("baseOffset: ") == batches


@pytest.mark.parametrize("end", ["live", "clean", "killed"])
def test_dump_log_segments_finds_nothing_wrong(
    make_storage: Callable[..., Storage], world: VirtualWorld, end: str
) -> None:
    storage = make_storage()
    log = storage.log(internal_segment_bytes=30_000)
    fill(storage, log)
    if end == "clean":
        storage.close()
    elif end == "killed":
        storage.kill()
        log = make_storage().log(internal_segment_bytes=30_000)
        assert log.log_end_offset == 120 * 2 + 4 + 2 + 5
    segments = files_of(log, ".log")
    assert len(segments) > 3
    assert_sound(dump(segments, "--deep-iteration", "--print-data-log"), batches=127)
    indexes = dump(files_of(log, ".index", ".timeindex"))
    assert "offset:" in indexes
    assert "Found timestamp mismatch" not in indexes
    assert "Mismatch" not in indexes
    assert "Index offset and log offset" not in indexes
    sane = dump(files_of(log, ".index", ".timeindex"), "--index-sanity-check")
    assert sane.count("passed sanity check") == len(files_of(log, ".index", ".timeindex")), sane
    snapshots = dump(files_of(log, ".snapshot"))
    assert "producerId: 77" in snapshots or end == "live"
    aborted = dump(files_of(log, ".txnindex"))
    assert "producerId: 78 firstOffset: 244 lastOffset: 245 lastStableOffset: 246" in aborted


def test_dump_log_segments_reads_markers_and_open_transactions(storage: Storage) -> None:
    log = storage.log()
    client = Client(log)
    now = storage.world.clock.now_ms()
    for producer_id in (78, 79, 80):
        for sequence in range(2):
            client.send(attributes=0x10, producer_id=producer_id, producer_epoch=4, sequence=sequence, timestamp=now)
    assert client.end(78, 5, commit=True, coordinator_epoch=3, version=2).error_code == 0
    assert client.end(79, 5, commit=False, coordinator_epoch=3, version=2).error_code == 0
    storage.close()
    segments = dump(files_of(log, ".log"), "--deep-iteration", "--print-data-log")
    assert_sound(segments, batches=8)
    assert "endTxnMarker: COMMIT coordinatorEpoch: 3" in segments
    assert "endTxnMarker: ABORT coordinatorEpoch: 3" in segments
    aborted = dump(files_of(log, ".txnindex"))
    assert "producerId: 79 firstOffset: 2 lastOffset: 7 lastStableOffset: 4" in aborted
    producers = {
        line.split("producerId: ")[1].split()[0]: line
        for line in dump(files_of(log, ".snapshot")).splitlines()
        if "producerId: " in line
    }
    for name, epoch, coordinator_epoch in (("78", 5, 3), ("79", 5, 3), ("80", 4, -1)):
        assert f"producerEpoch: {epoch} " in producers[name]
        assert f"coordinatorEpoch: {coordinator_epoch} " in producers[name]
    assert "currentTxnFirstOffset: Optional[4]" in producers["80"].replace("OptionalLong", "Optional")
    assert "currentTxnFirstOffset: None" in producers["78"].replace("OptionalLong.empty", "None")
    ours = {entry["producer_id"]: entry for entry in read_producer_snapshot(files_of(log, ".snapshot")[-1])}
    assert 4 in ours[80].values()
    (entry,) = read_transaction_index(files_of(log, ".txnindex")[0])
    assert (entry["producer_id"], entry["first_offset"], entry["last_offset"]) == (79, 2, 7)


LOCKER = """
import java.nio.channels.*;
import java.nio.file.*;
public class Locker {
    public static void main(String[] args) throws Exception {
        var channel = FileChannel.open(Path.of(args[0]), StandardOpenOption.CREATE, StandardOpenOption.WRITE);
        System.out.println(channel.tryLock() == null ? "refused" : "locked");
        System.in.read();
    }
}
"""


def test_kafkas_file_lock_and_ours_exclude_each_other(make_storage: Callable[..., Storage], tmp_path: Path) -> None:
    source = tmp_path / "Locker.java"
    source.write_text(LOCKER)
    storage = make_storage()
    command = ["java", "-Xmx64m", str(source), str(storage.path / ".lock")]
    refused = subprocess.run(command, input="\n", capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert refused.stdout.strip() == "refused"
    storage.close()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as locker:
        assert locker.stdout is not None
        assert locker.stdout.readline().strip() == "locked"
        with pytest.raises(StorageError, match="is locked"):
            make_storage()
        locker.communicate("\n", timeout=PATIENCE_S)
