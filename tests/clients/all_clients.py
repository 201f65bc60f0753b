"""Every client library that the scenarios run with."""

from __future__ import annotations

from tests.clients.adapter import Client
from tests.clients.aiokafka_adapter import AiokafkaClient
from tests.clients.kafka_python_adapter import KafkaPythonClient
from tests.clients.librdkafka_adapter import LibrdkafkaClient

CLIENTS: dict[str, type[Client]] = {
    "kafka-python": KafkaPythonClient,
    "librdkafka": LibrdkafkaClient,
    "aiokafka": AiokafkaClient,
}
