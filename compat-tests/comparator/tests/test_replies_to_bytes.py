"""What is recorded of the reply to a request that no codec would produce."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from comparator.broker import UNREAD, Broker
from comparator.wire import CLOSED

HEARTBEAT, NO_ERROR = 12, b"\x00\x00"
Answering = Callable[[bytes], object]


@pytest.fixture
def broker() -> Iterator[tuple[Broker, Answering]]:
    """A broker that answers its only request with these bytes behind the length, or closes where there are none."""
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as threads:
        asked = Broker(server.getsockname())

        def serve(answer: bytes) -> None:
            with server.accept()[0] as peer:
                peer.recv(1000)
                if answer:
                    peer.sendall(struct.pack(">i", len(answer)) + answer)

        with asked.opened():
            yield asked, lambda answer: threads.submit(serve, answer)


def reply_to(correlation_id: int, body: bytes = NO_ERROR) -> bytes:
    return struct.pack(">i", correlation_id) + body


def test_a_reply_that_can_be_read_is_read(broker: tuple[Broker, Answering]) -> None:
    asked, will_answer = broker
    will_answer(reply_to(1))
    assert asked.call_bytes("Heartbeat", 0, "behind", b"behind") == {"error_code": 0}


def test_a_reply_is_narrowed_as_any_other(broker: tuple[Broker, Answering]) -> None:
    asked, will_answer = broker
    will_answer(reply_to(1))
    assert asked.call_bytes("Heartbeat", 0, "behind", b"", narrow=lambda tree: {**tree, "narrowed": True})["narrowed"]


def test_a_reply_that_follows_no_schema_is_unread(broker: tuple[Broker, Answering]) -> None:
    asked, will_answer = broker
    will_answer(reply_to(1, b"behind"))
    assert asked.call_bytes("Heartbeat", 0, "behind", b"behind") == UNREAD


def test_a_reply_to_a_version_that_is_not_served_is_unread(broker: tuple[Broker, Answering]) -> None:
    asked, will_answer = broker
    will_answer(reply_to(1))
    assert asked.call_bytes("Heartbeat", 99, "from the future", b"") == UNREAD


def test_the_future_of_api_versions_is_answered_in_version_0(broker: tuple[Broker, Answering]) -> None:
    asked, will_answer = broker
    will_answer(reply_to(1, b"\x00\x23" + bytes(4)))
    assert asked.call_bytes("ApiVersions", 99, "from the future", b"") == {"error_code": 35, "api_keys": []}


def test_the_end_of_a_connection_is_the_end(broker: tuple[Broker, Answering]) -> None:
    asked, will_answer = broker
    will_answer(b"")
    assert asked.call_bytes("Heartbeat", 0, "cut short", b"") == CLOSED


def test_a_frame_says_itself_whose_reply_it_waits_for(broker: tuple[Broker, Answering]) -> None:
    asked, will_answer = broker
    will_answer(reply_to(-7))
    assert asked.call_frame("a frame", struct.pack(">hhih", HEARTBEAT, 0, -7, -1)) == {"error_code": 0}
    (step,) = asked.steps
    assert step.title == "Heartbeat v0 (a frame)"


def test_a_reply_to_another_request_is_a_failure(broker: tuple[Broker, Answering]) -> None:
    asked, will_answer = broker
    will_answer(reply_to(2))
    with pytest.raises(ValueError, match="not to 1"):
        asked.call_bytes("Heartbeat", 0, "behind", b"behind")
