"""Raw batches as the columns of a relation, and what does not fit it.

Owns the decoding of values by the relation's format, and what becomes of a record that does not fit: it is left out and
counted, or it ends the query.  JSON and casts are DuckDB's, in a connection of this thread's own; Avro and Protobuf are
``value_decoders``'.

A value that is null (a tombstone) fits every schema: its columns are null.  Only the columns that a query uses are
looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from threading import Lock, local
from typing import Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from pybroker.sql.fetching.nested_misfits import misfit_inside, pointer
from pybroker.sql.fetching.record_columns import HEADERS, KEY, OFFSET, TIMESTAMP, TYPES, VALUE
from pybroker.sql.fetching.short_queries import ValueDecoder, closed_connection
from pybroker.sql.fetching.text_casts import read_of_json, read_of_text, type_in_json
from pybroker.sql.parsing.java_patterns import read_pattern
from pybroker.sql.relations.catalog import NO_COLUMN, PSEUDO_COLUMNS, Column, Format, Relation
from pybroker.sql.relations.event_times import PATTERN, TimeKind, kind_of, time_column
from pybroker.sql.relations.format_options import header_read
from pybroker.sql.sql_errors import SqlError
from pybroker.values.arrow_values import read_values
from pybroker.values.csv_values import LineReader
from pybroker.values.registry_header import Header, without_header

_MISFIT: Final = "misfit"
_NO_TEXT: Final = "the value is no UTF-8"
_FIELDS: Final = {"_key": KEY, "_offset": OFFSET, "_timestamp": TIMESTAMP, "_headers": HEADERS}
# Beside the pseudo columns, for a table's state alone: whether the value is null, which deletes the key's row.
IS_TOMBSTONE: Final = Column(" is tombstone ", "BOOLEAN")
_NO_FIELDS: Final = (*PSEUDO_COLUMNS, IS_TOMBSTONE.name)


@dataclass(frozen=True, slots=True)
class Misfit:
    """A record that does not fit its relation."""

    topic: str
    partition: int
    offset: int
    reason: str

    def __str__(self) -> str:
        return f"{self.topic} partition {self.partition} offset {self.offset}: {self.reason}"


class Misfits:
    """How many records of a query did not fit, and the first one; for several threads."""

    def __init__(self, *, stops: bool) -> None:
        """``stops``: the first one ends the query, by a ``SqlError``."""
        self.count = 0
        self.first: Misfit | None = None
        self._stops = stops
        self._lock = Lock()

    def note(self, count: int, first: Misfit) -> None:
        """So many of a batch, and the first of these."""
        if self._stops:
            raise SqlError(f"a record does not fit: {first}")
        with self._lock:
            self.count += count
            if self.first is None or (first.partition, first.offset) < (self.first.partition, self.first.offset):
                self.first = first

    def remark(self) -> str | None:
        """A sentence for the user, if there were any."""
        if self.first is None:
            return None
        what = "1 record does" if self.count == 1 else f"{self.count:,} records do"
        was = "was" if self.count == 1 else "were"
        return f"{what} not fit and {was} left out; the first: {self.first}"


class Decoding:
    """What makes a relation's columns of its raw batches, for one query; ``decoded`` is for several threads."""

    def __init__(self, relation: Relation, columns: Sequence[Column], misfits: Misfits) -> None:
        self._relation = relation
        self._columns = columns
        self._misfits = misfits
        pseudo = [column.name for column in columns if column.name in _NO_FIELDS]
        self._of_value = [column for column in columns if column.name not in pseudo and not column.is_key]
        self._time: Column | None = None
        if "_timestamp" in pseudo and (time := time_column(relation.columns, relation.options)) is not None:
            self._time = time
            self._read_time = _TimeReader(time, relation.options.get(PATTERN))
            self._of_value += [] if time in self._of_value else [time]
        of_key = [column for column in columns if column.is_key]
        fields = {_FIELDS[name] for name in pseudo if name in _FIELDS}
        fields |= {KEY} if of_key else set()
        fields |= {VALUE} if IS_TOMBSTONE in columns else set()
        # The offset says which record it is that does not fit.
        fields |= {VALUE, OFFSET} if self._of_value else set()
        fields |= {OFFSET} if of_key else set()
        self.fields = sorted(fields)
        self._decode = decoder(relation, self._of_value) if self._of_value else None
        self._cast_key = _Casting(of_key) if of_key else None

    def schema(self) -> pa.Schema:
        """That of all decoded batches: found out by decoding nothing."""
        empty = {name: pa.array([], TYPES[name]) for name in self.fields}
        return self.decoded(pa.RecordBatch.from_pydict(empty or {NO_COLUMN: pa.nulls(0)}), 0).schema

    def decoded(self, raw: pa.RecordBatch, partition: int) -> pa.RecordBatch:
        """The columns of the records that fit, in the order of the query's; ``SqlError`` where a misfit ends it."""
        found: dict[str, pa.Array] = {}
        reasons = None
        if self._decode is not None:
            arrays, reasons = self._decode(raw.column(VALUE))
            found |= {column.name: array for column, array in zip(self._of_value, arrays, strict=True)}
            if self._time is not None:
                found["_timestamp"], wrong = self._read_time(found[self._time.name], raw)
                reasons = pc.coalesce(reasons, wrong)
        if self._cast_key is not None:
            keys, wrong = self._cast_key.by_name(key_texts(raw.column(KEY)))
            found |= keys
            reasons = wrong if reasons is None else pc.coalesce(reasons, wrong)
        for column in self._columns:
            if column.name not in found:
                found[column.name] = _pseudo(column.name, raw, partition)
        names = [column.name for column in self._columns]
        if not names:
            names, found = [NO_COLUMN], {NO_COLUMN: raw.column(0)}
        batch = pa.RecordBatch.from_arrays([found[name] for name in names], names=names)
        if reasons is None or reasons.null_count == len(reasons):
            return batch
        return self._without_misfits(batch, raw, partition, reasons)

    def _without_misfits(
        self, batch: pa.RecordBatch, raw: pa.RecordBatch, partition: int, reasons: pa.Array
    ) -> pa.RecordBatch:
        fits = reasons.is_null()
        at = fits.index(False).as_py()
        first = Misfit(self._relation.topic, partition, raw.column(OFFSET)[at].as_py(), reasons[at].as_py())
        self._misfits.note(len(reasons) - reasons.null_count, first)
        return batch.filter(fits)


