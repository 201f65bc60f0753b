"""The differences between clusters that are meant, each with its reason; as ``differences`` for single brokers."""

from __future__ import annotations

from comparator.differences import NOT_LEADER, SOME_TEXT, Meant, each

CLUSTER_MEANT: tuple[Meant, ...] = (
    Meant(
        "losses.too_few_in_sync",
        "Produce *, one gone, acks -1, at 1)",
        "*.error_message",
        "None",
        SOME_TEXT,
        "an error is told with its reason",
    ),
    *each(
        "leaders.fetch_elsewhere",
        "Fetch v12 (from 3, at 2)",
        "a follower may be late: that an offset is out of range is its leader's to say",
        ("*.error_code", "1", "78"),
    ),
    *each(
        "leaders.what_else_only_a_leader_does",
        "WriteTxnMarkers v1 (a marker, at 3)",
        "a broker without a replica does not lead the partition; Kafka takes the partition for unknown",
        ("*.error_code", "3", NOT_LEADER),
    ),
)
