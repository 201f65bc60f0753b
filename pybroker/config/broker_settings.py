"""Every setting of a broker, once: Kafka 4.4's own, then the few that are pybroker's.

Owns: names, types, defaults, bounds, importance, update modes, and whether pybroker reads them; of security they stand
in ``security_settings``.  Owns no documentation (``documentation``, loaded when a client asks for it) and no value
(``broker``).

A row is (name, type, default, bounds, importance, mode, flags).  Modes: FIXED is read-only, BROKER may change per
broker, CLUSTER per broker and for all.  Flags: USED is read by pybroker; of the others a
row says that it only TUNES what is not here, or is CHECKED: never accepted without effect (``schema``).
Defaults are Kafka's.  ``REQUIRED_BY_KAFKA`` has values for the settings that Kafka cannot start without.

Counterpart in Kafka: ``AbstractKafkaConfig.CONFIG_DEF`` and ``DynamicBrokerConfig.ALL_DYNAMIC_CONFIGS``.
"""

from __future__ import annotations

from typing import Final

from pybroker.config.bounds import (
    ANY_LIST,
    CLEANUP_POLICIES,
    COMPRESSION_TYPES,
    DECOMPRESSED_BYTES,
    GZIP_LEVEL,
    LARGEST_ARRAY,
    NATURAL,
    NO_CLASS,
    POSITIVE,
    TIMESTAMP_TYPES,
)
from pybroker.config.connections import OverridesForm
from pybroker.config.schema import (
    BOOLEAN,
    BROKER,
    CHECKED,
    CLASS,
    CLUSTER,
    DOUBLE,
    DOUBLE_MAX,
    FIXED,
    HIGH,
    INT,
    INT_MAX,
    INTERNAL,
    LIST,
    LONG,
    LONG_MAX,
    LOW,
    MEDIUM,
    PASSWORD,
    SHORT,
    STRING,
    TUNES,
    USED,
    BuiltIn,
    ListMatching,
    ListOf,
    Matching,
    NonEmpty,
    Not,
    OneOf,
    OneOfAnyCase,
    Range,
    Setting,
    table,
)
from pybroker.config.security_settings import SECURITY_ROWS

