"""The encoder's half of the compiler: writes one flat function per message class and version.

Owns: the shape of the generated code.  Neighbouring fields of fixed size are packed by one ``Struct``, with the
lengths and counts of old versions and the empty tagged-fields section of flexible ones among them.

Invariants of generated code: bytes gather in one ``bytearray``, which becomes a part of its own where the caller's
records follow. A value that the version cannot express is a ``ValueError``, never dropped silently, unless the field is
ignorable.
"""

from collections.abc import Callable
from struct import Struct as Format
from struct import error as FormatError
from struct import pack
from typing import Any, NoReturn

from pybroker_protocol import primitives
from pybroker_protocol.layout import SHORT_ARRAY, short_array_formats
from pybroker_protocol.schema import Array, Field, Fixed, Message, Nested, Struct, Variable, WireType, schema_of
from pybroker_protocol.source import Source


def compile_encoder(cls: type[Message], version: int, in_steps: bool = False) -> Callable[..., Any]:
    """Make ``fn(message, parts)`` for one version; in steps, a generator that yields the bytes since the last part."""
    return _EncoderCompiler(cls, version, in_steps).compile()


def _absent(field: str, value: object) -> NoReturn:
    raise ValueError(f"the version has no field {field}, which is {value!r}")


def _not_a_uuid(field: str, value: object) -> NoReturn:
    raise ValueError(f"{field} is not a uuid of 16 bytes: {value!r}")


_CONSTANTS = {
    "pack": pack,
    "uvarint": primitives.uvarint,
    "string_length": primitives.string_length,
    "absent": _absent,
    "not_a_uuid": _not_a_uuid,
    "FormatError": FormatError,
}


