"""The driver of kcat (PROTOCOL.md): a command for each run of records that is sent, each partition that is read, each
member of a group, and each question.

Owns: kcat's options, what it prints, and its processes, none of which outlives the object that started it.
"""

from __future__ import annotations

import json
import queue
import re
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import IO, Any, NamedTuple

from driver import Driver, Request, decoded, encoded

CLIENT_ERROR = -1
PATIENCE_MS = 30_000
# A member whose topic is gone leaves its group, and then librdkafka 2.0.2 may wait for itself without end.
STOP_TIMEOUT_S = 2
SESSION_TIMEOUT_MS = 10_000
POLL_RECORDS_MAX = 500
# kcat tells errors in its library's words; these are the ones that scenarios ask for by their code.
CODES = {"Broker: Message size too large": 10, "Broker: Unknown topic or partition": 3}
OFFSETS = {"earliest": -2, "latest": -1}

DELIVERED = re.compile(r"% Message delivered to partition (\d+) \(offset (-?\d+)\)")
FAILED = re.compile(r"% Delivery failed for message: (.*)")
REBALANCED = re.compile(
    r"% Group .* rebalanced(?:: incremental (?P<part>assignment|revoke) of .*?)? \(memberid .*?\): "
    r"(?:(?P<whole>assigned|revoked): )?(?P<partitions>.*)"
)
PARTITION = re.compile(r"(\S+) \[(\d+)\]")
OFFSET = re.compile(r"\S+ \[\d+\] offset (-?\d+)")

Partition = tuple[str, int]
LOGIN_SETTINGS = {
    "security_protocol": "protocol",
    "ssl_ca_location": "ca",
    "ssl_certificate_location": "certificate",
    "ssl_key_location": "certificate",
    "sasl_mechanism": "mechanism",
    "sasl_username": "user",
    "sasl_password": "password",
}


class KcatError(Exception):
    """What kcat printed before it gave up."""


def settings(**named: object) -> list[str]:
    """Options of the library, less those that were left to it."""
    return [
        word
        for name, value in named.items()
        if value is not None
        for word in ("-X", f"{name.replace('_', '.')}={str(value).lower() if isinstance(value, bool) else value}")
    ]


def command(bootstrap: str, *words: str) -> list[str]:
    return ["kcat", "-F", "none", "-b", bootstrap, *settings(reconnect_backoff_max_ms=200, **LOGINS[bootstrap]), *words]


# By the address of the broker, as librdkafka takes it: noted when anything is opened there.
LOGINS: dict[str, dict[str, str]] = {}


def note_login(request: Request) -> None:
    """Remember who the client is at the broker of a request."""
    told = request.get("security") or {}
    LOGINS[request["bootstrap"]] = {
        name: told[field] for name, field in LOGIN_SETTINGS.items() if told.get(field) is not None
    }


