"""Several processes in one world: nothing of one disturbs the others; pauses, partitions and ends of machines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from pybroker_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pybroker_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pybroker_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pybroker_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.simulation.client import Client, Disconnected
from tests.simulation.model import batches_of
from tests.simulation.network import End, Network
from tests.simulation.processes import PORT, Process, World
from tests.simulation.scheduler import Life, Scheduler
from tests.storage.batches import batch

TOPIC = "events"
SETTINGS = {"pybroker.fsync.before.ack": "true"}


# --- brokers that know nothing of each other --------------------------------------------------------------------------


class Writer:
    """Writes to one broker until told to stop, and knows what was acknowledged."""

    def __init__(self, world: World, process: Process) -> None:
        self.client = Client(f"writer of {process.name}", world.network, (process.host, PORT))
        self.acknowledged: list[bytes] = []
        self.done = False

    async def run(self) -> None:
        topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1, assignments=[], configs=[])
        await self.client.insist(CreateTopicsRequest(topics=[topic], timeout_ms=5_000, validate_only=False), 5)
        asked = [MetadataRequestTopic(topic_id=bytes(16), name=TOPIC)]
        while (await self.client.insist(MetadataRequest(topics=asked), 12)).topics[0].error_code:
            await self.client.sleep(100)
        count = 0
        while not self.done:
            count += 1
            value = b"%s %d" % (self.client.name.encode(), count)
            records = PartitionProduceData(index=0, records=bytes(batch([value])))
            data = [TopicProduceData(name=TOPIC, partition_data=[records])]
            request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=5_000, topic_data=data)
            response = await self.client.insist(request, 9, 3_000)
            if not response.responses[0].partition_responses[0].error_code:
                self.acknowledged.append(value)
            await self.client.sleep(20)

    async def read_all(self) -> list[bytes]:
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        topic = FetchTopic(topic=TOPIC, partitions=[partition])
        request = FetchRequest(max_wait_ms=0, min_bytes=0, isolation_level=0, topics=[topic])
        response = await self.client.insist(request, 12)
        found = response.responses[0].partitions[0]
        return [value for held in batches_of(bytes(found.records or b"")) for _, _, value in held.records()]


def run_until_done(world: World, scenario: Coroutine[Any, Any, None], on_death: Callable[[Process], None]) -> None:
    task = world.scheduler.create_task(scenario)
    while not task.done():
        went_on, dead = world.step()
        assert went_on, "nothing is left to happen"
        for process in dead:
            on_death(process)
        world.raise_failure()


@pytest.mark.parametrize("seed", range(1, 4))
def test_what_befalls_one_broker_disturbs_no_other(seed: int, tmp_path: Path) -> None:
    world = World(seed)
    random = world.new_random()
    brokers = []
    for i in range(3):
        (tmp_path / str(i)).mkdir()
        brokers.append(world.broker(f"10.0.1.{i}", tmp_path / str(i), SETTINGS, f"broker-{i}"))
    calm = brokers[2]
    writers = [Writer(world, broker) for broker in brokers]

    def restart(process: Process, power_failed: bool = False) -> None:
        process.die(with_machine=power_failed)
        process.disk.reboot()
        if power_failed:
            process.disk.lose_power()
        world.scheduler.after(random.randrange(200_000), None, process.start)

    def strike(process: Process) -> None:
        fate = random.randrange(4)
        if process.server is None or process.is_paused:
            return
        if fate == 0:
            restart(process)
        elif fate == 1:
            restart(process, power_failed=True)
        elif fate == 2:
            process.disk.dies_after = random.randint(1, 5)
        else:
            process.pause()
            world.scheduler.after(500_000, None, process.resume)

    async def scenario() -> None:
        tasks = [world.scheduler.create_task(writer.run()) for writer in writers]
        for _ in range(10):
            await writers[0].client.sleep(random.randrange(300, 700))
            strike(random.choice(brokers[:2]))
        await writers[0].client.sleep(3_000)
        for writer, task in zip(writers, tasks, strict=True):
            writer.done = True
            while not task.done():
                await writers[0].client.sleep(50)
        for writer in writers:
            there = await writer.read_all()
            assert set(writer.acknowledged) <= set(there)
            assert all(value.startswith(writer.client.name.encode()) for value in there)

    with world.installed():
        for broker in brokers:
            broker.disk.adopt()
            broker.start()
        run_until_done(world, scenario(), restart)
        assert [broker.lives > 1 for broker in brokers] == [True, True, False]
        assert calm.server is not None
        assert len(writers[2].acknowledged) > max(len(writer.acknowledged) for writer in writers[:2]) > 20


def test_a_broker_whose_clock_is_wrong_stamps_its_own_records_alone(tmp_path: Path) -> None:
    world = World(1)
    brokers = []
    for i in range(2):
        (tmp_path / str(i)).mkdir()
        brokers.append(world.broker(f"10.0.1.{i}", tmp_path / str(i), {}, f"broker-{i}"))
    brokers[1].clock_offset_ms = 3_600_000
    with world.installed():
        for broker in brokers:
            broker.disk.adopt()
            broker.start()
        clocks = [broker.server.services.env.clock for broker in brokers if broker.server is not None]
        assert clocks[1].now_ms() - clocks[0].now_ms() == 3_600_000


# --- the network and pauses -------------------------------------------------------------------------------------------


class Peer(asyncio.Protocol):
    """What arrives, and when it ended."""

    def __init__(self) -> None:
        self.received = b""
        self.transport: Any = None
        self.is_lost = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True


class Machines:
    """Two hosts, each with a process; ``near`` connects, ``far`` listens."""

    def __init__(self) -> None:
        self.scheduler = Scheduler(1)  # type: ignore[abstract]
        self.network = Network(self.scheduler, Random(1))
        self.near, self.far = (self._life(name) for name in ("near", "far"))
        self.accepted: list[Peer] = []
        self.task: asyncio.Task[Any] | None = None

    @staticmethod
    def _life(host: str) -> Life:
        process: Any = SimpleNamespace(host=host)
        process.life = Life(host, process)
        life: Life = process.life
        return life

    def run(self, milliseconds: int) -> None:
        """Let so much time pass."""
        ended: list[bool] = []
        self.scheduler.after(milliseconds * 1000, None, ended.append, True)
        while not ended:
            self.scheduler.step()

    def listen(self) -> None:
        def accept() -> Peer:
            self.accepted.append(Peer())
            return self.accepted[-1]

        async def serve() -> None:
            server = await self.scheduler.create_server(accept, "far", 1)
            await server.start_serving()

        with self.scheduler.within(self.far):
            self.scheduler.create_task(serve())
        self.run(1)

    def connect(self) -> asyncio.Task[Any]:
        async def connect() -> Peer:
            _, peer = await self.scheduler.create_connection(Peer, "far", 1)
            assert isinstance(peer, Peer)
            return peer

        with self.scheduler.within(self.near):
            self.task = self.scheduler.create_task(connect())
        return self.task

    def connected(self) -> tuple[Peer, Peer]:
        self.listen()
        task = self.connect()
        self.run(50)
        near: Peer = task.result()
        return near, self.accepted[0]


@pytest.fixture
def machines() -> Iterator[Machines]:
    made = Machines()
    asyncio._set_running_loop(made.scheduler)
    yield made
    asyncio._set_running_loop(None)
    made.scheduler.abandon_tasks()


def test_processes_connect_to_each_other_through_the_loop(machines: Machines) -> None:
    near, far = machines.connected()
    near.transport.write(b"request")
    machines.run(10)
    far.transport.writelines([b"re", b"ply"])
    machines.run(10)
    assert (far.received, near.received) == (b"request", b"reply")
    near.transport.close()
    machines.run(10)
    assert near.is_lost
    assert far.is_lost


def test_connecting_where_nobody_listens_is_refused(machines: Machines) -> None:
    task = machines.connect()
    machines.run(10)
    assert isinstance(task.exception(), ConnectionRefusedError)
    machines.scheduler.failure = None


def test_bytes_that_are_sent_into_a_partition_arrive_when_it_is_over_in_order(machines: Machines) -> None:
    near, far = machines.connected()
    machines.network.cut("near", "far")
    for i in range(5):
        near.transport.write(b"%d" % i)
        machines.run(100)
    far.transport.write(b"the other way is whole")
    machines.run(2_000)
    assert (far.received, near.received) == (b"", b"the other way is whole")
    machines.network.heal("near", "far")
    machines.run(500)
    assert far.received == b"01234"
    assert not far.is_lost


def test_nobody_hears_of_an_end_through_a_partition(machines: Machines) -> None:
    near, far = machines.connected()
    machines.network.cut("*", "far")
    near.transport.write(b"last words")
    near.transport.close()
    machines.run(60_000)
    assert near.is_lost
    assert not far.is_lost
    machines.network.heal_all()
    machines.run(500)
    assert far.received == b"last words"
    assert far.is_lost


@pytest.mark.parametrize("cut", [("near", "far"), ("far", "near")])
def test_connecting_through_a_partition_hangs_until_it_is_over(machines: Machines, cut: tuple[str, str]) -> None:
    machines.listen()
    machines.network.cut(*cut)
    task = machines.connect()
    machines.run(20_000)
    assert not task.done()
    machines.network.heal(*cut)
    machines.run(2_000)
    assert isinstance(task.result(), Peer)


def test_connecting_into_the_dark_ends_by_a_timeout(machines: Machines) -> None:
    machines.network.cut("near", "far")
    task = machines.connect()
    machines.run(130_000)
    assert isinstance(task.exception(), TimeoutError)
    machines.scheduler.failure = None


def test_what_is_due_for_a_stopped_process_comes_late_and_in_order(machines: Machines) -> None:
    near, far = machines.connected()
    fired: list[int] = []
    machines.scheduler.pause(machines.far)
    machines.scheduler.after(1_000, machines.far, fired.append, 1)
    near.transport.write(b"a")
    machines.run(100)
    near.transport.write(b"b")
    machines.scheduler.after(1_000, machines.far, fired.append, 2)
    machines.run(10_000)
    assert (far.received, fired) == (b"", [])
    machines.scheduler.resume(machines.far)
    machines.run(1)
    assert (far.received, fired) == (b"ab", [1, 2])


def test_what_a_stopped_process_is_sent_dies_with_it(machines: Machines) -> None:
    near, far = machines.connected()
    machines.scheduler.pause(machines.far)
    near.transport.write(b"a")
    machines.run(100)
    machines.scheduler.drop(machines.far)
    machines.network.process_ended(machines.far)
    machines.run(100)
    assert far.received == b""
    assert near.is_lost


def test_a_machine_without_power_tells_nobody_until_it_is_up_and_asked(machines: Machines) -> None:
    near, _ = machines.connected()
    machines.scheduler.drop(machines.far)
    machines.network.process_ended(machines.far, silently=True)
    machines.run(60_000)
    near.transport.write(b"anybody there?")
    task = machines.connect()
    machines.run(5_000)
    assert (near.is_lost, task.done()) == (False, False)
    machines.network.powered("far")
    machines.run(5_000)
    assert near.is_lost
    assert isinstance(task.exception(), ConnectionRefusedError)
    machines.scheduler.failure = None


def test_a_clients_connection_to_a_stopped_broker_is_taken_when_it_goes_on(machines: Machines) -> None:
    machines.listen()
    machines.scheduler.pause(machines.far)
    client = Peer()
    end = machines.network.connect(client, ("far", 1))
    assert isinstance(end, End)
    end.write(b"hello")
    machines.run(1_000)
    assert not machines.accepted
    machines.scheduler.resume(machines.far)
    machines.run(10)
    assert machines.accepted[0].received == b"hello"


def test_a_reply_that_does_not_come_is_given_up_by_the_client(machines: Machines) -> None:
    machines.listen()
    machines.network.cut("far", "*")
    client = Client("client", machines.network, ("far", 1))
    task = machines.scheduler.create_task(client.ask(MetadataRequest(topics=[]), 12, 1_000))
    machines.run(2_000)
    machines.scheduler.failure = None
    assert isinstance(task.exception(), Disconnected)
