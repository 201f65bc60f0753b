"""Converters by the names that people write: short ones, and the classes of Kafka Connect that do the same."""

from __future__ import annotations

from typing import Final

CONVERTERS: Final = ("json", "text", "bytes", "avro", "protobuf")
_CLASSES: Final = {
    "org.apache.kafka.connect.json.JsonConverter": "json",
    "org.apache.kafka.connect.storage.StringConverter": "text",
    "org.apache.kafka.connect.converters.ByteArrayConverter": "bytes",
}
CLASSES_OF_CONVERTERS: Final = tuple(_CLASSES)
_SHORT: Final = {name.rpartition(".")[2].lower(): short for name, short in _CLASSES.items()}


def converter_named(text: str) -> str | None:
    """The converter of a short name, a class, or a class without its package; ``None`` where there is none."""
    stripped = text.strip()
    if stripped.lower() in CONVERTERS:
        return stripped.lower()
    return _CLASSES.get(stripped) or _SHORT.get(stripped.lower())