def ask(bootstrap: str, *words: str) -> str:
    """What a command prints that ends by itself."""
    done = subprocess.run(
        command(bootstrap, "-m", str(PATIENCE_MS // 1000), *words), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise KcatError(done.stderr)
    return done.stdout


def offset_of(bootstrap: str, partition: Partition, timestamp_ms: int) -> int:
    """-2 asks for the beginning and -1 for the end; -1 is the answer for none."""
    topic, index = partition
    told = OFFSET.search(ask(bootstrap, "-Q", "-t", f"{topic}:{index}:{timestamp_ms}"))
    assert told is not None, "kcat answers with an offset"
    return int(told[1])


def partition_of(request: Request) -> Partition:
    return request["topic"], request["partition"]


def fields_of(partitions: Sequence[Partition]) -> list[Request]:
    return [{"topic": topic, "partition": index} for topic, index in sorted(partitions)]


class Form(NamedTuple):
    """What the records of one command have in common.

    Where the partitioner is to choose by a key, they have that key in common, too: kcat tells partitions in the order
    of their answers, so that one command must write to one.
    """

    topic: str
    partition: int | None
    headers: tuple[tuple[str, bytes], ...]
    has_keys: bool
    has_null_values: bool
    key: bytes | None


def form_of(record: Request) -> Form:
    key, value = decoded(record["key"]), decoded(record["value"])
    headers = tuple((header["key"], decoded(header["value"]) or b"") for header in record["headers"])
    if (key is None and value == b"") or (key == b"" and value is None):
        raise KcatError("kcat takes both for null or none of them")
    by_key = key if record["partition"] is None else None
    return Form(record["topic"], record["partition"], headers, key is not None or value is None, value is None, by_key)


class Producer:
    """``kcat -P``."""

    def __init__(self, request: Request) -> None:
        patience_ms = request["patience_ms"]
        note_login(request)
        self._bootstrap = request["bootstrap"]
        self._settings = settings(
            acks=request["acks"],
            enable_idempotence=request["idempotent"],
            linger_ms=request["linger_ms"],
            message_max_bytes=request["request_bytes_max"],
            message_timeout_ms=patience_ms or PATIENCE_MS,
            topic_metadata_propagation_max_ms=None if patience_ms is None else 1,
            partitioner=request["partitioner"],
            compression_codec=request["codec"],
        )

    def produce(self, request: Request) -> list[Request]:
        deliveries: list[Request] = []
        for form, records in groupby(request["records"], form_of):
            deliveries += self._run(form, list(records))
        return deliveries

    def _run(self, form: Form, records: list[Request]) -> list[Request]:
        between, behind_key = uuid.uuid4().hex, uuid.uuid4().hex
        words = ["-P", "-t", form.topic, "-v", "-v", "-D", between, *self._settings]
        if form.partition is not None:
            words += ["-p", str(form.partition)]
        if form.has_keys:
            words += ["-K", behind_key]
        if form.has_null_values:
            words += ["-Z"]
        arguments = [word.encode() for word in command(self._bootstrap, *words)]
        for name, value in form.headers:
            arguments += [b"-H", name.encode() + b"=" + value]
        lines = [self._line(record, behind_key.encode() if form.has_keys else b"") for record in records]
        done = subprocess.run(arguments, input=between.encode().join(lines), capture_output=True, check=False)
        return self._deliveries(len(records), done.stderr.decode(errors="replace"))

    @staticmethod
    def _line(record: Request, behind_key: bytes) -> bytes:
        return (decoded(record["key"]) or b"") + behind_key + (decoded(record["value"]) or b"")

    @staticmethod
    def _deliveries(count: int, told: str) -> list[Request]:
        deliveries: list[Request] = []
        for line in told.splitlines():
            if (delivered := DELIVERED.match(line)) is not None:
                deliveries.append({"error": 0, "partition": int(delivered[1]), "offset": int(delivered[2])})
            elif (failed := FAILED.match(line)) is not None:
                code = CODES.get(failed[1], CLIENT_ERROR)
                deliveries.append({"error": code, "partition": -1, "offset": -1})
        if len(deliveries) != count or len({delivery["partition"] for delivery in deliveries}) > 1:
            raise KcatError(told)
        return deliveries

    def close(self, _: Request) -> None:
        """Nothing runs between two requests."""


class Reading:
    """A command that reads until it is stopped: ``kcat -C`` of a partition, or ``kcat -G``, a member of a group."""

    def __init__(self, words: list[str]) -> None:
        self.records: queue.SimpleQueue[Request] = queue.SimpleQueue()
        self.assigned: set[Partition] = set()
        self.revocations = 0
        self._log: list[str] = []
        # Threads of the library would write into kcat's own lines.
        words += ["-J", "-u", "-E", "-X", "log_level=0"]
        self._process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self._threads = [
            threading.Thread(target=self._read_records, args=(self._process.stdout,)),
            threading.Thread(target=self._read_log, args=(self._process.stderr,)),
        ]
        for thread in self._threads:
            thread.start()

    def _read_records(self, lines: IO[bytes]) -> None:
        for line in lines:
            # Bytes pass through kcat's JSON as they are, valid text or not.
            self.records.put(json.loads(line.decode("latin-1")))

    def _read_log(self, lines: IO[bytes]) -> None:
        for line in lines:
            self._log.append(line.decode(errors="replace"))
            if (rebalanced := REBALANCED.match(self._log[-1])) is not None:
                self._follow(rebalanced)

    def _follow(self, rebalanced: re.Match[str]) -> None:
        partitions = {(topic, int(index)) for topic, index in PARTITION.findall(rebalanced["partitions"])}
        if rebalanced["whole"] == "assigned":
            self.assigned = partitions
        elif rebalanced["part"] == "assignment":
            self.assigned = self.assigned | partitions
        else:
            self.assigned = self.assigned - partitions
            self.revocations += 1

    def check(self) -> None:
        """Raises ``KcatError`` when the command has ended by itself."""
        if self._process.poll() is not None:
            raise KcatError("".join(self._log))

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for thread in self._threads:
            thread.join()


class Consumer:
    """A reading command for each assigned partition, or one for a subscription."""

    def __init__(self, request: Request) -> None:
        note_login(request)
        self._bootstrap = request["bootstrap"]
        self._reset = request["offset_reset"]
        self._settings = settings(
            auto_offset_reset=self._reset,
            fetch_wait_max_ms=request["fetch_wait_ms"],
            fetch_message_max_bytes=request["partition_fetch_bytes"],
            isolation_level=request["isolation"],
        )
        of_members = settings(
            group_instance_id=request["instance_id"],
            partition_assignment_strategy=request["assignor"],
            heartbeat_interval_ms=100,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            # What is not stored is not committed: kcat takes enable.auto.commit for a property of topics.
            enable_auto_offset_store=False,
        )
        self._of_the_group = ["-G", str(request["group"]), *of_members]
        self._member: Reading | None = None
        self._readings: dict[Partition, Reading] = {}
        self._positions: dict[Partition, int] = {}

    def subscribe(self, request: Request) -> None:
        self._member = Reading(command(self._bootstrap, *self._of_the_group, *self._settings, request["topic"]))

    def assign(self, request: Request) -> None:
        for wanted in request["partitions"]:
            self._start(partition_of(wanted), offset_of(self._bootstrap, partition_of(wanted), OFFSETS[self._reset]))

    def _start(self, partition: Partition, offset: int) -> None:
        if (running := self._readings.pop(partition, None)) is not None:
            running.stop()
        topic, index = partition
        words = ["-C", "-t", topic, "-p", str(index), "-o", str(offset), *self._settings]
        self._readings[partition] = Reading(command(self._bootstrap, *words))
        self._positions[partition] = offset

    def assignment(self, _: Request) -> list[Request]:
        return fields_of([*self._readings] if self._member is None else [*self._member.assigned])

    def poll(self, request: Request) -> Request:
        deadline = time.monotonic() + request["timeout_ms"] / 1000
        while not (records := list(self._taken())) and time.monotonic() < deadline:
            time.sleep(0.001)
        return {"records": records, "revocations": 0 if self._member is None else self._member.revocations}

    def _taken(self) -> Iterator[Request]:
        for reading in [*self._readings.values()] if self._member is None else [self._member]:
            reading.check()
            for _ in range(POLL_RECORDS_MAX):
                try:
                    yield self._received(reading.records.get_nowait())
                except queue.Empty:
                    break

    def _received(self, told: Request) -> Request:
        names = [text(name) for name in told.get("headers", [])[::2]]
        values = [encoded(raw(value)) for value in told.get("headers", [])[1::2]]
        self._positions[text(told["topic"]), told["partition"]] = told["offset"] + 1
        return {
            "topic": text(told["topic"]),
            "partition": told["partition"],
            "offset": told["offset"],
            "key": encoded(raw(told["key"])),
            "value": encoded(raw(told["payload"])),
            "headers": [{"key": name, "value": value} for name, value in zip(names, values, strict=True)],
            "timestamp_ms": told["ts"],
            "timestamp_type": {"create": 0, "logappend": 1}[told["tstype"]],
        }

    def seek(self, request: Request) -> None:
        self._start(partition_of(request), request["offset"])

    def seek_to_beginning(self, request: Request) -> None:
        self._start(partition_of(request), offset_of(self._bootstrap, partition_of(request), OFFSETS["earliest"]))

    def seek_to_end(self, request: Request) -> None:
        self._start(partition_of(request), offset_of(self._bootstrap, partition_of(request), OFFSETS["latest"]))

    def position(self, request: Request) -> int:
        return self._positions[partition_of(request)]

    def beginning_and_end(self, request: Request) -> list[int]:
        return [offset_of(self._bootstrap, partition_of(request), OFFSETS[end]) for end in ("earliest", "latest")]

    def offset_for_time(self, request: Request) -> int | None:
        found = offset_of(self._bootstrap, partition_of(request), request["timestamp_ms"])
        return None if found < 0 else found

    def close(self, _: Request) -> None:
        for reading in (*self._readings.values(), *([] if self._member is None else [self._member])):
            reading.stop()


def raw(value: str | None) -> bytes | None:
    return None if value is None else value.encode("latin-1")


def text(value: str) -> str:
    return value.encode("latin-1").decode()


class Admin:
    """What kcat tells of a cluster."""

    def __init__(self, request: Request) -> None:
        note_login(request)
        self._bootstrap = request["bootstrap"]

    def topics(self, _: Request) -> dict[str, int]:
        told: dict[str, Any] = json.loads(ask(self._bootstrap, "-L", "-J"))
        return {topic["topic"]: len(topic["partitions"]) for topic in told["topics"]}

    def list_offset(self, request: Request) -> int:
        wanted = OFFSETS.get(request["spec"], request.get("timestamp_ms"))
        assert wanted is not None, f"kcat has no {request['spec']}"
        return offset_of(self._bootstrap, partition_of(request), wanted)

    def close(self, _: Request) -> None:
        """Nothing runs between two requests."""


def version() -> str:
    told = subprocess.run(["kcat", "-V"], capture_output=True, text=True, check=False)
    found = re.search(r"Version (\S+)", told.stdout + told.stderr)
    return "unknown" if found is None else found[1]


if __name__ == "__main__":
    kinds = {"open_producer": Producer, "open_consumer": Consumer, "open_admin": Admin}
    Driver({"client": "kcat", "version": version()}, kinds, lambda _: CLIENT_ERROR).run()
