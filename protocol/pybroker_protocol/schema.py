"""The vocabulary in which every message is declared.

Owns: field types, field attributes, the base classes of messages, and the schema that is read from a class.
Owns no encoding: ``codec`` compiles what is declared here.

A declaration is the class that the code uses and that type checkers see::

    class HeartbeatRequest(Request, key=12, versions="0-4", flexible="4+"):
        group_id: String
        group_instance_id: NullableString = since(3)

Invariants: creating a class costs little more than ``type()``: the schema is read at its first use, the constructor
is generated at its first call.  An attribute of every field exists in every instance, whatever the version.
The default of a struct field is one shared, frozen instance: assign a new struct instead of changing it.

To a type checker a field without ``=`` is a required argument; at run time every field has Kafka's default.

Kafka counterpart: the message generator (org.apache.kafka.message) and its JSON definitions.
"""

import sys
import types
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple, TypeVar, dataclass_transform, get_args, get_origin, get_type_hints

from pybroker_protocol.source import Source

Buffer = bytes | bytearray | memoryview


class Versions(NamedTuple):
    """An inclusive range of versions; ``NEVER`` is the empty one."""

    lowest: int
    highest: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.lowest <= version <= self.highest

    @classmethod
    def parse(cls, text: str) -> "Versions":
        """Read Kafka's notation: ``"3"``, ``"0-4"``, ``"3+"`` or ``"none"``."""
        if text == "none":
            return NEVER
        if text.endswith("+"):
            return cls(int(text[:-1]), _LAST)
        lowest, _, highest = text.partition("-")
        return cls(int(lowest), int(highest or lowest))


_LAST = 0x7FFF
NEVER = Versions(0, -1)
ALWAYS = Versions(0, _LAST)


class Fixed(NamedTuple):
    """A type of fixed size: ``format`` is its letter for ``struct``, ``size`` its bytes on the wire."""

    name: str
    format: str
    size: int
    default: Any


class Variable(NamedTuple):
    """A type behind a length: string, bytes, or records."""

    name: str
    default: Any


class Array(NamedTuple):
    """A list of elements of one type."""

    element: "WireType"


class Nested(NamedTuple):
    """A struct inside of a message."""

    struct: "type[Struct]"


WireType = Fixed | Variable | Array | Nested

_NULLABLE = "nullable"
_STRING, _BYTES, _RECORDS = Variable("string", ""), Variable("bytes", b""), Variable("records", None)

Bool = Annotated[bool, Fixed("bool", "?", 1, False)]
Int8 = Annotated[int, Fixed("int8", "b", 1, 0)]
Int16 = Annotated[int, Fixed("int16", "h", 2, 0)]
Uint16 = Annotated[int, Fixed("uint16", "H", 2, 0)]
Int32 = Annotated[int, Fixed("int32", "i", 4, 0)]
Int64 = Annotated[int, Fixed("int64", "q", 8, 0)]
Float64 = Annotated[float, Fixed("float64", "d", 8, 0.0)]
Uuid = Annotated[bytes, Fixed("uuid", "16s", 16, bytes(16))]
String = Annotated[str, _STRING]
NullableString = Annotated[str | None, _STRING, _NULLABLE]
Bytes = Annotated[bytes, _BYTES]
NullableBytes = Annotated[bytes | None, _BYTES, _NULLABLE]
Records = Annotated[Buffer, _RECORDS]
NullableRecords = Annotated[Buffer | None, _RECORDS, _NULLABLE]


class _Unset:
    """Stands for an argument that was not given."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<default>"


UNSET = _Unset()


class FieldSpec(NamedTuple):
    """What stands right of the ``=`` in a declaration; versions are in Kafka's notation, None where left out."""

    versions: str | None = None
    nullable: str | None = None
    tag: int | None = None
    tagged: str | None = None
    default: Any = UNSET
    ignorable: bool = False
    map_key: bool = False
    flexible: str | None = None


def field(
    *,
    versions: str | None = None,
    nullable: str | None = None,
    tag: int | None = None,
    tagged: str | None = None,
    default: Any = UNSET,
    ignorable: bool = False,
    map_key: bool = False,
    flexible: str | None = None,
) -> Any:
    """Describe a field.

    ``versions``: those that have the field (all of the message's, if left out).
    ``nullable``: those where a nullable type may be null (all that have the field, if left out).
    ``tag``: the field's tag; ``tagged``: the versions where it is a tagged field (all that have it, if left out).
    ``default``: null for a nullable type and the type's zero for others, if left out; a struct class stands for
    an instance of it with every field at its default.
    ``ignorable``: a value is dropped silently, not refused, in versions that lack the field.
    ``map_key``: the field identifies its struct among its siblings; it does not change the encoding.
    ``flexible``: ``"none"`` keeps the field's old encoding in flexible versions.
    """
    return FieldSpec(versions, nullable, tag, tagged, default, ignorable, map_key, flexible)


