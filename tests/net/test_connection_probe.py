"""Connections that only ask whether anybody listens."""

from __future__ import annotations

import asyncio
import socket

import pytest
from harness.broker_probe import refusing_port

from pybroker.cluster.failure_detection.liveness import ProbeResult
from pybroker.net.connection_probe import TcpConnectionProbe


async def probed(host: str, port: int) -> ProbeResult:
    answered: asyncio.Future[ProbeResult] = asyncio.get_running_loop().create_future()
    TcpConnectionProbe().probe(host, port, answered.set_result)
    assert not answered.done(), "never inside of the call"
    return await asyncio.wait_for(answered, 10)


def test_who_listens_takes_a_connection_also_where_nobody_accepts_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert asyncio.run(probed(*listener.getsockname())) is ProbeResult.TAKEN


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_where_nobody_listens_the_machine_refuses(host: str) -> None:
    with refusing_port() as port:
        assert asyncio.run(probed(host, port)) is ProbeResult.REFUSED


def test_what_is_no_host_answers_nothing() -> None:
    assert asyncio.run(probed("no-such-host.invalid", 1)) is ProbeResult.UNANSWERED


@pytest.mark.parametrize(("rest", "answer"), [(["127.0.0.1"], ProbeResult.TAKEN), ([], ProbeResult.UNANSWERED)])
def test_an_address_that_cannot_be_reached_keeps_no_other_of_the_name_from_taking(
    rest: list[str], answer: ProbeResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask(port: int) -> ProbeResult:
        async def getaddrinfo(_host: str, port: int, **_: object) -> list[tuple[object, ...]]:
            return [(0, 0, 0, "", (address, port)) for address in ("255.255.255.255", *rest)]

        loop = asyncio.get_running_loop()
        real = loop.getaddrinfo
        monkeypatch.setattr(
            loop, "getaddrinfo", lambda host, port, **rest: (getaddrinfo if host == "a" else real)(host, port, **rest)
        )
        return await probed("a", port)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert asyncio.run(ask(listener.getsockname()[1])) is answer


def test_nobody_is_told_after_the_close() -> None:
    async def close_before_the_answer() -> list[ProbeResult]:
        told: list[ProbeResult] = []
        connection_probe = TcpConnectionProbe()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            host, port = listener.getsockname()
            connection_probe.probe(host, port, told.append)
            connection_probe.close()
            await asyncio.sleep(0.05)
        return told

    assert asyncio.run(close_before_the_answer()) == []
