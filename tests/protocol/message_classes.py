"""Every declared message, and every (message, version) that it has."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from pybroker_protocol import messages
from pybroker_protocol.api_keys import NAMES
from pybroker_protocol.schema import DataRecord, Header, Message, StructT

RECORD_MODULES = (
    "consumer_protocol",
    "headers",
    "principal",
    "records_consumer_group",
    "records_control",
    "records_group",
    "records_metadata",
    "records_share_group",
    "records_share_state",
    "records_streams_group",
    "records_transaction",
)


@cache
def message_classes() -> dict[str, type[Message]]:
    """All messages by name: requests, responses, headers, and what lies on disk."""
    classes: dict[str, type[Message]] = {}
    for key in NAMES:
        for cls in (messages.request_class(key), messages.response_class(key)):
            classes[cls.__name__] = cls
    for module in RECORD_MODULES:
        for name, value in vars(import_module(f"pybroker_protocol.messages.{module}")).items():
            if isinstance(value, type) and issubclass(value, DataRecord | Header) and value not in (DataRecord, Header):
                classes[name] = value
    return classes


def versions_of(cls: type[Message]) -> range:
    """The versions that a message is declared in."""
    versions = cls.__declaration__.versions
    assert versions is not None
    return range(versions.lowest, versions.highest + 1)


def with_defaults(cls: type[StructT], **fields: object) -> StructT:
    """A struct of some fields; the others have Kafka's defaults, although the constructor's type demands them."""
    return cls(**fields)


def messages_and_versions() -> list[tuple[type[Message], int]]:
    return [(cls, version) for cls in message_classes().values() for version in versions_of(cls)]


def case_id(value: object) -> str:
    """How parametrised tests name a message or a version."""
    return value.__name__ if isinstance(value, type) else f"v{value}"
