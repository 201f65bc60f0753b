"""From the first bytes of a frame to the functions that serve it.

Owns: the table of ``ServedApi`` rows, one per (API key, version), built from ``apis.APIS`` at the first request
of each, so that a broker imports only what its clients use.

Kafka counterpart: the ``match`` of KafkaApis.handle and RequestContext.parseRequest.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from pybroker.apis import BY_KEY, Api
from pybroker_protocol import codec, messages

API_VERSIONS_KEY = 18
PRODUCE_KEY = 0
OFFSET_COMMIT_KEY = 8

Decode = Callable[[memoryview, int], tuple[Any, int]]
Encode = Callable[[Any, list[Any]], None]
Handle = Callable[[Any, Any], Any]


class ServedApi:
    """How one version of one API is served: decode, handle, encode, and the shape of both headers."""

    __slots__ = ("api_key", "api_version", "decode", "encode", "flexible_reply", "flexible_request", "handle")

    def __init__(self, api: Api, api_version: int) -> None:
        request_class = messages.request_class(api.key)
        flexible = codec.is_flexible(request_class, api_version)
        self.api_key = api.key
        self.api_version = api_version
        self.decode: Decode = codec.decoder(request_class, api_version)
        handler = import_module(f"pybroker.handlers.{api.handler}")
        self.handle: Handle = handler.handle
        # A handler may bring an encoder of its own: Metadata assembles its replies from encoded topics.
        make_encoder = getattr(handler, "encoder", None)
        self.encode: Encode = (
            codec.encoder(messages.response_class(api.key), api_version)
            if make_encoder is None
            else make_encoder(api_version)
        )
        self.flexible_request = flexible
        # The header of an ApiVersions reply never carries tagged fields: the client does not know yet what we speak.
        self.flexible_reply = flexible and api.key != API_VERSIONS_KEY


class UnsupportedApiVersion(Exception):
    """The version of a known key is outside of what is served."""

    def __init__(self, api: Api, version: int) -> None:
        super().__init__(f"{api.name} version {version} is not served ({api.versions[0]} to {api.versions[1]} are)")
        self.api = api


class UnknownApiKey(Exception):
    """The key is not served at all."""

    def __init__(self, key: int) -> None:
        super().__init__(f"API key {key} is not served")


class Dispatcher:
    """What is served by the first four bytes of a request: API key and version in one int."""

    __slots__ = ("served",)

    def __init__(self) -> None:
        self.served: dict[int, ServedApi] = {}

    def resolve(self, key_and_version: int) -> ServedApi:
        """Build and remember it; raises ``UnknownApiKey`` or ``UnsupportedApiVersion``."""
        key, version = key_and_version >> 16, key_and_version & 0xFFFF
        api = BY_KEY.get(key)
        if api is None:
            raise UnknownApiKey(key)
        if not api.versions[0] <= version <= api.versions[1]:
            raise UnsupportedApiVersion(api, version)
        served = ServedApi(api, version)
        self.served[key_and_version] = served
        return served
