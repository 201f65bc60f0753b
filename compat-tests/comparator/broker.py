"""What a scenario talks to: one broker, with every exchange recorded.

Owns: the transcript (a list of ``Step``), further connections, and preparations that are not recorded because
their replies depend on timing.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from harness.waiting import wait_until

from comparator.encoding import Tree
from comparator.wire import API_KEYS, CLOSED, SILENT, Connection
from pybroker.apis import APIS
from pybroker_protocol.errors import ProtocolError

SERVED_VERSIONS = {api.name: range(api.versions[0], api.versions[1] + 1) for api in APIS}
API_NAMES = {key: name for name, key in API_KEYS.items()}
PREPARATION_TIMEOUT_S = 30.0
NEVER_S = 3.0  # how long nothing comes before it is taken for never
# Stands for a reply that no schema says how to read: all that is known of it is whose it is.
UNREAD: Tree = {"connection": "answered"}
_HEADER = struct.Struct(">hhi")  # key, version, correlation id
Narrow = Callable[[Tree], Tree]


@dataclass(frozen=True)
class Step:
    """One exchange: what was asked, with the scenario's note, and the reply's tree.

    ``at_the_end``: the request holds a value from the end of a type's range, or one that no client sends.
    """

    api: str
    version: int
    note: str
    request: Tree
    reply: Tree
    at_the_end: bool = False

    @property
    def title(self) -> str:
        return f"{self.api} v{self.version}" + (f" ({self.note})" if self.note else "")


@dataclass
class Pending:
    """A request that was sent and whose reply is not read yet."""

    broker: Broker
    connection: Connection
    correlation_id: int
    step: Step

    def reply(self, narrow: Narrow | None = None) -> Tree:
        """Wait for the reply and record the exchange; ``narrow`` takes out what other scenarios have left behind."""
        step = self.step
        reply = self.connection.receive(step.api, step.version, self.correlation_id)
        if narrow is not None and reply not in (CLOSED, SILENT):
            reply = narrow(reply)
        self.broker.steps.append(replace(step, reply=reply))
        return reply


@dataclass
class Broker:
    """One broker under comparison; ``steps`` is what it has answered so far."""

    address: tuple[str, int]
    steps: list[Step] = field(default_factory=list)
    greet: Callable[[Connection], None] | None = None  # what each connection begins with, not recorded
    _connections: list[Connection] = field(default_factory=list)
    _own: Connection | None = None

    def versions(self, api: str) -> range:
        """The versions that pybroker serves."""
        return SERVED_VERSIONS[api]

    def latest(self, api: str) -> int:
        return SERVED_VERSIONS[api][-1]

    def call(self, api: str, version: int, note: str = "", **fields: Tree) -> Tree:
        """Send a request over the scenario's own connection, record and return the reply."""
        return self.ask(Step(api, version, note, fields, None))

    def ask(self, step: Step, narrow: Narrow | None = None) -> Tree:
        """Send what ``step`` says over the scenario's own connection, record and return the reply."""
        reply = self._send(step, self._own_connection()).reply(narrow)
        if reply in (CLOSED, SILENT):
            self._own = None
        return reply

    def call_in_vain(self, api: str, version: int, note: str, **fields: Tree) -> Tree:
        """As ``call``, for a request that one of the brokers never answers: it is not waited for very long."""
        return self.ask_in_vain(Step(api, version, note, fields, None))

    def ask_in_vain(self, step: Step, narrow: Narrow | None = None) -> Tree:
        """As ``ask``, for a request that one of the brokers never answers."""
        with self._own_connection().patience(NEVER_S):
            return self.ask(step, narrow)

    def begin(
        self, api: str, version: int, note: str = "", connection: Connection | None = None, **fields: Tree
    ) -> Pending:
        """Send a request and leave its reply for later: for requests that wait for others."""
        return self._send(Step(api, version, note, fields, None), connection or self._own_connection())

    def call_unanswered(self, api: str, version: int, note: str, **fields: Tree) -> None:
        """Send a request that may have no reply; recorded is whether the next request's reply comes instead."""
        connection = self._own_connection()
        sent = connection.send(api, version, fields)
        following = connection.send("ApiVersions", 0, {})
        payload = connection.receive_payload()
        if payload is None:
            reply, self._own = CLOSED, None
        elif int.from_bytes(payload[:4], "big") == sent:
            reply = connection.decoded(payload, api, version)
            connection.receive_payload()
        else:
            connection.decoded(payload, "ApiVersions", 0, following)
            reply = SILENT
        self.steps.append(Step(api, version, note, fields, reply))

    def call_bytes(
        self, api: str, version: int, note: str, body: bytes, flexible: bool = False, narrow: Narrow | None = None
    ) -> Tree:
        """Send a body that no codec would produce.  Of the body, which may hold ids, only the length is recorded."""
        sent = self._own_connection().send_bytes(API_KEYS[api], version, body, flexible)
        step = Step(api, version, note, {"length": len(body)}, None, at_the_end=True)
        return self._reply_to_bytes(step, sent, narrow)

    def call_frame(self, note: str, frame: bytes, narrow: Narrow | None = None) -> Tree:
        """Send a frame that may not even have a request header, or not a sound one."""
        self._own_connection().send_frame(frame)
        key, version, sent = _HEADER.unpack_from(frame.ljust(_HEADER.size, b"\0"))
        api = API_NAMES.get(key, "frame") if len(frame) >= _HEADER.size else "frame"
        length = {"length": len(frame)}
        step = Step(api, version if api != "frame" else 0, note, length, None, at_the_end=True)
        return self._reply_to_bytes(step, sent, narrow)

    def call_raw(self, note: str, data: bytes) -> Tree:
        """Send bytes that may not even be a frame, and send nothing after them."""
        self._own_connection().send_raw(data)
        return self._reply_to_bytes(Step("bytes", 0, note, {"length": len(data)}, None), None, None)

    def quietly(self, api: str, version: int, **fields: Tree) -> Tree:
        """As ``call``, but not recorded."""
        connection = self._own_connection()
        reply = connection.receive(api, version, connection.send(api, version, fields))
        if reply in (CLOSED, SILENT):
            self._own = None
        return reply

    def check_alive(self, note: str) -> None:
        """Record whether the next request over the scenario's connection is answered, not with what."""
        self.note(note, self.quietly("ApiVersions", 0).get("connection", "answered"))

    def note(self, what: str, observed: Tree) -> None:
        """Record something that the scenario has observed itself."""
        self.steps.append(Step("observation", 0, what, {}, {"observed": observed}))

    def forget(self) -> None:
        """The broker has ended: the next request goes over a new connection."""
        self._own = None

    def connect(self, source: str | None = None) -> Connection:
        """A further connection, from the address ``source`` if one is named; closed with the scenario."""
        connection = Connection(self.address, source)
        self._connections.append(connection)
        if self.greet is not None:
            self.greet(connection)
        return connection

    @contextmanager
    def opened(self) -> Iterator[Broker]:
        """Connections last as long as the scenario."""
        try:
            yield self
        finally:
            for connection in self._connections:
                connection.close()
            self._connections.clear()
            self._own = None

    def prepare_topic(self, name: str, partitions: int = 1, **configs: str) -> bytes:
        """Create a topic, wait for its leaders, and return its id.  Underscores in ``configs`` stand for dots."""
        entries = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
        topic = {"name": name, "num_partitions": partitions, "replication_factor": 1, "configs": entries}
        reply = self.quietly("CreateTopics", 7, topics=[topic], timeout_ms=10_000)
        assert reply["topics"][0]["error_code"] == 0, f"cannot create {name}: {reply}"
        self.wait_for_leaders(name, partitions)
        topic_id: bytes = reply["topics"][0]["topic_id"]
        return topic_id

    def wait_for_leaders(self, name: str, partitions: int) -> None:
        """Metadata may name a leader a moment before that broker leads, so the leader is asked as well."""
        latest = [{"partition_index": index, "timestamp": -1} for index in range(partitions)]

        def has_leaders() -> bool:
            reply = self.quietly("Metadata", 12, topics=[{"name": name}], allow_auto_topic_creation=False)
            found = reply["topics"][0]["partitions"]
            if len(found) != partitions or any(p["error_code"] != 0 or p["leader_id"] < 0 for p in found):
                return False
            reply = self.quietly("ListOffsets", 7, replica_id=-1, topics=[{"name": name, "partitions": latest}])
            return all(p["error_code"] == 0 for p in reply["topics"][0]["partitions"])

        self.wait_until(has_leaders, f"leaders of {name}")

    def wait_for_coordinator(self, group: str) -> None:
        """Wait until the group's coordinator is known and has loaded its partition."""

        def answers() -> bool:
            found = self.quietly("FindCoordinator", 3, key=group, key_type=0)
            if found["error_code"] != 0:
                return False
            # A heartbeat would not do: while the coordinator loads, it is answered as if all were well.
            described = self.quietly("DescribeGroups", 5, groups=[group])
            return described["groups"][0]["error_code"] not in (14, 15, 16)  # loading, not available, not this broker

        self.wait_until(answers, f"the coordinator of {group}")

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Ask this broker again and again."""
        wait_until(condition, f"{what} at {self.address}", PREPARATION_TIMEOUT_S)

    def _send(self, step: Step, connection: Connection) -> Pending:
        return Pending(self, connection, connection.send(step.api, step.version, step.request), step)

    def _reply_to_bytes(self, step: Step, correlation_id: int | None, narrow: Narrow | None) -> Tree:
        """Record the reply as far as it can be read; ``ValueError`` when it is another request's."""
        connection = self._own_connection()
        try:
            payload = connection.receive_payload()
            reply: Tree = CLOSED if payload is None else _read(connection, payload, step, correlation_id)
        except TimeoutError:
            reply = SILENT
        if reply in (CLOSED, SILENT):
            self._own = None
        elif narrow is not None and reply != UNREAD:
            reply = narrow(reply)
        self.steps.append(replace(step, reply=reply))
        return reply

    def _own_connection(self) -> Connection:
        """The connection of everything that is not asked over another one; a new one after the broker closed it."""
        if self._own is None:
            self._own = self.connect()
        return self._own


def _read(connection: Connection, payload: bytes, step: Step, correlation_id: int | None) -> Tree:
    """The reply to bytes as a tree, or ``UNREAD`` where the request's version has no schema that it follows."""
    answered = int.from_bytes(payload[:4], "big", signed=True)
    if correlation_id is not None and answered != correlation_id:
        raise ValueError(f"the reply is to request {answered}, not to {correlation_id}")
    served = SERVED_VERSIONS.get(step.api, range(0))
    version = step.version
    if step.api == "ApiVersions" and version not in served:
        version = 0  # as it tells of versions from the future
    if version not in served:
        return UNREAD
    try:
        return connection.decoded(payload, step.api, version)
    except ProtocolError:
        return UNREAD
