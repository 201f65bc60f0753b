"""What a subscription comes down to: the topics that a regular expression names, and a hash that tells when any of
the topics changed.

Owns: RE2 as the dialect of ``SubscribedTopicRegex``, its errors and bounds; the metadata hash of KIP-1101, byte for
byte Kafka's, since it is stored with the group.  Both libraries are imported at first use.

Counterpart in Kafka: ``TopicRegexResolver`` and ``Utils.throwIfRegularExpressionIsInvalid`` (re2j),
``Utils.computeTopicHash`` and ``computeGroupHash`` (hash4j's XXH3).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from struct import Struct, pack
from typing import TYPE_CHECKING, Protocol

from pybroker.limits import REGULAR_EXPRESSION_BYTES_MAX, REGULAR_EXPRESSION_MEMORY_BYTES

if TYPE_CHECKING:
    from types import ModuleType

# The version of the layout that is hashed.
TOPIC_HASH_MAGIC = 0

_int32 = Struct("<i").pack

# How RE2 says what is wrong, and how Kafka's clients have heard it from re2j.
DESCRIPTIONS = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "bad repetition operator": "invalid nested repetition operator",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid repetition size": "invalid repeat count",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
    "trailing \\": "trailing backslash at end of expression",
}


class InvalidRegularExpression(Exception):
    """The text is for the client, with INVALID_REGULAR_EXPRESSION."""

    def __init__(self, pattern: str, reason: str) -> None:
        super().__init__(f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {reason}.")


class _Matcher(Protocol):
    def fullmatch(self, text: str) -> object | None: ...


class CompiledRegex:
    """A regular expression of a subscription.  Matching takes time linear in the length of each name."""

    __slots__ = ("_matcher", "pattern")

    def __init__(self, pattern: str, matcher: _Matcher) -> None:
        self.pattern = pattern
        self._matcher = matcher

    def matches(self, topic_names: Iterable[str]) -> set[str]:
        """The names that match as a whole.  May run on any thread; RE2 lets the others run meanwhile."""
        fullmatch = self._matcher.fullmatch
        return {name for name in topic_names if fullmatch(name) is not None}


def compile_regex(pattern: str) -> CompiledRegex:
    """The regular expression of a subscription; InvalidRegularExpression when RE2 does not take it."""
    encoded_length = len(pattern.encode())
    if encoded_length > REGULAR_EXPRESSION_BYTES_MAX:
        raise InvalidRegularExpression(
            f"{pattern[:32]}…", f"{encoded_length} bytes are more than {REGULAR_EXPRESSION_BYTES_MAX}"
        )
    re2 = _re2(pattern)
    options = re2.Options()
    options.max_mem = REGULAR_EXPRESSION_MEMORY_BYTES
    options.log_errors = False
    options.never_capture = True
    try:
        return CompiledRegex(pattern, re2.compile(pattern, options))
    except re2.error as error:
        raise InvalidRegularExpression(pattern, _description(error)) from None


def _re2(pattern: str) -> ModuleType:
    try:
        module: ModuleType = import_module("re2")
    except ImportError:
        raise InvalidRegularExpression(pattern, "this broker runs without the google-re2 package") from None
    return module


def _description(error: Exception) -> str:
    """RE2's message without the fragment that it quotes, in the words of re2j."""
    raw = error.args[0]
    message = raw.decode(errors="replace") if isinstance(raw, bytes) else str(raw)
    reason = message.split(": ", 1)[0]
    return DESCRIPTIONS.get(reason, reason)


def topic_hash(topic_id: bytes, name: str, partition_racks: Sequence[Iterable[str]]) -> int:
    """The hash of a topic, signed 64 bits: changes when the topic, its partitions or the racks of its replicas do.

    ``partition_racks`` has for each partition the rack of every replica whose broker is known and has one, a rack as
    often as there are replicas in it.
    """
    parts = [
        bytes([TOPIC_HASH_MAGIC]),
        # Two little-endian halves.
        topic_id[7::-1],
        topic_id[:7:-1],
        _string(name),
        _int32(len(partition_racks)),
    ]
    encoded_racks: dict[tuple[str, ...], bytes] = {}
    for index, racks in enumerate(partition_racks):
        key = tuple(sorted(racks))
        encoded = encoded_racks.get(key)
        if encoded is None:
            encoded = encoded_racks[key] = b"".join(_int32(_length(rack)) + _string(rack) for rack in key)
        parts += (_int32(index), encoded)
    return _xxh3(b"".join(parts))


def group_metadata_hash(topic_hashes: Mapping[str, int]) -> int:
    """The hash of all topics that a group subscribes to, by name; 0 when it has none.  Topics that do not exist are
    left out by the caller.
    """
    if not topic_hashes:
        return 0
    return _xxh3(pack(f"<{len(topic_hashes)}q", *(topic_hashes[name] for name in sorted(topic_hashes))))


def _length(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def _string(text: str) -> bytes:
    encoded = text.encode("utf-16-le")
    return encoded + _int32(len(encoded) // 2)


def _xxh3(content: bytes) -> int:
    from xxhash import xxh3_64_digest

    return int.from_bytes(xxh3_64_digest(content), "big", signed=True)
