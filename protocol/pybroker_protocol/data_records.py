"""The keys and values that Kafka's own components write into logs, with what stands before them.

Owns: the prefixes.  A coordinator's key begins with an int16 that is the record's type, its value with an int16 that
is the value's version.  A record of ``__cluster_metadata`` is a value alone, framed by three unsigned varints: frame
version, record type, version.

Kafka counterpart: CoordinatorRecordSerde, and AbstractApiMessageSerde of the KRaft metadata log.
"""

from functools import cache
from importlib import import_module
from struct import Struct
from struct import error as FormatError

from pybroker_protocol import codec
from pybroker_protocol.errors import ProtocolError
from pybroker_protocol.primitives import read_uvarint, uvarint
from pybroker_protocol.schema import DataRecord

_INT16 = Struct(">h")
_METADATA_FRAME_VERSION = 1
_METADATA_MODULE = "records_metadata"

# Where the records of a topic are declared.
CONSUMER_OFFSETS = ("records_group", "records_consumer_group", "records_share_group", "records_streams_group")
TRANSACTION_STATE = ("records_transaction",)
SHARE_GROUP_STATE = ("records_share_state",)


@cache
def record_classes(modules: tuple[str, ...], kind: str) -> dict[int, type[DataRecord]]:
    """The classes of ``kind`` (``"key"`` or ``"value"``) by record type, of modules in ``messages``."""
    found: dict[int, type[DataRecord]] = {}
    for module in modules:
        for cls in vars(import_module(f"pybroker_protocol.messages.{module}")).values():
            if isinstance(cls, type) and issubclass(cls, DataRecord) and cls is not DataRecord:
                declaration = cls.__declaration__
                if declaration.kind == kind and declaration.key is not None:
                    found[declaration.key] = cls
    return found


def encode_key(key: DataRecord) -> bytes:
    """A coordinator's key, its type before it."""
    record_type = type(key).__declaration__.key
    assert record_type is not None, "only keys of coordinators' records have a type"
    return _INT16.pack(record_type) + codec.encode(key, 0)


def encode_value(value: DataRecord, version: int) -> bytes:
    """A coordinator's value, its version before it."""
    return _INT16.pack(version) + codec.encode(value, version)


def decode_key(modules: tuple[str, ...], key: bytes) -> DataRecord | None:
    """A coordinator's key; None for a type that is not known here, which is to be kept and not touched."""
    cls = record_classes(modules, "key").get(_read_int16(key))
    return None if cls is None else codec.decode(cls, 0, key[2:])


def decode_value(modules: tuple[str, ...], key: bytes, value: bytes) -> DataRecord:
    """The value that belongs to a key of a known type; ProtocolError for a version that is not known."""
    cls = record_classes(modules, "value")[_read_int16(key)]
    return _decode_versioned(cls, _read_int16(value), value[2:])


def encode_metadata_record(record: DataRecord, version: int) -> bytes:
    """The value of a record of the KRaft metadata log."""
    record_type = type(record).__declaration__.key
    assert record_type is not None, "every record of the metadata log has a type"
    return uvarint(_METADATA_FRAME_VERSION) + uvarint(record_type) + uvarint(version) + codec.encode(record, version)


def decode_metadata_record(value: bytes) -> tuple[DataRecord | None, int]:
    """A record of the KRaft metadata log and its version; None for the record if its type is not known."""
    frame_version, pos = read_uvarint(value, 0)
    if frame_version != _METADATA_FRAME_VERSION:
        raise ProtocolError(f"a metadata record of frame version {frame_version}")
    record_type, pos = read_uvarint(value, pos)
    version, pos = read_uvarint(value, pos)
    cls = record_classes((_METADATA_MODULE,), "value").get(record_type)
    return (None if cls is None else _decode_versioned(cls, version, value[pos:])), version


def _decode_versioned(cls: type[DataRecord], version: int, body: bytes) -> DataRecord:
    versions = cls.__declaration__.versions
    assert versions is not None, "records have versions"
    if version not in versions:
        raise ProtocolError(f"{cls.__name__} has no version {version}")
    return codec.decode(cls, version, body)


def _read_int16(data: bytes) -> int:
    try:
        return int(_INT16.unpack_from(data)[0])
    except FormatError as error:
        raise ProtocolError("the data ends inside of its type or version") from error
