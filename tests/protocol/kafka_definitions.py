"""Kafka's own message definitions, as they lie in installed packages, and what they say about a version.

Owns: finding and reading the definitions, and comparing one with a declaration of ours, field by field.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZipFile

from harness.apache_kafka import JARS_DIRECTORY, KAFKA_VERSION

from pybroker_protocol.schema import (
    Array,
    Field,
    Fixed,
    Message,
    Nested,
    Struct,
    Variable,
    Versions,
    WireType,
    schema_of,
)

Definition = dict[str, Any]

JAR_PARTS = ("clients", "group-coordinator", "transaction-coordinator", "share-coordinator", "metadata")

# Where a declaration means to differ from a definition: version 0 is the header of a request that is long removed.
MEANT_VERSIONS = {"RequestHeader": Versions(0, 2)}
# Fields that brokers send each other and Kafka does not know: tagged, so that it would pass over them.
MEANT_FIELDS = {("BrokerHeartbeatRequest", "full_log_dirs"), ("BrokerHeartbeatRequest", "mirror_reports")}


# What Kafka has renamed, or marked, since the definitions inside of kafka-python: field, its key, then and now.
SINCE_KAFKA_PYTHON = {
    "TxnOffsetCommitRequest": ("GenerationId", "name", "GenerationIdOrMemberEpoch"),
    "DescribeProducersRequest": ("Name", "mapKey", True),
}


def definitions_of_kafka_python() -> dict[str, Definition]:
    """The definitions inside of the kafka-python wheel, by message name, with the names that Kafka has today."""
    resources = files("kafka.protocol.schemas.resources")
    definitions = _by_name(item.read_text() for item in resources.iterdir() if item.name.endswith(".json"))
    for message, (name, key, value) in SINCE_KAFKA_PYTHON.items():
        _field_of(definitions[message]["fields"], name)[key] = value
    return definitions


def _field_of(fields: list[Definition], name: str) -> Definition:
    """The first field of that name, however deep it lies."""
    for field in fields:
        if field["name"] == name:
            return field
        found = _field_of(field.get("fields", []), name)
        if found:
            return found
    return {}


def jars() -> list[Path]:
    """The jars of the reference Kafka that hold definitions; empty where they were not downloaded."""
    found = [path for part in JAR_PARTS for path in JARS_DIRECTORY.glob(f"kafka-{part}-{KAFKA_VERSION}.jar")]
    return found if len(found) == len(JAR_PARTS) else []


def definitions_of_jars() -> dict[str, Definition]:
    """The definitions inside of the jars, by message name, without those of removed APIs."""
    return _by_name(_texts_in_jars())


def _texts_in_jars() -> Iterator[str]:
    for path in jars():
        with ZipFile(path) as jar:
            for name in jar.namelist():
                if re.fullmatch(r"common/(message|metadata)/\w+\.json", name):
                    yield jar.read(name).decode()


def _by_name(texts: Iterable[str]) -> dict[str, Definition]:
    definitions = (json.loads(re.sub(r"(?m)(^|\s)//.*$", "", text)) for text in texts)
    return {d["name"]: d for d in definitions if d["validVersions"] != "none"}


def defined_versions(definition: Definition) -> Versions:
    """The versions that a message of ours is to have."""
    return MEANT_VERSIONS.get(definition["name"]) or Versions.parse(definition["validVersions"])


class Column(NamedTuple):
    """What a message says about one field in one version, in Kafka's words."""

    name: str
    type: str
    nullable: bool
    tag: int | None
    default: Any
    map_key: bool


