"""The compiled generators do what they say: on a real broker in small, and on servers that misbehave on purpose."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from harness.sockets import receive_frame

from bench import compiled, loads
from bench.compiled import program
from bench.contestants import FLOOR, topic
from bench.context import QUICK, Context
from bench.floor import TOPIC, Floor, reply
from bench.loads import Commit, Extent, Fetch, Latency, Outcome, Produce, commit_frame
from bench.parts.tiny import check_log
from bench.subprocesses import Generator
from bench.wire import OFFSET_COMMIT, VERSIONS, Client, record_batch
from pybroker.testing import Broker
from pybroker_protocol import codec
from pybroker_protocol.messages.offset_commit import OffsetCommitRequest

PARTITIONS = 12
SHORT = Extent(seconds=0.2, warmup_seconds=0.1)

pytestmark = pytest.mark.skipif(compiled.compiler() is None, reason="the load generators need a C compiler")


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with Broker() as broker:
        yield f"{broker.host}:{broker.port}"


@pytest.fixture
def name(bootstrap: str) -> Iterator[str]:
    """A topic of its own."""
    name = f"t-{random.randrange(1 << 60):x}"
    with Client(bootstrap) as client:
        client.create_topic(name, PARTITIONS)
    yield name
    with Client(bootstrap) as client:
        client.delete_topic(name)


def end_offsets(bootstrap: str, name: str) -> list[int]:
    with Client(bootstrap) as client:
        return list(client.end_offsets(name, range(PARTITIONS)).values())


def check_percentiles(outcome: Outcome) -> None:
    latency = outcome.latency
    assert 0 < latency.p50_us <= latency.p90_us <= latency.p99_us <= latency.p999_us <= latency.max_us


@pytest.mark.parametrize(
    ("records", "record_bytes", "connections", "in_flight"), [(1, 100, 1, 1), (1, 100, 3, 4), (3, 9_000, 2, 3)]
)
def test_log_holds_what_producers_say_was_acknowledged(
    bootstrap: str, name: str, records: int, record_bytes: int, connections: int, in_flight: int
) -> None:
    outcome = Produce(bootstrap, name, records, record_bytes, connections, in_flight, SHORT).run()
    assert 0 < outcome.requests < outcome.acknowledged == sum(outcome.by_connection)
    stored = [records * count for count in outcome.by_connection]
    assert end_offsets(bootstrap, name) == stored + [0] * (PARTITIONS - connections)
    check_percentiles(outcome)


def test_volume_counts_behind_the_warm_up(bootstrap: str, name: str) -> None:
    extent = Extent(seconds=30, warmup_seconds=0.2, requests=20)
    outcome = Produce(bootstrap, name, connections=2, extent=extent).run()
    assert 20 <= outcome.requests <= 22
    assert outcome.acknowledged > 2 * outcome.requests


def test_load_without_anything_to_measure_is_an_error(bootstrap: str, name: str) -> None:
    with pytest.raises(RuntimeError, match="after the warm-up"):
        Produce(bootstrap, name, extent=Extent(seconds=0, warmup_seconds=0.05)).run()


def test_refused_batch_ends_the_load(bootstrap: str) -> None:
    with pytest.raises(RuntimeError, match="produce: error 3 in a reply, partition 0"):
        Produce(bootstrap, "nowhere", extent=SHORT).run()


def test_refused_fetch_ends_the_load(bootstrap: str, name: str) -> None:
    with pytest.raises(RuntimeError, match=f"fetch: error 3 in a reply, partition {PARTITIONS}"):
        Fetch(bootstrap, name, PARTITIONS + 1, connections=PARTITIONS + 1, extent=SHORT).run()


def test_refused_commit_ends_the_load(bootstrap: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loads, "join", lambda *_: ("nobody", 7))
    with pytest.raises(RuntimeError, match="commit: error 69 in a reply, partition 0"):
        Commit(bootstrap, name, extent=SHORT).run()


@pytest.mark.parametrize(("connections", "in_flight"), [(1, 1), (3, 4)])
def test_committers_commit_as_often_as_they_say(bootstrap: str, name: str, connections: int, in_flight: int) -> None:
    extent = Extent(seconds=30, warmup_seconds=0, requests=40)
    # The load itself compares what the broker has with the number of each member's replies.
    outcome = Commit(bootstrap, name, connections, in_flight, extent).run()
    assert 40 <= outcome.requests == outcome.acknowledged <= 40 + connections * in_flight


def test_commit_s_counter_is_its_offset() -> None:
    request = commit_frame("g", ("m", 3), "t", 2)
    body = request[request.index(b"\x02g") :]
    decoded = codec.decode(OffsetCommitRequest, VERSIONS[OFFSET_COMMIT], body)
    assert (decoded.group_id, decoded.member_id, decoded.generation_id_or_member_epoch) == ("g", "m", 3)
    (partition,) = decoded.topics[0].partitions
    assert (partition.partition_index, partition.committed_offset) == (2, loads.MARK)
    assert request.count(loads.MARK.to_bytes(8)) == 1


@pytest.mark.parametrize("connections", [1, 3])
def test_fetch_reads_every_partition_once_and_whole(bootstrap: str, name: str, connections: int) -> None:
    batch = record_batch(10, 1_000)
    with Client(bootstrap) as client:
        for _ in range(3):
            client.produce(name, dict.fromkeys(range(PARTITIONS), batch))
    load = Fetch(bootstrap, name, PARTITIONS, connections, end_offset=30, is_endless=False, extent=Extent(30, 0))
    assert load.run().fetched_bytes == 3 * PARTITIONS * len(batch)
    # A limit of one batch: one comes at a time.
    one_each = replace(load, bytes_max=len(batch)).run()
    assert (one_each.requests, one_each.fetched_bytes) == (3 * PARTITIONS, 3 * PARTITIONS * len(batch))
    endless = replace(load, is_endless=True, extent=Extent(30, 0, requests=100)).run()
    assert 100 <= endless.requests <= 100 + connections


@pytest.mark.parametrize(("connections", "partitions", "consumers"), [(3, None, 1), (3, 11, 4), (11, 11, 11)])
def test_every_scheduled_record_is_acknowledged_and_consumed(
    bootstrap: str, name: str, connections: int, partitions: int | None, consumers: int
) -> None:
    times = Extent(seconds=0.5, warmup_seconds=0.25)
    load = Latency(
        bootstrap,
        name,
        200,
        connections,
        partitions,
        consumers,
        seconds=times.seconds,
        warmup_seconds=times.warmup_seconds,
    )
    outcome = load.run()
    assert outcome.requests == 100
    assert 0 < outcome.produce.p50_us <= outcome.produce.p99_us <= outcome.produce.max_us
    assert 0 < outcome.end_to_end.p50_us <= outcome.end_to_end.p99_us <= outcome.end_to_end.max_us
    # One record of each before the schedule, and 150 on it, to each partition in turn.
    count = load.partition_count
    assert end_offsets(bootstrap, name)[:count] == [1 + len(range(index, 150, count)) for index in range(count)]


def test_consumers_share_the_partitions_without_overlap() -> None:
    shares = list(Latency("nobody:9092", "t", 1, 2, 7, 3).shares())
    assert sorted(partition for share in shares for partition in share) == list(range(7))
    assert {len(share) for share in shares} == {2, 3}


Answer = Callable[[socket.socket, int], None]


@contextmanager
def server(answer: Answer) -> Iterator[str]:
    """A server that hands every request's connection, and its number, to ``answer``; an error there ends it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ended = threading.Event()

        def serve() -> None:
            while not ended.is_set():
                connection, _ = listener.accept()
                with connection:
                    number = 0
                    try:
                        while True:
                            receive_frame(connection)
                            answer(connection, number)
                            number += 1
                    except (EOFError, OSError):
                        pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        host, port = listener.getsockname()
        try:
            yield f"{host}:{port}"
        finally:
            ended.set()
            socket.create_connection((host, port)).close()
            thread.join()


