"""Every setting of a topic, once, with the broker settings that supply its default.

Owns: names, types, defaults, bounds, flags, and the synonyms with their units.  Owns no value (``log_config``), and no
setting that is pybroker's own (``own_settings``).

A row is (name, type, default, bounds, importance, flags).

Counterpart in Kafka: ``LogConfig.CONFIG_DEF`` and ``ServerTopicConfigSynonyms``.
"""

from __future__ import annotations

from typing import Final

from pybroker.config.bounds import (
    CLEANUP_POLICIES,
    COMPRESSION_TYPES,
    DECOMPRESSED_BYTES,
    GZIP_LEVEL,
    LARGEST_ARRAY,
    NATURAL,
    POSITIVE,
    TIMESTAMP_TYPES,
)
from pybroker.config.own_settings import OWN_TOPIC_SETTINGS
from pybroker.config.schema import (
    BOOLEAN,
    CHECKED,
    DOUBLE,
    INT,
    INTERNAL,
    LIST,
    LONG,
    LONG_MAX,
    MEDIUM,
    STRING,
    TUNES,
    USED,
    ListMatching,
    Range,
    Setting,
    table,
)

THROTTLED_REPLICAS: Final = ListMatching(
    r"[0-9]+:[0-9]+",
    form="[partitionId]:[brokerId],[partitionId]:[brokerId],...",
    reason="must be the literal '*' or a list of replicas in the following format: "
    "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
    lone="*",
)

# fmt: off
_ROWS: Final = (
    ("segment.bytes",                           INT,     1_073_741_824, Range(1_048_576), MEDIUM, USED),
    ("segment.ms",                              LONG,    604_800_000,   POSITIVE,     MEDIUM, USED),
    ("segment.jitter.ms",                       LONG,    0,             NATURAL,      MEDIUM, USED),
    ("segment.index.bytes",                     INT,     10_485_760,    Range(4),     MEDIUM, USED),
    ("flush.messages",                          LONG,    LONG_MAX,      POSITIVE,     MEDIUM, USED),
    ("flush.ms",                                LONG,    LONG_MAX,      NATURAL,      MEDIUM, USED),
    ("retention.bytes",                         LONG,    -1,            None,         MEDIUM, USED),
    ("retention.ms",                            LONG,    604_800_000,   Range(-1),    MEDIUM, USED),
    ("max.message.bytes",                       INT,     1_048_588,     NATURAL,      MEDIUM, USED),
    ("max.decompressed.message.bytes",          INT,     LARGEST_ARRAY, DECOMPRESSED_BYTES, MEDIUM, CHECKED),
    ("index.interval.bytes",                    INT,     4096,          NATURAL,      MEDIUM, USED),
    ("delete.retention.ms",                     LONG,    86_400_000,    NATURAL,      MEDIUM, USED),
    ("min.compaction.lag.ms",                   LONG,    0,             NATURAL,      MEDIUM, USED),
    ("max.compaction.lag.ms",                   LONG,    LONG_MAX,      POSITIVE,     MEDIUM, USED),
    ("file.delete.delay.ms",                    LONG,    60_000,        NATURAL,      MEDIUM, USED),
    ("min.cleanable.dirty.ratio",               DOUBLE,  0.5,           Range(0, 1),  MEDIUM, USED),
    ("cleanup.policy",                          LIST,    ("delete",),   CLEANUP_POLICIES, MEDIUM, USED),
    ("unclean.leader.election.enable",          BOOLEAN, False,         None,         MEDIUM, USED),
    ("min.insync.replicas",                     INT,     1,             POSITIVE,     MEDIUM, USED),
    ("compression.type",                        STRING,  "producer",    COMPRESSION_TYPES, MEDIUM, USED),
    ("compression.gzip.level",                  INT,     -1,            GZIP_LEVEL,   MEDIUM, TUNES),
    ("compression.lz4.level",                   INT,     9,             Range(1, 17), MEDIUM, TUNES),
    ("compression.zstd.level",                  INT,     3,             Range(-131_072, 22), MEDIUM, TUNES),
    ("preallocate",                             BOOLEAN, False,         None,         MEDIUM, TUNES),
    ("message.timestamp.type",                  STRING,  "CreateTime",  TIMESTAMP_TYPES, MEDIUM, USED),
    ("message.timestamp.before.max.ms",         LONG,    LONG_MAX,      NATURAL,      MEDIUM, USED),
    ("message.timestamp.after.max.ms",          LONG,    3_600_000,     NATURAL,      MEDIUM, USED),
    ("leader.replication.throttled.replicas",   LIST,    (),            THROTTLED_REPLICAS, MEDIUM, USED),
    ("follower.replication.throttled.replicas", LIST,    (),            THROTTLED_REPLICAS, MEDIUM, USED),
    ("remote.storage.enable",                   BOOLEAN, False,         None,         MEDIUM, CHECKED),
    ("local.retention.ms",                      LONG,    -2,            Range(-2),    MEDIUM, TUNES),
    ("local.retention.bytes",                   LONG,    -2,            Range(-2),    MEDIUM, TUNES),
    ("remote.copy.lag.ms",                      LONG,    0,             Range(-1),    MEDIUM, TUNES),
    ("remote.copy.lag.bytes",                   LONG,    -1,            Range(-1),    MEDIUM, TUNES),
    ("remote.log.copy.disable",                 BOOLEAN, False,         None,         MEDIUM, TUNES),
    ("remote.log.delete.on.disable",            BOOLEAN, False,         None,         MEDIUM, TUNES),
    ("errors.deadletterqueue.group.enable",     BOOLEAN, False,         None,         MEDIUM, TUNES),
    ("internal.segment.bytes",                  INT,     None,          None,         MEDIUM, INTERNAL | USED),
)