class Differences:
    """The differences between a definition and a declaration, in all versions that both have."""

    def __init__(self, definition: Definition, cls: type[Message]) -> None:
        self.found: list[str] = []
        self._structs = {struct["name"]: struct["fields"] for struct in definition.get("commonStructs", [])}
        self._compare_heads(definition, cls)
        declared = cls.__declaration__.versions
        defined = defined_versions(definition)
        assert declared is not None
        for version in range(max(declared.lowest, defined.lowest), min(declared.highest, defined.highest) + 1):
            self._compare(f"{cls.__name__} v{version}", definition["fields"], cls, version)

    def _compare_heads(self, definition: Definition, cls: type[Message]) -> None:
        declaration = cls.__declaration__
        defined = defined_versions(definition)
        assert declaration.versions is not None
        if declaration.key != definition.get("apiKey"):
            self.found.append(f"{cls.__name__} has key {declaration.key}, not {definition.get('apiKey')}")
        for version in range(declaration.versions.lowest, min(declaration.versions.highest, defined.highest) + 1):
            flexible = version in Versions.parse(definition["flexibleVersions"])
            if (version in declaration.flexible) != flexible:
                self.found.append(f"{cls.__name__} v{version} is {'' if flexible else 'not '}flexible")

    def _compare(self, where: str, fields: list[Definition], cls: type[Struct], version: int) -> None:
        defined = {snake_case(field["name"]): field for field in fields}
        own = [field for field in schema_of(cls).fields if (cls.__name__, field.name) not in MEANT_FIELDS]
        declared = {field.name: field for field in own}
        theirs = [self._defined(field, version) for field in fields if version in _versions(field)]
        ours = [_declared(field, version) for field in own if version in field.versions]
        if theirs != ours:
            self.found.append(f"{where}:\n  defined  {theirs}\n  declared {ours}")
            return
        for name, field in declared.items():
            if version not in field.versions and name in defined:
                self._compare_absent(f"{where}.{name}", defined[name], field)
        for column in ours:
            struct = _struct_of(declared[column.name].type)
            if struct is not None:
                inner = self._fields_of(defined[column.name])
                self._compare(f"{where}.{column.name}", inner, struct, version)

    def _compare_absent(self, where: str, defined: Definition, declared: Field) -> None:
        if bool(defined.get("ignorable")) != declared.ignorable:
            self.found.append(f"{where}: ignorable is {declared.ignorable}")
        if default_of(defined) != _plain_default(declared):
            self.found.append(f"{where}: the default is {declared.default!r}")

    def _fields_of(self, field: Definition) -> list[Definition]:
        fields: list[Definition] = field.get("fields") or self._structs.get(field["type"].removeprefix("[]"), [])
        for inner in fields:  # a struct may be defined where it is used first, and used again without its fields
            if inner.get("fields"):
                self._structs.setdefault(inner["type"].removeprefix("[]"), inner["fields"])
        return fields

    def _defined(self, field: Definition, version: int) -> Column:
        tagged = version in Versions.parse(field.get("taggedVersions", "none"))
        return Column(
            name=snake_case(field["name"]),
            type=re.sub(r"\b[A-Z]\w*", "struct", field["type"]),
            nullable=version in Versions.parse(field.get("nullableVersions", "none")),
            tag=field["tag"] if tagged else None,
            default=default_of(field),
            map_key=bool(field.get("mapKey")),
        )


def _declared(field: Field, version: int) -> Column:
    return Column(
        name=field.name,
        type=_type_name(field.type),
        nullable=version in field.nullable,
        tag=field.tag if version in field.tagged else None,
        default=_plain_default(field),
        map_key=field.map_key,
    )


def _versions(field: Definition) -> Versions:
    return Versions.parse(field.get("versions") or field["taggedVersions"])


def _struct_of(wire_type: WireType) -> type[Struct] | None:
    match wire_type:
        case Nested(struct):
            return struct
        case Array(element):
            return _struct_of(element)
    return None


def _type_name(wire_type: WireType) -> str:
    match wire_type:
        case Array(element):
            return "[]" + _type_name(element)
        case Nested():
            return "struct"
        case Fixed(name) | Variable(name):
            return name


def _plain_default(field: Field) -> Any:
    return "a new struct" if isinstance(field.default, Struct) else field.default


def default_of(field: Definition) -> Any:
    """A field's default as Kafka's generator has it: text that says "null" is null, JSON's null is nothing at all."""
    kind, given = field["type"], field.get("default")
    if kind == "records" or given == "null":
        return None
    if kind.startswith("[]"):
        return []
    match kind:
        case "string":
            return given or ""
        case "bytes":
            return b""
        case "uuid":
            return bytes(16)
        case "bool":
            return given in (True, "true")
        case "float64":
            return float(given or 0)
    if kind[0].isupper():
        return "a new struct"
    return int(str(given or 0), 0)


def snake_case(name: str) -> str:
    """Kafka's ``KRaftVersionFeature`` or ``groupInstanceId`` in Python's way."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.replace("KRaft", "Kraft")).lower()
