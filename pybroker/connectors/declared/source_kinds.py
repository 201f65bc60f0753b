"""The kinds of sources, each with its keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pybroker.connectors.declared.common_keys import LETTERS, READING, check_pattern, converter_key
from pybroker.connectors.declared.config_keys import Key, KeyType, is_of_providers
from pybroker.connectors.declared.connector_kind import (
    CONNECTION,
    COPYING,
    FILE_FORMATS,
    Kind,
    SourcePartition,
    check_http,
    copying,
    own_dead_letters,
    writes_plain_json,
)
from pybroker.connectors.declared.converter_names import converter_named
from pybroker.connectors.declared.secret_texts import HIDDEN, is_reference, looks_secret, names_a_secret

_JDBC_MODES: Final = ("incrementing", "timestamp", "timestamp+incrementing")


def _jdbc_source(config: Mapping[str, str]) -> dict[str, list[str]]:
    found = writes_plain_json("JdbcSource")(config)
    if bool(config.get("table", "").strip()) == bool(config.get("query", "").strip()):
        found["table"] = ["either table or query names the rows"]
    for mode in config.get("mode", _JDBC_MODES[0]).strip().lower().split("+"):
        column = f"{mode}.column.name"
        if mode in _JDBC_MODES and not config.get(column, "").strip():
            found[column] = [f'Missing required configuration "{column}" which has no default value.']
    return found


def _file_source(config: Mapping[str, str]) -> dict[str, list[str]]:
    if config.get("format", "json").lower() == "text" or config.get("schema"):
        return {}
    return {"schema": ['Missing required configuration "schema": columns of csv, json and parquet are declared']}


def _topic_source(config: Mapping[str, str]) -> dict[str, list[str]]:
    found = copying("source.topics", "source.topics.regex")(config)
    if bool(config.get("source.topics", "").strip()) == bool(config.get("source.topics.regex", "").strip()):
        found["source.topics"] = ["either source.topics or source.topics.regex names what is read"]
    if not config.get("cluster.bootstrap.servers", "").strip():
        found |= own_dead_letters("source.topics", "source.topics.regex")(config)
    return found


def _partition_of_url(config: Mapping[str, str]) -> SourcePartition:
    return SourcePartition({"url": config.get("url", "").strip()}, "offset")


def _partition_of_rows(config: Mapping[str, str]) -> SourcePartition:
    # Of a query it is a constant, as of Connect's JDBC source: a column more in its text does not begin anew.
    table = config.get("table", "").strip()
    mode = config.get("mode", _JDBC_MODES[0]).strip().lower()
    return SourcePartition({"table": table} if table else {"query": "query"}, mode.partition("+")[0])


def _partition_of_database(config: Mapping[str, str]) -> SourcePartition | None:
    prefix = config.get("topic.prefix", "")
    return None if "${" in prefix else SourcePartition({"server": prefix}, "")


DEBEZIUM_POSTGRES: Final = "io.debezium.connector.postgresql.PostgresConnector"
# Of all connectors those that mean something to a connector of Debezium's.
_BESIDE_DEBEZIUM: Final = frozenset(
    (
        "name",
        "connector.class",
        "tasks.max",
        *(f"{side}.converter{more}" for side in ("key", "value") for more in ("", ".schemas.enable")),
        "errors.restarts.max",
        "errors.restarts.backoff.ms",
        "poll.interval.ms",
    )
)


def _debezium_postgres(config: Mapping[str, str]) -> dict[str, list[str]]:
    found = {
        name: [f"Invalid value {HIDDEN} for configuration {name}: a secret must be named by a config provider"]
        for name, text in config.items()
        if (names_a_secret(name) or looks_secret(text)) and name != "database.password" and not is_reference(text)
    }
    for side in ("key", "value"):
        if converter_named(config.get(f"{side}.converter", "json")) != "json":
            found[f"{side}.converter"] = ["events are JSON: json, or the class of Kafka's JsonConverter"]
    for name in ("topic", "key.fields"):
        if config.get(name, "").strip():
            found[name] = ["Debezium names topics and keys: topic.prefix, message.key.columns, or its transforms"]
    for name in config:
        if name.startswith("topic.creation."):
            found[name] = ["topics are made before, or by the broker: pybroker topics create"]
        if name.startswith(("offset.storage", "record.processing.")):
            found[name] = ["the supervisor keeps offsets and order"]
        if is_of_providers(name):
            found[name] = ["config providers are the supervisor's: its --worker file has them"]
    return found


SOURCES: Final = (
    Kind(
        "DebeziumPostgresSource",
        "source",
        "debezium_source",
        "Changes of tables in PostgreSQL, by Debezium's engine.",
        (
            Key(
                "topic.prefix",
                KeyType.STRING,
                "Debezium's: what the topics' names begin with.",
                is_required=True,
                importance="HIGH",
            ),
            Key("database.hostname", KeyType.STRING, "The database's host.", is_required=True, importance="HIGH"),
            Key("database.port", KeyType.INT, "Its port.", "5432", least=1),
            Key("database.dbname", KeyType.STRING, "The database.", is_required=True, importance="HIGH"),
            Key("database.user", KeyType.STRING, "The user, who may replicate.", is_required=True, importance="HIGH"),
            Key("database.password", KeyType.PASSWORD, "The user's password."),
            converter_key("key", "json"),
            converter_key("value", "json"),
            Key("poll.interval.ms", KeyType.LONG, "How often changes are looked for, in ms.", "500", least=1),
            Key(
                "exactly.once.support",
                KeyType.STRING,
                "Kafka's; a batch and its offset are one transaction anyway.",
                one_of=("requested", "required"),
            ),
        ),
        check=_debezium_postgres,
        has_offsets=True,
        partition=_partition_of_database,
        needs_spark=False,
        shared_keys=_BESIDE_DEBEZIUM,
        runs=DEBEZIUM_POSTGRES,
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
                one_of=FILE_FORMATS,
            ),
            Key(
                "schema", KeyType.STRING, "The columns, as DDL of Spark: id bigint, name string.  Text has one, value."
            ),
            Key("header", KeyType.BOOLEAN, "Whether CSV begins with the columns' names.", "false"),
            Key("delimiter", KeyType.STRING, "What stands between the fields of CSV.", ","),
            Key("max.files.per.batch", KeyType.INT, "How many files are taken at a time.", "100", least=1),
            *LETTERS,
        ),
        check=_file_source,
    ),
    Kind(
        "HttpSource",
        "source",
        "http_source",
        "JSON of a server that is asked again and again.",
        (
            Key("url", KeyType.STRING, "What is asked.", is_required=True, importance="HIGH", check=check_http),
            Key("http.authorization", KeyType.PASSWORD, "The header Authorization."),
            Key("records.path", KeyType.STRING, "Where the list is in the reply, as data.items.", ""),
            Key("offset.field", KeyType.STRING, "A field that grows: values with a greater one are new.", ""),
            Key("offset.parameter", KeyType.STRING, "The query's parameter that tells the server the last offset.", ""),
        ),
        check=writes_plain_json("HttpSource"),
        has_offsets=True,
        partition=_partition_of_url,
        needs_spark=False,
    ),
    Kind(
        "JdbcSource",
        "source",
        "jdbc_source",
        "New rows of a table or a query in PostgreSQL.",
        (
            *CONNECTION,
            Key("table", KeyType.STRING, "The table.", ""),
            Key("query", KeyType.STRING, "A query in place of a table.", ""),
            Key("mode", KeyType.STRING, "What tells new rows.", _JDBC_MODES[0], one_of=_JDBC_MODES),
            Key("incrementing.column.name", KeyType.STRING, "A column that grows with each new row.", ""),
            Key("timestamp.column.name", KeyType.STRING, "A column with the time of a row's last change.", ""),
            Key("timestamp.delay.interval.ms", KeyType.LONG, "How old a change must be.", "0", least=0),
            Key("db.timezone", KeyType.STRING, "The zone of times that have none, as the database names it.", "UTC"),
            Key("batch.max.rows", KeyType.INT, "How many rows are taken at a time.", "10000", least=1),
        ),
        check=_jdbc_source,
        has_offsets=True,
        partition=_partition_of_rows,
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
        check=writes_plain_json("UdpSource", "key.fields"),
        needs_spark=False,
    ),
    Kind(
        "TopicSource",
        "source",
        "topic_source",
        "Records of topics, of another cluster or this one.",
        (
            Key("source.topics", KeyType.LIST, "The topics that are read, with commas between.", "", importance="HIGH"),
            Key("source.topics.regex", KeyType.STRING, "A regular expression of topics.", check=check_pattern),
            *COPYING,
            *READING,
        ),
        check=_topic_source,
    ),
)
