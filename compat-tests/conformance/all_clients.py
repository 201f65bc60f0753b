"""Every client library that the scenarios run with."""

from __future__ import annotations

from conformance.adapter import Client
from conformance.in_process.aiokafka_adapter import AiokafkaClient
from conformance.in_process.kafka_python_adapter import KafkaPythonClient
from conformance.in_process.librdkafka_adapter import LibrdkafkaClient

CLIENTS: dict[str, type[Client]] = {
    "kafka-python": KafkaPythonClient,
    "librdkafka": LibrdkafkaClient,
    "aiokafka": AiokafkaClient,
}
