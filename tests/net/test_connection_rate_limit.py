"""New connections that come too fast wait at the door, or are closed late (KIP-612)."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from harness.virtual_world import VirtualWorld
from harness.waiting import PATIENCE_S, wait_until

from pybroker import limits
from pybroker.env import Timers
from pybroker.net import connection_rate_limit
from pybroker.net.connection_rate_limit import ConnectionRateLimit
from pybroker.net.processor import Processor
from pybroker.quotas import connection_rates
from pybroker.quotas.connection_rates import ConnectionRates
from pybroker.quotas.rates import Window
from pybroker.server import BrokerServer
from pybroker.testing import Broker
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from pybroker_protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.broker.wire_client import WireClient
from tests.net.conftest import processor_of

ASK = b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\xff\xff"  # ApiVersions 0
WINDOW = {"quota.window.num": "2"}  # a second's worth may come at once
RATE = "max.connection.creation.rate"
ELSEWHERE = "127.0.0.2"


@pytest.fixture(autouse=True)
def world(monkeypatch: pytest.MonkeyPatch) -> VirtualWorld:
    """The clock and the timers of the door, which stand until a test goes on, so that newcomers wait for as long."""
    world = VirtualWorld()

    def of_broker(processor: Processor, _: Timers, rates: ConnectionRates) -> ConnectionRateLimit:
        return ConnectionRateLimit(processor, world.timers, rates)

    def measured(_: Callable[[], int], window: Window) -> ConnectionRates:
        return ConnectionRates(world.clock.monotonic_ms, window)

    monkeypatch.setattr(connection_rate_limit, "ConnectionRateLimit", of_broker)
    monkeypatch.setattr(connection_rates, "ConnectionRates", measured)
    return world


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def connected(stack: ExitStack, broker: Broker, source: str = "127.0.0.1") -> socket.socket:
    return stack.enter_context(
        socket.create_connection((broker.host, broker.port), timeout=PATIENCE_S, source_address=(source, 0))
    )


def is_served(connection: socket.socket) -> bool:
    """Whether it is; its request may have gone before."""
    try:
        return len(connection.recv(4)) == 4
    except ConnectionResetError:
        return False


def asked(stack: ExitStack, broker: Broker, source: str = "127.0.0.1") -> bool:
    connection = connected(stack, broker, source)
    connection.sendall(ASK)
    return is_served(connection)


def bound_address(admin: WireClient, address: str | None, rate: float | None) -> None:
    entry = AlterClientQuotasRequestEntryData(
        entity=[AlterClientQuotasRequestEntityData(entity_type="ip", entity_name=address)],
        ops=[OpData(key="connection_creation_rate", value=rate or 0.0, remove=rate is None)],
    )
    (told,) = admin.ask(AlterClientQuotasRequest(entries=[entry], validate_only=False), 1).entries
    assert told.error_code == 0, told.error_message


def alter(admin: WireClient, name: str, value: str) -> int:
    configs = [AlterableConfig(name=name, config_operation=0, value=value)]
    resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    code: int = admin.ask(request, 1).responses[0].error_code
    return code


def newcomers_of(broker: Broker) -> ConnectionRateLimit:
    rate_limiter = processor_of(broker).rate_limiter
    assert isinstance(rate_limiter, ConnectionRateLimit)
    return rate_limiter


def wait_for_newcomers(broker: Broker, count: int) -> None:
    wait_until(lambda: len(newcomers_of(broker)) == count, f"{count} are at the door")


def go_on(broker: Broker, world: VirtualWorld) -> int:
    """The time comes when the next one is let in or closed; how many ms have passed until then."""

    def step(_: BrokerServer, done: Callable[[int], None]) -> None:
        before = world.clock.now_ms()
        world.step()
        done(world.clock.now_ms() - before)

    passed_ms: int = broker._call(step)
    return passed_ms


@pytest.mark.parametrize("name", [RATE, f"listener.name.plaintext.{RATE}"])
def test_who_comes_too_fast_is_served_later_and_in_order(stack: ExitStack, world: VirtualWorld, name: str) -> None:
    with Broker({**WINDOW, name: "2"}) as broker:
        connections = [connected(stack, broker) for _ in range(4)]
        for connection in connections:
            connection.sendall(ASK)
        assert all(is_served(connection) for connection in connections[:2])
        wait_for_newcomers(broker, 2)
        for left, connection in ((1, connections[2]), (0, connections[3])):
            assert go_on(broker, world) == 500
            assert is_served(connection)
            assert len(newcomers_of(broker)) == left


def test_who_leaves_while_it_waits_is_forgotten_and_holds_nobody_up(stack: ExitStack, world: VirtualWorld) -> None:
    with Broker({**WINDOW, RATE: "2"}) as broker:
        for _ in range(2):
            assert asked(stack, broker)
        waiting, impatient, last = (connected(stack, broker) for _ in range(3))
        wait_for_newcomers(broker, 3)
        impatient.close()
        wait_for_newcomers(broker, 2)
        for connection in (waiting, last):
            assert go_on(broker, world) == 500
            connection.sendall(ASK)
            assert is_served(connection)


def test_an_address_that_comes_too_fast_is_closed_late_and_no_other_notices(
    stack: ExitStack, world: VirtualWorld
) -> None:
    with Broker(WINDOW) as broker, WireClient((broker.host, broker.port)) as admin:
        bound_address(admin, ELSEWHERE, 1.0)
        assert asked(stack, broker, ELSEWHERE)
        hasty = connected(stack, broker, ELSEWHERE)
        hasty.sendall(ASK)
        for _ in range(5):
            assert asked(stack, broker)
        wait_for_newcomers(broker, 1)
        assert go_on(broker, world) == 1_000, "it tries again no faster"
        assert not is_served(hasty)
        assert asked(stack, broker, ELSEWHERE), "it may come again"


def test_the_default_holds_for_every_address_until_it_is_removed(stack: ExitStack, world: VirtualWorld) -> None:
    with Broker(WINDOW) as broker, WireClient((broker.host, broker.port)) as admin:
        bound_address(admin, None, 1.0)
        assert asked(stack, broker)
        hasty = connected(stack, broker)
        wait_for_newcomers(broker, 1)
        go_on(broker, world)
        assert not is_served(hasty)
        bound_address(admin, "127.0.0.1", 1_000.0)
        assert asked(stack, broker)
        for address in (None, "127.0.0.1"):
            bound_address(admin, address, None)
        assert processor_of(broker).rate_limiter is None, "nobody is held up, and nothing measured"


def test_rates_change_while_the_broker_runs_but_never_to_nothing(stack: ExitStack, world: VirtualWorld) -> None:
    with Broker(WINDOW) as broker, WireClient((broker.host, broker.port)) as admin:
        own = f"listener.name.plaintext.{RATE}"
        for name in (RATE, own):
            assert alter(admin, name, "0") == ErrorCode.INVALID_REQUEST
        assert alter(admin, own, "1") == 0
        assert asked(stack, broker)
        waiting = connected(stack, broker)
        wait_for_newcomers(broker, 1)
        assert alter(admin, own, "2000") == 0
        go_on(broker, world)
        assert all(asked(stack, broker) for _ in range(5))
        waiting.sendall(ASK)
        assert is_served(waiting)


MINUTE = {**WINDOW, "quota.window.size.seconds": "60"}  # sixty may come at once, then each waits up to a minute


def test_the_door_holds_so_many_and_those_that_are_to_go_give_way(
    stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PENDING_CONNECTIONS_MAX", 3)
    with Broker(MINUTE) as broker, WireClient((broker.host, broker.port)) as admin:
        bound_address(admin, ELSEWHERE, 1.0)
        assert all(asked(stack, broker, ELSEWHERE) for _ in range(60))
        going = [connected(stack, broker, ELSEWHERE) for _ in range(4)]
        assert not is_served(going[0])
        wait_for_newcomers(broker, 3)
        assert asked(stack, broker), "who may come in does"


def test_a_crowd_beyond_the_door_is_refused_and_a_broker_stops_while_somebody_waits(
    stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PENDING_CONNECTIONS_MAX", 3)
    with Broker({**MINUTE, RATE: "1"}) as broker:
        assert all(asked(stack, broker) for _ in range(60))
        waiting = [connected(stack, broker) for _ in range(3)]
        wait_for_newcomers(broker, 3)
        assert not is_served(connected(stack, broker))
        assert len(newcomers_of(broker)) == 3
    assert not is_served(waiting[-1])
