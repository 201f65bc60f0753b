"""Every client that the scenarios run with, by name."""

from __future__ import annotations

import os

from conformance.adapter import Client
from conformance.client_folder import all_folders
from conformance.in_process.aiokafka_adapter import AiokafkaClient
from conformance.in_process.kafka_python_adapter import KafkaPythonClient
from conformance.in_process.librdkafka_adapter import LibrdkafkaClient
from conformance.process_adapter import client_class

# Names, separated by commas; set by ``scripts/conformance --client``.
CHOSEN = "PYBROKER_CONFORMANCE_CLIENTS"

# In the process of the tests, so always there: other clients' records are read back with them, too.
IN_PROCESS: dict[str, type[Client]] = {
    "kafka-python": KafkaPythonClient,
    "librdkafka": LibrdkafkaClient,
    "aiokafka": AiokafkaClient,
}
BUILT: dict[str, type[Client]] = {folder.name: client_class(folder) for folder in all_folders()}
CLIENTS: dict[str, type[Client]] = {**IN_PROCESS, **BUILT}


def chosen() -> dict[str, type[Client]]:
    """The clients of this run."""
    names = os.environ.get(CHOSEN)
    return CLIENTS if not names else {name: CLIENTS[name] for name in names.split(",")}
