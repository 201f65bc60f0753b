"""From declarations to bytes and back.

Owns: the compiled functions, one pair per (message class, version), made at their first use and cached.
Owns no buffers: what a decoder returns points into the caller's frame where the type is ``records``, and an encoder
hands on the caller's own ``records`` buffers.

Invariants: a decoder checks every length and count that a peer sent before it allocates or slices, and raises
``ProtocolError`` for whatever is wrong with the bytes, never anything else.  An encoder raises ``ValueError`` for a
message that its version cannot express: that is a mistake of this side, not of the peer.

Kafka counterpart: the generated message classes and org.apache.kafka.common.protocol.MessageUtil.
"""

from collections.abc import Callable, Generator
from typing import Any, TypeVar

from pybroker_protocol.decoder import compile_decoder
from pybroker_protocol.encoder import compile_encoder
from pybroker_protocol.errors import ProtocolError
from pybroker_protocol.primitives import skip_tagged_fields
from pybroker_protocol.schema import Message

__all__ = [
    "ProtocolError",
    "decode",
    "decoder",
    "decoder_in_steps",
    "encode",
    "encoder",
    "encoder_in_steps",
    "is_flexible",
    "skip_tagged_fields",
]

MessageT = TypeVar("MessageT", bound=Message)

_DECODERS: dict[tuple[type[Message], int], Callable[..., Any]] = {}
_ENCODERS: dict[tuple[type[Message], int], Callable[..., Any]] = {}


def decoder(cls: type[MessageT], version: int) -> Callable[[memoryview, int], tuple[MessageT, int]]:
    """The decoder ``fn(frame, pos) -> (message, new_pos)``; ``frame`` is cut exactly to the frame.

    The message ends at ``new_pos``: what follows is the caller's business.  ValueError for a version that is not
    declared.
    """
    function = _DECODERS.get((cls, version))
    if function is None:
        _require_version(cls, version)
        function = _DECODERS[cls, version] = compile_decoder(cls, version)
    return function


def encoder(cls: type[MessageT], version: int) -> Callable[[MessageT, list[Any]], None]:
    """The encoder ``fn(message, parts)``, which appends buffers to ``parts``.

    ``records`` buffers are appended as they are, without a copy; all the rest comes in as few parts as possible.
    ValueError for a version that is not declared.
    """
    function = _ENCODERS.get((cls, version))
    if function is None:
        _require_version(cls, version)
        function = _ENCODERS[cls, version] = compile_encoder(cls, version)
    return function


def decoder_in_steps(
    cls: type[MessageT], version: int, elements_max: int | None = None
) -> Callable[[memoryview, int], Generator[None, None, tuple[MessageT, int]]]:
    """``decoder`` for what may be very long: a generator that stops after every few elements of arrays.

    A request of more than ``elements_max`` elements, where that is less than it may have anyway, is a ProtocolError.
    It copies nothing of the frame but what it decodes, so the frame has to stay as it is until the generator's end.
    """
    _require_version(cls, version)
    return compile_decoder(cls, version, in_steps=True, elements_max=elements_max)


def encoder_in_steps(cls: type[MessageT], version: int) -> Callable[[MessageT, list[Any]], Generator[int, None, None]]:
    """``encoder`` for what may be very long: a generator that stops after every few elements of arrays.

    It yields how many bytes it has gathered since the last part; the message has to stay as it is until its end.
    """
    _require_version(cls, version)
    return compile_encoder(cls, version, in_steps=True)


def decode(cls: type[MessageT], version: int, buffer: bytes | bytearray | memoryview) -> MessageT:
    """Decode a buffer that holds one message and nothing else."""
    message, end = decoder(cls, version)(memoryview(buffer), 0)
    if end != len(buffer):
        raise ProtocolError(f"{len(buffer) - end} bytes after the end of {cls.__name__} version {version}")
    return message


def encode(message: Message, version: int) -> bytes:
    """Encode one message, ``records`` included, into one buffer."""
    parts: list[Any] = []
    encoder(type(message), version)(message, parts)
    return b"".join(parts)


def is_flexible(cls: type[Message], version: int) -> bool:
    """Whether the version has compact lengths and tagged fields (KIP-482)."""
    return version in cls.__declaration__.flexible


def _require_version(cls: type[Message], version: int) -> None:
    versions = cls.__declaration__.versions
    if versions is None or version not in versions:
        raise ValueError(f"{cls.__name__} has no version {version}")
