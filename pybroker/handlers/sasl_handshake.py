"""SaslHandshake (key 17), versions 0 and 1.

Behaviour: another broker of the cluster says that it will prove who it is, by SCRAM-SHA-256 and the cluster's secret.
Served on the inter-broker listener alone; clients are not asked who they are yet.
"""

from __future__ import annotations

from pybroker.cluster.scram import MECHANISM, NONCE_BYTES, SALT_BYTES, ScramServer
from pybroker.handlers.context import RequestContext
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def handle(ctx: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """Begin an exchange; one that was under way is over."""
    services, connection = ctx.services, ctx.connection
    connection.login = None
    if services.cluster_secret is None or request.mechanism != MECHANISM:
        return SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=[MECHANISM])
    random = services.env.random
    connection.login = ScramServer(services.cluster_secret, random.randbytes(NONCE_BYTES), random.randbytes(SALT_BYTES))
    return SaslHandshakeResponse(error_code=ErrorCode.NONE, mechanisms=[MECHANISM])