def _pseudo(name: str, raw: pa.RecordBatch, partition: int) -> pa.Array:
    if name == "_partition":
        return pa.repeat(pa.scalar(partition, pa.int32()), raw.num_rows)
    if name == IS_TOMBSTONE.name:
        return raw.column(VALUE).is_null()
    found = raw.column(_FIELDS[name])
    return key_texts(found) if name == "_key" else found


def key_texts(keys: pa.Array) -> pa.Array:
    """Keys as text; bytes that are no UTF-8 are written out, as ``\\xNN``."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array(
            [None if key is None else key.decode(errors="backslashreplace") for key in keys.to_pylist()], pa.string()
        )


def _texts(values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Values as text, and of which that cannot be: null, with the reason."""
    try:
        return values.cast(pa.string()), pa.nulls(len(values), pa.string())
    except pa.ArrowInvalid:
        texts: list[str | None] = []
        reasons: list[str | None] = []
        for value in values.to_pylist():
            try:
                texts.append(None if value is None else value.decode())
                reasons.append(None)
            except UnicodeDecodeError:
                texts.append(None)
                reasons.append(_NO_TEXT)
        return pa.array(texts, pa.string()), pa.array(reasons, pa.string())


# By format ------------------------------------------------------------------------------------------------------------


def decoder(relation: Relation, columns: Sequence[Column]) -> ValueDecoder:
    """What decodes the values of a relation, these columns of them; raises ``SqlError`` for a schema that is none."""
    if relation.format is Format.JSON:
        header = header_read(relation.options)
        return _JsonDecoder(columns) if header is None else _behind_header(_JsonDecoder(columns), header)
    if relation.format is Format.CSV:
        return _CsvDecoder(relation, columns)
    if relation.format is Format.TEXT:
        return _TextDecoder(columns)
    if relation.format is Format.BYTES:
        return lambda values: ([values] * len(columns), pa.nulls(len(values), pa.string()))
    from pybroker.sql.fetching.value_decoders import value_decoder

    return value_decoder(relation, columns)