_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 3_600_000

# Topic setting -> broker settings that stand for it, the first that is set wins, each with the factor that makes
# its unit the topic's.
TOPIC_SYNONYMS: Final[dict[str, tuple[tuple[str, int], ...]]] = {
    "cleanup.policy":                  (("log.cleanup.policy", 1),),
    "compression.gzip.level":          (("compression.gzip.level", 1),),
    "compression.lz4.level":           (("compression.lz4.level", 1),),
    "compression.type":                (("compression.type", 1),),
    "compression.zstd.level":          (("compression.zstd.level", 1),),
    "delete.retention.ms":             (("log.cleaner.delete.retention.ms", 1),),
    "file.delete.delay.ms":            (("log.segment.delete.delay.ms", 1),),
    "flush.messages":                  (("log.flush.interval.messages", 1),),
    "flush.ms":                        (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    "index.interval.bytes":            (("log.index.interval.bytes", 1),),
    "local.retention.bytes":           (("log.local.retention.bytes", 1),),
    "local.retention.ms":              (("log.local.retention.ms", 1),),
    "max.compaction.lag.ms":           (("log.cleaner.max.compaction.lag.ms", 1),),
    "max.decompressed.message.bytes":  (("max.decompressed.message.bytes", 1),),
    "max.message.bytes":               (("message.max.bytes", 1),),
    "message.timestamp.after.max.ms":  (("log.message.timestamp.after.max.ms", 1),),
    "message.timestamp.before.max.ms": (("log.message.timestamp.before.max.ms", 1),),
    "message.timestamp.type":          (("log.message.timestamp.type", 1),),
    "min.cleanable.dirty.ratio":       (("log.cleaner.min.cleanable.ratio", 1),),
    "min.compaction.lag.ms":           (("log.cleaner.min.compaction.lag.ms", 1),),
    "min.insync.replicas":             (("min.insync.replicas", 1),),
    "preallocate":                     (("log.preallocate", 1),),
    "remote.copy.lag.bytes":           (("log.remote.copy.lag.bytes", 1),),
    "remote.copy.lag.ms":              (("log.remote.copy.lag.ms", 1),),
    "retention.bytes":                 (("log.retention.bytes", 1),),
    "retention.ms": (("log.retention.ms", 1), ("log.retention.minutes", _MINUTE_MS), ("log.retention.hours", _HOUR_MS)),
    "segment.bytes":                   (("log.segment.bytes", 1),),
    "segment.index.bytes":             (("log.index.size.max.bytes", 1),),
    "segment.jitter.ms":               (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", _HOUR_MS)),
    "segment.ms":                      (("log.roll.ms", 1), ("log.roll.hours", _HOUR_MS)),
    "unclean.leader.election.enable":  (("unclean.leader.election.enable", 1),),
    **{name: ((name, 1),) for name in OWN_TOPIC_SETTINGS},
}
# fmt: on

KAFKA_TOPIC_SETTINGS: Final[dict[str, Setting]] = table(_ROWS)
TOPIC_SETTINGS: Final[dict[str, Setting]] = KAFKA_TOPIC_SETTINGS | OWN_TOPIC_SETTINGS
