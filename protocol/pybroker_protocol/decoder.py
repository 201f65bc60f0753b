"""The decoder's half of the compiler: writes one flat function per message class and version.

Owns: the shape of the generated code.  Neighbouring fields of fixed size, together with the length or count that
follows them, are one ``Struct``; everything else is inline, without a call per field.

Invariants of generated code:
- ``size`` is where the frame ends. A slice is taken only after its end was compared with it, because Python would cut
  it silently.
- A list is filled only after its count was compared with the bytes that are left.
- A request's elements are counted against one budget, as are its tagged fields against another.
"""

from collections.abc import Callable
from struct import Struct as Format
from struct import error as FormatError
from struct import unpack_from
from typing import Any, NoReturn

from pybroker_protocol import primitives
from pybroker_protocol.errors import ProtocolError
from pybroker_protocol.layout import SHORT_ARRAY, contains_records, least_size, short_array_formats
from pybroker_protocol.schema import (
    Array,
    Field,
    Fixed,
    Message,
    Nested,
    Request,
    Struct,
    Variable,
    WireType,
    schema_of,
)
from pybroker_protocol.source import Source

# As Kafka 4.4 does for one array.  Here it is the budget of a whole request, because an element of a few bytes
# becomes an object of a few hundred, and arrays can be nested.
REQUEST_ELEMENTS_MAX = 1_000_000
# Of all sections of a request together: each may have ten thousand, and stand in each element of an array.
REQUEST_TAGGED_FIELDS_MAX = 1_000_000
# A section with as many is a step of its own.
_MANY_TAGGED_FIELDS = 127


def compile_decoder(
    cls: type[Message], version: int, in_steps: bool = False, elements_max: int | None = None
) -> Callable[..., Any]:
    """Make ``fn(frame, pos) -> (message, new_pos)`` for one version; in steps, a generator that returns it."""
    return _DecoderCompiler(cls, version, in_steps, elements_max or REQUEST_ELEMENTS_MAX).compile()


def _truncated(field: str) -> NoReturn:
    raise ProtocolError(f"the data ends inside of {field}")


def _null(field: str) -> NoReturn:
    raise ProtocolError(f"{field} must not be null")


def _too_many(field: str, elements_max: int) -> NoReturn:
    raise ProtocolError(f"{field} takes the request above {elements_max} elements")


def _too_many_tags(count: int) -> NoReturn:
    raise ProtocolError(f"{count} tagged fields")


def _too_many_tags_in_all() -> NoReturn:
    raise ProtocolError(f"the request has more than {REQUEST_TAGGED_FIELDS_MAX} tagged fields")


def _wrong_tag_size(field: str) -> NoReturn:
    raise ProtocolError(f"the tagged field {field} is not as long as it says")


_CONSTANTS = {
    "new": object.__new__,
    "unpack_from": unpack_from,
    "read_uvarint": primitives.read_uvarint,
    "continue_uvarint": primitives.continue_uvarint,
    "continue_string_length": primitives.continue_string_length,
    "skip_tagged_fields": primitives.skip_counted_tagged_fields,
    "truncated": _truncated,
    "null": _null,
    "too_many": _too_many,
    "too_many_tags": _too_many_tags,
    "too_many_tags_in_all": _too_many_tags_in_all,
    "wrong_tag_size": _wrong_tag_size,
    "ProtocolError": ProtocolError,
    "FormatError": FormatError,
}


