"""``pybroker dump-log``: print and verify the files of a log, ours or Apache Kafka's, live or at rest.

Owns: the choice of files and how entries are printed.  Exit code 1 when any file is corrupt; the rest is still
printed.  Counterpart: kafka-dump-log.sh.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from pybroker.cli.records.record_format import compact_json
from pybroker.cli.terminal.failure import CommandFailed
from pybroker.cli.terminal.output import Output, plain_cell, remark


def topic_of(path: Path) -> str:
    """The topic whose partition directory the file lies in."""
    return path.resolve().parent.name.rpartition("-")[0]


def expand(paths: Iterable[Path]) -> Iterator[Path]:
    """The files among ``paths``, and the files of a log as it stands in the directories among them."""
    from pybroker.cli.records.log_files import is_known, is_live

    for path in paths:
        if path.is_dir():
            yield from sorted(child for child in path.iterdir() if child.is_file() and is_live(child))
        elif not path.is_file():
            raise CommandFailed(f"{path}: no such file")
        elif not is_known(path):
            raise CommandFailed(f"{path}: the name is not that of a log's file")
        else:
            yield path


def as_text(entry: dict[str, Any]) -> str:
    """One entry on one line, ``name: value`` side by side."""
    return " ".join(
        f"{name}: {compact_json(value) if isinstance(value, (dict, list)) else plain_cell(value)}"
        for name, value in entry.items()
    )


def print_entry(output: Output, path: Path, entry: dict[str, Any]) -> None:
    """Print an entry, and its records below it."""
    if output.as_json:
        output.line(compact_json({"file": str(path), **entry}))
        return
    records = entry.pop("records", ())
    output.line(as_text(entry))
    for record in records:
        output.line(f"| {as_text(record)}")


def dump_file(output: Output, path: Path, *, deep: bool, topic: str | None) -> bool:
    """Print one file; returns whether it is intact."""
    from pybroker.cli.records.log_files import CorruptFile, read_entries
    from pybroker.cli.records.record_decoders import decoder_of

    if not output.as_json:
        output.line(f"Dumping {path}")
    decoder = decoder_of(topic if topic is not None else topic_of(path)) if deep else None
    try:
        for entry in read_entries(path, decoder):
            print_entry(output, path, entry)
    except (CorruptFile, UnicodeDecodeError) as error:
        output.flush()
        remark(f"{path}: corrupt: {error}")
        return False
    return True


def dump_log(
    *,
    paths: Annotated[
        list[Path], typer.Argument(metavar="FILE…", help="Files of a log, or the directory of a partition.")
    ],
    deep: Annotated[bool, typer.Option("--deep", "-d", help="Print the records, too.")] = False,
    topic: Annotated[
        str | None, typer.Option("--topic", help="The topic of the records; otherwise the directory names it.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per entry.")] = False,
) -> None:
    """Print and verify segments, indexes, snapshots and checkpoints; exits with 1 where a file is corrupt."""
    output = Output(as_json=as_json)
    files = list(expand(paths))
    corrupt = [path for path in files if not dump_file(output, path, deep=deep, topic=topic)]
    if corrupt:
        raise CommandFailed(f"{len(corrupt)} of {len(files)} files are corrupt")