# --- Bounds that several rows share ----------------------------------------------------------------------------------
NON_EMPTY: Final = NonEmpty()
NON_EMPTY_LIST: Final = ListOf(empty_allowed=False)
GROUP_PROTOCOLS: Final = ListOf("consumer", "classic", "share", "streams", empty_allowed=False)
PROCESS_ROLES: Final = ListOf("broker", "controller", empty_allowed=False)
MIGRATION_POLICIES: Final = OneOfAnyCase("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL")
SECURITY_PROTOCOLS: Final = OneOf("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
QUORUM_VOTERS: Final = ListMatching(r"[0-9]+@.+:[0-9]+", "non-empty list", "entries have the form {id}@{host}:{port}")
OVERRIDES: Final = OverridesForm()
_METADATA_FORMS: Final = "sqlite:///path or zookeeper://host:port,.../chroot"
METADATA_URL: Final = Matching(r"sqlite:///.+|zookeeper://[^/]+(?:/.*)?", _METADATA_FORMS, f"must be {_METADATA_FORMS}")
CLUSTER_UUID: Final = Matching("[A-Za-z0-9_-]{22}", "a uuid as kafka-storage random-uuid prints it", "must be a uuid")
HOST_AND_PORT_LIST: Final = ListMatching(r".+:[0-9]+", "non-empty list", "entries have the form {host}:{port}")

# --- Long defaults ---------------------------------------------------------------------------------------------------
PROTOCOL_MAP: Final = "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"
REBALANCE_PROTOCOLS: Final = ("classic", "consumer", "streams")
REMOTE_LOG_METADATA_MANAGER: Final = (
    "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager"
)
JMX_REPORTER: Final = "org.apache.kafka.common.metrics.JmxReporter"
RACK_AWARE_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
NO_TIERS: Final = Not(True, "there is no tiered storage: what it would move away stays on the log dirs")
DLQ_MANAGER: Final = "org.apache.kafka.server.share.dlq.DefaultShareGroupDLQManager"
NO_DLQ_MANAGER: Final = BuiltIn(DLQ_MANAGER)
SHARE_PERSISTER: Final = "org.apache.kafka.server.share.persister.DefaultStatePersister"
NO_PERSISTER: Final = BuiltIn(SHARE_PERSISTER)

# fmt: off
_ROWS: Final = (
    # --- Tiered storage --------------------------------------------------------------------------------------------
    ("remote.log.storage.system.enable", BOOLEAN, False, NO_TIERS, MEDIUM, FIXED, CHECKED),
    ("remote.log.storage.manager.impl.prefix",             STRING,  "rsm.config.", NON_EMPTY, MEDIUM, FIXED,   TUNES),
    ("remote.log.metadata.manager.impl.prefix",            STRING,  "rlmm.config.", NON_EMPTY, MEDIUM, FIXED,   TUNES),
    ("remote.log.storage.manager.class.name",              STRING,  None,          NON_EMPTY, MEDIUM, FIXED,   TUNES),
    ("remote.log.storage.manager.class.path",              STRING,  None,          None,      MEDIUM, FIXED,   TUNES),
    ("remote.log.metadata.manager.class.name", STRING, REMOTE_LOG_METADATA_MANAGER, NON_EMPTY, MEDIUM, FIXED, TUNES),
    ("remote.log.metadata.manager.class.path",             STRING,  None,          None,      MEDIUM, FIXED,   TUNES),
    ("remote.log.metadata.manager.listener.name",          STRING,  None,          NON_EMPTY, MEDIUM, FIXED,   TUNES),
    ("remote.log.metadata.custom.metadata.max.bytes",      INT,     128,           NATURAL,   LOW,    FIXED,   TUNES),
    ("remote.log.index.file.cache.total.size.bytes",       LONG,    1_073_741_824, POSITIVE,  LOW,    CLUSTER, TUNES),
    ("remote.log.index.file.cache.ttl.ms", LONG, 900_000, Range(-1), LOW, FIXED, INTERNAL | TUNES),
    ("remote.log.manager.thread.pool.size",                INT,     2,             POSITIVE,  MEDIUM, FIXED,   TUNES),
    ("remote.log.manager.copier.thread.pool.size",         INT,     10,            POSITIVE,  MEDIUM, CLUSTER, TUNES),
    ("remote.log.manager.expiration.thread.pool.size",     INT,     10,            POSITIVE,  MEDIUM, CLUSTER, TUNES),
    ("remote.log.manager.follower.thread.pool.size",       INT,     2,             POSITIVE,  MEDIUM, CLUSTER, TUNES),
    ("remote.log.manager.task.interval.ms",                LONG,    30_000,        POSITIVE,  LOW,    FIXED,   TUNES),
    ("remote.log.manager.task.retry.backoff.ms", LONG, 500, POSITIVE, LOW, FIXED, INTERNAL | TUNES),
    ("remote.log.manager.task.retry.backoff.max.ms", LONG, 30_000, POSITIVE, LOW, FIXED, INTERNAL | TUNES),
    ("remote.log.manager.task.retry.jitter", DOUBLE, 0.2, Range(0, 0.5), LOW, FIXED, INTERNAL | TUNES),
    ("remote.log.reader.threads",                          INT,     10,            POSITIVE,  MEDIUM, CLUSTER, TUNES),
    ("remote.log.reader.max.pending.tasks",                INT,     100,           POSITIVE,  MEDIUM, FIXED,   TUNES),
    ("log.local.retention.ms",                             LONG,    -2,            Range(-2), MEDIUM, CLUSTER, TUNES),
    ("log.local.retention.bytes",                          LONG,    -2,            Range(-2), MEDIUM, CLUSTER, TUNES),
    ("log.remote.copy.lag.ms",                             LONG,    0,             Range(-1), MEDIUM, CLUSTER, TUNES),
    ("log.remote.copy.lag.bytes",                          LONG,    -1,            Range(-1), MEDIUM, CLUSTER, TUNES),
    ("remote.log.manager.copy.max.bytes.per.second",       LONG,    LONG_MAX,      POSITIVE,  MEDIUM, CLUSTER, TUNES),
    ("remote.log.manager.copy.quota.window.num",           INT,     11,            POSITIVE,  MEDIUM, FIXED,   TUNES),
    ("remote.log.manager.copy.quota.window.size.seconds",  INT,     1,             POSITIVE,  MEDIUM, FIXED,   TUNES),
    ("remote.log.manager.fetch.max.bytes.per.second",      LONG,    LONG_MAX,      POSITIVE,  MEDIUM, CLUSTER, TUNES),
    ("remote.log.manager.fetch.quota.window.num",          INT,     11,            POSITIVE,  MEDIUM, FIXED,   TUNES),
    ("remote.log.manager.fetch.quota.window.size.seconds", INT,     1,             POSITIVE,  MEDIUM, FIXED,   TUNES),
    ("remote.fetch.max.wait.ms",                           INT,     500,           POSITIVE,  MEDIUM, CLUSTER, TUNES),
    ("remote.list.offsets.request.timeout.ms",             LONG,    30_000,        POSITIVE,  MEDIUM, CLUSTER, TUNES),
    # --- The server ------------------------------------------------------------------------------------------------
    ("broker.id",                                 INT,     -1,         None,         HIGH,   FIXED,   USED),
    ("message.max.bytes",                         INT,     1_048_588,  NATURAL,      HIGH,   CLUSTER, USED),
    ("max.decompressed.message.bytes", INT, LARGEST_ARRAY, DECOMPRESSED_BYTES, MEDIUM, CLUSTER, CHECKED),
    ("num.io.threads",                            INT,     8,          POSITIVE,     HIGH,   CLUSTER, TUNES),
    ("num.replica.alter.log.dirs.threads",        INT,     None,       None,         HIGH,   FIXED,   USED),
    ("background.threads",                        INT,     10,         POSITIVE,     HIGH,   CLUSTER, TUNES),
    ("request.timeout.ms",                        INT,     30_000,     None,         HIGH,   FIXED,   USED),
    ("socket.connection.setup.timeout.ms",        LONG,    10_000,     None,         MEDIUM, FIXED,   TUNES),
    ("socket.connection.setup.timeout.max.ms",    LONG,    30_000,     None,         MEDIUM, FIXED,   TUNES),
    ("config.providers",                          LIST,    (),         ANY_LIST,     LOW,    CLUSTER, USED),
    ("authorizer.class.name",                     STRING,  "",         None,         LOW,    FIXED,   USED),
    ("early.start.listeners",                     LIST,    None,       ANY_LIST,     HIGH,   FIXED,   TUNES),
    ("broker.rack",                               STRING,  None,       None,         MEDIUM, FIXED,   USED),
    ("controlled.shutdown.enable",                BOOLEAN, True,       None,         MEDIUM, FIXED,   TUNES),
    ("delete.topic.enable",                       BOOLEAN, True,       None,         HIGH,   FIXED,   USED),
    ("compression.type",                          STRING,  "producer", COMPRESSION_TYPES, HIGH,   CLUSTER, USED),
    ("compression.gzip.level",                    INT,     -1,         GZIP_LEVEL,   MEDIUM, CLUSTER, TUNES),
    ("compression.lz4.level",                     INT,     9,          Range(1, 17), MEDIUM, CLUSTER, TUNES),
    ("compression.zstd.level",                    INT,     3,          Range(-131_072, 22), MEDIUM, CLUSTER, TUNES),
    ("max.incremental.fetch.session.cache.slots", INT,     1000,       NATURAL,      MEDIUM, FIXED,   USED),
    ("fetch.max.bytes",                           INT,     57_671_680, Range(1024),  MEDIUM, FIXED,   USED),
    ("max.request.partition.size.limit",          INT,     2000,       POSITIVE,     MEDIUM, FIXED,   USED),
    ("unstable.api.versions.enable",              BOOLEAN, False,      None,         HIGH,   FIXED,   INTERNAL | TUNES),
    ("unstable.feature.versions.enable",          BOOLEAN, False,      None,         HIGH,   FIXED,   INTERNAL | TUNES),
    # --- KRaft roles and the metadata log --------------------------------------------------------------------------
    ("process.roles",                                   LIST,   None,          PROCESS_ROLES, HIGH, FIXED, CHECKED),
    ("node.id",                                         INT,    None,          NATURAL,    HIGH,   FIXED, USED),
    ("initial.broker.registration.timeout.ms",          INT,    60_000,        None,       MEDIUM, FIXED, USED),
    ("broker.heartbeat.interval.ms",                    INT,    2000,          None,       MEDIUM, FIXED, USED),
    ("broker.session.timeout.ms",                       INT,    9000,          None,       MEDIUM, FIXED, USED),
    ("controller.listener.names",                       LIST,   None,           NON_EMPTY_LIST, HIGH,   FIXED, USED),
    ("sasl.mechanism.controller.protocol",              STRING, "GSSAPI",      None,       HIGH,   FIXED, TUNES),
    ("controller.performance.sample.period.ms", LONG, 60_000, Range(100), MEDIUM, FIXED, INTERNAL | TUNES),
    ("controller.performance.always.log.threshold.ms", LONG, 2000, NATURAL, MEDIUM, FIXED, INTERNAL | TUNES),
    ("server.max.startup.time.ms", LONG, LONG_MAX, NATURAL, MEDIUM, FIXED, INTERNAL | TUNES),
    ("metadata.log.max.record.bytes.between.snapshots", LONG,   20_971_520,    POSITIVE,   HIGH,   FIXED, TUNES),
    ("metadata.log.max.snapshot.interval.ms",           LONG,   3_600_000,     NATURAL,    HIGH,   FIXED, TUNES),
    ("metadata.log.dir",                                STRING, None,          None,       HIGH,   FIXED, USED),
    ("metadata.log.segment.bytes",                      INT,    1_073_741_824, Range(8_388_608), HIGH,   FIXED, TUNES),
    ("metadata.log.segment.ms",                         LONG,   604_800_000,   None,       HIGH,   FIXED, TUNES),
    ("metadata.max.retention.bytes",                    LONG,   104_857_600,   None,       HIGH,   FIXED, TUNES),
    ("metadata.max.retention.ms",                       LONG,   604_800_000,   None,       HIGH,   FIXED, TUNES),
    ("metadata.max.idle.interval.ms",                   INT,    500,           NATURAL,    LOW,    FIXED, TUNES),
    ("internal.metadata.log.segment.bytes", INT, None, None, LOW, FIXED, INTERNAL | TUNES),
    ("internal.metadata.max.batch.size.in.bytes", INT, 8_388_608, None, LOW, FIXED, INTERNAL | TUNES),
    ("internal.metadata.delete.delay.millis", LONG, 60_000, None, LOW, FIXED, INTERNAL | TUNES),
    # --- Listeners, sockets, connections ---------------------------------------------------------------------------
    ("listeners", LIST, ("PLAINTEXT://:9092",), NON_EMPTY_LIST, HIGH, BROKER, USED),
    ("advertised.listeners",                      LIST,   None,         NON_EMPTY_LIST, HIGH,   FIXED,   USED),
    ("listener.security.protocol.map",            STRING, PROTOCOL_MAP, None,     LOW,    BROKER,  USED),
    ("socket.send.buffer.bytes",                  INT,    102_400,      None,     HIGH,   FIXED,   USED),
    ("socket.receive.buffer.bytes",               INT,    102_400,      None,     HIGH,   FIXED,   USED),
    ("socket.request.max.bytes",                  INT,    104_857_600,  POSITIVE, HIGH,   FIXED,   USED),
    ("socket.listen.backlog.size",                INT,    50,           POSITIVE, MEDIUM, FIXED,   USED),
    ("max.connections.per.ip",                    INT,    INT_MAX,      NATURAL,  MEDIUM, CLUSTER, USED),
    ("max.connections.per.ip.overrides",          STRING, "",           OVERRIDES, MEDIUM, CLUSTER, USED),
    ("max.connections",                           INT,    INT_MAX,      NATURAL,  MEDIUM, CLUSTER, USED),
    ("max.connection.creation.rate",              INT,    INT_MAX,      NATURAL,  MEDIUM, CLUSTER, USED),
    ("connections.max.idle.ms",                   LONG,   600_000,      None,     MEDIUM, FIXED,   USED),
    ("connection.failed.authentication.delay.ms", INT,    100,          NATURAL,  LOW,    FIXED,   USED),
    ("queued.max.requests",                       INT,    500,          POSITIVE, HIGH,   FIXED,   TUNES),
    ("queued.max.request.bytes",                  LONG,   -1,           None,     MEDIUM, FIXED,   USED),
    ("num.network.threads",                       INT,    3,            POSITIVE, HIGH,   CLUSTER, TUNES),
    # --- Replication -----------------------------------------------------------------------------------------------
    ("controller.socket.timeout.ms",                     INT,     30_000,      None,     MEDIUM, FIXED,   TUNES),
    ("default.replication.factor",                       INT,     1,           None,     MEDIUM, FIXED,   USED),
    ("replica.lag.time.max.ms",                          LONG,    30_000,      None,     HIGH,   FIXED,   USED),
    ("replica.socket.timeout.ms",                        INT,     30_000,      None,     HIGH,   FIXED,   USED),
    ("replica.socket.receive.buffer.bytes",              INT,     65_536,      None,     HIGH,   FIXED,   TUNES),
    ("replica.fetch.max.bytes",                          INT,     1_048_576,   NATURAL,  MEDIUM, FIXED,   USED),
    ("replica.fetch.wait.max.ms",                        INT,     500,         None,     HIGH,   FIXED,   USED),
    ("replica.fetch.backoff.ms",                         INT,     1000,        NATURAL,  MEDIUM, FIXED,   USED),
    ("replica.fetch.min.bytes",                          INT,     1,           None,     HIGH,   FIXED,   USED),
    ("replica.fetch.response.max.bytes",                 INT,     10_485_760,  NATURAL,  MEDIUM, FIXED,   USED),
    ("num.replica.fetchers",                             INT,     1,           POSITIVE, HIGH,   CLUSTER, TUNES),
    ("replica.high.watermark.checkpoint.interval.ms",    LONG,    5000,        None,     HIGH,   FIXED,   USED),
    ("fetch.purgatory.purge.interval.requests",          INT,     1000,        None,     MEDIUM, FIXED,   TUNES),
    ("producer.purgatory.purge.interval.requests",       INT,     1000,        None,     MEDIUM, FIXED,   TUNES),
    ("delete.records.purgatory.purge.interval.requests", INT,     1,           None,     MEDIUM, FIXED,   TUNES),
    ("auto.leader.rebalance.enable",                     BOOLEAN, True,        None,     HIGH,   FIXED,   USED),
    ("leader.imbalance.check.interval.seconds",          LONG,    300,         POSITIVE, HIGH,   FIXED,   USED),
    ("unclean.leader.election.interval.ms", LONG, 300_000, POSITIVE, MEDIUM, FIXED, INTERNAL | TUNES),
    ("unclean.leader.election.enable",                   BOOLEAN, False,       None,     HIGH,   CLUSTER, USED),
    ("security.inter.broker.protocol", STRING, "PLAINTEXT", SECURITY_PROTOCOLS, MEDIUM, FIXED, USED),
    ("inter.broker.listener.name",                       STRING,  None,        None,     MEDIUM, FIXED,   USED),
    ("replica.selector.class", STRING, None, BuiltIn(RACK_AWARE_SELECTOR), MEDIUM, FIXED, USED),
    ("follower.fetch.last.tiered.offset.enable",         BOOLEAN, False,       None,     MEDIUM, CLUSTER, TUNES),
    # --- Group coordinator and committed offsets -------------------------------------------------------------------
    ("group.coordinator.rebalance.protocols", LIST, REBALANCE_PROTOCOLS, GROUP_PROTOCOLS, MEDIUM, FIXED, USED),
    ("group.coordinator.threads",                 INT,   4,           POSITIVE,  HIGH,   FIXED,   TUNES),
    ("group.coordinator.background.threads",      INT,   2,           POSITIVE,  HIGH,   FIXED,   TUNES),
    ("group.coordinator.append.linger.ms",        INT,   -1,          Range(-1), MEDIUM, FIXED,   TUNES),
    ("offsets.commit.timeout.ms",                 INT,   5000,        POSITIVE,  HIGH,   FIXED,   USED),
    ("offsets.load.buffer.size",                  INT,   5_242_880,   POSITIVE,  HIGH,   FIXED,   TUNES),
    ("offsets.topic.replication.factor",          SHORT, 3,           POSITIVE,  HIGH,   FIXED,   USED),
    ("offsets.topic.num.partitions",              INT,   50,          POSITIVE,  HIGH,   FIXED,   USED),
    ("offsets.topic.segment.bytes",               INT,   104_857_600, POSITIVE,  HIGH,   FIXED,   USED),
    ("offsets.topic.compression.codec",           INT,   0,           None,      HIGH,   FIXED,   TUNES),
    ("group.coordinator.cached.buffer.max.bytes", INT,   1_048_588,   Range(524_288), MEDIUM, CLUSTER, TUNES),
    ("offset.metadata.max.bytes",                 INT,   4096,        None,      HIGH,   FIXED,   USED),
    ("offsets.retention.minutes",                 INT,   10_080,      POSITIVE,  HIGH,   FIXED,   USED),
    ("offsets.retention.check.interval.ms",       LONG,  600_000,     POSITIVE,  HIGH,   FIXED,   USED),
    ("group.min.session.timeout.ms",              INT,   6000,        None,      MEDIUM, FIXED,   USED),
    ("group.max.session.timeout.ms",              INT,   1_800_000,   None,      MEDIUM, FIXED,   USED),
    ("group.initial.rebalance.delay.ms",          INT,   3000,        None,      MEDIUM, FIXED,   USED),
    ("group.max.size",                            INT,   INT_MAX,     POSITIVE,  MEDIUM, FIXED,   USED),
    # --- Consumer groups (KIP-848) ---------------------------------------------------------------------------------
    ("group.consumer.session.timeout.ms",         INT,    45_000,  POSITIVE, MEDIUM, FIXED,   USED),
    ("group.consumer.min.session.timeout.ms",     INT,    45_000,  POSITIVE, MEDIUM, FIXED,   USED),
    ("group.consumer.max.session.timeout.ms",     INT,    60_000,  POSITIVE, MEDIUM, FIXED,   USED),
    ("group.consumer.heartbeat.interval.ms",      INT,    5000,    POSITIVE, MEDIUM, FIXED,   USED),
    ("group.consumer.min.heartbeat.interval.ms",  INT,    5000,    POSITIVE, MEDIUM, FIXED,   USED),
    ("group.consumer.max.heartbeat.interval.ms",  INT,    15_000,  POSITIVE, MEDIUM, FIXED,   USED),
    ("group.consumer.max.size",                   INT,    INT_MAX, POSITIVE, MEDIUM, FIXED,   USED),
    ("group.consumer.assignors",                  LIST,   ("uniform", "range"), NON_EMPTY_LIST, MEDIUM, FIXED,   USED),
    ("group.consumer.migration.policy",           STRING, "bidirectional", MIGRATION_POLICIES, MEDIUM, FIXED,   USED),
    ("group.consumer.assignment.interval.ms",     INT,    1000,    NATURAL,  MEDIUM, CLUSTER, USED),
    ("group.consumer.min.assignment.interval.ms", INT,    0,       NATURAL,  MEDIUM, FIXED,   USED),
    ("group.consumer.max.assignment.interval.ms", INT,    15_000,  NATURAL,  MEDIUM, FIXED,   USED),
    ("group.consumer.assignor.offload.enable",    BOOLEAN, True,  None,    MEDIUM, CLUSTER, INTERNAL | TUNES),
    ("group.consumer.regex.refresh.interval.ms",  INT,    600_000, Range(10_000), MEDIUM, FIXED,   INTERNAL | USED),
    # --- Share groups (KIP-932) ------------------------------------------------------------------------------------
    ("group.share.session.timeout.ms",           INT,  45_000,      POSITIVE, MEDIUM, FIXED,   TUNES),
    ("group.share.min.session.timeout.ms",       INT,  45_000,      POSITIVE, MEDIUM, FIXED,   TUNES),
    ("group.share.max.session.timeout.ms",       INT,  60_000,      POSITIVE, MEDIUM, FIXED,   TUNES),
    ("group.share.heartbeat.interval.ms",        INT,  5000,        POSITIVE, MEDIUM, FIXED,   TUNES),
    ("group.share.min.heartbeat.interval.ms",    INT,  5000,        POSITIVE, MEDIUM, FIXED,   TUNES),
    ("group.share.max.heartbeat.interval.ms",    INT,  15_000,      POSITIVE, MEDIUM, FIXED,   TUNES),
    ("group.share.max.size",                     INT,  200,         Range(1, 1000), MEDIUM, FIXED,   TUNES),
    ("group.share.assignors",                    LIST, ("simple",), NON_EMPTY_LIST, MEDIUM, FIXED,   TUNES),
    ("group.share.assignment.interval.ms",       INT,  1000,        NATURAL,  MEDIUM, CLUSTER, TUNES),
    ("group.share.min.assignment.interval.ms",   INT,  0,           NATURAL,  MEDIUM, FIXED,   TUNES),
    ("group.share.max.assignment.interval.ms",   INT,  15_000,      NATURAL,  MEDIUM, FIXED,   TUNES),
    ("group.share.assignor.offload.enable",      BOOLEAN, True,     None,     MEDIUM, CLUSTER, INTERNAL | TUNES),
    ("errors.deadletterqueue.auto.create.topics.enable", BOOLEAN, False, None, MEDIUM, CLUSTER, TUNES),
    ("errors.deadletterqueue.topic.name.prefix", STRING, "dlq.",    None,     MEDIUM, CLUSTER, TUNES),
    ("group.share.dlq.manager.class.name", STRING, DLQ_MANAGER, NO_DLQ_MANAGER, MEDIUM, FIXED, INTERNAL | CHECKED),
    ("group.share.initialize.retry.interval.ms", INT,  30_000,      POSITIVE, LOW,    FIXED,   INTERNAL | TUNES),
    # --- Streams groups (KIP-1071) ---------------------------------------------------------------------------------
    ("group.streams.session.timeout.ms",         INT, 45_000,  POSITIVE, MEDIUM, FIXED,   TUNES),
    ("group.streams.min.session.timeout.ms",     INT, 45_000,  POSITIVE, MEDIUM, FIXED,   TUNES),
    ("group.streams.max.session.timeout.ms",     INT, 60_000,  POSITIVE, MEDIUM, FIXED,   TUNES),
    ("group.streams.heartbeat.interval.ms",      INT, 5000,    POSITIVE, MEDIUM, FIXED,   TUNES),
    ("group.streams.min.heartbeat.interval.ms",  INT, 5000,    POSITIVE, MEDIUM, FIXED,   TUNES),
    ("group.streams.max.heartbeat.interval.ms",  INT, 15_000,  POSITIVE, MEDIUM, FIXED,   TUNES),
    ("group.streams.max.size",                   INT, INT_MAX, POSITIVE, MEDIUM, FIXED,   TUNES),
    ("group.streams.num.standby.replicas",       INT, 0,       NATURAL,  MEDIUM, FIXED,   TUNES),
    ("group.streams.max.standby.replicas",       INT, 2,       NATURAL,  MEDIUM, FIXED,   TUNES),
    ("group.streams.initial.rebalance.delay.ms", INT, 3000,    NATURAL,  MEDIUM, FIXED,   TUNES),
    ("group.streams.assignment.interval.ms",     INT, 1000,    NATURAL,  MEDIUM, CLUSTER, TUNES),
    ("group.streams.min.assignment.interval.ms", INT, 0,       NATURAL,  MEDIUM, FIXED,   TUNES),
    ("group.streams.max.assignment.interval.ms", INT, 15_000,  NATURAL,  MEDIUM, FIXED,   TUNES),
    ("group.streams.assignors",                  LIST, ("sticky",), None, MEDIUM, FIXED,  TUNES),
    ("group.streams.assignor.offload.enable",    BOOLEAN, True, None,     MEDIUM, CLUSTER, INTERNAL | TUNES),
    ("group.streams.task.offset.interval.ms",    INT, 60_000,  POSITIVE, MEDIUM, FIXED,   INTERNAL | TUNES),
    ("group.streams.min.task.offset.interval.ms", INT, 15_000, POSITIVE, MEDIUM, FIXED,   INTERNAL | TUNES),
    ("group.streams.num.warmup.replicas",        INT, 2,       NATURAL,  MEDIUM, FIXED,   INTERNAL | TUNES),
    ("group.streams.max.warmup.replicas",        INT, 20,      NATURAL,  MEDIUM, FIXED,   INTERNAL | TUNES),
    ("group.streams.rack.aware.assignment.tags", LIST, (),     None,     LOW,    FIXED,   TUNES),
    ("group.streams.topology.description.plugin.class", CLASS, None, NO_CLASS, MEDIUM, FIXED, CHECKED),
    ("group.streams.acceptable.recovery.lag",    LONG, 10_000, NATURAL,  MEDIUM, FIXED,   INTERNAL | TUNES),
    # --- Log cleaner -----------------------------------------------------------------------------------------------
    ("log.cleaner.threads",                 INT,     1,           NATURAL,     MEDIUM, CLUSTER, USED),
    ("log.cleaner.io.max.bytes.per.second", DOUBLE,  DOUBLE_MAX,  None,        MEDIUM, CLUSTER, USED),
    ("log.cleaner.dedupe.buffer.size",      LONG,    134_217_728, None,        MEDIUM, CLUSTER, USED),
    ("log.cleaner.io.buffer.size",          INT,     524_288,     NATURAL,     MEDIUM, CLUSTER, USED),
    ("log.cleaner.io.buffer.load.factor",   DOUBLE,  0.9,         None,        MEDIUM, CLUSTER, USED),
    ("log.cleaner.backoff.ms",              LONG,    15_000,      NATURAL,     MEDIUM, CLUSTER, USED),
    ("log.cleaner.min.cleanable.ratio",     DOUBLE,  0.5,         Range(0, 1), MEDIUM, CLUSTER, USED),
    ("log.cleaner.enable",                  BOOLEAN, True,        None,        MEDIUM, FIXED,   USED),
    ("log.cleaner.delete.retention.ms",     LONG,    86_400_000,  NATURAL,     MEDIUM, CLUSTER, USED),
    ("log.cleaner.min.compaction.lag.ms",   LONG,    0,           NATURAL,     MEDIUM, CLUSTER, USED),
    ("log.cleaner.max.compaction.lag.ms",   LONG,    LONG_MAX,    POSITIVE,    MEDIUM, CLUSTER, USED),
    # --- The log ---------------------------------------------------------------------------------------------------
    ("num.partitions",                                INT,     1,             POSITIVE, MEDIUM, FIXED,   USED),
    ("log.dir", LIST, ("/tmp/kafka-logs",), NON_EMPTY_LIST, HIGH, FIXED, USED),
    ("log.dirs",                                      LIST,    None,          NON_EMPTY_LIST, HIGH,   FIXED,   USED),
    ("cordoned.log.dirs",                             LIST,    (),            ANY_LIST, MEDIUM, BROKER,  USED),
    ("log.segment.bytes",                             INT,     1_073_741_824, Range(1_048_576), HIGH,   CLUSTER, USED),
    ("log.roll.ms",                                   LONG,    None,          None,     HIGH,   CLUSTER, USED),
    ("log.roll.hours",                                INT,     168,           POSITIVE, HIGH,   FIXED,   USED),
    ("log.roll.jitter.ms",                            LONG,    None,          None,     HIGH,   CLUSTER, USED),
    ("log.roll.jitter.hours",                         INT,     0,             NATURAL,  HIGH,   FIXED,   USED),
    ("log.retention.ms",                              LONG,    None,          None,     HIGH,   CLUSTER, USED),
    ("log.retention.minutes",                         INT,     None,          None,     HIGH,   FIXED,   USED),
    ("log.retention.hours",                           INT,     168,           None,     HIGH,   FIXED,   USED),
    ("log.retention.bytes",                           LONG,    -1,            None,     HIGH,   CLUSTER, USED),
    ("log.retention.check.interval.ms",               LONG,    300_000,       POSITIVE, MEDIUM, FIXED,   USED),
    ("log.cleanup.policy",                            LIST,    ("delete",),   CLEANUP_POLICIES, MEDIUM, CLUSTER, USED),
    ("log.index.size.max.bytes",                      INT,     10_485_760,    Range(4), MEDIUM, CLUSTER, USED),
    ("log.index.interval.bytes",                      INT,     4096,          NATURAL,  MEDIUM, CLUSTER, USED),
    ("log.flush.interval.messages",                   LONG,    LONG_MAX,      POSITIVE, HIGH,   CLUSTER, USED),
    ("log.segment.delete.delay.ms",                   LONG,    60_000,        NATURAL,  HIGH,   CLUSTER, USED),
    ("log.flush.scheduler.interval.ms",               LONG,    LONG_MAX,      None,     HIGH,   FIXED,   USED),
    ("log.flush.interval.ms",                         LONG,    None,          None,     HIGH,   CLUSTER, USED),
    ("log.flush.offset.checkpoint.interval.ms",       INT,     60_000,        NATURAL,  HIGH,   FIXED,   USED),
    ("log.flush.start.offset.checkpoint.interval.ms", INT,     60_000,        NATURAL,  HIGH,   FIXED,   USED),
    ("log.preallocate",                               BOOLEAN, False,         None,     MEDIUM, CLUSTER, TUNES),
    ("num.recovery.threads.per.data.dir",             INT,     2,             POSITIVE, HIGH,   CLUSTER, TUNES),
    ("auto.create.topics.enable",                     BOOLEAN, True,          None,     HIGH,   FIXED,   USED),
    ("min.insync.replicas",                           INT,     1,             POSITIVE, HIGH,   CLUSTER, USED),
    ("log.message.timestamp.type",                    STRING,  "CreateTime",  TIMESTAMP_TYPES, MEDIUM, CLUSTER, USED),
    ("log.message.timestamp.before.max.ms",           LONG,    LONG_MAX,      NATURAL,  MEDIUM, CLUSTER, USED),
    ("log.message.timestamp.after.max.ms",            LONG,    3_600_000,     NATURAL,  MEDIUM, CLUSTER, USED),
    ("create.topic.policy.class.name", CLASS, None, NO_CLASS, LOW, FIXED, CHECKED),
    ("alter.config.policy.class.name", CLASS, None, NO_CLASS, LOW, FIXED, CHECKED),
    ("log.dir.failure.timeout.ms",                    LONG,    30_000,        POSITIVE, LOW,    FIXED,   TUNES),
    ("log.initial.task.delay.ms", LONG, 30_000, NATURAL, LOW, FIXED, INTERNAL | TUNES),
    # --- Share groups: records in flight ---------------------------------------------------------------------------
    ("group.share.delivery.count.limit",              INT,    5,      Range(2, 10), MEDIUM, FIXED, TUNES),
    ("group.share.max.delivery.count.limit",          INT,    10,     Range(5, 25), MEDIUM, FIXED, TUNES),
    ("group.share.min.delivery.count.limit",          INT,    2,      Range(2, 5),  MEDIUM, FIXED, TUNES),
    ("group.share.record.lock.duration.ms",           INT,    30_000, Range(1000, 3_600_000), MEDIUM, FIXED, TUNES),
    ("group.share.min.record.lock.duration.ms",       INT,    15_000, Range(1000, 30_000), MEDIUM, FIXED, TUNES),
    ("group.share.max.record.lock.duration.ms",       INT,    60_000, Range(30_000, 3_600_000), MEDIUM, FIXED, TUNES),
    ("group.share.partition.max.record.locks",        INT,    2000,   Range(100, 10_000), MEDIUM, FIXED, TUNES),
    ("group.share.max.partition.max.record.locks",    INT,    4000,   Range(2000, 10_000), MEDIUM, FIXED, TUNES),
    ("group.share.min.partition.max.record.locks",    INT,    100,    Range(100, 2000), MEDIUM, FIXED, TUNES),
    ("share.fetch.purgatory.purge.interval.requests", INT,    1000,   None,         MEDIUM, FIXED, TUNES),
    ("group.share.max.share.sessions",                INT,    2000,   POSITIVE,     MEDIUM, FIXED, TUNES),
    ("group.share.persister.class.name", STRING, SHARE_PERSISTER, NO_PERSISTER, MEDIUM, FIXED, INTERNAL | CHECKED),
    # --- Share coordinator -----------------------------------------------------------------------------------------
    ("share.coordinator.state.topic.num.partitions",     INT,   50,          POSITIVE,  HIGH,   FIXED,   TUNES),
    ("share.coordinator.state.topic.replication.factor", SHORT, 3,           POSITIVE,  HIGH,   FIXED,   TUNES),
    ("share.coordinator.state.topic.min.isr",            SHORT, 2,           POSITIVE,  HIGH,   FIXED,   TUNES),
    ("share.coordinator.state.topic.segment.bytes",      INT,   104_857_600, POSITIVE,  HIGH,   FIXED,   TUNES),
    ("share.coordinator.threads",                        INT,   1,           POSITIVE,  MEDIUM, FIXED,   TUNES),
    ("share.coordinator.snapshot.update.records.per.snapshot", INT, 500, Range(0, 500), MEDIUM, FIXED, TUNES),
    ("share.coordinator.load.buffer.size",               INT,   5_242_880,   POSITIVE,  HIGH,   FIXED,   TUNES),
    ("share.coordinator.state.topic.compression.codec",  INT,   0,           None,      HIGH,   FIXED,   TUNES),
    ("share.coordinator.append.linger.ms",               INT,   -1,          Range(-1), MEDIUM, FIXED,   TUNES),
    ("share.coordinator.write.timeout.ms",               INT,   5000,        POSITIVE,  HIGH,   FIXED,   TUNES),
    ("share.coordinator.state.topic.prune.interval.ms", INT, 300_000, POSITIVE, LOW, FIXED, INTERNAL | TUNES),
    ("share.coordinator.cold.partition.snapshot.interval.ms", INT, 300_000, POSITIVE, LOW, FIXED, INTERNAL | TUNES),
    ("share.coordinator.cached.buffer.max.bytes",        INT,   1_048_588,   Range(524_288), MEDIUM, CLUSTER, TUNES),
    # --- Transactions and producer ids -----------------------------------------------------------------------------
    ("transaction.state.log.min.isr",              INT,     2,           POSITIVE, HIGH, FIXED,   USED),
    ("transaction.state.log.load.buffer.size",     INT,     5_242_880,   POSITIVE, HIGH, FIXED,   TUNES),
    ("transaction.state.log.replication.factor",   SHORT,   3,           POSITIVE, HIGH, FIXED,   USED),
    ("transaction.state.log.num.partitions",       INT,     50,          POSITIVE, HIGH, FIXED,   USED),
    ("transaction.state.log.segment.bytes",        INT,     104_857_600, POSITIVE, HIGH, FIXED,   USED),
    ("transaction.partition.verification.enable",  BOOLEAN, True,        None,     LOW,  CLUSTER, USED),
    ("producer.id.expiration.ms",                  INT,     86_400_000,  POSITIVE, LOW,  CLUSTER, USED),
    ("producer.id.expiration.check.interval.ms",   INT,     600_000,     POSITIVE, LOW,  FIXED,   INTERNAL | USED),
    ("transactional.id.expiration.ms",             INT,     604_800_000, POSITIVE, HIGH, FIXED,   USED),
    ("transaction.max.timeout.ms",                 INT,     900_000,     POSITIVE, HIGH, FIXED,   USED),
    ("transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, 10_000, POSITIVE, LOW, FIXED, USED),
    ("transaction.remove.expired.transaction.cleanup.interval.ms", INT,     3_600_000,   POSITIVE, LOW,  FIXED,   USED),
    ("transaction.two.phase.commit.enable",        BOOLEAN, False,       None,     LOW,  FIXED,   TUNES),
    ("add.partitions.to.txn.retry.backoff.max.ms", INT,     100,         NATURAL,  HIGH, FIXED,   USED),
    ("add.partitions.to.txn.retry.backoff.ms",     INT,     20,          POSITIVE, HIGH, FIXED,   USED),
    # --- Raft quorum -----------------------------------------------------------------------------------------------
    ("controller.quorum.voters",                   LIST,    (),        QUORUM_VOTERS, HIGH,   FIXED, TUNES),
    ("controller.quorum.bootstrap.servers",        LIST,    (),        HOST_AND_PORT_LIST, HIGH,   FIXED, TUNES),
    ("controller.quorum.election.timeout.ms",      INT,     1000,      NATURAL,  HIGH,   FIXED, TUNES),
    ("controller.quorum.fetch.timeout.ms",         INT,     2000,      NATURAL,  HIGH,   FIXED, TUNES),
    ("controller.quorum.election.backoff.max.ms",  INT,     1000,      NATURAL,  HIGH,   FIXED, TUNES),
    ("controller.quorum.append.linger.ms",         INT,     25,        NATURAL,  MEDIUM, FIXED, TUNES),
    ("controller.quorum.request.timeout.ms",       INT,     2000,      NATURAL,  MEDIUM, FIXED, TUNES),
    ("controller.quorum.retry.backoff.ms",         INT,     20,        NATURAL,  LOW,    FIXED, TUNES),
    ("controller.quorum.auto.join.enable",         BOOLEAN, False,     None,     LOW,    FIXED, TUNES),
    ("controller.quorum.fetch.snapshot.max.bytes", INT,     1_048_576, POSITIVE, LOW,    FIXED, TUNES),
    ("controller.quorum.fetch.max.bytes",          INT,     1_048_576, POSITIVE, LOW,    FIXED, TUNES),
    # --- Metrics and telemetry -------------------------------------------------------------------------------------
    ("metrics.num.samples",                 INT,    2,         POSITIVE, LOW, FIXED,   TUNES),
    ("metrics.sample.window.ms",            LONG,   30_000,    POSITIVE, LOW, FIXED,   TUNES),
    ("metric.reporters", LIST, (JMX_REPORTER,), BuiltIn(JMX_REPORTER), LOW, CLUSTER, CHECKED),
    ("metrics.recording.level",             STRING, "INFO",    None,     LOW, FIXED,   TUNES),
    ("kafka.metrics.reporters", LIST, (), NO_CLASS, LOW, FIXED, CHECKED),
    ("kafka.metrics.polling.interval.secs", INT,    10,        POSITIVE, LOW, FIXED,   TUNES),
    ("telemetry.max.bytes",                 INT,    1_048_576, POSITIVE, LOW, FIXED,   USED),
    # --- Quotas ----------------------------------------------------------------------------------------------------
    ("quota.window.num",                                     INT,   11,   POSITIVE, LOW, FIXED, USED),
    ("replication.quota.window.num",                         INT,   11,   POSITIVE, LOW, FIXED, USED),
    ("alter.log.dirs.replication.quota.window.num",          INT,   11,   POSITIVE, LOW, FIXED, TUNES),
    ("controller.quota.window.num",                          INT,   11,   POSITIVE, LOW, FIXED, USED),
    ("quota.window.size.seconds",                            INT,   1,    POSITIVE, LOW, FIXED, USED),
    ("replication.quota.window.size.seconds",                INT,   1,    POSITIVE, LOW, FIXED, USED),
    ("alter.log.dirs.replication.quota.window.size.seconds", INT,   1,    POSITIVE, LOW, FIXED, TUNES),
    ("controller.quota.window.size.seconds",                 INT,   1,    POSITIVE, LOW, FIXED, USED),
    ("client.quota.callback.class", CLASS, None, NO_CLASS, LOW, FIXED, CHECKED),
)

# Settings that exist only as dynamic ones (DynamicConfig.Broker): refused in a file, described only where they are set.
_DYNAMIC_ONLY_ROWS: Final = (
    ("leader.replication.throttled.rate",               LONG, LONG_MAX, NATURAL, MEDIUM, CLUSTER, USED),
    ("follower.replication.throttled.rate",             LONG, LONG_MAX, NATURAL, MEDIUM, CLUSTER, USED),
    ("replica.alter.log.dirs.io.max.bytes.per.second",  LONG, LONG_MAX, NATURAL, MEDIUM, CLUSTER, USED),
)

# Settings of pybroker's own; Kafka has no counterpart.
_OWN_ROWS: Final = (
    ("pybroker.accept.lost.metadata", BOOLEAN, False, None, LOW, FIXED, USED),
    ("pybroker.busy.poll.us",     INT,     -1,    Range(-1), LOW,  FIXED, USED),
    ("pybroker.cluster.id",       STRING,  None,  CLUSTER_UUID, LOW, FIXED, USED),
    ("pybroker.fsync.before.ack", BOOLEAN, False, None, HIGH,   FIXED, USED),
    ("pybroker.fsync.enable",     BOOLEAN, True,  None, MEDIUM, FIXED, USED),
    ("pybroker.liveness.timeout.ms", INT, 500, Range(0), MEDIUM, FIXED, USED),
    ("pybroker.metadata",         STRING,  None,  METADATA_URL, HIGH, FIXED, USED),
    ("pybroker.metadata.session.timeout.ms", INT, 6000, Range(100), MEDIUM, FIXED, USED),
    ("pybroker.metadata.zookeeper.digest", PASSWORD, None, None, MEDIUM, FIXED, USED),
    ("pybroker.validate.records", BOOLEAN, False, None, MEDIUM, CLUSTER, USED),
)
# fmt: on

REQUIRED_BY_KAFKA: Final[dict[str, str]] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
}

KAFKA_BROKER_SETTINGS: Final[dict[str, Setting]] = table((*_ROWS, *SECURITY_ROWS))
DYNAMIC_ONLY_SETTINGS: Final[dict[str, Setting]] = table(_DYNAMIC_ONLY_ROWS)
BROKER_SETTINGS: Final[dict[str, Setting]] = KAFKA_BROKER_SETTINGS | table(_OWN_ROWS)
