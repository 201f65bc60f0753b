"""Every message of Kafka 4.4, one module per API.

Owns: finding the class of a request or response by its API key, importing only that key's module.

On-disk records have modules of their own: ``records_group`` (committed offsets and classic groups),
``records_consumer_group``, ``records_share_group``, ``records_streams_group``, ``records_transaction``,
``records_share_state``, ``records_metadata`` (KRaft) and ``records_control``.
"""

import re
from functools import cache
from importlib import import_module

from pybroker_protocol.api_keys import NAMES
from pybroker_protocol.schema import Request, Response, Versions

_API_VERSIONS_KEY = 18


def request_class(api_key: int) -> type[Request]:
    """The class of a key's requests; KeyError for a key that Kafka 4.4 does not have."""
    cls: type[Request] = getattr(_module(api_key), f"{NAMES[api_key]}Request")
    return cls


def response_class(api_key: int) -> type[Response]:
    """The class of a key's responses; KeyError for a key that Kafka 4.4 does not have."""
    cls: type[Response] = getattr(_module(api_key), f"{NAMES[api_key]}Response")
    return cls


def request_header_version(api_key: int, api_version: int) -> int:
    """The version of the header before a request: 2 if the request is flexible, 1 otherwise."""
    return 2 if api_version in _flexible(api_key) else 1


def response_header_version(api_key: int, api_version: int) -> int:
    """The version of the header before a response: 1 if the response is flexible, 0 otherwise.

    Always 0 for ApiVersions: a client reads that reply before it knows what the broker speaks (KIP-511).
    """
    return 1 if api_version in _flexible(api_key) and api_key != _API_VERSIONS_KEY else 0


@cache
def _flexible(api_key: int) -> Versions:
    return request_class(api_key).__declaration__.flexible


def _module(api_key: int) -> object:
    return import_module(f"{__name__}.{re.sub('(?<!^)(?=[A-Z])', '_', NAMES[api_key]).lower()}")
