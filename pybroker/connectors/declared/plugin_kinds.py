"""The kinds of connectors: their names, keys, and what of Kafka's classes each stands for.

Owns the schema of each kind.  The code of a kind is in ``kinds/``, found by the module's name here, and imported when a
connector starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final, Literal

from pybroker.connectors.declared.common_keys import EVERYWHERE, SINK, SOURCE, TOPICS, TOPICS_REGEX
from pybroker.connectors.declared.config_keys import Key, KeyType, nearest
from pybroker.connectors.declared.standing_keys import KEYS, SHARED_KEYS
from pybroker.sql.standing_plans import STANDING_QUERY


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of connector; ``module`` in ``pybroker.connectors.kinds`` has its code."""

    name: str
    type: Literal["source", "sink"]
    module: str
    summary: str
    own_keys: Sequence[Key]
    # Whether a source's offsets are in the topic of offsets; else its checkpoint has its place.
    has_offsets: bool = False
    needs_spark: bool = True
    # Of the shared keys those that mean something; None: all.
    shared_keys: AbstractSet[str] | None = None
    # Whether a checkpoint has state, so that its offsets can be reset, and not altered.
    keeps_state: bool = False

    @property
    def keys(self) -> tuple[Key, ...]:
        """All keys of its configuration."""
        own = {key.name for key in self.own_keys}
        shared = (*EVERYWHERE, *(SOURCE if self.type == "source" else SINK))
        meant = {key.name for key in shared} if self.shared_keys is None else self.shared_keys
        return (*(key for key in shared if key.name in meant - own), *self.own_keys)


def _check_url(text: str) -> str | None:
    if not text.startswith("jdbc:postgresql:"):
        return "it must begin with jdbc:postgresql:"
    return "a password must not stand in it: connection.password names it" if "password=" in text.lower() else None


def _check_http(text: str) -> str | None:
    return None if text.startswith(("http://", "https://")) else "it must begin with http:// or https://"


_CONNECTION = (
    Key(
        "connection.url",
        KeyType.STRING,
        "The database, as jdbc:postgresql://HOST:PORT/DATABASE.",
        is_required=True,
        importance="HIGH",
        group="Database",
        check=_check_url,
    ),
    Key("connection.user", KeyType.STRING, "The user.", group="Database"),
    Key("connection.password", KeyType.PASSWORD, "The user's password.", group="Database"),
)

_FILE_FORMATS = ("csv", "json", "text", "parquet")

KINDS: Final = (
    Kind(
        STANDING_QUERY,
        "sink",
        "standing_query",
        "A query of `pybroker sql` that reads topics and writes one.",
        KEYS,
        shared_keys=SHARED_KEYS,
        keeps_state=True,
    ),
    Kind(
        "FileSource",
        "source",
        "file_source",
        "Files of a directory as they arrive.",
        (
            Key(
                "path",
                KeyType.STRING,
                "The directory, or a pattern of directories; each new file in it is read once.",
                is_required=True,
                importance="HIGH",
            ),
            Key(
                "format",
                KeyType.STRING,
                "The form of the files: csv, json (a value a line), text, parquet.",
                "json",
                one_of=_FILE_FORMATS,
            ),
            Key(
                "schema", KeyType.STRING, "The columns, as DDL of Spark: id bigint, name string.  Text has one, value."
            ),
            Key("header", KeyType.BOOLEAN, "Whether CSV begins with the columns' names.", "false"),
            Key("delimiter", KeyType.STRING, "What stands between the fields of CSV.", ","),
            Key("max.files.per.batch", KeyType.INT, "How many files are taken at a time.", "100", least=1),
        ),
    ),
    Kind(
        "HttpSource",
        "source",
        "http_source",
        "JSON of a server that is asked again and again.",
        (
            Key("url", KeyType.STRING, "What is asked.", is_required=True, importance="HIGH", check=_check_http),
            Key("http.authorization", KeyType.PASSWORD, "The header Authorization."),
            Key("records.path", KeyType.STRING, "Where the list is in the reply, as data.items.", ""),
            Key("offset.field", KeyType.STRING, "A field that grows: values with a greater one are new.", ""),
            Key("offset.parameter", KeyType.STRING, "The query's parameter that tells the server the last offset.", ""),
        ),
        has_offsets=True,
        needs_spark=False,
    ),
    Kind(
        "JdbcSource",
        "source",
        "jdbc_source",
        "New rows of a table or a query in PostgreSQL.",
        (
            *_CONNECTION,
            Key("table", KeyType.STRING, "The table.", ""),
            Key("query", KeyType.STRING, "A query in place of a table.", ""),
            Key("mode", KeyType.STRING, "What tells new rows.", "incrementing", one_of=("incrementing", "timestamp")),
            Key("incrementing.column.name", KeyType.STRING, "A column that grows with each new row.", ""),
            Key("timestamp.column.name", KeyType.STRING, "A column with the time of a row's last change.", ""),
            Key("timestamp.delay.interval.ms", KeyType.LONG, "How old a change must be.", "0", least=0),
            Key("batch.max.rows", KeyType.INT, "How many rows are taken at a time.", "10000", least=1),
        ),
        has_offsets=True,
    ),
    Kind(
        "UdpSource",
        "source",
        "udp_source",
        "Datagrams of syslog or StatsD.",
        (
            Key("host", KeyType.STRING, "The address at which datagrams are heard.", "127.0.0.1"),
            Key("port", KeyType.INT, "The port.", is_required=True, importance="HIGH", least=0),
            Key("format", KeyType.STRING, "What they are.", "syslog", one_of=("syslog", "statsd")),
        ),
        needs_spark=False,
    ),
    Kind(
        "JdbcSink",
        "sink",
        "jdbc_sink",
        "Rows of a table in PostgreSQL.",
        (
            *_CONNECTION,
            Key("table.name.format", KeyType.STRING, "The table, with ${topic} for the topic's name.", "${topic}"),
            Key(
                "insert.mode",
                KeyType.STRING,
                "Whether rows are added, or replace those of their key.",
                "insert",
                one_of=("insert", "upsert"),
            ),
            Key(
                "pk.mode",
                KeyType.STRING,
                "Where the key's columns come from.",
                "none",
                one_of=("none", "record_key", "record_value"),
            ),
            Key("pk.fields", KeyType.LIST, "The columns of the key.", ""),
            Key("delete.enabled", KeyType.BOOLEAN, "Whether a tombstone deletes the row of its key.", "false"),
            Key("auto.create", KeyType.BOOLEAN, "Whether a table that is missing is created.", "false"),
            Key("auto.evolve", KeyType.BOOLEAN, "Whether columns that are missing are added.", "false"),
        ),
    ),
    Kind(
        "DeltaSink",
        "sink",
        "delta_sink",
        "Rows of a Delta table.",
        (
            Key("path", KeyType.STRING, "Where the table lies.", is_required=True, importance="HIGH"),
            Key("partition.fields", KeyType.LIST, "Fields whose values divide the table.", ""),
            Key("auto.evolve", KeyType.BOOLEAN, "Whether columns that are missing are added.", "false"),
        ),
    ),
    Kind(
        "HttpSink",
        "sink",
        "http_sink",
        "Documents of Elasticsearch or OpenSearch, by bulk requests.",
        (
            Key("url", KeyType.STRING, "The server.", is_required=True, importance="HIGH", check=_check_http),
            Key("http.authorization", KeyType.PASSWORD, "The header Authorization."),
            Key("index", KeyType.STRING, "The index, with ${topic} for the topic's name.", "${topic}"),
            Key(
                "id.mode",
                KeyType.STRING,
                "What a document's id is: the record's place, or its key.",
                "record",
                one_of=("record", "key"),
            ),
            Key("batch.size", KeyType.INT, "How many documents a request has.", "2000", least=1),
        ),
    ),
)


