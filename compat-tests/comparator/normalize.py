"""Replace what cannot be equal on two brokers by symbols.

Owns: which fields hold such values, and the symbols.  The same value becomes the same symbol wherever it appears in
one scenario, so that a reply which names the wrong topic id or member id still differs.  What means "none" (0, -1,
null, an empty id) is never replaced.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Sequence
from typing import Any

from comparator.encoding import Tree

# Field name -> the kind of thing it identifies.
SYMBOLS = {
    "broker_id": "node",
    "cluster_id": "cluster",
    "controller_id": "node",
    "eligible_leader_replicas": "node",
    "host": "host",
    "isr_nodes": "node",
    "last_known_elr": "node",
    "leader_id": "node",
    "log_dir": "log_dir",
    "node_id": "node",
    "path": "log_dir",
    "offline_replicas": "node",
    "port": "port",
    "producer_id": "producer",
    "producer_id_filters": "producer",
    "v3_and_below_producer_id": "producer",
    "replica_nodes": "node",
    "session_id": "session",
    "topic_id": "topic_id",
    "client_instance_id": "client_instance",
    "subscription_id": "subscription",
}
# Of a cluster ids are the same on both sides; but whom a broker names as the controller is anybody, as in Kafka.
NODE, CONTROLLER = "node", "controller_id"
COORDINATOR_EPOCH = "coordinator_epoch"
# Values that differ from run to run and identify nothing: only whether there is one is compared.
PRESENCE_ONLY = {
    "batch_index_error_message": "text",
    "error_message": "text",
    "finalized_features_epoch": "epoch",
    "hmac": "hmac",
    "last_timestamp": "time",
    "log_append_time_ms": "time",
    "token_id": "token",
    "total_bytes": "bytes",
    "transaction_start_time_ms": "time",
    "usable_bytes": "bytes",
}
# Lists of bare numbers or names that are sets.
UNORDERED = {"partitions", "subscribed_topic_names"}
# Time that a reply was held back says something about the quota of the moment, not about the request.
DROPPED = {"throttle_time_ms"}
# Settings that say where a broker runs, or what the harness has to set differently for the two.
LOCAL_SETTINGS = {"advertised.listeners", "controller.quorum.voters", "listeners", "log.dir", "log.dirs"}
RANDOM_UUID = re.compile(r"[0-9A-Za-z_-]{22}$|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
FIELDS_WITH_UUIDS = {"member_id", "leader"}
NOTHING: tuple[Any, ...] = (None, "", b"", 0, -1, bytes(16), [])

# Fields that name an element among its siblings, most telling first; replies list siblings in any order.
NAMING_FIELDS = (
    "name",
    "topic",
    "topic_name",
    "resource_name",
    "config_name",
    "group_id",
    "transactional_id",
    "key",
    "api_key",
    "partition_index",
    "partition",
    "index",
    "group_instance_id",
    "node_id",
    "log_dir",
)

# These are symbols by the time siblings are told apart by them.
NAMES_AFTER_SYMBOLS = (*NAMING_FIELDS, "member_id", "topic_id")

# Lists whose elements have another name.  Kafka lists producers in the order of a hash table, that is by their ids,
# which are anybody's on two brokers; elsewhere (aborted transactions) the order of producers says something.
NAMES_IN = {"active_producers": ("producer_id",)}

_BATCH_HEADER = struct.Struct(">qiibIhiqqqhii")
_ATTRIBUTES = 5


class Normalizer:
    """Normalizes the trees of one broker and one scenario, in the order in which they were recorded."""

    def __init__(self) -> None:
        self._symbols: dict[str, dict[Any, str]] = {}

    def normalize(self, tree: Tree, name: str = "") -> Tree:
        """The tree with symbols; ``name`` is the field that holds it."""
        if isinstance(tree, dict):
            if tree.get("name") in LOCAL_SETTINGS and "value" in tree:
                tree = {**tree, "value": "<local>"}
            return {
                key: value if _says_success(key, tree) else self.normalize(value, key)
                for key, value in tree.items()
                if key not in DROPPED
            }
        if name in {"records", "record_set"} and isinstance(tree, bytes):
            return [self._batch(header, body) for header, body in split_batches(tree)]
        if isinstance(tree, list):
            if name in UNORDERED and all(isinstance(item, int | str) for item in tree):
                return sorted(tree)
            siblings = [self.normalize(item, name) for item in sorted_siblings(tree, NAMING_FIELDS)]
            return sorted_siblings(siblings, NAMES_IN.get(name, NAMES_AFTER_SYMBOLS))
        if _is_nothing(tree):
            return tree
        if name in SYMBOLS:
            return self._symbol_of(name, tree)
        if name in PRESENCE_ONLY:
            return f"<{PRESENCE_ONLY[name]}>"
        if name in FIELDS_WITH_UUIDS and isinstance(tree, str):
            return RANDOM_UUID.sub(lambda found: self._symbol("uuid", found[0]), tree)
        return tree

    def _symbol_of(self, name: str, value: Any) -> Tree:
        return self._symbol(SYMBOLS[name], value)

    def _symbol(self, kind: str, value: Any) -> str:
        known = self._symbols.setdefault(kind, {})
        return known.setdefault(value, f"<{kind} {len(known) + 1}>")

    def _batch(self, header: tuple[int, ...], body: bytes) -> Tree:
        """A batch as its header's fields and its records' fingerprint; the checksum covers normalized fields."""
        (base_offset, length, leader_epoch, magic, _crc, attributes, last_delta, base_time, max_time, *producer) = (
            header
        )
        producer_id, producer_epoch, base_sequence, count = producer
        appended_by_broker = attributes & 0x28  # LogAppendTime, or a marker
        return {
            "base_offset": base_offset,
            "batch_length": length,
            "partition_leader_epoch": leader_epoch,
            "magic": magic,
            "attributes": attributes,
            "last_offset_delta": last_delta,
            "base_timestamp": "<time>" if attributes & 0x20 else base_time,
            "max_timestamp": "<time>" if appended_by_broker else max_time,
            "producer_id": self.normalize(producer_id, "producer_id"),
            "producer_epoch": producer_epoch,
            "base_sequence": base_sequence,
            "record_count": count,
            "records": hashlib.sha256(body).hexdigest()[:16],
        }


class ClusterNormalizer(Normalizer):
    """The same for several brokers, whose ids are compared as they are.

    How often a coordinator has changed tells what went before: on a busy machine brokers lose what they lead.
    """

    def _symbol_of(self, name: str, value: Any) -> Tree:
        if name == CONTROLLER:
            return "<a node>"
        return value if SYMBOLS[name] == NODE else super()._symbol_of(name, value)

    def normalize(self, tree: Tree, name: str = "") -> Tree:
        """Whoever is in sync is a set: its order tells who joined when."""
        if name == COORDINATOR_EPOCH and tree >= 0:
            return "<epoch>"
        return sorted(tree) if name == "isr_nodes" and isinstance(tree, list) else super().normalize(tree, name)

    def _batch(self, header: tuple[int, ...], body: bytes) -> Tree:
        is_marker = header[_ATTRIBUTES] >= 0 and header[_ATTRIBUTES] & 0x20
        # A marker ends with the coordinator's epoch and the number of headers, which is none.
        return super()._batch(header, body[:-5] + bytes(4) + body[-1:] if is_marker else body)


def _says_success(name: str, message: dict[str, Tree]) -> bool:
    """Whether the field is what a message says of a success: clients compare that with Kafka's words."""
    return name == "error_message" and message.get("error_code") == 0