def hang_up(connection: socket.socket, number: int) -> None:
    if number == 3:
        connection.close()
    else:
        connection.sendall(reply())


def cut_short(connection: socket.socket, number: int) -> None:
    shortened = reply()[4:-3] if number == 3 else reply()[4:]
    connection.sendall(len(shortened).to_bytes(4) + shortened)


def say_more(connection: socket.socket, number: int) -> None:
    lengthened = reply()[4:] + (b"\0" if number == 3 else b"")
    connection.sendall(len(lengthened).to_bytes(4) + lengthened)


def answer_twice(connection: socket.socket, number: int) -> None:
    connection.sendall(reply() * (1 + (number == 3)))


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (hang_up, "closed a connection with 1 requests in flight"),
        (cut_short, "a reply ends too early"),
        (say_more, "a reply is longer than what it says"),
        (answer_twice, "a reply that nobody asked for"),
    ],
)
def test_broker_that_does_not_answer_as_one_ends_the_load(answer: Answer, said: str) -> None:
    with server(answer) as bootstrap, pytest.raises(RuntimeError, match=said):
        Produce(bootstrap, TOPIC, extent=Extent(30, 0)).run()


def test_latency_counts_from_the_moment_that_the_schedule_names() -> None:
    """The generator itself is held up for 0.3 s: what was due meanwhile waited, though it was sent late."""
    children: list[int] = []

    def hold_up(connection: socket.socket, number: int) -> None:
        if number == 5:
            (child,) = children
            os.kill(child, signal.SIGSTOP)
            time.sleep(0.3)
            os.kill(child, signal.SIGCONT)
        connection.sendall(reply())

    class Watched(Generator):
        def __init__(self, command: Sequence[str], job: str) -> None:
            super().__init__(command, job)
            children.append(self._process.pid)

    with pytest.MonkeyPatch.context() as patch, server(hold_up) as bootstrap:
        patch.setattr(loads, "Generator", Watched)
        load = Latency(bootstrap, TOPIC, 100, connections=1, consumers=0, seconds=1, warmup_seconds=0)
        outcome = load.run()
    assert outcome.requests == 100
    assert outcome.produce.max_us > 290_000
    # Of a hundred requests every 10 ms, thirty were due while nothing was sent.
    assert outcome.produce.p90_us > 150_000
    assert outcome.end_to_end.max_us == 0


