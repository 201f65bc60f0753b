"""Every suite, by name."""

from __future__ import annotations

from client_suites.franz_go import FranzGo, FranzGoSecurity
from client_suites.kafka_connect import KafkaConnect
from client_suites.kafka_python import KafkaPython, KafkaPythonSecurity
from client_suites.librdkafka import LibrdkafkaSecurity
from client_suites.suite import Suite

SUITES: dict[str, Suite] = {
    suite.name: suite
    for suite in (
        FranzGo(),
        KafkaPython(),
        FranzGoSecurity(),
        KafkaPythonSecurity(),
        LibrdkafkaSecurity(),
        KafkaConnect(),
    )
}