def split_batches(data: bytes) -> list[tuple[tuple[int, ...], bytes]]:
    """(header fields, record bytes) of each batch; what is not a whole batch appears as one with a header of -1."""
    batches: list[tuple[tuple[int, ...], bytes]] = []
    position = 0
    while position < len(data):
        rest = data[position:]
        header = _BATCH_HEADER.unpack_from(rest) if len(rest) >= _BATCH_HEADER.size else (0,) * 13
        size = header[1] + 12
        if not _BATCH_HEADER.size <= size <= len(rest):
            batches.append(((-1,) * 13, rest))
            break
        batches.append((header, rest[_BATCH_HEADER.size : size]))
        position += size
    return batches


def sorted_siblings(siblings: list[Tree], names: Sequence[str]) -> list[Tree]:
    """Siblings in an order of their own names, so that the two brokers may list them in any order."""
    name = naming_field(siblings, names)
    if name is None:
        return siblings
    return sorted(siblings, key=lambda sibling: str(sibling[name]))


def naming_field(siblings: list[Tree], names: Sequence[str] = NAMES_AFTER_SYMBOLS) -> str | None:
    """The field that tells siblings apart, if there is one."""
    if not siblings or not all(isinstance(sibling, dict) for sibling in siblings):
        return None
    for name in names:
        values = [sibling.get(name) for sibling in siblings]
        if all(value is not None for value in values) and len(set(map(str, values))) == len(siblings):
            return name
    return None


def _is_nothing(value: Tree) -> bool:
    return any(value is nothing or (type(value) is type(nothing) and value == nothing) for nothing in NOTHING)