@pytest.mark.parametrize("in_flight", [1, 7])
def test_floor_stores_every_frame_and_answers_it(tmp_path: Path, in_flight: int) -> None:
    floor = Floor(tmp_path / "floor")
    with topic(floor, 3) as name:
        assert name == FLOOR
        load = Produce(floor.bootstrap, name, connections=3, in_flight=in_flight, extent=SHORT)
        outcome = load.run()
        assert outcome.acknowledged > 0
        check_log(floor, load, outcome)
        with pytest.raises(RuntimeError, match="in the log"):
            check_log(floor, load, replace(outcome, acknowledged=outcome.acknowledged + 1))
    assert not floor.data_directory.exists()


def test_run_without_the_floor_measures_brokers_only(tmp_path: Path) -> None:
    assert list(Context([], QUICK, tmp_path).with_floor({})) == []
    assert list(Context([], QUICK, tmp_path, has_floor=True).with_floor({})) == [FLOOR]


def told_percentiles(values: list[int]) -> dict[str, float]:
    """What the histogram says of some nanoseconds, in nanoseconds."""
    text = "\n".join(map(str, values))
    said = subprocess.run([program("percentiles")], input=text, capture_output=True, text=True, check=True).stdout
    return {name: told * 1e3 for name, told in json.loads(said).items()}


SHARES = {"p50_us": 0.5, "p90_us": 0.9, "p99_us": 0.99, "p999_us": 0.999}


@pytest.mark.parametrize(
    "values",
    [
        [5],
        list(range(1, 101)),
        [127, 128, 129, 255, 256, 257],
        [1] * 999 + [1_000_000_000],
        [round(random.Random(1).lognormvariate(12, 2)) for _ in range(20_000)],
        [1 << shift for shift in range(50)],
    ],
    ids=["one", "hundred", "edges", "outlier", "log-normal", "powers"],
)
def test_percentile_is_the_value_of_its_rank_or_up_to_a_hundredth_more(values: list[int]) -> None:
    ordered, told = sorted(values), told_percentiles(values)
    for name, share in SHARES.items():
        # The smallest value that so large a share does not exceed; in whole numbers, which round nothing.
        rank = -(-len(ordered) * round(share * 1000) // 1000)
        exact = ordered[rank - 1]
        assert exact <= told[name] + 0.5, name
        assert told[name] <= exact * (1 + 1 / 128) + 0.5, name
    assert told["max_us"] == pytest.approx(ordered[-1])


def test_histogram_of_nothing_says_nothing() -> None:
    assert set(told_percentiles([]).values()) == {0}


def test_program_is_compiled_once_and_again_when_its_source_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = tmp_path / "native"
    sources.mkdir()
    for path in compiled.SOURCES.glob("*.[ch]"):
        (sources / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(compiled, "SOURCES", sources)
    monkeypatch.setattr(compiled, "CACHE", tmp_path / "cache")
    first = program("percentiles")
    made_ns = first.stat().st_mtime_ns
    assert (program("percentiles"), first.stat().st_mtime_ns) == (first, made_ns)
    with (sources / "histogram.h").open("a") as header:
        header.write("/* another */\n")
    assert program("percentiles") != first
    (sources / "percentiles.c").write_text("int main(void) { return nothing; }\n")
    with pytest.raises(RuntimeError, match="nothing"):
        program("percentiles")
    monkeypatch.setenv("CC", "no-such-compiler")
    (sources / "percentiles.c").write_text("int main(void) { return 0; }\n")
    with pytest.raises(RuntimeError, match="please install gcc"):
        program("percentiles")


def test_every_program_compiles_without_a_warning() -> None:
    command = compiled.compiler()
    assert command is not None
    for path in sorted(compiled.SOURCES.glob("*.c")):
        checked = subprocess.run(
            [command, *compiled.FLAGS, "-Werror", "-fsyntax-only", path], capture_output=True, text=True, check=False
        )
        assert not checked.returncode, checked.stderr
