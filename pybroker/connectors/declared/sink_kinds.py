"""The kinds of sinks, each with its keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pybroker.connectors.declared.common_keys import TOPICS, TOPICS_REGEX
from pybroker.connectors.declared.config_keys import Key, KeyType
from pybroker.connectors.declared.connector_kind import CONNECTION, COPYING, FILE_FORMATS, Kind, check_http, copying


def _check_directory(text: str) -> str | None:
    scheme, colon, _ = text.partition(":/")
    if (colon and scheme != "file") or not (text.startswith("/") or colon):
        return "it must be a directory, as /data/lake: DeltaSink writes to other stores"
    return None


def _jdbc_sink(config: Mapping[str, str]) -> dict[str, list[str]]:
    mode, keys = config.get("pk.mode", "none").lower(), config.get("pk.fields", "").strip()
    found: dict[str, list[str]] = {}
    if config.get("insert.mode", "insert").lower() == "upsert" and mode == "none":
        found["pk.mode"] = ["insert.mode upsert needs pk.mode record_key or record_value"]
    if mode != "none" and not keys:
        found["pk.fields"] = [f"pk.mode {mode} needs the columns of the key"]
    if config.get("delete.enabled", "false").strip().lower() == "true":
        if mode != "record_key":
            found["delete.enabled"] = ["a tombstone has its key alone: delete.enabled needs pk.mode record_key"]
        elif config.get("insert.mode", "insert").strip().lower() != "upsert":
            told = "rows that are added one by one have no key: delete.enabled needs insert.mode upsert"
            found["delete.enabled"] = [told]
    return found


SINKS: Final = (
    Kind(
        "TopicSink",
        "sink",
        "topic_sink",
        "Records of other topics, of this cluster or another one.",
        COPYING,
        check=copying(TOPICS, TOPICS_REGEX),
    ),
    Kind(
        "FileSink",
        "sink",
        "file_sink",
        "Files of a directory: Parquet, or lines of JSON, CSV or text.",
        (
            Key("path", KeyType.STRING, "The directory.", is_required=True, importance="HIGH", check=_check_directory),
            Key("format", KeyType.STRING, "The form of the files.", "parquet", one_of=FILE_FORMATS),
            Key(
                "partition.by",
                KeyType.STRING,
                "What time span, in UTC, has a folder of its own.",
                "day",
                one_of=("none", "month", "day", "hour"),
            ),
            Key(
                "partition.field",
                KeyType.STRING,
                "The field that has the time: the record's own, or one of the value.",
                "_timestamp",
            ),
            Key(
                "file.size.bytes",
                KeyType.LONG,
                "From what size on rows of one folder become a file that is seen.",
                "134217728",
                least=1,
            ),
            Key(
                "rotate.interval.ms",
                KeyType.LONG,
                "After what time they become one, however few they are.",
                "300000",
                least=0,
            ),
            Key(
                "compression",
                KeyType.STRING,
                "Of Parquet.",
                "zstd",
                one_of=("zstd", "snappy", "gzip", "none"),
            ),
            Key("header", KeyType.BOOLEAN, "Whether CSV begins with the columns' names.", "false"),
            Key("delimiter", KeyType.STRING, "What stands between the fields of CSV.", ","),
            Key("auto.evolve", KeyType.BOOLEAN, "Whether rows may have columns that are new.", "false"),
        ),
    ),
    Kind(
        "JdbcSink",
        "sink",
        "jdbc_sink",
        "Rows of a table in PostgreSQL.",
        (
            *CONNECTION,
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
        check=_jdbc_sink,
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
            Key("url", KeyType.STRING, "The server.", is_required=True, importance="HIGH", check=check_http),
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
