"""``pybroker produce``: one record per line of stdin or of files, as kcat -P and ``rpk topic produce`` do.

Owns: how lines become records and how many records may be unacknowledged.  Every record that was read is
acknowledged before the command ends with 0; the first that fails ends it with 1.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from pybroker.cli.connection import ClientOptions, parse_pairs, producer
from pybroker.cli.failure import CommandFailed, describe_error
from pybroker.cli.options import DEFAULT_BOOTSTRAP, INT32_MAX, Bootstrap, ClientProperties, CommandConfig, repeated
from pybroker.cli.output import Output, progress, remark
from pybroker.cli.record_format import Header, NewRecord, from_json, unescape

# The library keeps every record until its reply; this many bound its memory and still keep its batches full.
UNACKNOWLEDGED_MAX = 10_000

# How long one record may wait for its reply; the library's own delivery.timeout.ms ends the wait first.
REPLY_TIMEOUT_S = 150.0

READ_CHUNK_BYTES = 64 * 1024

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ACKS = {"0": 0, "1": 1, "all": "all", "-1": "all"}


@dataclass(frozen=True, slots=True)
class LineFormat:
    """How a line becomes a record."""

    as_json: bool = False
    key: bytes | None = None
    key_delimiter: bytes | None = None
    empty_as_null: bool = False
    headers: tuple[Header, ...] = ()
    partition: int | None = None


def split_lines(stream: BinaryIO, delimiter: bytes) -> Iterator[bytes]:
    """The parts of ``stream`` between delimiters; what follows the last one counts unless it is empty.

    Reads what is there (``read1``), so that a line typed at a terminal is a record at once.
    """
    buffered = b""
    read = getattr(stream, "read1", stream.read)
    while chunk := read(READ_CHUNK_BYTES):
        *lines, buffered = (buffered + chunk).split(delimiter)
        yield from lines
    if buffered:
        yield buffered


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


class Sender:
    """Sends records and waits for their replies, at most ``UNACKNOWLEDGED_MAX`` at a time."""

    def __init__(self, client: Any, topic: str, report: Output | None, *, offsets_known: bool = True) -> None:
        """``report``: where to print partition and offset of each record, if anywhere.

        Without acknowledgements nobody tells an offset (``offsets_known``).
        """
        self._offsets_known = offsets_known
        self.acknowledged = 0
        self._client = client
        self._topic = topic
        self._report = report
        self._waiting: deque[Any] = deque()

    def send(self, record: NewRecord) -> None:
        """Hand one record to the client; waits for the oldest reply when too many are open."""
        from kafka.errors import KafkaError

        try:
            future = self._client.send(
                self._topic,
                value=record.value,
                key=record.key,
                headers=[(name, value or b"") for name, value in record.headers],
                partition=record.partition,
                timestamp_ms=record.timestamp_ms,
            )
        except (KafkaError, ValueError) as error:
            raise CommandFailed(
                f"record {self.acknowledged + len(self._waiting) + 1}: {describe_error(error)}"
            ) from error
        self._waiting.append(future)
        while len(self._waiting) > UNACKNOWLEDGED_MAX:
            self._await_oldest()
        while self._waiting and self._waiting[0].is_done:
            self._await_oldest()

    def finish(self) -> None:
        """Wait for every reply."""
        self._client.flush()
        while self._waiting:
            self._await_oldest()

    def _await_oldest(self) -> None:
        from kafka.errors import KafkaError

        try:
            metadata = self._waiting.popleft().get(timeout=REPLY_TIMEOUT_S)
        except KafkaError as error:
            raise CommandFailed(f"record {self.acknowledged + 1}: {describe_error(error)}") from error
        self.acknowledged += 1
        if self._report is not None:
            offset = metadata.offset if self._offsets_known else "-"
            self._report.line(f"{metadata.topic}\t{metadata.partition}\t{offset}")


def open_inputs(files: list[Path]) -> Iterator[BinaryIO]:
    """The files one after another, or stdin when there are none; ``-`` is stdin too."""
    for path in files or [Path("-")]:
        if str(path) == "-":
            yield sys.stdin.buffer
        else:
            with path.open("rb") as stream:
                yield stream


def produce_lines(sender: Sender, files: list[Path], delimiter: bytes, form: LineFormat) -> None:
    """Send every line of the inputs and wait until all are acknowledged."""
    with progress("records", total=None) as bar:
        number = 0
        for stream in open_inputs(files):
            for line in split_lines(stream, delimiter):
                number += 1
                if form.as_json and not line.strip():
                    continue
                try:
                    record = parse_line(line, form)
                except ValueError as error:
                    raise CommandFailed(f"line {number}: {error}") from error
                sender.send(record)
                if bar is not None:
                    bar.update(bar.task_ids[0], completed=sender.acknowledged)
        sender.finish()


def produce(
    *,
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    files: Annotated[
        list[Path],
        typer.Option(
            "--file", "-l", metavar="FILE", help="Read this instead of stdin.", default_factory=list, show_default=False
        ),
    ],
    key: Annotated[str | None, typer.Option("--key", "-k", help="One key for every record.")] = None,
    key_delimiter: Annotated[
        str | None, typer.Option("--key-delimiter", "-K", help="What comes before it in a line is the key.")
    ] = None,
    delimiter: Annotated[str, typer.Option("--delimiter", "-D", help="What ends a record.")] = "\\n",
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, max=INT32_MAX, help="Send to this one.")
    ] = None,
    headers: Annotated[
        list[str],
        repeated("--header", "-H", metavar="NAME=VALUE", help="A header for every record."),
    ],
    empty_as_null: Annotated[
        bool, typer.Option("--null", "-Z", "-t", help="An empty key or value is null (a tombstone).")
    ] = False,
    compression: Annotated[str, typer.Option("--compression", "-z", help="|".join(CODECS))] = "none",
    acks: Annotated[str, typer.Option("--acks", "-a", help="0, 1 or all.")] = "all",
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print topic, partition, offset of each.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Each line is a record as `consume --json` prints it.")
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
    config = {
        "acks": ACKS[acks],
        "enable_idempotence": acks in {"all", "-1"},
        "compression_type": None if compression == "none" else compression,
    }
    with producer(ClientOptions(bootstrap, properties, command_config), **config) as client:
        sender = Sender(client, topic, Output() if verbose else None, offsets_known=acks != "0")
        produce_lines(sender, files, boundary, form)
    if sys.stderr.isatty():
        remark(f"{sender.acknowledged} records to {topic}")