class _EncoderCompiler:
    """Writes the source of one encoder; ``_formats`` and ``_values`` hold the fixed fields not yet written."""

    def __init__(self, cls: type[Message], version: int, in_steps: bool) -> None:
        self._cls = cls
        self._version = version
        self._in_steps = in_steps
        self._flexible = version in cls.__declaration__.flexible
        how = " in steps" if in_steps else ""
        self._source = Source(f"encode {cls.__name__} version {version}{how}", dict(_CONSTANTS))
        self._out = "out"
        self._formats: list[str] = []
        self._values: list[str] = []

    def compile(self) -> Callable[..., Any]:
        source, line = self._source, self._source.line
        with source.block("def encode(message, parts):"):
            if self._in_steps:
                line("step = 0")
                line("if False: yield 0")
            with source.block("try:"):
                line("out = bytearray()")
                self._struct(self._cls, "message")
                self._flush()
            # What a field of the wrong type raises; a ValueError already says what is wrong.
            with source.block("except (FormatError, AttributeError, TypeError, OverflowError) as error:"):
                what = f"{self._cls.__name__} version {self._version}"
                line(f'raise ValueError(f"{what} cannot be encoded: {{error}}") from error')
            with source.block("if out:"):
                line("parts.append(out)")
        return source.function("encode")

    def _struct(self, cls: type[Struct], struct: str) -> None:
        tagged = []
        for field in schema_of(cls).fields:
            if self._version not in field.versions:
                self._absent_field(field, f"{struct}.{field.name}")
            elif field.is_tagged(self._version):
                tagged.append(field)
            else:
                self._field(field, f"{struct}.{field.name}")
        if tagged:
            self._tagged_fields(sorted(tagged, key=lambda field: field.tag or 0), struct)
        elif self._flexible:
            self._formats.append("x")  # packed as a zero byte: no tagged fields

    def _absent_field(self, field: Field, value: str) -> None:
        if not field.ignorable:
            with self._source.block(f"if {self._differs(field, value)}:"):
                self._source.line(f"absent({field.name!r}, {value})")

    def _differs(self, field: Field, value: str) -> str:
        """The condition that a value is not its field's default."""
        if field.default is None:
            return f"{value} is not None"
        if isinstance(field.default, Struct):
            default = self._source.constant("default", field.default)
            return f"{value} is not {default} and {value} != {default}"
        return f"{value} != {field.default!r}"

    def _is_default(self, field: Field, struct: str) -> str:
        """The condition that a field has its default, as nearly all have: it may say no of an equal struct."""
        value = f"{struct}.{field.name}"
        if field.default is None:
            return f"{value} is None"
        if isinstance(field.default, Struct):
            return f"{value} is {self._source.constant('default', field.default)}"
        return f"{value} == {field.default!r}"

    def _field(self, field: Field, value: str) -> None:
        flexible = self._flexible and self._version in field.flexible
        nullable = self._version in field.nullable
        if nullable and isinstance(field.type, Nested):
            self._nullable_struct(field.type.struct, value, field.is_tagged(self._version))
        else:
            self._value(field.type, value, nullable, flexible, field.name)

    def _value(self, wire_type: WireType, value: str, nullable: bool, flexible: bool, name: str) -> None:
        match wire_type:
            case Fixed():
                self._fixed(wire_type, value, name)
            case Variable() | Array():
                self._measured(wire_type, value, nullable, flexible, name)
            case Nested(struct):
                local = self._source.name("struct")
                self._source.line(f"{local} = {value}")
                self._struct(struct, local)

    def _fixed(self, wire_type: Fixed, value: str, name: str) -> None:
        if wire_type.name == "uuid":  # the format would cut or fill it silently
            with self._source.block(f"if len({value}) != 16:"):
                self._source.line(f"not_a_uuid({name!r}, {value})")
        self._pack(wire_type.format, value)

    def _pack(self, form: str, value: str) -> None:
        self._formats.append(form)
        self._values.append(value)

    def _flush(self) -> None:
        """Write the packing of the fixed fields that were gathered."""
        if not self._formats:
            return
        if not self._values:
            self._source.line(f"{self._out} += {bytes(len(self._formats))!r}")
        else:
            packer = self._source.constant("pack", Format(">" + "".join(self._formats)).pack)
            self._source.line(f"{self._out} += {packer}({', '.join(self._values)})")
        self._formats.clear()
        self._values.clear()

    def _measured(self, wire_type: Variable | Array, value: str, nullable: bool, flexible: bool, name: str) -> None:
        """Write the encoding of something behind its length or count, or of null."""
        is_string = wire_type.name == "string" if isinstance(wire_type, Variable) else False
        if not nullable:
            self._present(wire_type, value, flexible, name)
            return
        self._flush()
        local = self._source.name("value")
        self._source.line(f"{local} = {value}")
        with self._source.block(f"if {local} is None:"):
            null = b"\x00" if flexible else b"\xff\xff" if is_string else b"\xff\xff\xff\xff"
            self._source.line(f"{self._out} += {null!r}")
        with self._source.block("else:"):
            self._present(wire_type, local, flexible, name)
            self._flush()

    def _present(self, wire_type: Variable | Array, value: str, flexible: bool, name: str) -> None:
        if isinstance(wire_type, Array):
            self._array(wire_type.element, value, flexible, name)
            return
        data = self._source.name("data")
        if wire_type.name == "string":
            self._source.line(f"{data} = {value}.encode()")
            self._length("h", f"len({data})", flexible, "string_length")
        else:
            self._source.line(f"{data} = {value}")
            self._length("i", f"len({data})", flexible, "uvarint")
        self._flush()
        if wire_type.name == "records":
            self._records(data)
        else:
            self._source.line(f"{self._out} += {data}")

    def _records(self, data: str) -> None:
        """Write the hand-over of the caller's buffer, between what comes before and what comes after it."""
        assert self._out == "out", "records are never tagged fields"
        with self._source.block(f"if {data}:"):
            self._source.line("parts.append(out)")
            self._source.line(f"parts.append({data})")
            self._source.line("out = bytearray()")

    def _length(self, form: str, length: str, flexible: bool, long_form: str) -> None:
        if not flexible:
            self._pack(form, length)
            return
        self._flush()
        counted = self._source.name("length")
        self._source.line(f"{counted} = {length} + 1")
        self._uvarint(counted, long_form)

    def _uvarint(self, value: str, long_form: str) -> None:
        with self._source.block(f"if {value} < 0x80:"):
            self._source.line(f"{self._out}.append({value})")
        with self._source.block(f"elif {value} < 0x4000:"):  # nearly all others: without a call
            self._source.line(f"{self._out}.append({value} & 0x7F | 0x80)")
            self._source.line(f"{self._out}.append({value} >> 7)")
        with self._source.block("else:"):
            self._source.line(f"{self._out} += {long_form}({value})")

    def _array(self, element: WireType, value: str, flexible: bool, name: str) -> None:
        if isinstance(element, Fixed) and element.name != "uuid":
            self._fixed_elements(element, value, flexible)
            return
        self._length("i", f"len({value})", flexible, "uvarint")
        self._flush()
        item = self._source.name("item")
        with self._source.block(f"for {item} in {value}:"):
            if self._in_steps:
                self._source.step("len(out)")
            if isinstance(element, Nested):
                self._struct(element.struct, item)
            else:
                self._value(element, item, False, flexible, name)
            self._flush()

    def _fixed_elements(self, element: Fixed, value: str, flexible: bool) -> None:
        """Write the packing of a list of numbers, together with its count if there are but a few."""
        self._flush()
        line, count = self._source.line, self._source.name("count")
        formats = short_array_formats(element.format, "B" if flexible else "i")
        packers = self._source.constant("packers", tuple(form.pack for form in formats))
        line(f"{count} = len({value})")
        with self._source.block(f"if {count} < {SHORT_ARRAY}:"):
            line(f"{self._out} += {packers}[{count}]({count}{' + 1' if flexible else ''}, *{value})")
        with self._source.block("else:"):
            line(f'{self._out} += {f"uvarint({count} + 1)" if flexible else f"""pack(">i", {count})"""}')
            line(f'{self._out} += pack(f">{{{count}}}{element.format}", *{value})')

    def _nullable_struct(self, struct: type[Struct], value: str, tagged: bool) -> None:
        """Write the encoding of a struct behind a byte: null is -1 there, but 0 in a tagged field."""
        local = self._source.name("struct")
        self._source.line(f"{local} = {value}")
        self._flush()
        with self._source.block(f"if {local} is None:"):
            self._source.line(f"{self._out}.append({0 if tagged else 255})")
        with self._source.block("else:"):
            self._source.line(f"{self._out}.append(1)")
            self._struct(struct, local)
            self._flush()

    def _tagged_fields(self, fields: list[Field], struct: str) -> None:
        """Write the tagged-fields section: those of ``fields`` that are not at their default, by ascending tag."""
        self._flush()
        line, count = self._source.line, self._source.name("tags")
        with self._source.block(f"if {' and '.join(self._is_default(field, struct) for field in fields)}:"):
            line(f"{self._out} += b'\\x00'")
        with self._source.block("else:"):
            line(f"{count} = 0")
            present = []
            for field in fields:
                value = self._source.name("tagged")
                line(f"{value} = {struct}.{field.name}")
                condition = self._differs(field, value)
                present.append((field, value, condition))
                with self._source.block(f"if {condition}:"):
                    line(f"{count} += 1")
            line(f"{self._out}.append({count})")
            for field, value, condition in present:
                with self._source.block(f"if {condition}:"):
                    self._tagged_field(field, value)

    def _tagged_field(self, field: Field, value: str) -> None:
        outer, self._out = self._out, self._source.name("out")
        self._source.line(f"{self._out} = bytearray()")
        self._field(field, value)
        self._flush()
        inner, self._out = self._out, outer
        length = self._source.name("length")
        self._source.line(f"{outer}.append({field.tag})")
        self._source.line(f"{length} = len({inner})")
        self._uvarint(length, "uvarint")
        self._source.line(f"{outer} += {inner}")
