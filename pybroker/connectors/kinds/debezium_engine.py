"""Debezium's engine in a JVM of its own, as Python asks it: the next events, and that they may be forgotten.

The JVM is not Spark's: the engine brings Connect's runtime and Kafka's clients in versions of its own.  It ends with
this process, however that ends.  No class of Java is compiled, and Java calls no Python: what the engine tells is put
into queues by method handles, and a batch is read by three calls.

Owns the JVM, the way to and from the engine, and the form in which it finds its offsets.  Owns no record
(``debezium_source``).  Counterpart in Kafka: a task of Connect, for which Debezium's engine stands in.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.protocol import Py4JJavaError, Py4JNetworkError

from pybroker.connectors.declared.source_kinds import DEBEZIUM_POSTGRES
from pybroker.operating_system import system_reason
from pybroker.pipeline import jars

_DEBEZIUM: Final = "3.6.1.Final"
_PACKAGES: Final = {DEBEZIUM_POSTGRES: ("debezium-embedded", "debezium-connector-postgres")}
_MEMORY_MB: Final = 512
# A thread of Debezium's that dies of a lack of memory would leave an engine that neither works nor ends.
_JVM_OPTIONS: Final = (
    f"-Xmx{_MEMORY_MB}m",
    "-XX:+ExitOnOutOfMemoryError",
    "-XX:+UseSerialGC",
    "-Djava.awt.headless=true",
)
_OUT_OF_MEMORY: Final = 3  # with which it ends then
_ENDS_WITHIN_S: Final = 30.0
_GONE_WITHIN_S: Final = 10.0  # of a JVM whose connection has ended: until how it ended is known

# Between texts of a batch: JSON escapes it, and no topic has it in its name.
_BETWEEN: Final = "\x1e"
_OFFSETS_IN: Final = {
    "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
    "offset.flush.interval.ms": "0",  # what is acknowledged is confirmed to the database at once
}

# By the source's partition, which is JSON text.
Offsets = Mapping[str, Mapping[str, Any]]


class EngineEnded(RuntimeError):
    """The engine has not begun, or has ended by itself, for the reason that it or its JVM gives."""


class Event(NamedTuple):
    """A record as the engine's transforms and converters leave it; None for what is absent."""

    topic: str
    key: bytes | None
    value: bytes | None


class Batch(NamedTuple):
    """Events in their order, and the source's offset behind them, by its partition."""

    events: list[Event]
    offsets: list[tuple[dict[str, Any], dict[str, Any]]]
    told: Any  # the engine's list, and what acknowledges it


