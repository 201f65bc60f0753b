"""What one small Produce request costs in the broker, without sockets: the ordinary way and by a fast path, and both
with an authorizer of a thousand ACLs.

Run it with ``.venv/bin/python -m bench.produce_path``.  Frames reach a connection as a transport would hand them over,
so that the figures are Python, the checks of the batch and the write into the page cache, without system calls of a
network.  Best of several rounds; look at the load average first.
"""

from __future__ import annotations

import asyncio
import time

import uvloop

from bench.wire import produce_frame, record_batch
from bench.without_sockets import TOPIC, connected, receive, with_server
from pybroker.net.connection import Connection
from pybroker.security.acl_bindings import Acl, AclOperation, PatternType, Permission, Resource
from pybroker.security.standard_authorizer import AuthorizerSettings, StandardAuthorizer
from pybroker.server import BrokerServer

ACLS = 1_000
ROUNDS = 9
REQUESTS = 3_000
RECORD_BYTES = 100


def round_us(connection: Connection, frame: bytes, in_flight: int) -> float:
    """Microseconds of CPU per request when so many arrive together."""
    arrived = frame * in_flight
    started = time.thread_time()
    for _ in range(REQUESTS // in_flight):
        receive(connection, arrived)
    return (time.thread_time() - started) / REQUESTS * 1e6


def authorizer(server: BrokerServer) -> StandardAuthorizer:
    """One that lets everybody write to the topic, and has as many ACLs as there are, each of another user."""
    allowed = Acl(
        Resource.TOPIC, TOPIC, PatternType.LITERAL, "User:*", "*", int(AclOperation.WRITE), int(Permission.ALLOW)
    )
    acls = [allowed, *(allowed._replace(principal=f"User:{number}") for number in range(1, ACLS))]
    made = StandardAuthorizer(AuthorizerSettings(), server.services.env.timers)
    by_id = {acl.acl_id(): acl for acl in acls}
    made.on_acls(by_id, list(by_id))
    return made


async def measure(server: BrokerServer) -> None:
    """Print both ways, one request and five at once; without and with an authorizer, in turns."""
    guard = authorizer(server)
    frame = produce_frame(TOPIC, {0: record_batch(1, RECORD_BYTES)})
    for way in ("ordinary", "fast path"):
        for in_flight in (1, 5):
            connection, _ = connected(server, is_ordinary=way == "ordinary")
            plain = guarded = float("inf")
            for _ in range(ROUNDS):
                server.services.authorizer = None
                plain = min(plain, round_us(connection, frame, in_flight))
                server.services.authorizer = guard
                guarded = min(guarded, round_us(connection, frame, in_flight))
            server.services.authorizer = None
            print(
                f"{way:9} {in_flight} at once {plain:6.2f} µs, with {ACLS:,} ACLs {guarded:6.2f} µs "
                f"({guarded / plain - 1:+.1%})"
            )


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(with_server(measure))
