"""Protobuf as columns of Spark: messages that `pybroker.values` reads, and structs that it writes as messages."""

from collections.abc import Callable

from google.protobuf.descriptor import Descriptor
from pyspark.sql import Column
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import DataType

from pybroker.pipeline.converters.arrow_decoding import decoder_of, encoder_of
from pybroker.pipeline.converters.decoding import Decoder
from pybroker.values.protobuf_values import Definition, MessageSource, Reader, arrow_type
from pybroker.values.protobuf_writing import Writer
from pybroker.values.registry_header import Header, header_wanted


def protobuf_of(message: MessageSource, *, registry_header: bool | int = False) -> Decoder:
    """Values that are messages.

    ``registry_header`` is the id in a schema registry that the values' header has to have, or True for any.  By either,
    the header has to say that the value is this message of its file.

    Raises ValueError for a message that contains itself, which has no type of Spark's, or that the file has not, and
    OSError for a file that cannot be read.
    """
    return protobuf_behind(header_wanted(registry_header), message)


def protobuf_behind(header: Header | None, message: MessageSource) -> Decoder:
    """As `protobuf_of`, behind a header, or of values without one."""
    definition = Definition(message)
    return decoder_of(Reader(definition, header), spark_type(definition.descriptor()))


def to_protobuf(message: MessageSource) -> Callable[[Column], Column]:
    """An encoder: of a column of structs, their messages; null stays null.

    What does not fit ends the query with the name of the field.
    """
    return encoder_of(Writer(Definition(message)))


def spark_type(descriptor: Descriptor) -> DataType:
    """The type of Spark's for a message; raises ValueError where it contains itself."""
    return from_arrow_type(arrow_type(descriptor), prefer_timestamp_ntz=True)
