"""Options of a declaration's format, for questions and for standing queries: which format has which.

Owns that a declaration has its schema inside, so that another machine can read by it.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pybroker.extras import how_to_install
from pybroker.sql.relations.catalog import Format
from pybroker.sql.sql_errors import SqlError
from pybroker.values.registry_header import Header, header_of
from pybroker.values.schema_registry import SchemaRegistry

# Before descriptors of Protobuf that stand in a declaration.
DESCRIPTORS: Final = "base64,"
_AVRO_FILE: Final = ".avsc"
# Of a declaration, and of a session: where the schema registry is.
REGISTRY: Final = "schema.registry.url"
SCHEMA_ID: Final = "value_schema_id"
HEADER: Final = "registry_header"
# The name of a schema of Avro that is made of columns; one that there is keeps its own.
FULL_NAME: Final = "value_schema_full_name"
# By the names that ksqlDB has for the same.
_OTHER_NAMES: Final = {
    "kafka_topic": "topic",
    "value_format": "format",
    "value_delimiter": "delimiter",
    "value_avro_schema_full_name": FULL_NAME,
}
_WITH_HEADER: Final = (Format.AVRO, Format.PROTOBUF, Format.JSON)
_FORMATS_WITH: Final = {
    "delimiter": (Format.CSV,),
    "schema": (Format.AVRO, Format.PROTOBUF),
    "message": (Format.PROTOBUF,),
    FULL_NAME: (Format.AVRO,),
    **dict.fromkeys((HEADER, REGISTRY, SCHEMA_ID), _WITH_HEADER),
}


def check_options(kind: Format, options: Mapping[str, str]) -> None:
    """``SqlError`` for an option that has no effect with this format."""
    for name in options:
        if kind not in _FORMATS_WITH.get(name, (kind,)):
            raise SqlError(f"{name} is no option of format {kind}")


def by_own_names(options: Mapping[str, str]) -> dict[str, str]:
    """The options of a statement, by the names that they have here; ``SqlError`` for one by both names."""
    found: dict[str, str] = {}
    for name, value in options.items():
        own = _OTHER_NAMES.get(name, name)
        if own in found:
            raise SqlError(f"{own} is given twice, once by the name that ksqlDB has for it")
        found[own] = value
    return found


def missing_library(kind: Format, error: ModuleNotFoundError) -> SqlError:
    """What is said where values of a format need a library that is not installed."""
    return SqlError(f"format {kind} needs {error.name}: {how_to_install('sql')}")


def registry_header(options: Mapping[str, str]) -> Header | None:
    """The header of a schema registry that values have, if any; raises ``SqlError`` for an option that says neither."""
    text = options.get(HEADER, "false")
    lowered = text.lower()
    if lowered in ("true", "false"):
        return Header() if lowered == "true" else None
    if not is_id(lowered):
        raise SqlError(f"registry_header is true, false or the id of a schema, not {text}")
    return Header(int(lowered))


def is_id(text: str) -> bool:
    """Whether a text may be the id of a schema, as registries count them."""
    return re.fullmatch("[0-9]{1,10}", text) is not None and int(text) < 2**31


def header_read(options: Mapping[str, str]) -> Header | None:
    """The header that a value has to have: where a registry says what an id is, any one."""
    return Header() if REGISTRY in options else registry_header(options)


def header_written(options: Mapping[str, str], indexes: tuple[int, ...] = ()) -> bytes:
    """What stands in front of a value, behind which message of Protobuf it is; ``SqlError`` where no id is known."""
    found = registry_header(options)
    if found is None:
        return b""
    if found.schema_id is None:
        raise SqlError(f"values have a registry's header, and {HEADER}=ID says which schema's is written")
    return header_of(found.schema_id, indexes)


def check_written(options: Mapping[str, str]) -> None:
    """``SqlError`` where a value would be written without a header that its own declaration wants."""
    if REGISTRY in options and registry_header(options) is None:
        raise SqlError(f"values have a registry's header, and {HEADER}=ID says which schema's is written")


def registry_of(options: Mapping[str, str]) -> SchemaRegistry | None:
    """The schema registry that the options name; ``SqlError`` for what is no address."""
    url = options.get(REGISTRY)
    try:
        return None if url is None else SchemaRegistry(url)
    except ValueError as error:
        raise SqlError(f"{REGISTRY}: {error}") from error


def with_schema_inside(kind: Format, options: Mapping[str, str]) -> dict[str, str]:
    """The options with the schema in place of its file, which other machines may not have; raises OSError."""
    schema = options.get("schema", "")
    if kind is Format.AVRO and schema.endswith(_AVRO_FILE):
        return {**options, "schema": Path(schema).read_text(encoding="utf-8")}
    if kind is Format.PROTOBUF and schema and not schema.startswith(DESCRIPTORS):
        return {**options, "schema": DESCRIPTORS + base64.b64encode(Path(schema).read_bytes()).decode()}
    return dict(options)


def reads_a_file(kind: Format, options: Mapping[str, str]) -> bool:
    """Whether the schema is the path of a file, and no schema."""
    schema = options.get("schema", "").strip()
    if kind is Format.PROTOBUF:
        return bool(schema) and not schema.startswith(DESCRIPTORS)
    return schema.endswith(_AVRO_FILE)


def descriptors(schema: str) -> bytes | Path:
    """The descriptors of a declaration's ``schema``, or the file that has them."""
    if schema.startswith(DESCRIPTORS):
        return base64.b64decode(schema.removeprefix(DESCRIPTORS))
    return Path(schema)