class EngineJvm:
    """A JVM with the classes of a connector; raises JarsMissing, and EngineEnded where there is none."""

    def __init__(self, connector: str) -> None:
        wanted = [f"io.debezium:{artifact}:{_DEBEZIUM}" for artifact in _PACKAGES[connector]]
        java, classpath = jars.java(), ":".join(map(str, (jars.py4j_jar(), *jars.whole_packages(wanted))))
        # As Py4J's launch_gateway starts one, which leaves behind what it has opened where there is no JVM.
        command = [java, "-classpath", classpath, *_JVM_OPTIONS, "py4j.GatewayServer"]
        command += ["--die-on-broken-pipe", "--enable-auth", "0"]
        pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
        try:
            self.process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=nothing, text=True, errors="replace"
            )
        except OSError as error:
            raise EngineEnded(f"{java} cannot be started: {system_reason(error)}") from None
        assert self.process.stdout is not None
        port, token = self.process.stdout.readline().strip(), self.process.stdout.readline().strip()
        # What it says later is not kept, and must not fill the pipe.
        self._reader = threading.Thread(target=_read_to_its_end, args=(self.process.stdout,), daemon=True)
        self._reader.start()
        if not port.isdigit():
            self._end()
            code, options = self.process.returncode, " ".join(_JVM_OPTIONS)
            raise EngineEnded(f"{java} ends at its start with {code}; its options are {options}")
        self.gateway = JavaGateway(
            gateway_parameters=GatewayParameters(port=int(port), auth_token=token, auto_convert=True)
        )

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Raise EngineEnded, with the reason, for what Java throws in the block, and where the JVM is gone."""
        try:
            yield
        except Py4JJavaError as error:
            raise EngineEnded(reason_of(error.java_exception)) from None
        except Py4JNetworkError:
            raise EngineEnded(self._how_it_ended()) from None

    def _how_it_ended(self) -> str:
        try:
            code = self.process.wait(_GONE_WITHIN_S)
        except subprocess.TimeoutExpired:
            return "Debezium's JVM does not answer"
        if code == _OUT_OF_MEMORY:
            return (
                f"Debezium's JVM needs more than its {_MEMORY_MB} MB: max.batch.size, max.queue.size and "
                "max.queue.size.in.bytes bound what it holds"
            )
        return f"Debezium's JVM has ended with {code}"

    def close(self) -> None:
        """End it."""
        # Py4J reports Python's garbage to a JVM that it takes for present, and would log a traceback for each object.
        self.gateway._gateway_client.is_connected = False
        self.gateway.close()
        self._end()

    def _end(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()  # by which it ends itself
        try:
            self.process.wait(_ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join()


def _read_to_its_end(stream: IO[str]) -> None:
    with stream:
        for _ in stream:
            pass


class DebeziumEngine:
    """One connector of Debezium's, which runs from here on; raises JarsMissing, and EngineEnded.

    ``properties`` are Debezium's, ``name`` among them; ``offsets`` are where it goes on.
    """

    def __init__(self, properties: Mapping[str, str], offsets: Offsets) -> None:
        self._jvm = EngineJvm(properties["connector.class"])
        self._gateway = self._jvm.gateway
        self._directory = tempfile.TemporaryDirectory(prefix="debezium-")
        try:
            with self._jvm.telling():
                self._java = _Java(self._gateway)
                queue = self._gateway.jvm.java.util.concurrent.LinkedBlockingQueue
                self._batches, self._end = queue(1), queue(1)
                self._converter = self._gateway.jvm.org.apache.kafka.connect.json.JsonConverter()
                self._converter.configure({"schemas.enable": "false"}, True)
                self._texts = [
                    self._java.joined(f"io.debezium.engine.ChangeEvent.{name}")
                    for name in ("destination", "key", "value")
                ]
                self._begin(properties, offsets)
        except BaseException:
            self.close()
            raise

    def _begin(self, properties: Mapping[str, str], offsets: Offsets) -> None:
        jvm = self._gateway.jvm
        file = Path(self._directory.name) / "offsets"
        self._write_offsets(file, properties["name"], offsets)
        given = jvm.java.util.Properties()
        for name, text in {**_OFFSETS_IN, **properties, "offset.storage.file.filename": str(file)}.items():
            given.setProperty(name, text)
        engine = "io.debezium.engine.DebeziumEngine"
        self._engine = (
            jvm.io.debezium.engine.DebeziumEngine.create(self._java.type("io.debezium.engine.format.Json"))
            .using(given)
            .notifying(self._java.putting(f"{engine}$ChangeConsumer", self._batches, 2))
            .using(self._java.putting(f"{engine}$CompletionCallback", self._end, 3))
            .build()
        )
        jvm.java.lang.Thread(self._engine, "debezium").start()

    def _write_offsets(self, file: Path, name: str, offsets: Offsets) -> None:
        """As FileOffsetBackingStore has them: a map of JSON's bytes, serialized."""
        jvm = self._gateway.jvm
        entries = jvm.java.util.HashMap()
        for partition, offset in offsets.items():
            key = self._converter.fromConnectData("", None, [name, json.loads(partition)])
            entries.put(key, json.dumps(offset).encode())
        stream = jvm.java.io.ObjectOutputStream(jvm.java.io.FileOutputStream(str(file)))
        stream.writeObject(entries)
        stream.close()

    def next(self) -> Batch | None:
        """The next events, None where there are none now; raises EngineEnded."""
        with self._jvm.telling():
            return self._next()

    def _next(self) -> Batch | None:
        told = self._batches.poll()
        if told is None:
            self._look_at_end()
            return None
        records, committer = told
        if not len(records):  # transforms have left nothing of it
            committer.markBatchFinished()
            return None
        topics, keys, values = (self._java.text(join, records).split(_BETWEEN) for join in self._texts)
        events = [
            Event(topic, _bytes(key), _bytes(value)) for topic, key, value in zip(topics, keys, values, strict=True)
        ]
        return Batch(events, [self._place_of(records[-1])], told)

    def _place_of(self, record: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        source = record.sourceRecord()
        partition, offset = (
            json.loads(bytes(self._converter.fromConnectData("", None, each)))
            for each in (source.sourcePartition(), source.sourceOffset())
        )
        return partition, offset

    def acknowledge(self, batch: Batch) -> None:
        """The batch is written: the database may forget it; raises EngineEnded."""
        records, committer = batch.told
        with self._jvm.telling():
            committer.markProcessed(records[-1])
            committer.markBatchFinished()

    def _look_at_end(self) -> None:
        ended = self._end.poll()
        if ended is not None:
            _, message, error = ended
            said = (message or "Debezium has ended", None if error is None else reason_of(error))
            raise EngineEnded(": ".join(filter(None, said)).replace("\n", " "))

    def close(self) -> None:
        """End the JVM; what was not acknowledged comes again."""
        self._jvm.close()
        self._directory.cleanup()


def reason_of(error: Any) -> str:
    """What Java's innermost cause is called, and what it says, in one line: some say the name of a class alone."""
    while (cause := error.getCause()) is not None:
        error = cause
    told = (error.getClass().getSimpleName(), error.getMessage())
    return ": ".join(filter(None, told)).replace("\n", " ")


class _Java:
    """Interfaces of Java made of method handles, and Java's streams: Py4J may not call their classes itself."""

    def __init__(self, gateway: JavaGateway) -> None:
        self._gateway = gateway
        self._jvm = gateway.jvm
        self._handles = self._jvm.java.lang.invoke.MethodHandles
        self._lookup = self._handles.publicLookup()

    def type(self, name: str) -> Any:
        """The class of that name."""
        return self._jvm.java.lang.Class.forName(name)

    def putting(self, interface: str, queue: Any, count: int) -> Any:
        """An object whose method of ``count`` parameters puts a list of its arguments into the queue."""
        objects, listed = self.type("[Ljava.lang.Object;"), self.type("java.util.List")
        as_list = self._lookup.findStatic(self.type("java.util.Arrays"), "asList", self._signature(listed, objects))
        nothing = self._jvm.java.lang.Void.TYPE
        put = self._lookup.bind(queue, "put", self._signature(nothing, self.type("java.lang.Object")))
        put_list = put.asType(self._signature(nothing, listed))
        handle = self._handles.filterReturnValue(as_list.asCollector(objects, count), put_list)
        return self._as(interface, handle)

    def joined(self, getter: str) -> Any:
        """A handle from a collection to one text of what each element gives, with ``_BETWEEN`` between."""
        owner, _, name = getter.rpartition(".")
        thing, stream, function = map(self.type, ("java.lang.Object", "java.util.stream.Stream", _FUNCTION))
        returned = self.type("java.lang.String") if name == "destination" else thing
        get = self._lookup.findVirtual(self.type(owner), name, self._signature(returned))
        mapper = self._as(_FUNCTION, get.asType(self._signature(thing, thing)))
        streamed = self._lookup.findVirtual(self.type("java.util.Collection"), "stream", self._signature(stream))
        mapped = self._with(self._lookup.findVirtual(stream, "map", self._signature(stream, function)), mapper)
        collector = self._jvm.java.util.stream.Collectors.joining(_BETWEEN)
        collect = self._signature(thing, self.type("java.util.stream.Collector"))
        collected = self._with(self._lookup.findVirtual(stream, "collect", collect), collector)
        return self._handles.filterReturnValue(self._handles.filterReturnValue(streamed, mapped), collected)

    def text(self, handle: Any, argument: Any) -> str:
        """What a handle makes of its argument."""
        arguments = self._jvm.java.util.ArrayList()
        arguments.add(argument)
        found: str = handle.invokeWithArguments(arguments)
        return found

    def _as(self, interface: str, handle: Any) -> Any:
        return self._jvm.java.lang.invoke.MethodHandleProxies.asInterfaceInstance(self.type(interface), handle)

    def _with(self, handle: Any, argument: Any) -> Any:
        """The handle with its second parameter given."""
        return self._handles.insertArguments(handle, 1, self._array(self._jvm.java.lang.Object, [argument]))

    def _signature(self, returned: Any, *taken: Any) -> Any:
        array = self._array(self._jvm.java.lang.Class, taken)
        return self._jvm.java.lang.invoke.MethodType.methodType(returned, array)

    def _array(self, of: Any, elements: Sequence[Any]) -> Any:
        array = self._gateway.new_array(of, len(elements))
        for at, element in enumerate(elements):
            array[at] = element
        return array


_FUNCTION: Final = "java.util.function.Function"


def _bytes(text: str) -> bytes | None:
    """JSON's bytes; Java's null is the text of JSON's, which is no event."""
    return None if text == "null" else text.encode()