def since(
    version: int,
    *,
    nullable: str | None = None,
    tag: int | None = None,
    default: Any = UNSET,
    ignorable: bool = False,
    map_key: bool = False,
    flexible: str | None = None,
) -> Any:
    """Describe a field that came with ``version`` and is still there; arguments as of ``field``."""
    return FieldSpec(f"{version}+", nullable, tag, None, default, ignorable, map_key, flexible)


def until(
    version: int,
    *,
    nullable: str | None = None,
    default: Any = UNSET,
    ignorable: bool = False,
    map_key: bool = False,
) -> Any:
    """Describe a field that was there from the start, for the last time in ``version``; arguments as of ``field``."""
    return FieldSpec(f"0-{version}", nullable, None, None, default, ignorable, map_key)


class Declaration(NamedTuple):
    """What a class statement says, before annotations are resolved; ``versions`` is None for a struct."""

    key: int | None
    kind: str | None
    versions: Versions | None
    flexible: Versions
    fields: Mapping[str, FieldSpec]


class Field(NamedTuple):
    """One field of a schema, everything resolved."""

    name: str
    type: WireType
    versions: Versions
    nullable: Versions
    tag: int | None
    tagged: Versions
    default: Any
    ignorable: bool
    map_key: bool
    flexible: Versions

    def is_tagged(self, version: int) -> bool:
        """Whether the field travels among the tagged fields of ``version``."""
        return version in self.tagged


class Schema(NamedTuple):
    """A class's declaration, resolved: ``fields`` in the order of the wire."""

    declaration: Declaration
    fields: tuple[Field, ...]


_PLAIN = FieldSpec()


@dataclass_transform(kw_only_default=True, eq_default=True)
class MessageMeta(type):
    """Turns annotations into slots and keeps the declaration beside them; everything else waits for its first use."""

    __declaration__: Declaration

    def __new__(
        mcs,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        key: int | None = None,
        versions: str | None = None,
        flexible: str = "none",
        kind: str | None = None,
    ) -> "MessageMeta":
        """``key``: the API key or record type; ``kind``: ``"key"`` or ``"value"`` of an on-disk record."""
        names = _annotated_names(namespace)
        fields = {field_name: namespace.pop(field_name, _PLAIN) for field_name in names}
        namespace["__slots__"] = names
        namespace["__declaration__"] = Declaration(
            key, kind, Versions.parse(versions) if versions else None, Versions.parse(flexible), fields
        )
        return super().__new__(mcs, name, bases, namespace)

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **_: Any) -> None:
        super().__init__(name, bases, namespace)

    def since(cls, name: str) -> int:
        """The first version that has the field, for a rule that begins with it; as ``versions_of``."""
        return cls.versions_of(name).lowest

    def versions_of(cls, name: str) -> Versions:
        """The versions that have the field; ``KeyError`` if there is no such field.

        It reads the declaration each time: a module asks once and keeps what it hears.
        """
        return Versions.parse(cls.__declaration__.fields[name].versions or "0+")

    def flexible_since(cls) -> int:
        """The first version with compact lengths and tagged fields; ``ValueError`` where none has them (KIP-482)."""
        flexible = cls.__declaration__.flexible
        if flexible == NEVER:
            raise ValueError(f"no version of {cls.__name__} is flexible")
        return flexible.lowest


def _annotated_names(namespace: dict[str, Any]) -> tuple[str, ...]:
    """The annotated names of a class body, without evaluating annotations where Python makes them lazily (3.14)."""
    if "__annotations__" in namespace:
        return tuple(namespace["__annotations__"])
    if sys.version_info >= (3, 14):
        import annotationlib

        annotate = annotationlib.get_annotate_from_class_namespace(namespace)
        if annotate is not None:
            return tuple(annotationlib.call_annotate_function(annotate, annotationlib.Format.FORWARDREF))
    return ()


class Struct(metaclass=MessageMeta):
    """A group of fields inside of a message."""

    def __init__(self, **fields: Any) -> None:
        cls = _plain_class(type(self))
        _install_constructor(cls)
        cls.__init__(self, **fields)

    def __eq__(self, other: object) -> bool:
        if _plain_class(type(self)) is not _plain_class(type(other)):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in type(self).__declaration__.fields)

    __hash__ = None  # type: ignore[assignment]  # messages are mutable

    def __repr__(self) -> str:
        fields = schema_of(type(self)).fields
        shown = ((f.name, getattr(self, f.name, UNSET), f.default) for f in fields)
        return f"{type(self).__name__}({', '.join(f'{n}={_shorten(v)}' for n, v, default in shown if v != default)})"


class Message(Struct):
    """A struct that travels or is stored on its own, and so has versions."""


class Request(Message):
    """The body of a request."""


class Response(Message):
    """The body of a response."""


class Header(Message):
    """What stands before the body of every request or response."""


class DataRecord(Message):
    """The key or value of a record that Kafka's own components write, or a blob inside of another message."""


