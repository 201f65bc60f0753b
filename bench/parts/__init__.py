"""The parts of the benchmark, each a module with ``run(context)``, in the order in which they run."""

from __future__ import annotations

# Each with what it measures, for --help; those of FULL_ONLY run when they are named, or with --full.
PARTS = {
    "startup": "exec to the first Metadata reply; in-process start and close",
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
    "spark": "the demo's Spark job over the flights (needs scripts/spark-setup)",
    "growth": "memory over five minutes of mixed load",
}
FULL_ONLY = ("spark", "growth")
