"""Every check, in the order of the table; ``--only`` chooses by their names."""

from __future__ import annotations

from check_it_yourself.c_tools import Kcat, RdkafkaPerformance
from check_it_yourself.check import Check
from check_it_yourself.franz_go_bench import FranzGoBench
from check_it_yourself.kafka_test_classes import ClientCompatibility, LogCompaction, TransactionalCopy
from check_it_yourself.kafka_tools import ConsumerPerf, EndToEndLatency, ProducerPerf, Verifiable
from check_it_yourself.workload_shapes import WorkloadShape

CHECKS: tuple[Check, ...] = (
    ProducerPerf(),
    ConsumerPerf(),
    EndToEndLatency(),
    Verifiable(),
    RdkafkaPerformance(),
    Kcat(),
    FranzGoBench(),
    WorkloadShape(topics=1, partitions=1),
    WorkloadShape(topics=1, partitions=16),
    WorkloadShape(topics=1, partitions=100),
    WorkloadShape(topics=100, partitions=1),
    ClientCompatibility(),
    LogCompaction(),
    TransactionalCopy(),
)
NAMES = tuple(dict.fromkeys(check.name for check in CHECKS))
