"""``pybroker produce``: one record per line of stdin or of files, as kcat -P and ``rpk topic produce`` do.

Owns: how lines become records, and what is said of those that are not acknowledged.  Every record that was read is
acknowledged before the command ends with 0.  The first that is not ends it with 1, within ``delivery.timeout.ms`` of
its being read, and then it says how many are missing, and which are the first.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Protocol

import typer

from pybroker.cli.connection.client_settings import ClientOptions, parse_pairs
from pybroker.cli.connection.data_clients import ABORTED_FLUSH_S, producer
from pybroker.cli.records.record_format import Header, NewRecord, from_json, unescape
from pybroker.cli.terminal.failure import (
    CommandFailed,
    OutputClosed,
    describe_error,
    describe_kafka_error,
    is_expected,
    reason_of,
)
from pybroker.cli.terminal.options import (
    DEFAULT_BOOTSTRAP,
    INT32_MAX,
    Bootstrap,
    ClientProperties,
    CommandConfig,
    repeated,
)
from pybroker.cli.terminal.output import Output, counted, progress, remark, visible

# Kafka's; librdkafka's own is five minutes.
DELIVERY_TIMEOUT_MS = "120000"
# A topic that does not exist is not made by waiting for it; one that the cluster makes at need is there in a moment.
TOPIC_AWAITED_MS = "10000"
# What the client may hold of records without an acknowledgement.
QUEUE_KBYTES = "131072"

POLLED_EVERY = 1_000
QUEUE_FULL_WAIT_S = 0.1
FINISH_WAIT_S = 0.2
INPUT_WAIT_S = 0.2

# A byte is six characters at most (\u0000) of its JSON.
JSON_GROWTH = 6

# Of records that were not acknowledged so many are shown, and so much of each.
LOST_SHOWN_MAX = 5
BEGINNING_BYTES = 60

READ_CHUNK_BYTES = 64 * 1024

_STDIN = Path("-")

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ACKS = {"0": "0", "1": "1", "all": "all", "-1": "all"}


@dataclass(frozen=True, slots=True)
class LineFormat:
    """How a line becomes a record."""

    as_json: bool = False
    key: bytes | None = None
    key_delimiter: bytes | None = None
    empty_as_null: bool = False
    headers: tuple[Header, ...] = ()
    partition: int | None = None


class Readable(Protocol):
    """An input that gives what is there."""

    def read1(self, size: int, /) -> bytes: ...


def split_lines(stream: Readable, delimiter: bytes, size_max: int) -> Iterator[bytes]:
    """The parts of ``stream`` between delimiters; what follows the last one counts unless it is empty.

    Reads what is there (``read1``), so that a line typed at a terminal is a record at once.  Raises
    ``CommandFailed`` where no delimiter comes within ``size_max`` bytes.
    """
    held = bytearray()
    while chunk := stream.read1(READ_CHUNK_BYTES):
        # What was held before has no delimiter, but maybe the beginning of one.
        new_from = max(0, len(held) - len(delimiter) + 1)
        held += chunk
        if held.find(delimiter, new_from) >= 0:
            *lines, rest = bytes(held).split(delimiter)
            yield from lines
            held = bytearray(rest)
        if len(held) > size_max:
            raise CommandFailed(f"no delimiter comes within {size_max} bytes, as much as message.max.bytes allows")
    if held:
        yield bytes(held)


def parse_line(line: bytes, form: LineFormat) -> NewRecord:
    """One line as a record; raises ``ValueError`` for JSON that is no record."""
    if form.as_json:
        record = from_json(line)
        record.headers = [*form.headers, *record.headers]
        if form.partition is not None:
            record.partition = form.partition
        return record
    key, value = form.key, line
    if form.key_delimiter is not None:
        before, found, after = line.partition(form.key_delimiter)
        if found:
            key, value = before, after
    return NewRecord(
        value=None if form.empty_as_null and not value else value,
        key=None if form.empty_as_null and not key else key,
        headers=list(form.headers),
        partition=form.partition,
    )


def parse_headers(texts: Iterable[str]) -> tuple[Header, ...]:
    """``NAME=VALUE`` texts as record headers; names may repeat."""
    return tuple((name, value.encode()) for text in texts for name, value in parse_pairs([text], "--header").items())


def parse_delimiter(text: str, option: str) -> bytes:
    """A delimiter as typed; raises typer's error for a wrong use."""
    try:
        delimiter = unescape(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    if not delimiter:
        raise typer.BadParameter(f"{option} must not be empty")
    return delimiter


@dataclass(frozen=True, slots=True)
class Unacknowledged:
    """A record that was not acknowledged: its number among all, how it began, and what the client says of it."""

    number: int
    beginning: str
    error: Any


class LineRefused(CommandFailed):
    """A line is no record; those before it are sent."""


class RecordsLost(CommandFailed):
    """A record was not acknowledged; ``Sender.settle`` says which."""


class Sender:
    """Sends records and hears what becomes of each, from librdkafka, which tells of all of them in time."""

    def __init__(self, client: Any, topic: str, report: Output | None, *, offsets_known: bool = True) -> None:
        """``report``: where to print partition and offset of each record, if anywhere.

        Without acknowledgements no offset is known (``offsets_known``).
        """
        self._offsets_known = offsets_known
        self.acknowledged = 0
        self._client = client
        self._topic = topic
        self._report = report
        self._sent = 0
        self._lost = 0
        self._first_lost: list[Unacknowledged] = []
        # Of each record in its order, once it is acknowledged, where a report is wanted.
        self._places: deque[list[str]] = deque()

    @property
    def reports(self) -> bool:
        """Whether a line is printed for each record."""
        return self._report is not None

    def send(self, record: NewRecord) -> None:
        """Hand one record to the client; waits for replies where it holds too many."""
        from confluent_kafka import KafkaException

        number = self._sent + 1
        if record.timestamp_ms == 0:
            # librdkafka takes it for "now".
            raise CommandFailed(f"record {number}: the client library cannot send the timestamp 0")
        fields: dict[str, Any] = {"headers": record.headers, "on_delivery": partial(self._on_delivery, number)}
        if record.partition is not None:
            fields["partition"] = record.partition
        if record.timestamp_ms is not None:
            fields["timestamp"] = record.timestamp_ms
        if self._report is not None:
            place: list[str] = []
            self._places.append(place)
            fields["on_delivery"] = partial(self._on_delivery, number, place=place)
        while True:
            try:
                self._client.produce(self._topic, record.value, record.key, **fields)
            except BufferError:
                self.poll(QUEUE_FULL_WAIT_S)
                continue
            except (KafkaException, OverflowError) as error:
                raise CommandFailed(f"record {number}: {describe_error(error)}") from error
            break
        self._sent = number
        if number % POLLED_EVERY == 0:
            self.poll(0)

    def poll(self, timeout_s: float, *, flushes: bool = False) -> None:
        """Hear what has become of records; raises ``RecordsLost`` once one was not acknowledged.

        ``flushes`` where nothing else comes for now: the report is not held back.
        """
        self._client.poll(timeout_s)
        self._print_places(flushes=flushes)
        if self._lost:
            raise RecordsLost

    def finish(self) -> None:
        """Wait for every reply, at most for ``delivery.timeout.ms``, which the client keeps."""
        while len(self._client) > 0:
            self.poll(FINISH_WAIT_S)
        self.poll(0)

    def settle(self) -> str | None:
        """Let what is on its way arrive and take the rest back; says which records are missing, if some are."""
        self._client.flush(ABORTED_FLUSH_S)
        self._client.purge()
        self._client.flush(ABORTED_FLUSH_S)
        with suppress(OSError):
            self._print_places(flushes=True)
        return self._told() if self._lost else None

    def _keep_first(self) -> None:
        """Of each partition they come in their order, and of all in none."""
        self._first_lost.sort(key=lambda each: each.number)
        del self._first_lost[LOST_SHOWN_MAX:]

    def _told(self) -> str:
        self._keep_first()
        first = self._first_lost[0]
        lines = [f"record {first.number}: {self._reason(first.error)}"]
        if self._lost > 1 or self._sent > 1:
            lines.append(
                f"{self._lost} of {self._sent} records were not acknowledged; the topic may have them even so:"
            )
            lines += [f"  record {each.number}: {each.beginning}" for each in self._first_lost]
        if self._lost > len(self._first_lost):
            lines.append(f"  and {self._lost - len(self._first_lost)} more")
        return "\n".join(lines)

    def _reason(self, error: Any) -> str:
        if error.name() == "_MSG_TIMED_OUT":
            return "no acknowledgement within delivery.timeout.ms"
        if error.name().startswith("_PURGE"):
            return "no acknowledgement before the command ended"
        if error.name() in ("_UNKNOWN_TOPIC", "UNKNOWN_TOPIC_OR_PART"):
            return f"UNKNOWN_TOPIC_OR_PARTITION: the topic {self._topic} does not exist"
        if error.name() == "_UNKNOWN_PARTITION":
            return f"UNKNOWN_TOPIC_OR_PARTITION: the topic {self._topic} has no such partition"
        return describe_kafka_error(error)

    def _on_delivery(self, number: int, error: Any, message: Any, place: list[str] | None = None) -> None:
        if error is None:
            self.acknowledged += 1
            if place is not None:
                offset = message.offset() if self._offsets_known else "-"
                place.append(f"{message.topic()}\t{message.partition()}\t{offset}")
            return
        self._lost += 1
        self._first_lost.append(Unacknowledged(number, _beginning(message), error))
        if len(self._first_lost) > 2 * LOST_SHOWN_MAX:
            self._keep_first()

    def _print_places(self, *, flushes: bool) -> None:
        """Where the reader of the report is gone, records are sent without one."""
        if self._report is None:
            return
        try:
            while self._places and self._places[0]:
                self._report.line(*self._places.popleft())
            if flushes:
                self._report.flush()
        except OutputClosed:
            self._end_report(self._report)
        except OSError:
            self._end_report(self._report)
            raise

    def _end_report(self, report: Output) -> None:
        report.abandon()
        self._report = None
        self._places.clear()


def _beginning(message: Any) -> str:
    """How a record begins: its key, if it has one, and its value."""
    parts = [part for part in (message.key(), message.value()) if part is not None]
    text = " ".join(bytes(part[:BEGINNING_BYTES]).decode(errors="replace") for part in parts)
    return visible(text) if parts else "(empty)"


class PolledInput:
    """An input whose waits serve the client: a record that is lost is heard of while no line comes."""

    def __init__(self, stream: BinaryIO, sender: Sender) -> None:
        self._fd = stream.fileno()
        self._sender = sender

    def read1(self, size: int) -> bytes:
        """What is there, at most ``size`` bytes, b"" at the end."""
        while not select.select([self._fd], [], [], INPUT_WAIT_S)[0]:
            self._sender.poll(0, flushes=True)
        return os.read(self._fd, size)


def open_inputs(files: list[Path]) -> Iterator[BinaryIO]:
    """The files one after another, or stdin when there are none; ``-`` is stdin too."""
    for path in files or [_STDIN]:
        if path == _STDIN:
            yield sys.stdin.buffer
            continue
        try:
            stream = path.open("rb")
        except OSError as error:
            raise CommandFailed(f"--file {path}: {reason_of(error)}") from error
        with stream:
            yield stream


class Pace:
    """So many records a second at most, or as many as can be: each is due at its own time."""

    def __init__(self, per_second: int | None, sender: Sender) -> None:
        self._interval_s = 0.0 if per_second is None else 1 / per_second
        self._sender = sender
        self._due_s = time.monotonic()

    def wait(self) -> None:
        """Return when the next record is due; what becomes of the others is heard meanwhile."""
        if not self._interval_s:
            return
        while (left_s := self._due_s - time.monotonic()) > 0:
            self._sender.poll(min(left_s, INPUT_WAIT_S), flushes=True)
        # What came late is not made up for.
        self._due_s = max(self._due_s, time.monotonic() - self._interval_s) + self._interval_s


def line_size_max(record_max: int, form: LineFormat) -> int:
    """How long a line may be of which a record is made that the client takes."""
    if form.as_json:
        return record_max * JSON_GROWTH
    return record_max + len(form.key_delimiter or b"")


def produce_lines(
    sender: Sender, pace: Pace, files: list[Path], delimiter: bytes, form: LineFormat, size_max: int
) -> None:
    """Send every line of the inputs and wait until all are acknowledged."""
    is_typed = sys.stdin.isatty() and _STDIN in (files or [_STDIN])
    with progress("records sent", total=None, prints=sender.reports, is_typed=is_typed) as bar:
        number = 0
        for stream in open_inputs(files):
            for line in split_lines(PolledInput(stream, sender), delimiter, size_max):
                number += 1
                if form.as_json and not line.strip():
                    continue
                try:
                    record = parse_line(line, form)
                except ValueError as error:
                    raise LineRefused(f"line {number}: {error}") from error
                pace.wait()
                sender.send(record)
                if bar is not None:
                    bar.update(bar.task_ids[0], completed=sender.acknowledged)
        sender.finish()


@contextmanager
def settled(sender: Sender) -> Iterator[None]:
    """However the block fails, what became of records is waited for, and said behind the reason."""
    try:
        yield
    except RecordsLost:
        raise CommandFailed(sender.settle()) from None
    except Exception as error:
        outcome = sender.settle()
        if outcome is None and isinstance(error, LineRefused):
            outcome = f"sent before it: {counted(sender.acknowledged, 'record')}"
        if outcome is None or not is_expected(error):
            raise
        raise CommandFailed(f"{describe_error(error)}\n{outcome}") from error
    except BaseException:
        # A signal: its exit code stays, whatever is missing.
        if (outcome := sender.settle()) is not None:
            remark(f"pybroker: {outcome}")
        raise


def client_settings(acks: str, compression: str) -> dict[str, str]:
    """The command's own settings of its producer."""
    return {
        "acks": acks,
        "enable.idempotence": "true" if acks == "all" else "false",
        "compression.type": compression,
        # Java's: keys go to the same partitions.
        "partitioner": "murmur2_random",
        "delivery.timeout.ms": DELIVERY_TIMEOUT_MS,
        "topic.metadata.propagation.max.ms": TOPIC_AWAITED_MS,
        "queue.buffering.max.kbytes": QUEUE_KBYTES,
    }


def produce(
    *,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic, by name.")],
    files: Annotated[
        list[Path],
        typer.Option(
            "--file",
            "-l",
            metavar="FILE",
            help="A file to read instead of stdin.",
            default_factory=list,
            show_default=False,
        ),
    ],
    key: Annotated[str | None, typer.Option("--key", "-k", help="The key of every record.")] = None,
    key_delimiter: Annotated[
        str | None, typer.Option("--key-delimiter", "-K", help="Text between key and value of a line.")
    ] = None,
    delimiter: Annotated[str, typer.Option("--delimiter", "-D", help="Text at the end of each record.")] = "\\n",
    partition: Annotated[
        int | None,
        typer.Option("--partition", "-p", min=0, max=INT32_MAX, help="The partition; otherwise the key chooses it."),
    ] = None,
    headers: Annotated[
        list[str],
        repeated("--header", "-H", metavar="NAME=VALUE", help="A header for every record."),
    ],
    empty_as_null: Annotated[
        bool, typer.Option("--null", "-Z", help="Send null for an empty key or value: a tombstone.")
    ] = False,
    compression: Annotated[
        str, typer.Option("--compression", "-z", help=f"{', '.join(CODECS[:-1])} or {CODECS[-1]}.")
    ] = "none",
    acks: Annotated[str, typer.Option("--acks", "-a", help="Replicas that acknowledge a record: 0, 1 or all.")] = "all",
    throughput: Annotated[
        int | None, typer.Option("--throughput", metavar="N", min=1, help="Records per second, at most.")
    ] = None,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "--print-offsets", "-v", help="Print topic, partition and offset of each record."),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Read each line as a record that `consume --json` has printed.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    properties: ClientProperties,
) -> None:
    """Produce the lines of stdin, or of files, to a topic."""
    if acks not in ACKS:
        raise typer.BadParameter(f"--acks must be 0, 1 or all, not {acks!r}")
    if compression not in CODECS:
        raise typer.BadParameter(f"--compression must be one of {', '.join(CODECS)}, not {compression!r}")
    boundary = parse_delimiter(delimiter, "--delimiter")
    key_boundary = None if key_delimiter is None else parse_delimiter(key_delimiter, "--key-delimiter")
    form = LineFormat(
        as_json=as_json,
        key=None if key is None else key.encode(),
        key_delimiter=key_boundary,
        empty_as_null=empty_as_null,
        headers=parse_headers(headers),
        partition=partition,
    )
    own = client_settings(ACKS[acks], compression)
    client, record_max = producer(ClientOptions(bootstrap, properties, command_config), own)
    sender = Sender(client, topic, Output() if verbose else None, offsets_known=acks != "0")
    with settled(sender):
        produce_lines(sender, Pace(throughput, sender), files, boundary, form, line_size_max(record_max, form))
    if sys.stderr.isatty():
        remark(f"{counted(sender.acknowledged, 'record')} to {topic}")
