"""``pybroker consume``: print the records of topics, as kcat -C and ``rpk topic consume`` do.

Owns: the command's options, and how a record is printed. Without ``--group`` partitions are assigned by hand and
nothing is committed; with it the group assigns them. Only what the reader of our stdout was handed is committed, once a
second and at the end (``reader``). So a record is printed again after a crash and never lost.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from pybroker.cli.commands.reader import Reader, start_reading
from pybroker.cli.connection.client_settings import ClientOptions
from pybroker.cli.connection.data_clients import ConsumedRecord, consumer
from pybroker.cli.records.record_format import Record, compact_json, compile_format, to_json
from pybroker.cli.records.value_schemas import ValueReader, value_reader
from pybroker.cli.requests.offsets import Origin, ReadRange, Start, parse_partitions, parse_range, parse_timestamp_ms
from pybroker.cli.terminal.options import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    ClientProperties,
    CommandConfig,
    misused,
    repeated,
)
from pybroker.cli.terminal.output import Output

# By the short names and by Kafka's own.
ISOLATION_LEVELS = {
    "uncommitted": "read_uncommitted",
    "committed": "read_committed",
    "read_uncommitted": "read_uncommitted",
    "read_committed": "read_committed",
}

# In place of 500: how long a fetch behind the last record may wait.
FETCH_TO_END_MS = "10"

Topics = Annotated[
    list[str], typer.Argument(metavar="[TOPIC…]", help="Topics by name.", default_factory=list, show_default=False)
]
Pattern = Annotated[
    str | None, typer.Option("--pattern", metavar="REGEX", help="Topics whose whole name matches, in place of names.")
]
Offsets = Annotated[
    list[str],
    repeated(
        "--offset",
        "-o",
        help="Where to begin: beginning, end, stored, N, -N (N before the end) or @TIME; e@TIME is where to stop.",
        default="stored with --group, otherwise beginning",
    ),
]
Partitions = Annotated[
    list[str], repeated("--partitions", "-p", help="The partitions to read: N, N,M or N-M; otherwise all.")
]
Until = Annotated[
    str | None, typer.Option("--until", metavar="TIME", help="Exit before the first record of this TIME, or of now.")
]
Format = Annotated[
    str | None, typer.Option("--format", "-f", help="How a record is printed, by the tokens above; '%s\\n' without it.")
]
KeyDelimiter = Annotated[
    str | None, typer.Option("--key-delimiter", "-K", help="Print the key and this text before the value.")
]
Isolation = Annotated[
    str,
    typer.Option(
        "--isolation", help="Read committed records alone, or uncommitted ones, too; also read_committed and its like."
    ),
]
AvroFile = Annotated[
    Path | None,
    typer.Option("--avro", metavar="FILE", help="A schema of Avro that the values have; they are printed as JSON."),
]
ProtobufFile = Annotated[
    Path | None,
    typer.Option(
        "--protobuf", metavar="FILE", help="Descriptors of Protobuf that the values have; they are printed as JSON."
    ),
]
MessageName = Annotated[
    str | None, typer.Option("--message", metavar="NAME", help="The full name of the message of --protobuf.")
]
RegistryHeader = Annotated[
    bool, typer.Option("--registry-header", help="Values begin with the header of a schema registry's serializers.")
]


def default_format(key_delimiter: str | None) -> str:
    """Value and newline, after the key and its delimiter where one is asked for."""
    return "%s\\n" if key_delimiter is None else f"%k{key_delimiter.replace('%', '%%')}%s\\n"


def renderer(as_json: bool, form: str, read_value: ValueReader | None) -> Callable[[Record], bytes]:
    """What prints a record; ValueError for a form that is none."""
    if as_json:
        return partial(to_json, read_value=read_value)
    render = compile_format(form)
    if read_value is None:
        return render

    def with_document(record: Record) -> bytes:
        assert isinstance(record, ConsumedRecord)
        value = record.value
        return render(record if value is None else record._replace(value=compact_json(read_value(value)).encode()))

    return with_document


@contextmanager
def value_of(option: str) -> Iterator[None]:
    """Wrong use of an option where its value is none."""
    try:
        yield
    except (ValueError, re.error) as error:
        raise typer.BadParameter(f"{option}: {error}") from error


def choose_start(wanted: ReadRange, group: str | None) -> Start:
    """The start that was asked for, else the group's offsets, else the beginning."""
    if wanted.start is None:
        return Start(Origin.STORED if group is not None else Origin.BEGINNING)
    if wanted.start.origin is Origin.STORED and group is None:
        raise misused("--offset stored needs --group")
    return wanted.start


