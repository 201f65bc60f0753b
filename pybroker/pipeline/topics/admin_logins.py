"""Admin clients that a cluster has let in.

Owns that a client that is refused hears so at once, by TLS or by a login. By itself librdkafka tries again for as long
as it is given, and tells the reason on the side.
"""

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient

from pybroker.pipeline.topics.client_log import with_client_log

_POLL_S = 0.05

_LOGIN = (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED)

# A handshake may be cut short by a broker that stops; what is wrong with the certificates comes each time.
_TLS_FAILURES_MAX = 3
# In TLS 1.3 a certificate is refused behind the handshake, which librdkafka takes for a failure of the transport.
_OF_OPENSSL = "SSL routines::"


class LoginRefused(RuntimeError):
    """The cluster does not take the user, the password or the certificate; or is not the one that is trusted."""


def admin_client(settings: Mapping[str, str | int | float | bool], within_s: float) -> AdminClient:
    """A client that has reached its cluster; raises `LoginRefused`, and `KafkaException` where no broker answers."""
    refused: list[str] = []
    failed: list[str] = []

    def hear(error: KafkaError) -> None:
        if error.code() in _LOGIN:
            refused.append(f"the cluster refuses the login: {error.str()}")
        elif error.code() == KafkaError._SSL or _OF_OPENSSL in error.str():
            failed.append(f"TLS with the cluster fails: {error.str()}")

    watched: dict[str, Any] = {**settings, "error_cb": hear}
    client = AdminClient(with_client_log(watched))
    reached = client.describe_cluster(request_timeout=within_s)
    while not reached.done():
        client.poll(_POLL_S)
        if reasons := refused or failed[_TLS_FAILURES_MAX - 1 :]:
            raise LoginRefused(reasons[0])
    reached.result()
    return client