StructT = TypeVar("StructT", bound=Struct)
_SHOWN_BYTES = 64
_SCHEMAS: dict[type[Struct], Schema] = {}
_DEFAULT_STRUCTS: dict[type[Struct], Struct] = {}


def schema_of(cls: type[Struct]) -> Schema:
    """The schema of a message or struct class, resolved at the first call."""
    schema = _SCHEMAS.get(cls)
    if schema is None:
        declaration = cls.__declaration__
        hints = get_type_hints(cls, include_extras=True)
        fields = tuple(_resolve_field(name, hints[name], spec) for name, spec in declaration.fields.items())
        schema = _SCHEMAS[cls] = Schema(declaration, fields)
    return schema


def _resolve_field(name: str, annotation: Any, spec: FieldSpec) -> Field:
    wire_type, may_be_null = _resolve_type(annotation)
    versions = Versions.parse(spec.versions) if spec.versions else ALWAYS
    tagged = NEVER
    if spec.tag is not None:
        tagged = Versions.parse(spec.tagged) if spec.tagged else versions
    nullable = NEVER
    if may_be_null:
        nullable = Versions.parse(spec.nullable) if spec.nullable else versions
    default = spec.default
    if isinstance(default, _Unset):
        default = None if may_be_null else _zero(wire_type)
    elif isinstance(default, MessageMeta):
        default = default_struct(_struct_class(default))
    flexible = Versions.parse(spec.flexible) if spec.flexible else ALWAYS
    return Field(name, wire_type, versions, nullable, spec.tag, tagged, default, spec.ignorable, spec.map_key, flexible)


def _resolve_type(annotation: Any) -> tuple[WireType, bool]:
    """The wire type of an annotation, and whether it may be null."""
    if isinstance(annotation, MessageMeta):
        return Nested(_struct_class(annotation)), False
    origin = get_origin(annotation)
    if origin is Annotated:
        wire_type, *rest = annotation.__metadata__
        return wire_type, bool(rest)
    if origin is list:
        element, _ = _resolve_type(get_args(annotation)[0])
        return Array(element), False
    inner = [argument for argument in get_args(annotation) if argument is not types.NoneType]
    if len(inner) != 1:
        raise TypeError(f"{annotation!r} is not in the vocabulary of messages")
    return _resolve_type(inner[0])[0], True


def _zero(wire_type: WireType) -> Any:
    match wire_type:
        case Fixed() | Variable():
            return wire_type.default
        case Array():
            return []
        case Nested(struct):
            return default_struct(struct)


def default_struct(cls: type[StructT]) -> StructT:
    """The shared instance with every field at its default; it refuses to be changed."""
    struct = _DEFAULT_STRUCTS.get(cls)
    if struct is None:
        frozen = _struct_class(MessageMeta(cls.__name__, (cls,), {"__setattr__": _refuse_change, "__frozen__": cls}))
        frozen.__declaration__ = cls.__declaration__
        struct = object.__new__(frozen)
        for f in schema_of(cls).fields:
            object.__setattr__(struct, f.name, f.default)
        _DEFAULT_STRUCTS[cls] = struct
    return struct  # type: ignore[return-value]


def _refuse_change(self: Struct, name: str, _: Any) -> None:
    raise AttributeError(f"this {type(self).__name__} is a shared default: assign a new one instead of setting {name}")


def _plain_class(cls: type[Any]) -> type[Any]:
    """The declared class, also for the frozen default instance's."""
    plain: type[Any] = cls.__dict__.get("__frozen__", cls)
    return plain


def _struct_class(cls: MessageMeta) -> type[Struct]:
    """Every class that the metaclass makes is a struct; type checkers cannot know."""
    assert issubclass(cls, Struct)
    return cls


def _install_constructor(cls: type[Struct]) -> None:
    """Give the class an ``__init__`` with one keyword per field."""
    constants: dict[str, Any] = {"UNSET": UNSET}
    parameters, body = [], []
    for f in schema_of(cls).fields:
        if isinstance(f.default, list):
            parameters.append(f"{f.name}=UNSET")
            body.append(f"self.{f.name} = [] if {f.name} is UNSET else {f.name}")
        else:
            constants[f"default_{f.name}"] = f.default
            parameters.append(f"{f.name}=default_{f.name}")
            body.append(f"self.{f.name} = {f.name}")
    source = Source(f"{cls.__qualname__}.__init__", constants)
    source.line(f"def __init__(self{', *' if parameters else ''}{''.join(', ' + p for p in parameters)}):")
    with source.block():
        for line in body or ["pass"]:
            source.line(line)
    cls.__init__ = source.function("__init__")  # type: ignore[method-assign]


def _shorten(value: Any) -> str:
    if isinstance(value, bytes | bytearray | memoryview) and len(value) > _SHOWN_BYTES:
        return f"<{len(value)} bytes>"
    return repr(bytes(value)) if isinstance(value, memoryview) else repr(value)