def _behind_header(decode: ValueDecoder, header: Header) -> ValueDecoder:
    """Of values that have a schema registry's header in front."""

    def decode_behind(values: pa.Array) -> tuple[list[pa.Array], pa.Array]:
        behind, reasons = read_values(lambda value: without_header(value, header), values, pa.binary())
        arrays, wrong = decode(behind)
        return arrays, pc.coalesce(reasons, wrong)

    return decode_behind


class _Statement:
    """One statement of DuckDB over a table of Arrow, in a connection of each thread's own."""

    def __init__(self, sql: str) -> None:
        self._sql = sql
        self._local = local()

    def over(self, table: pa.Table) -> pa.Table:
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = closed_connection()
            connection.execute("SET TimeZone = 'UTC'").fetchall()
            # JSON stays JSON on its way to the query, and no text.
            connection.execute("SET arrow_lossless_conversion = true").fetchall()
        # A bare capsule: DuckDB would scan a table by way of `pyarrow.dataset`.
        connection.register("raw", table.__arrow_c_stream__())
        try:
            return connection.sql(self._sql).to_arrow_table()
        except duckdb.Error as error:
            raise SqlError(f"values are not read by these columns: {str(error).splitlines()[0]}") from error
        finally:
            connection.unregister("raw")


def _arrays(table: pa.Table) -> list[pa.Array]:
    return [_array(column) for column in table.columns]


