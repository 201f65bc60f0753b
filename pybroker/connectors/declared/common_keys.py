"""Keys that all connectors have, all sources, or all sinks.

Owns their names, which are Kafka's where Kafka has the key (``ConnectorConfig``, ``SinkConnectorConfig``).
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

from pybroker.connectors.declared.config_keys import Key, KeyType
from pybroker.connectors.declared.converter_names import CONVERTERS, converter_named

TOPICS: Final = "topics"
TOPICS_REGEX: Final = "topics.regex"
TOLERANCE: Final = "errors.tolerance"
DEAD_LETTERS: Final = "errors.deadletterqueue.topic.name"
DEAD_LETTERS_FACTOR: Final = "errors.deadletterqueue.topic.replication.factor"
POLL_INTERVAL: Final = "poll.interval.ms"

_NAME_LENGTH_MAX: Final = 200
_FOLDER_LENGTH_MAX: Final = 255
# Below these stand keys of converters and transforms, which have their own checks.
PREFIXES: Final = ("transforms.", "predicates.")
# Below these stands every name.
ANY: Final = ("",)


def check_name(text: str) -> str | None:
    """The check of a connector's name, which is a part of paths, and the name of directories."""
    if not text.strip() or len(text) > _NAME_LENGTH_MAX or re.search(r"[\x00-\x1f\x7f/\\]", text):
        return f"a connector's name has 1 to {_NAME_LENGTH_MAX} characters, no slash and no control"
    if text in (".", ".."):
        return "a connector's name is more than one or two dots, which mean something in a path"
    try:
        length = len(quote(text, safe=""))
    except UnicodeEncodeError:
        return "a connector's name is a text, and this one has half of a pair of surrogates"
    if length > _FOLDER_LENGTH_MAX:
        return (
            f"a connector's name is one of directories, too: as that it has {length} characters, and "
            f"{_FOLDER_LENGTH_MAX} are the most; each byte beyond letters, digits and _.-~ counts as three"
        )
    return None


def _check_converter(text: str) -> str | None:
    return None if converter_named(text) else f"there is no such converter; there are {', '.join(CONVERTERS)}"


def check_pattern(text: str) -> str | None:
    """The check of a regular expression."""
    try:
        re.compile(text)
    except re.error as error:
        return f"it is no regular expression: {error}"
    return None


def converter_key(side: str, default: str) -> Key:
    """The key that names the converter of keys or values."""
    return Key(
        f"{side}.converter",
        KeyType.CLASS,
        f"The form of a record's {side}: {', '.join(CONVERTERS)}, or the class of Kafka that does the same.",
        default,
        check=_check_converter,
        group="Converters",
    )


def _converter(side: str, default: str) -> tuple[Key, ...]:
    return (
        converter_key(side, default),
        Key(
            f"{side}.converter.schemas.enable",
            KeyType.BOOLEAN,
            "Of json: whether a value stands below payload, with its schema beside it.",
            "false",
            group="Converters",
        ),
        Key(
            f"{side}.converter.schema",
            KeyType.STRING,
            f"Columns of the {side}: DDL of Spark for json (id bigint, "
            "name string), a schema or the path of one for avro, the path of descriptors for protobuf.",
            group="Converters",
        ),
        Key(
            f"{side}.converter.message",
            KeyType.STRING,
            "Of protobuf: the full name of the message.",
            group="Converters",
        ),
    )


EVERYWHERE: Final = (
    Key(
        "name",
        KeyType.STRING,
        "The connector's name.",
        is_required=True,
        importance="HIGH",
        group="Common",
        check=check_name,
    ),
    Key(
        "connector.class", KeyType.STRING, "The kind of connector.", is_required=True, importance="HIGH", group="Common"
    ),
    Key(
        "tasks.max",
        KeyType.INT,
        "Kafka's bound of tasks.  A connector is one query, whose tasks are Spark's.",
        "1",
        least=1,
        group="Common",
        importance="HIGH",
    ),
    *_converter("key", "text"),
    *_converter("value", "json"),
    Key("header.converter", KeyType.CLASS, "Kafka's; headers stay as they are.", group="Converters"),
    Key("transforms", KeyType.LIST, "Names of transforms, in their order.", "", group="Transforms", importance="LOW"),
    Key(
        "predicates",
        KeyType.LIST,
        "Names of predicates, which transforms refer to.",
        "",
        group="Predicates",
        importance="LOW",
    ),
    Key(
        TOLERANCE,
        KeyType.STRING,
        "Whether a record that cannot be read, changed or written ends the connector.",
        "none",
        one_of=("none", "all"),
        group="Error Handling",
    ),
    Key(
        "errors.retry.timeout",
        KeyType.LONG,
        "For how many ms a target that is away is waited for; -1 for ever.",
        "300000",
        least=-1,
        group="Error Handling",
    ),
    Key(
        "errors.log.enable",
        KeyType.BOOLEAN,
        "Whether records that are passed over are counted in the log.",
        "true",
        group="Error Handling",
    ),
    Key(
        "errors.restarts.max",
        KeyType.INT,
        "How often in a row a connector that failed is started again; -1 has no bound.",
        "10",
        least=-1,
        group="Error Handling",
    ),
    Key(
        "errors.restarts.backoff.ms",
        KeyType.LONG,
        "The pause before the first restart; each next one is twice as long, up to five minutes.",
        "1000",
        least=1,
        group="Error Handling",
    ),
    Key(
        POLL_INTERVAL, KeyType.LONG, "How often a connector looks for news, in ms.", "1000", least=0, group="Connector"
    ),
)

SOURCE: Final = (
    Key("topic", KeyType.STRING, "The topic that is written.", is_required=True, importance="HIGH"),
    Key("key.fields", KeyType.LIST, "Fields that make the key: one as it is, several as a struct.", ""),
)

_OF_TOPICS: Final = (
    Key(TOPICS, KeyType.LIST, "The topics that are read, with commas between.", importance="HIGH", group="Common"),
    Key(
        TOPICS_REGEX,
        KeyType.STRING,
        "A regular expression of topics.",
        importance="HIGH",
        group="Common",
        check=check_pattern,
    ),
)
# Of what passes over records and keeps them.
LETTERS: Final = (
    Key(
        DEAD_LETTERS,
        KeyType.STRING,
        "The topic of records that cannot be read, changed or written, with the reason in their headers.",
        "",
        group="Error Handling",
    ),
    Key(
        "errors.deadletterqueue.context.headers.enable",
        KeyType.BOOLEAN,
        "Whether dead letters have the reason in headers.",
        "true",
        group="Error Handling",
    ),
    Key(
        DEAD_LETTERS_FACTOR,
        KeyType.INT,
        "Copies of the topic of dead letters, which is made where it is missing; -1 is the broker's default.",
        "-1",
        least=-1,
        group="Error Handling",
    ),
)
# Of whatever reads topics.
READING: Final = (
    *LETTERS,
    Key("max.records.per.batch", KeyType.LONG, "How many records are taken at a time.", "100000", least=1),
    Key(
        "consumer.override.auto.offset.reset",
        KeyType.STRING,
        "Where a connector without offsets begins.",
        "earliest",
        one_of=("earliest", "latest"),
    ),
)

SINK: Final = (*_OF_TOPICS, *READING)
