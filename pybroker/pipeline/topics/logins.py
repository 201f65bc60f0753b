"""Admin clients that a cluster has let in.

Owns that a login that is refused is told at once: librdkafka tries again for as long as it is given, and tells the
reason on the side.
"""

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient

_HEARD_EVERY_S = 0.05


class LoginRefused(RuntimeError):
    """The cluster does not take the user or the password."""


def admin_client(settings: Mapping[str, str | int | float | bool], within_s: float) -> AdminClient:
    """A client that has reached its cluster; raises `LoginRefused`, and `KafkaException` where nobody answers."""
    refused: list[KafkaError] = []

    def hear(error: KafkaError) -> None:
        if error.code() in (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED):
            refused.append(error)

    watched: dict[str, Any] = {**settings, "error_cb": hear}
    client = AdminClient(watched)
    reached = client.describe_cluster(request_timeout=within_s)
    while not reached.done():
        client.poll(_HEARD_EVERY_S)
        if refused:
            raise LoginRefused(f"the cluster refuses the login: {refused[0].str()}")
    reached.result()
    return client
