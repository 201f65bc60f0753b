"""The parts of the benchmark, each a module with ``run(context)``, in the order in which they run."""

from __future__ import annotations

# Each with what it measures, for --help; those of FULL_ONLY run when they are named, or with --full.
PARTS = {
    "startup": "exec to the first Metadata reply; in-process start and close, and the start of three brokers",
    "tiny": "requests of one small record: 1×1, 8×1 and 8×5 connections × requests in flight",
    "latency": "produce and end-to-end latency at 20 % and 50 % of Kafka's highest rate, to the p99.9",
    "large": "900 KB batches over 1 and 8 connections, and another client's tiny requests beside them",
    "absent": "large batches where the host has taken the free memory back",
    "fetch": "fetches of one small batch over 1 and 8 connections, and of as much as fits",
    "many": "latency of 50 producers and 50 consumers on 200 partitions at a fixed rate",
    "librdkafka": "produce and consume through confluent-kafka",
    "java": "Kafka's own ProducerPerformance and ConsumerPerformance",
    "memory": "resident memory: idle, 1,000 connections, 10,000 partitions",
    "cold": "a tail consumer's latency while another consumer reads cold data",
    "compaction": "a producer's latency while the log cleaner compacts 3 GB",
    "recovery": "start after kill -9 with a log of 5 GB, and with 20,000 partitions",
    "commits": "offsets committed by 1×1, 8×1 and 8×5 members × requests in flight",
    "groups": "a group of 100 members over 300 partitions joins, and settles after one died, in both protocols",
    "transactions": "transactions of one record through one confluent-kafka producer",
    "group_memory": "10,000 groups of 10 committed partitions: memory, and loading them after kill -9",
    "tls": "large batches, tiny requests and full handshakes over TLS",
    "authorizer": "tiny requests with 1,000 ACLs, and without an authorizer",
    "quotas": "what a producer and a consumer get of their quotas in a minute, and what another client notices",
    "cluster_produce": "three replicas, acks=all: large batches, tiny requests, a fixed rate; CPU and memory",
    "cluster_catch_up": "a broker that was away takes 2 GB from the others, beside their clients",
    "cluster_rest": "1,000 partitions of three replicas at rest: processor time and memory of all brokers",
    "cluster_workers": "tiny requests, small fetches and commits: two workers of one command, one, and Apache Kafka",
    "links": "2 GB mirrored by a link and by MirrorMaker 2, lag at rest, 5,000 partitions, a broker that has a link",
    "spark": "the demo's Spark job over the flights (needs scripts/spark-setup)",
    "spark_read": '5 million records read by format("pybroker") and by Spark\'s connector, in batch and streaming',
    "spark_window": "5 million JSON events through a keyed window to a topic, exactly once, and by Spark's connector",
    "spark_restart": "a stopped job is started again: from when Spark is up to its first output",
    "spark_tour": "the tour of a year, from its command's start to its end",
    "spark_sql": "`pybroker sql`: the first row of 1 GB; 5 million JSON events grouped, and by Spark from its start",
    "spark_connectors": "files to a table of PostgreSQL by two connectors; the memory of three and two queries",
    "growth": "memory over five minutes of mixed load",
}
FULL_ONLY = (
    "spark",
    "spark_read",
    "spark_window",
    "spark_restart",
    "spark_tour",
    "spark_sql",
    "spark_connectors",
    "growth",
)
# Those of clusters, of security and quotas, of links, of Spark, of connectors and SQL: their figures have sections of
# their own.
CLUSTER_PARTS = frozenset(name for name in PARTS if name.startswith("cluster_"))
SECURITY_PARTS = frozenset({"tls", "authorizer", "quotas"})
LINK_PARTS = frozenset({"links"})
PIPELINE_PARTS = frozenset({"spark_sql", "spark_connectors"})
SPARK_PARTS = frozenset(name for name in PARTS if name.startswith("spark")) - PIPELINE_PARTS