def _array(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks > 1:
        return column.combine_chunks()
    # Arrow combines no chunks to a list of JSON.
    return column.chunk(0) if column.num_chunks else pa.nulls(0, column.type)


class _JsonDecoder:
    """Objects of JSON, by one pass of DuckDB's parser; what is null then, and is there, is looked at once more."""

    def __init__(self, columns: Sequence[Column]) -> None:
        read_as = (f"{_json_text(each.field)}:{_json_text(type_in_json(each.type))}" for each in columns)
        structure = "{" + ",".join(read_as) + "}"
        found, read = [], ["v", "j"]
        for at, each in enumerate(columns):
            own = f"j.{quoted(each.field)}"
            other = read_of_json(own, each.type)
            found.append(own if other is None else f"r{at}")
            read += [] if other is None else [f"{other} AS r{at}"]
        chosen = [f"{each} AS c{at}" for at, each in enumerate(found)]
        checks = [
            f"WHEN {condition} THEN {literal(f'{each.field} is no {each.type}')}"
            for each, own in zip(columns, found, strict=True)
            for condition in _misfits_of_json(each, own)
        ]
        self._statement = _Statement(
            f"SELECT {', '.join(chosen)}, CASE WHEN v IS NULL THEN NULL WHEN j IS NULL THEN 'is no JSON object' "
            f"{' '.join(checks)} END AS {_MISFIT} "
            f"FROM (SELECT {', '.join(read)} "
            f"FROM (SELECT v, CASE WHEN json_valid(v) AND starts_with(ltrim(v, E' \\t\\r\\n'), '{{') "
            f"THEN from_json(v, {literal(structure)}) END AS j FROM raw))"
        )

    def __call__(self, values: pa.Array) -> tuple[list[pa.Array], pa.Array]:
        texts, reasons = _texts(values)
        *arrays, misfits = _arrays(self._statement.over(pa.table({"v": texts})))
        return arrays, pc.coalesce(reasons, misfits) if reasons.null_count < len(reasons) else misfits


class _TextDecoder:
    """The whole value as text, in the first column, whatever its name; other types are cast."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._casting = _Casting(columns)

    def __call__(self, values: pa.Array) -> tuple[list[pa.Array], pa.Array]:
        texts, reasons = _texts(values)
        arrays, misfits = self._casting([texts])
        return arrays, pc.coalesce(reasons, misfits)


class _CsvDecoder:
    """One line each (`pybroker.values.csv_values`)."""

    def __init__(self, relation: Relation, columns: Sequence[Column]) -> None:
        of_value = [column for column in relation.columns if not column.is_key]
        self._reader = LineReader(len(of_value), relation.options.get("delimiter", ","))
        self._places = [of_value.index(column) for column in columns]
        self._casting = _Casting(columns)

    def __call__(self, values: pa.Array) -> tuple[list[pa.Array], pa.Array]:
        texts, reasons = _texts(values)
        rows: list[Sequence[str | None]] = []
        wrong: list[str | None] = []
        for text, reason in zip(texts.to_pylist(), reasons.to_pylist(), strict=True):
            fields, why = self._fields(text)
            rows.append(fields)
            wrong.append(reason or why)
        columns = [pa.array([row[place] for row in rows], pa.string()) for place in self._places]
        arrays, misfits = self._casting(columns)
        return arrays, pc.coalesce(pa.array(wrong, pa.string()), misfits)

    def _fields(self, text: str | None) -> tuple[Sequence[str | None], str | None]:
        nothing = [None] * self._reader.width
        if text is None:
            return nothing, None
        try:
            return self._reader.fields(text), None
        except ValueError as error:
            return nothing, str(error)


class _TimeReader:
    """The times that a column says; of a record without a value the time is the record's own."""

    def __init__(self, column: Column, pattern: str | None) -> None:
        match kind_of(column):
            case TimeKind.NUMBER:
                time = "TRY(make_timestamp_ms(CAST(t AS BIGINT)))"
            case TimeKind.TEXT if pattern is not None:
                # DuckDB reads a zone's offset, and not the letter that stands for none.
                read = literal(read_pattern(pattern))
                time = f"CAST(try_strptime(regexp_replace(t, 'Z$', '+00'), {read}) AS TIMESTAMP)"
            case _:
                time = "CAST(TRY_CAST(t AS TIMESTAMPTZ) AS TIMESTAMP)"
        wrong = f"concat({literal(f'{column.name} is no time: ')}, coalesce(CAST(t AS VARCHAR), 'null'))"
        self._statement = _Statement(
            f"SELECT coalesce({time}, CASE WHEN none THEN own END) AS at, "
            f"CASE WHEN NOT none AND {time} IS NULL THEN {wrong} END AS {_MISFIT} FROM raw"
        )

    def __call__(self, values: pa.Array, raw: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
        """The times, and why a value is none."""
        own = {"none": raw.column(VALUE).is_null(), "own": raw.column(TIMESTAMP)}
        times, wrong = _arrays(self._statement.over(pa.table({"t": values, **own})))
        return times.cast(TYPES[TIMESTAMP]), wrong.cast(pa.string())


class _Casting:
    """Texts as the types of columns, by DuckDB's casts."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = columns
        self._is_text = all(column.type in ("TEXT", "VARCHAR") for column in columns)
        names = [f"c{at}" for at in range(len(columns))]
        casts = [f"{read_of_text(name, each.type)} AS {name}" for name, each in zip(names, columns, strict=True)]
        checks = [
            f"WHEN {name} IS NOT NULL AND {read_of_text(name, each.type)} IS NULL "
            f"THEN {literal(f'{each.name} is no {each.type}')}"
            for name, each in zip(names, columns, strict=True)
        ]
        self._statement = _Statement(f"SELECT {', '.join(casts)}, CASE {' '.join(checks)} END AS {_MISFIT} FROM raw")

    def __call__(self, texts: Sequence[pa.Array]) -> tuple[list[pa.Array], pa.Array]:
        """A text each, or one for all columns."""
        given = list(texts) if len(texts) == len(self._columns) else [texts[0]] * len(self._columns)
        if self._is_text:
            return given, pa.nulls(len(given[0]), pa.string())
        table = pa.table({f"c{at}": array for at, array in enumerate(given)})
        *arrays, misfits = _arrays(self._statement.over(table))
        return arrays, misfits.cast(pa.string())

    def by_name(self, text: pa.Array) -> tuple[dict[str, pa.Array], pa.Array]:
        """All columns of one text, as of a key, and why it is none of their types."""
        arrays, misfits = self([text])
        return {column.name: array for column, array in zip(self._columns, arrays, strict=True)}, misfits


def quoted(name: str) -> str:
    """A name as DuckDB reads it in quotes."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text as SQL has it."""
    return "'" + text.replace("'", "''") + "'"


def _misfits_of_json(column: Column, found: str) -> Iterator[str]:
    """The conditions under which a field of JSON is not of its column's type: itself, or something inside of it.

    ``found`` is SQL: the field as it is read.
    """
    place = literal(pointer(column.field))
    yield f"{found} IS NULL AND coalesce(json_type(v, {place}), 'NULL') <> 'NULL'"
    if (inside := misfit_inside(found, "v", column.field, column.type)) is not None:
        yield inside


def _json_text(text: str) -> str:
    import json

    return json.dumps(text, ensure_ascii=False)