# Kinds that write JSON as it comes.
_PLAIN = ("HttpSource", "JdbcSource", "UdpSource")


def kind_named(text: str) -> Kind | None:
    """The kind of a ``connector.class``, also with a package before it or ``Connector`` behind it."""
    wanted = text.strip().removesuffix("Connector")
    return next((kind for kind in KINDS if kind.name.lower() == wanted.lower()), None)


def unknown_kind(text: str) -> str:
    """The error of a ``connector.class`` that there is not."""
    near = nearest(text.rpartition(".")[2].removesuffix("Connector"), [kind.name for kind in KINDS])
    hint = f"is {near} meant?" if near else f"there are {', '.join(kind.name for kind in KINDS)}"
    return f"Failed to find any class that implements Connector and which name matches {text}; {hint}"


def together(kind: Kind, config: Mapping[str, str]) -> dict[str, list[str]]:
    """What is wrong with values as they stand together, by the key that is named."""
    found: dict[str, list[str]] = {}
    if kind.type == "sink":
        topics, pattern = config.get(TOPICS, "").strip(), config.get(TOPICS_REGEX, "").strip()
        if bool(topics) == bool(pattern):
            told = "exclusive" if topics else "required"
            found[TOPICS] = [
                "topics and topics.regex are mutually exclusive options, but both are set."
                if told == "exclusive"
                else "Must configure one of topics or topics.regex"
            ]
    if kind.name in _PLAIN:
        refused = ("transforms", "key.converter", "value.converter")
        for name in (*refused, "key.fields") if kind.name == "UdpSource" else refused:
            if config.get(name, "").strip():
                found[name] = [f"{kind.name} writes JSON as it comes: a job or a sink behind it has {name}"]
    if kind.name == "JdbcSource":
        found |= _jdbc_source(config)
    if kind.name == "JdbcSink":
        found |= _jdbc_sink(config)
    if kind.name == "FileSource" and config.get("format", "json").lower() != "text" and not config.get("schema"):
        found["schema"] = ['Missing required configuration "schema": columns of csv, json and parquet are declared']
    return found


def _jdbc_source(config: Mapping[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    if bool(config.get("table", "").strip()) == bool(config.get("query", "").strip()):
        found["table"] = ["either table or query names the rows"]
    column = f"{config.get('mode', 'incrementing').strip().lower()}.column.name"
    if column in ("incrementing.column.name", "timestamp.column.name") and not config.get(column, "").strip():
        found[column] = [f'Missing required configuration "{column}" which has no default value.']
    return found


def _jdbc_sink(config: Mapping[str, str]) -> dict[str, list[str]]:
    mode, keys = config.get("pk.mode", "none").lower(), config.get("pk.fields", "").strip()
    found: dict[str, list[str]] = {}
    if config.get("insert.mode", "insert").lower() == "upsert" and mode == "none":
        found["pk.mode"] = ["insert.mode upsert needs pk.mode record_key or record_value"]
    if mode != "none" and not keys:
        found["pk.fields"] = [f"pk.mode {mode} needs the columns of the key"]
    if config.get("delete.enabled", "false").lower() == "true" and mode != "record_key":
        found["delete.enabled"] = ["a tombstone has its key alone: delete.enabled needs pk.mode record_key"]
    return found