class _DecoderCompiler:
    """Writes the source of one decoder; ``_formats`` and ``_targets`` hold the fixed fields not yet written."""

    def __init__(self, cls: type[Message], version: int, in_steps: bool, elements_max: int) -> None:
        self._cls = cls
        self._version = version
        self._in_steps = in_steps
        self._elements_max = elements_max
        self._flexible = version in cls.__declaration__.flexible
        self._is_request = issubclass(cls, Request)
        # Slices of bytes are much cheaper than slices of a view, and worth one copy of a frame without record data;
        # but what is decoded in steps may be so long that the copy alone would take too long.
        self._views = in_steps or contains_records(cls, version)
        how = " in steps" if in_steps else ""
        self._source = Source(f"decode {cls.__name__} version {version}{how}", dict(_CONSTANTS))
        self._formats: list[str] = []
        self._targets: list[str] = []

    def compile(self) -> Callable[..., Any]:
        source, line = self._source, self._source.line
        with source.block("def decode(frame, pos):"):
            line("data = frame" if self._views else "data = bytes(frame)")
            line("size = len(data)")
            if self._is_request:
                line(f"budget = {self._elements_max}")
                if self._flexible:
                    line(f"tags_left = {REQUEST_TAGGED_FIELDS_MAX}")
            if self._in_steps:
                line("step = 0")
                line("if False: yield")
            with source.block("try:"):
                message = self._struct(self._cls)
                self._flush()
                line(f"return {message}, pos")
            with source.block("except (IndexError, FormatError, UnicodeDecodeError) as error:"):
                what = f"{self._cls.__name__} version {self._version}"
                line(f'raise ProtocolError(f"the bytes are not a {what}: {{error}}") from error')
        return source.function("decode")

    def _struct(self, cls: type[Struct]) -> str:
        """Write the decoding of a struct; return the variable that holds it."""
        target = self._source.name("struct")
        self._source.line(f"{target} = new({self._source.constant(cls.__name__, cls)})")
        tagged = []
        for field in schema_of(cls).fields:
            if self._version not in field.versions:
                self._source.line(f"{target}.{field.name} = {self._default(field)}")
            elif field.is_tagged(self._version):
                self._source.line(f"{target}.{field.name} = {self._default(field)}")
                tagged.append(field)
            else:
                self._field(field, target)
        if self._flexible:
            self._tagged_fields(tagged, target)
        return target

    def _default(self, field: Field) -> str:
        if isinstance(field.default, Struct):
            return self._source.constant("default", field.default)
        return repr(field.default)

    def _field(self, field: Field, struct: str) -> None:
        flexible = self._flexible and self._version in field.flexible
        nullable = self._version in field.nullable
        target = f"{struct}.{field.name}"
        if nullable and isinstance(field.type, Nested):
            self._nullable_struct(field.type.struct, target, field.is_tagged(self._version))
        else:
            self._value(field.type, target, nullable, flexible, field.name)

    def _value(self, wire_type: WireType, target: str, nullable: bool, flexible: bool, name: str) -> None:
        match wire_type:
            case Fixed():
                self._fixed(wire_type.format, target)
            case Variable(kind):
                self._variable(kind, target, nullable, flexible, name)
            case Array(element):
                self._array(element, target, nullable, flexible, name)
            case Nested(struct):
                self._source.line(f"{target} = {self._struct(struct)}")

    def _fixed(self, form: str, target: str) -> None:
        self._formats.append(form)
        self._targets.append(target)

    def _prefix(self, form: str, hint: str) -> str:
        """Read a length or count together with the fixed fields before it; return its variable."""
        target = self._source.name(hint)
        self._fixed(form, target)
        self._flush()
        return target

    def _flush(self) -> None:
        """Write the reading of the fixed fields that were gathered."""
        if not self._formats:
            return
        if self._formats == ["B"]:
            self._source.line(f"{self._targets[0]} = data[pos]")
            self._source.line("pos += 1")
        else:
            form = Format(">" + "".join(self._formats))
            unpack = self._source.constant("unpack", form.unpack_from)
            comma = "," if len(self._targets) == 1 else ""
            self._source.line(f"{', '.join(self._targets)}{comma} = {unpack}(data, pos)")
            self._source.line(f"pos += {form.size}")
        self._formats.clear()
        self._targets.clear()

    def _length(self, form: str, flexible: bool, rest: str, hint: str) -> tuple[str, str]:
        """Write the reading of a length or count; return its variable and the condition that it is not null.

        In flexible versions the variable is one more than the length, and the function named ``rest`` reads a long one.
        """
        if not flexible:
            length = self._prefix(form, hint)
            return length, f"{length} >= 0"
        length = self._prefix("B", hint)
        with self._source.block(f"if {length} > 127:"):
            self._source.line(f"{length}, pos = {rest}(data, pos, {length})")
        return length, length

    def _otherwise_null(self, target: str, nullable: bool, name: str) -> None:
        with self._source.block("else:"):
            self._source.line(f"{target} = None" if nullable else f"null({name!r})")

    def _variable(self, kind: str, target: str, nullable: bool, flexible: bool, name: str) -> None:
        """Write the decoding of a string, bytes, or records."""
        is_string = kind == "string"
        rest = "continue_string_length" if is_string else "continue_uvarint"
        length, present = self._length("h" if is_string else "i", flexible, rest, "length")
        line = self._source.line
        with self._source.block(f"if {present}:"):
            line(f"end = pos + {length}{' - 1' if flexible else ''}")
            with self._source.block("if end > size:"):
                line(f"truncated({name!r})")
            if is_string:
                line(f"{target} = str(data[pos:end], 'utf-8')" if self._views else f"{target} = data[pos:end].decode()")
            elif kind == "bytes" and self._views:
                line(f"{target} = bytes(data[pos:end])")
            else:
                line(f"{target} = data[pos:end]")
            line("pos = end")
        self._otherwise_null(target, nullable, name)

    def _array(self, element: WireType, target: str, nullable: bool, flexible: bool, name: str) -> None:
        count, present = self._length("i", flexible, "continue_uvarint", "count")
        line = self._source.line
        with self._source.block(f"if {count} > {int(flexible)}:"):
            if flexible:
                line(f"{count} -= 1")
            if self._is_request:
                line(f"budget -= {count}")
                with self._source.block("if budget < 0:"):
                    line(f"too_many({name!r}, {self._elements_max})")
            with self._source.block(f"if {count} * {least_size(element, self._version, flexible)} > size - pos:"):
                line(f"truncated({name!r})")
            if isinstance(element, Fixed):
                self._fixed_elements(element, target, count)
            else:
                self._elements(element, target, count, flexible, name)
        with self._source.block(f"elif {present}:"):
            line(f"{target} = []")
        self._otherwise_null(target, nullable, name)

    def _fixed_elements(self, element: Fixed, target: str, count: str) -> None:
        line = self._source.line
        if element.name == "uuid":
            item = "bytes(data[at:at + 16])" if self._views else "data[at:at + 16]"
            line(f"{target} = [{item} for at in range(pos, pos + {count} * 16, 16)]")
        else:
            unpackers = tuple(form.unpack_from for form in short_array_formats(element.format))
            short = self._source.constant("unpackers", unpackers)
            with self._source.block(f"if {count} < {SHORT_ARRAY}:"):
                line(f"{target} = list({short}[{count}](data, pos))")
            with self._source.block("else:"):
                line(f'{target} = list(unpack_from(f">{{{count}}}{element.format}", data, pos))')
        line(f"pos += {count} * {element.size}")

    def _elements(self, element: WireType, target: str, count: str, flexible: bool, name: str) -> None:
        items = self._source.name("items")
        self._source.line(f"{target} = {items} = []")
        with self._source.block(f"for _ in range({count}):"):
            if self._in_steps:
                self._source.step()
            if isinstance(element, Nested):
                item = self._struct(element.struct)
                self._flush()
            else:
                item = self._source.name("item")
                self._value(element, item, False, flexible, name)
            self._source.line(f"{items}.append({item})")

    def _nullable_struct(self, struct: type[Struct], target: str, tagged: bool) -> None:
        """Write the decoding of a struct behind a byte: null is -1 there, but 0 in a tagged field."""
        present = self._prefix("b", "present")
        with self._source.block(f"if {present} {'>' if tagged else '>='} 0:"):
            value = self._struct(struct)
            self._flush()
            self._source.line(f"{target} = {value}")
        with self._source.block("else:"):
            self._source.line(f"{target} = None")

    def _tagged_fields(self, known: list[Field], struct: str) -> None:
        """Write the reading of a tagged-fields section; ``known`` are the fields that this version has there."""
        line = self._source.line
        count = self._prefix("B", "tags")
        # Only requests are limited: a log or a reply was written by Kafka or by us, and its size is limit enough.
        count_max = primitives.TAGGED_FIELDS_MAX if self._is_request else 0x7FFF_FFFF
        with self._source.block(f"if {count}:"):
            with self._source.block(f"if {count} > {_MANY_TAGGED_FIELDS}:"):
                line(f"{count}, pos = continue_uvarint(data, pos, {count})")
                if self._in_steps:
                    line("yield")
            if self._is_request:
                line(f"tags_left -= {count}")
                with self._source.block("if tags_left < 0:"):
                    line("too_many_tags_in_all()")
            if not known:
                line(f"pos = skip_tagged_fields(data, pos, {count}, {count_max})")
                return
            with self._source.block(f"if {count} > {count_max}:"):
                line(f"too_many_tags({count})")
            tag, end = self._source.name("tag"), self._source.name("end")
            with self._source.block(f"for _ in range({count}):"):
                line(f"{tag}, pos = read_uvarint(data, pos)")
                line(f"{end}, pos = read_uvarint(data, pos)")
                line(f"{end} += pos")
                with self._source.block(f"if {end} > size:"):
                    line("truncated('a tagged field')")
                for position, field in enumerate(known):
                    with self._source.block(f"{'el' if position else ''}if {tag} == {field.tag}:"):
                        self._field(field, struct)
                        self._flush()
                        with self._source.block(f"if pos != {end}:"):
                            line(f"wrong_tag_size({field.name!r})")
                with self._source.block("else:"):
                    line(f"pos = {end}")
