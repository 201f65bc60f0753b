"""From the first bytes of a frame to the functions that serve it.

Owns: the table of ``ServedApi`` rows, one per (API key, version), built from ``apis.APIS`` at the first request
of each, so that a broker imports only what its clients use.

Kafka counterpart: the ``match`` of KafkaApis.handle and RequestContext.parseRequest.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from importlib import import_module
from typing import Any

from pybroker.apis import BY_KEY, Api, Route
from pybroker_protocol import codec, messages

SASL_HANDSHAKE_KEY = 17
API_VERSIONS_KEY = 18
SASL_AUTHENTICATE_KEY = 36
PRODUCE_KEY = 0
FETCH_KEY = 1
OFFSET_COMMIT_KEY = 8

Decode = Callable[[memoryview, int], tuple[Any, int]]
Encode = Callable[[Any, list[Any]], None]
DecodeInSteps = Callable[[memoryview, int], Generator[None, None, tuple[Any, int]]]
EncodeInSteps = Callable[[Any, list[Any]], Generator[int, None, None]]
Handle = Callable[[Any, Any], Any]


class ServedApi:
    """How one version of one API is served: decode, handle, encode, and the shape of both headers."""

    __slots__ = (
        "_decode_in_steps",
        "_elements_max",
        "_encode_in_steps",
        "api_key",
        "api_version",
        "decode",
        "encode",
        "flexible_reply",
        "flexible_request",
        "handle",
    )

    def __init__(self, api: Api, api_version: int) -> None:
        request_class = messages.request_class(api.key)
        flexible = codec.is_flexible(request_class, api_version)
        self.api_key = api.key
        self.api_version = api_version
        self.decode: Decode = codec.decoder(request_class, api_version)
        handler = import_module(f"pybroker.handlers.{api.handler}")
        self.handle: Handle = handler.handle if api.routed_to is not Route.CONTROLLER else _handle_or_forward(handler)
        # A handler may bring an encoder of its own: Metadata assembles its replies from encoded topics.
        make_encoder = getattr(handler, "encoder", None)
        self.encode: Encode = (
            codec.encoder(messages.response_class(api.key), api_version)
            if make_encoder is None
            else make_encoder(api_version)
        )
        self._decode_in_steps: DecodeInSteps | None = None
        self._encode_in_steps: EncodeInSteps | None = None if make_encoder is None else _in_one_step(self.encode)
        self._elements_max = api.elements_max
        self.flexible_request = flexible
        # The header of an ApiVersions reply never carries tagged fields: the client does not know yet what we speak.
        self.flexible_reply = flexible and api.key != API_VERSIONS_KEY

    @property
    def decode_in_steps(self) -> DecodeInSteps:
        """``decode`` as a generator; made by the first large frame."""
        if self._decode_in_steps is None:
            request_class = messages.request_class(self.api_key)
            self._decode_in_steps = codec.decoder_in_steps(request_class, self.api_version, self._elements_max)
        return self._decode_in_steps

    @property
    def encode_in_steps(self) -> EncodeInSteps:
        """``encode`` as a generator of the bytes since the last part; made by the first long request."""
        if self._encode_in_steps is None:
            self._encode_in_steps = codec.encoder_in_steps(messages.response_class(self.api_key), self.api_version)
        return self._encode_in_steps


def _handle_or_forward(handler: Any) -> Handle:
    """The function of a handler whose requests are the active controller's."""
    handle: Handle = handler.handle

    def handle_or_forward(ctx: Any, request: Any) -> Any:
        forwarder = ctx.services.forwarder
        return handle(ctx, request) if forwarder is None else forwarder.handle(handler, ctx, request)

    return handle_or_forward


def _in_one_step(encode: Encode) -> EncodeInSteps:
    """A handler's own encoder only puts together what is encoded already."""

    def encode_in_steps(response: Any, parts: list[Any]) -> Generator[int, None, None]:
        encode(response, parts)
        yield 0

    return encode_in_steps


class UnsupportedApiVersion(Exception):
    """The version of a known key is outside of what is served."""

    def __init__(self, api: Api, version: int) -> None:
        super().__init__(f"{api.name} version {version} is not served ({api.versions[0]} to {api.versions[1]} are)")
        self.api = api


class UnknownApiKey(Exception):
    """The key is not served, at all or now."""

    def __init__(self, key: int, why: str = "is not served") -> None:
        super().__init__(f"API key {key} {why}")


class Dispatcher:
    """What is served by the first four bytes of a request: API key and version in one int."""

    __slots__ = ("_by_key", "_why_not", "served")

    def __init__(self, *others: Api) -> None:
        """``others``: what is served beside what clients may ask for."""
        self._by_key = {**BY_KEY, **{api.key: api for api in others}} if others else BY_KEY
        self._why_not = "is not served"
        self.served: dict[int, ServedApi] = {}

    @classmethod
    def only(cls, *keys: int, why: str, out_of_order: Sequence[int] = ()) -> Dispatcher:
        """Nothing but these, of what clients may ask for; ``why`` is said of all others.

        ``out_of_order`` are answered that this is no time for them.
        """
        dispatcher = cls()
        refused = {key: BY_KEY[key]._replace(handler="sasl_out_of_order") for key in out_of_order}
        dispatcher._by_key = {**{key: BY_KEY[key] for key in keys}, **refused}
        dispatcher._why_not = why
        return dispatcher

    def resolve(self, key_and_version: int) -> ServedApi:
        """Build and remember it; raises ``UnknownApiKey`` or ``UnsupportedApiVersion``."""
        key, version = key_and_version >> 16, key_and_version & 0xFFFF
        api = self._by_key.get(key)
        if api is None:
            raise UnknownApiKey(key, self._why_not)
        if not api.versions[0] <= version <= api.versions[1]:
            raise UnsupportedApiVersion(api, version)
        served = ServedApi(api, version)
        self.served[key_and_version] = served
        return served