def client_settings(group: str | None, isolation: str, *, ends: bool) -> dict[str, str]:
    """The command's own settings of its consumer; ``ends``: it reads to an end, and does not follow."""
    # What is asked behind a fetch on its connection, such as where a partition ends, waits for as long as the fetch.
    soon = {"fetch.wait.max.ms": FETCH_TO_END_MS} if ends else {}
    return soon | {
        # librdkafka wants a group's name also where partitions are assigned by hand; nothing is committed then.
        "group.id": group or "pybroker",
        "auto.offset.reset": "earliest",
        "isolation.level": isolation,
        "enable.auto.commit": "false",
        "enable.partition.eof": "true",
    }


def consume(
    *,
    topics: Topics,
    pattern: Pattern = None,
    offsets: Offsets,
    partitions: Partitions,
    count: Annotated[int | None, typer.Option("--count", "-c", min=1, help="Exit after N records.")] = None,
    exit_at_end: Annotated[bool, typer.Option("--exit", "-e", help="Exit at the end instead of waiting.")] = False,
    until: Until = None,
    form: Format = None,
    key_delimiter: KeyDelimiter = None,
    group: Annotated[str | None, typer.Option("--group", "-g", help="Consume as a member of this group.")] = None,
    isolation: Isolation = "committed",
    avro: AvroFile = None,
    protobuf: ProtobufFile = None,
    message: MessageName = None,
    registry_header: RegistryHeader = False,
    as_json: Annotated[bool, typer.Option("--json", "-J", help="One JSON object per record.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    properties: ClientProperties,
) -> None:
    """Print the records of topics.

    TIME is epoch milliseconds, an ISO 8601 time like 2026-01-31T12:00, or -15m, -24h or -7d before now.

    Tokens of --format: %t topic, %p partition, %o offset, %T timestamp in epoch milliseconds, %k key, %s value, %h
    headers. %K and %S are the length of key and value, %R is the value's length in four bytes, %% a percent sign. \\n,
    \\r, \\t, \\0 and \\xNN are characters. For example: --format '%t:%p %o %k=%s\\n'
    """
    if isolation not in ISOLATION_LEVELS:
        raise typer.BadParameter(f"--isolation must be committed or uncommitted, not {isolation!r}")
    if (pattern is None) is not bool(topics):
        raise misused("give either topics or --pattern")
    if (avro is not None and protobuf is not None) or (protobuf is None) is not (message is None):
        raise misused("give --avro, or --protobuf with --message")
    if registry_header and avro is None and protobuf is None:
        raise misused("--registry-header needs --avro or --protobuf")
    read_value = value_reader(avro, protobuf, message, registry_header=registry_header)
    now_ms = int(time.time() * 1000)
    with value_of("--offset"):
        wanted = parse_range(offsets, now_ms)
    with value_of("--until"):
        until_ms = None if until is None else now_ms if until == "now" else parse_timestamp_ms(until, now_ms)
    with value_of("--partitions"):
        numbers = parse_partitions(partitions) if partitions else []
    with value_of("--format"):
        render = renderer(as_json, default_format(key_delimiter) if form is None else form, read_value)
    with value_of("--pattern"):
        regex = None if pattern is None else re.compile(pattern)
    start = choose_start(wanted, group)
    options = ClientOptions(bootstrap, properties, command_config)
    ends = exit_at_end or until_ms is not None  # an end by a record's time may be far off
    own = client_settings(group, ISOLATION_LEVELS[isolation], ends=ends)
    with consumer(options, own) as (client, watch):
        reader = Reader(
            client,
            watch,
            Output(),
            render,
            count=count,
            exit_at_end=exit_at_end,
            end_timestamp_ms=wanted.end_timestamp_ms,
            until_ms=until_ms,
            group=group,
        )
        joins = group is not None and not numbers
        reader.run(start_reading(client, topics, regex, numbers, reader, start, joins=joins))
