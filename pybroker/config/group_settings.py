"""Every setting of a group and of a client-metrics subscription, once.

Owns: names, types, defaults, bounds, and for groups the broker settings that give the default and the limits, and what
assignors are called.

A row is (name, type, default, bounds, importance, flags).

Counterparts in Kafka: ``GroupConfig`` and ``ClientMetricsConfigs``.
"""

from __future__ import annotations

from typing import Final

from pybroker.config.bounds import ANY_LIST, NATURAL, POSITIVE
from pybroker.config.schema import (
    BOOLEAN,
    INT,
    INTERNAL,
    LIST,
    LONG,
    LOW,
    MEDIUM,
    STRING,
    TUNES,
    USED,
    Matching,
    OneOf,
    Range,
    Setting,
    table,
)

ISOLATION_LEVELS: Final = OneOf("read_committed", "read_uncommitted")
SHARE_OFFSET_RESET: Final = Matching(
    r"latest|earliest|by_duration:P(?=.)([0-9]+D)?(T(?=.)([0-9]+H)?([0-9]+M)?([0-9]+(\.[0-9]+)?S)?)?",
    form="[latest, earliest, by_duration:PnDTnHnMn.nS]",
    reason="Invalid value `{value}` for configuration {name}. The value must be either 'earliest', 'latest' or of the "
    "format 'by_duration:<PnDTnHnMn.nS>'.",
)

# fmt: off
_GROUP_ROWS: Final = (
    ("consumer.session.timeout.ms",        INT,     45_000,   POSITIVE,    MEDIUM, USED),
    ("consumer.heartbeat.interval.ms",     INT,     5000,     POSITIVE,    MEDIUM, USED),
    ("consumer.assignment.interval.ms",    INT,     1000,     NATURAL,     MEDIUM, USED),
    ("consumer.assignor.offload.enable",   BOOLEAN, True,     None,        MEDIUM, INTERNAL | TUNES),
    ("share.session.timeout.ms",           INT,     45_000,   POSITIVE,    MEDIUM, TUNES),
    ("share.heartbeat.interval.ms",        INT,     5000,     POSITIVE,    MEDIUM, TUNES),
    ("share.record.lock.duration.ms",      INT,     30_000,   Range(1000), MEDIUM, TUNES),
    ("share.delivery.count.limit",         INT,     5,        Range(2),    MEDIUM, TUNES),
    ("share.partition.max.record.locks",   INT,     2000,     Range(100),  MEDIUM, TUNES),
    ("share.auto.offset.reset",            STRING,  "latest", SHARE_OFFSET_RESET, MEDIUM, TUNES),
    ("share.isolation.level",              STRING,  "read_uncommitted", ISOLATION_LEVELS, MEDIUM, TUNES),
    ("share.renew.acknowledge.enable",     BOOLEAN, True,     None,        MEDIUM, TUNES),
    ("share.assignment.interval.ms",       INT,     1000,     NATURAL,     MEDIUM, TUNES),
    ("share.assignor.offload.enable",      BOOLEAN, True,     None,        MEDIUM, INTERNAL | TUNES),
    ("errors.deadletterqueue.topic.name",  STRING,  "",       None,        MEDIUM, TUNES),
    ("errors.deadletterqueue.copy.record.enable", BOOLEAN, False, None,    MEDIUM, TUNES),
    ("streams.session.timeout.ms",         INT,     45_000,   POSITIVE,    MEDIUM, TUNES),
    ("streams.heartbeat.interval.ms",      INT,     5000,     POSITIVE,    MEDIUM, TUNES),
    ("streams.num.standby.replicas",       INT,     0,        NATURAL,     MEDIUM, TUNES),
    ("streams.initial.rebalance.delay.ms", INT,     3000,     NATURAL,     MEDIUM, TUNES),
    ("streams.assignment.interval.ms",     INT,     1000,     NATURAL,     MEDIUM, TUNES),
    ("streams.assignor.offload.enable",    BOOLEAN, True,     None,        MEDIUM, INTERNAL | TUNES),
    ("streams.task.offset.interval.ms",    INT,     60_000,   POSITIVE,    MEDIUM, INTERNAL | TUNES),
    ("streams.num.warmup.replicas",        INT,     2,        NATURAL,     MEDIUM, INTERNAL | TUNES),
    ("streams.rack.aware.assignment.tags", LIST,    (),       None,        LOW,    TUNES),
    ("streams.acceptable.recovery.lag",    LONG,    10_000,   NATURAL,     MEDIUM, INTERNAL | TUNES),
    ("streams.assignor.name",              STRING,  None,     None,        MEDIUM, TUNES),
)

_CLIENT_METRICS_ROWS: Final = (
    ("metrics",     LIST, (),      ANY_LIST, MEDIUM, USED),
    ("interval.ms", INT,  300_000, None,     MEDIUM, USED),
    ("match",       LIST, (),      ANY_LIST, MEDIUM, USED),
)

# Group setting -> broker setting of its default.  The broker settings with "min." and "max." after the second word
# bound it, where Kafka has them.
GROUP_SYNONYMS: Final[dict[str, str]] = {
    "consumer.session.timeout.ms":           "group.consumer.session.timeout.ms",
    "consumer.heartbeat.interval.ms":        "group.consumer.heartbeat.interval.ms",
    "consumer.assignment.interval.ms":       "group.consumer.assignment.interval.ms",
    "consumer.assignor.offload.enable":      "group.consumer.assignor.offload.enable",
    "share.session.timeout.ms":              "group.share.session.timeout.ms",
    "share.heartbeat.interval.ms":           "group.share.heartbeat.interval.ms",
    "share.record.lock.duration.ms":         "group.share.record.lock.duration.ms",
    "share.delivery.count.limit":            "group.share.delivery.count.limit",
    "share.partition.max.record.locks":      "group.share.partition.max.record.locks",
    "share.assignment.interval.ms":          "group.share.assignment.interval.ms",
    "share.assignor.offload.enable":         "group.share.assignor.offload.enable",
    "streams.session.timeout.ms":            "group.streams.session.timeout.ms",
    "streams.heartbeat.interval.ms":         "group.streams.heartbeat.interval.ms",
    "streams.num.standby.replicas":          "group.streams.num.standby.replicas",
    "streams.initial.rebalance.delay.ms":    "group.streams.initial.rebalance.delay.ms",
    "streams.assignment.interval.ms":        "group.streams.assignment.interval.ms",
    "streams.assignor.offload.enable":       "group.streams.assignor.offload.enable",
    "streams.task.offset.interval.ms":       "group.streams.task.offset.interval.ms",
    "streams.num.warmup.replicas":           "group.streams.num.warmup.replicas",
    "streams.rack.aware.assignment.tags":    "group.streams.rack.aware.assignment.tags",
    "streams.acceptable.recovery.lag":       "group.streams.acceptable.recovery.lag",
    "streams.assignor.name":                 "group.streams.assignors",
}

# What ``group.consumer.assignors`` may name -> the assignor as clients name it; Kafka's own have class names, too.
CONSUMER_ASSIGNORS: Final[dict[str, str]] = {
    "uniform": "uniform",
    "range": "range",
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}
# fmt: on

GROUP_SETTINGS: Final[dict[str, Setting]] = table(_GROUP_ROWS)
CLIENT_METRICS_SETTINGS: Final[dict[str, Setting]] = table(_CLIENT_METRICS_ROWS)
