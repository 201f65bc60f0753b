"""A plugin of pytest: kafka-python's fixtures take listeners of a broker that runs for brokers that they would start.

SECURED_LISTENERS names them, as JSON: an address by security protocol, and ``ssl_dir``, the directory with ``ca-cert``.
"""

from __future__ import annotations

import json
import os

from kafka import KafkaAdminClient
from test.integration.fixtures import KafkaFixture, client_params  # type: ignore[import-not-found]

LISTENERS: dict[str, str] = json.loads(os.environ["SECURED_LISTENERS"])


class RunningBroker(KafkaFixture):  # type: ignore[misc]
    """One listener of the broker under test."""

    def get_topic_names(self) -> list[str]:
        """By the library, because the tool of Kafka's that is asked otherwise comes with no package."""
        admin = KafkaAdminClient(**client_params(self, "topics"))
        try:
            return list(admin.list_topics())
        finally:
            admin.close()


def running(
    broker_id: int, transport: str = "PLAINTEXT", sasl_mechanism: str | None = None, **_: object
) -> RunningBroker:
    """In place of ``KafkaFixture.instance``."""
    host, _colon, port = LISTENERS[transport].rpartition(":")
    made = RunningBroker(host, int(port), broker_id, transport=transport, sasl_mechanism=sasl_mechanism, external=True)
    made.ssl_dir = LISTENERS["ssl_dir"]
    return made


KafkaFixture.instance = running
