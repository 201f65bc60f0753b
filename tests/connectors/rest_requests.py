"""Requests to a worker of Kafka Connect and to a supervisor: a story of connectors, from their creation to their end.

Owns the requests in their order, and in what the replies differ for a reason.  Kinds of connectors are not the same
on both sides, so that each `Side` has its own configurations of a source and a sink.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

JSON: Final = {"Content-Type": "application/json"}

Body = Callable[["Side"], Any]


@dataclass(frozen=True, slots=True)
class Side:
    """Who answers, and what its connectors are: a source that has records, and a sink of the topic ``lines``."""

    address: str
    source: Mapping[str, str]
    sink: Mapping[str, str]
    # Where the source may be told to go on.
    partition: Mapping[str, Any]
    offset: Mapping[str, Any]
    # A logger, and what is above it.
    logger: str
    namespace: str

    @property
    def names(self) -> dict[str, str]:
        """What paths name."""
        kinds = {"source": self.source["connector.class"], "sink": self.sink["connector.class"]}
        return {**kinds, "logger": self.logger, "namespace": self.namespace}


@dataclass(frozen=True, slots=True)
class Reply:
    """What came."""

    code: int
    headers: Mapping[str, str]
    document: Any


@dataclass(frozen=True, slots=True)
class Request:
    """One request.  It is asked again until ``until``: what an earlier one has begun may take a while.

    ``body`` is a document, or bytes as they are; ``is_map`` says that the reply has keys of the user's, and
    ``may_conflict`` that a reply which asks for patience is one, too.
    """

    name: str
    method: str
    path: str
    body: Body | bytes | None = None
    headers: Mapping[str, str] = field(default_factory=lambda: JSON)
    until: Callable[[Reply], object] = lambda reply: True
    is_map: bool = False
    may_conflict: bool = False

    def sent(self, side: Side) -> tuple[str, bytes | None]:
        """The path and the body, as this side gets them."""
        path = self.path.format(**side.names)
        if self.body is None or isinstance(self.body, bytes):
            return path, self.body
        return path, json.dumps(self.body(side)).encode()


@dataclass(frozen=True, slots=True)
class Difference:
    """What a request is answered by, there and here, and where the page on moving from Connect says so.

    ``shapes`` are lines of `reply_shapes`; ``None`` where codes differ, since other documents follow.
    """

    there: int
    here: int
    page: str
    shapes: tuple[str, ...] | None = None


def _new(name: Any, config: Callable[[Side], Any], **more: Any) -> Body:
    return lambda side: {"name": name, "config": config(side), **more}


def _source(side: Side) -> dict[str, str]:
    return dict(side.source)


def _sink(side: Side) -> dict[str, str]:
    return dict(side.sink)


def _changed(**changes: Any) -> Callable[[Side], dict[str, Any]]:
    """A source's configuration with other values; None takes a key out."""
    named = {name.replace("_", "."): text for name, text in changes.items()}

    def config(side: Side) -> dict[str, Any]:
        return {name: text for name, text in {**side.source, **named}.items() if text is not None}

    return config


def _is(state: str) -> Callable[[Reply], object]:
    """Whether a connector is in a state, and its task, too, where it has to have one."""

    def holds(reply: Reply) -> object:
        found = reply.document
        if reply.code != 200 or found["connector"]["state"] != state:
            return False
        return [each["state"] for each in found["tasks"]] == ([] if state == "STOPPED" else [state])

    return holds


def _begins(state: str) -> Callable[[Reply], object]:
    """Whether a connector that has not run yet is in a state: Connect makes its tasks when it runs."""
    return lambda reply: reply.code == 200 and reply.document["connector"]["state"] == state


def _has(key: str) -> Callable[[Reply], object]:
    return lambda reply: reply.code == 200 and reply.document[key]


def _at(number: Any, offset: Any) -> Body:
    """An offset of the sink's topic."""
    place = {"kafka_topic": "lines", "kafka_partition": number}
    return lambda side: {"offsets": [{"partition": place, "offset": offset}]}


def _of_source(side: Side) -> dict[str, Any]:
    return {"offsets": [{"partition": side.partition, "offset": side.offset}]}


def _requests() -> Iterator[Request]:
    yield from _of_nothing()
    yield from _of_plugins()
    yield from _of_a_source()
    yield from _of_configurations()
    yield from _of_states()
    yield from _of_offsets_of_a_source()
    yield from _of_offsets_of_a_sink()
    yield from _of_names_that_are_not_there()
    yield from _of_what_cannot_be_read()
    yield from _of_http()
    yield from _of_loggers()
    yield from _of_the_end()


def _of_nothing() -> Iterator[Request]:
    yield Request("the root", "GET", "/")
    yield Request("the health", "GET", "/health", until=lambda reply: reply.code == 200)
    yield Request("no connectors", "GET", "/connectors")
    yield Request("no connectors, expanded", "GET", "/connectors?expand=status", is_map=True)


def _of_plugins() -> Iterator[Request]:
    validate = "/connector-plugins/{source}/config/validate"
    yield Request("the plugins", "GET", "/connector-plugins")
    yield Request("plugins that are connectors", "GET", "/connector-plugins?connectorsOnly=true")
    yield Request("all plugins", "GET", "/connector-plugins?connectorsOnly=false")
    yield Request("the keys of a source", "GET", "/connector-plugins/{source}/config")
    yield Request("the keys of a sink", "GET", "/connector-plugins/{sink}/config")
    yield Request("the keys of a plugin that is not there", "GET", "/connector-plugins/Nope/config")
    yield Request("a configuration that is right", "PUT", validate, _changed(name="v"))
    yield Request("a configuration that lacks a key", "PUT", validate, _changed(name="v", topic=None))
    yield Request("a configuration with a wrong value", "PUT", validate, _changed(name="v", tasks_max="many"))
    yield Request("a configuration without a name", "PUT", validate, _source)
    yield Request("a configuration without a class", "PUT", validate, lambda side: {"name": "v"})
    yield Request("a configuration of another class", "PUT", validate, _sink)
    unknown = "/connector-plugins/Nope/config/validate"
    yield Request("a configuration of a class that is not there", "PUT", unknown, _changed(connector_class="Nope"))


def _of_a_source() -> Iterator[Request]:
    yield Request("a source is made", "POST", "/connectors", _new("a", _source))
    yield Request("a source is made again", "POST", "/connectors", _new("a", _source))
    yield Request("the status of a source", "GET", "/connectors/a/status", until=_is("RUNNING"))
    yield Request("the connectors", "GET", "/connectors")
    yield Request("a source", "GET", "/connectors/a", until=_has("tasks"))
    yield Request("the configuration of a source", "GET", "/connectors/a/config", is_map=True)
    yield Request("the tasks of a source", "GET", "/connectors/a/tasks")
    yield Request("the configurations of tasks, of Kafka 3", "GET", "/connectors/a/tasks-config")
    yield Request("the status of a task", "GET", "/connectors/a/tasks/0/status")
    yield Request("the status of a task that is not there", "GET", "/connectors/a/tasks/7/status")
    yield Request("the status of a task that has no number", "GET", "/connectors/a/tasks/x/status")
    topics = "/connectors/a/topics"
    yield Request("the topics of a source", "GET", topics, until=lambda reply: reply.document["a"]["topics"])
    yield Request("the offsets of a source", "GET", "/connectors/a/offsets", until=_has("offsets"))
    yield Request("all connectors, expanded", "GET", "/connectors?expand=info&expand=status", is_map=True)
    yield Request("all connectors, expanded by nothing known", "GET", "/connectors?expand=all", is_map=True)
    yield Request("the topics of a source are forgotten", "PUT", "/connectors/a/topics/reset")


def _of_configurations() -> Iterator[Request]:
    b = "/connectors/b/config"
    yield Request("a source is made by its configuration", "PUT", b, _source)
    yield Request("a source is configured anew", "PUT", b, _changed(errors_retry_timeout="1000"))
    yield Request("a source is configured in part", "PATCH", b, lambda side: {"errors.retry.timeout": "2000"})
    yield Request("a key of a source is removed", "PATCH", b, lambda side: {"errors.retry.timeout": None})
    yield Request("a source is configured by numbers", "PUT", b, _changed(errors_retry_timeout=3000))
    yield Request("a source is configured wrongly", "PUT", b, _changed(tasks_max="many"))
    yield Request("a source is configured wrongly in part", "PATCH", b, lambda side: {"tasks.max": "many"})
    yield Request("a configuration has another name", "PUT", b, _changed(name="c"))
    yield Request("a connector has another name", "POST", "/connectors", _new("c", _changed(name="d")))
    yield Request("a connector has no name", "POST", "/connectors", lambda side: {"config": _source(side)})
    yield Request("a connector has an empty name", "POST", "/connectors", _new(" ", _source))
    yield Request("a connector has a name with a control", "POST", "/connectors", _new("c\u0001d", _source))
    yield Request("a connector has a name with blanks", "POST", "/connectors", _new(" b\u0001 ", _source))
    named = _changed(name="c")
    yield Request("only a configuration has a name", "POST", "/connectors", lambda side: {"config": named(side)})
    yield Request("a connector has no class", "POST", "/connectors", _new("c", _changed(connector_class=None)))
    yield Request("a class is not there", "POST", "/connectors", _new("c", _changed(connector_class="Nope")))
    yield Request("a value is wrong", "POST", "/connectors", _new("c", _changed(tasks_max="many")))
    yield Request("a key is missing", "POST", "/connectors", _new("c", _changed(topic=None)))


def _of_states() -> Iterator[Request]:
    a, status = "/connectors/a", "/connectors/a/status"
    yield Request("a source is paused", "PUT", f"{a}/pause")
    yield Request("the status of a paused source", "GET", status, until=_is("PAUSED"))
    yield Request("a paused source is paused", "PUT", f"{a}/pause")
    yield Request("a source is resumed", "PUT", f"{a}/resume")
    yield Request("the status of a resumed source", "GET", status, until=_is("RUNNING"))
    yield Request("a source is restarted", "POST", f"{a}/restart")
    yield Request("the status of a restarted source", "GET", status, until=_is("RUNNING"))
    yield Request("what has failed of a source is restarted", "POST", f"{a}/restart?onlyFailed=true")
    both = "restart?includeTasks=true&onlyFailed=true"
    yield Request("what has failed of a source and its tasks is restarted", "POST", f"{a}/{both}")
    yield Request("a source and its tasks are restarted", "POST", f"{a}/restart?includeTasks=true")
    yield Request("the status behind that", "GET", status, until=_is("RUNNING"))
    yield Request("a task is restarted", "POST", f"{a}/tasks/0/restart")
    yield Request("a task that is not there is restarted", "POST", f"{a}/tasks/7/restart")
    yield Request("a source is stopped", "PUT", f"{a}/stop")
    yield Request("the status of a stopped source", "GET", status, until=_is("STOPPED"))
    yield Request("a stopped source", "GET", a, until=lambda reply: not reply.document["tasks"])
    yield Request("the tasks of a stopped source", "GET", f"{a}/tasks")
    yield Request("the status of a stopped source's task", "GET", f"{a}/tasks/0/status")
    task = f"{a}/tasks/0/restart"
    yield Request("the task of a stopped source is restarted", "POST", task, may_conflict=True)
    paused = _new("p", _source, initial_state="paused")
    yield Request("a source is made and paused", "POST", "/connectors", paused)
    yield Request("the status of one that was made and paused", "GET", "/connectors/p/status", until=_begins("PAUSED"))
    strange = _new("q", _source, initial_state="asleep")
    yield Request("a source is made in a state that is none", "POST", "/connectors", strange)


def _of_offsets_of_a_source() -> Iterator[Request]:
    offsets = "/connectors/a/offsets"
    yield Request("offsets of a stopped source are altered", "PATCH", offsets, _of_source)
    yield Request("the offsets that were altered", "GET", offsets)
    yield Request("no offsets are altered", "PATCH", offsets, lambda side: {"offsets": []})
    yield Request("offsets without a list", "PATCH", offsets, lambda side: {})
    yield Request("offsets that are no objects", "PATCH", offsets, lambda side: {"offsets": [1]})
    yield Request("offsets of a stopped source are reset", "DELETE", offsets)
    yield Request("the offsets that were reset", "GET", offsets)
    yield Request("a stopped source is resumed", "PUT", "/connectors/a/resume")
    yield Request("the status behind that change", "GET", "/connectors/a/status", until=_is("RUNNING"))
    yield Request("offsets of a source that runs are altered", "PATCH", offsets, _of_source)
    yield Request("offsets of a source that runs are reset", "DELETE", offsets)


def _of_offsets_of_a_sink() -> Iterator[Request]:
    s, offsets = "/connectors/s", "/connectors/s/offsets"
    yield Request("a sink is made and stopped", "POST", "/connectors", _new("s", _sink, initial_state="STOPPED"))
    yield Request("the status of a stopped sink", "GET", f"{s}/status", until=_is("STOPPED"))
    yield Request("a sink without offsets", "GET", offsets)
    yield Request("offsets of a sink are altered", "PATCH", offsets, _at(0, {"kafka_offset": 1}))
    yield Request("offsets of a sink", "GET", offsets, until=_has("offsets"))
    yield Request("offsets of a sink are texts", "PATCH", offsets, _at("0", {"kafka_offset": "2"}))
    yield Request("an offset of a sink is forgotten", "PATCH", offsets, _at(0, None))
    yield Request("an offset is no number", "PATCH", offsets, _at(0, {"kafka_offset": "x"}))
    yield Request("an offset is a fraction", "PATCH", offsets, _at(0, {"kafka_offset": 1.5}))
    yield Request("an offset is below 0", "PATCH", offsets, _at(0, {"kafka_offset": -2}))
    yield Request("an offset has another key", "PATCH", offsets, _at(0, {"offset": 1}))
    yield Request("a partition is no number", "PATCH", offsets, _at("x", {"kafka_offset": 1}))
    yield Request("a partition is null", "PATCH", offsets, _at(None, {"kafka_offset": 1}))
    yield Request("a partition that is not there", "PATCH", offsets, _at(99, {"kafka_offset": 1}))
    nowhere = {"offsets": [{"offset": {"kafka_offset": 1}}]}
    yield Request("an offset without a partition", "PATCH", offsets, lambda side: nowhere)
    yield Request("offsets of a sink are reset", "DELETE", offsets)
    yield Request("a sink that was reset", "GET", offsets)


def _of_names_that_are_not_there() -> Iterator[Request]:
    for method, path in (
        ("GET", ""), ("GET", "/config"), ("GET", "/status"), ("GET", "/tasks"), ("GET", "/tasks/0/status"),
        ("GET", "/topics"), ("GET", "/offsets"), ("GET", "/nothing"), ("DELETE", ""), ("DELETE", "/offsets"),
        ("PUT", "/pause"), ("PUT", "/resume"), ("PUT", "/stop"), ("PUT", "/topics/reset"), ("POST", "/restart"),
        ("POST", "/restart?includeTasks=true"), ("POST", "/tasks/0/restart"),
    ):  # fmt: skip
        yield Request(f"{method} {path} of a connector that is not there", method, f"/connectors/none{path}")
    patch = "PATCH {} of a connector that is not there"
    yield Request(patch.format("/config"), "PATCH", "/connectors/none/config", lambda side: {"tasks.max": "1"})
    yield Request(patch.format("/offsets"), "PATCH", "/connectors/none/offsets", _of_source)
    yield Request("a path that is not there", "GET", "/nothing")


def _of_what_cannot_be_read() -> Iterator[Request]:
    for name, raw in {
        "a body that is no JSON": b"{",
        "a body that is a list": b"[]",
        "a body that is null": b"null",
        "an empty body": b"",
        "a key twice": b'{"name": "k", "name": "l", "config": null}',
    }.items():
        yield Request(f"{name} makes a connector", "POST", "/connectors", raw)
        yield Request(f"{name} configures a connector", "PUT", "/connectors/c/config", raw)
    yield Request("a field that is not known", "POST", "/connectors", _new("c", _source, more=1))
    yield Request("a value that is an object", "PUT", "/connectors/c/config", _changed(topic={}))
    yield Request("a connector without a configuration", "POST", "/connectors", lambda side: {"name": "c"})


def _of_http() -> Iterator[Request]:
    text = {"Content-Type": "text/plain"}
    yield Request("another type of content", "PUT", "/connectors/c/config", b"{}", text)
    yield Request("no type of content", "PUT", "/connectors/c/config", b"{}", {})
    yield Request("another type of content where there is none", "PUT", "/connectors/a/resume", None, text)
    yield Request("another type of reply", "GET", "/connectors", None, {"Accept": "text/plain"})
    yield Request("any type of reply", "GET", "/connectors", None, {"Accept": "text/html, */*;q=0.1"})
    for method, path in (
        ("DELETE", "/connectors"), ("PUT", "/connectors/a"), ("POST", "/connectors/a/config"),
        ("DELETE", "/connectors/a/status"), ("GET", "/connectors/a/pause"), ("POST", "/"), ("PATCH", "/health"),
        ("HEAD", "/connectors"), ("HEAD", "/connectors/none"), ("OPTIONS", "/connectors"),
        ("GET", "/connectors/"), ("GET", "/connectors/a/"), ("GET", "/connectors/a/status/"),
    ):  # fmt: skip
        yield Request(f"{method} {path}", method, path, is_map=method == "OPTIONS")


def _of_loggers() -> Iterator[Request]:
    one = "/admin/loggers/{namespace}"
    yield Request("the loggers", "GET", "/admin/loggers", is_map=True)
    yield Request("the root logger", "GET", "/admin/loggers/root")
    yield Request("a logger", "GET", "/admin/loggers/{logger}")
    yield Request("a logger that is not there", "GET", "/admin/loggers/no.such.logger")
    yield Request("a level is set", "PUT", one, lambda side: {"level": "debug"})
    yield Request("the loggers behind that", "GET", "/admin/loggers", is_map=True)
    yield Request("a level of the cluster is set", "PUT", f"{one}?scope=cluster", lambda side: {"level": "INFO"})
    yield Request("a level that is none", "PUT", one, lambda side: {"level": "loud"})
    yield Request("no level is set", "PUT", one, lambda side: {})


def _of_the_end() -> Iterator[Request]:
    for name in "abps":
        yield Request(f"{name} is deleted", "DELETE", f"/connectors/{name}")
    yield Request("a is deleted again", "DELETE", "/connectors/a")
    gone = "/connectors/a/status"
    yield Request("the status of a connector that is gone", "GET", gone, until=lambda reply: reply.code == 404)
    yield Request("no connectors are left", "GET", "/connectors", until=lambda reply: reply.document == [])


REQUESTS: Final = tuple(_requests())
_UNREADABLE: Final = Difference(500, 400, "a body that cannot be read is answered by 500")
_OFFSETS: Final = Difference(500, 400, "offsets below 0 or of no partition are answered by 500")
_NO_CLASS: Final = Difference(500, 400, "a configuration without a known class is validated with 500")
DIFFERENCES: Final[Mapping[str, Difference]] = {
    "a configuration without a class": _NO_CLASS,
    "a configuration of a class that is not there": _NO_CLASS,
    "the task of a stopped source is restarted": Difference(409, 404, "a stopped connector's task is restarted: 409"),
    "an offset is below 0": _OFFSETS,
    "a partition that is not there": _OFFSETS,
    "another type of content where there is none": Difference(415, 202, "a request without a body names another type"),
    **dict.fromkeys(
        (
            "a source is made in a state that is none",
            "offsets that are no objects",
            "a body that is no JSON makes a connector",
            "a body that is no JSON configures a connector",
            "a body that is a list makes a connector",
            "a body that is a list configures a connector",
            "a body that is null makes a connector",
            "a body that is null configures a connector",
            "an empty body makes a connector",
            "an empty body configures a connector",
            "a key twice makes a connector",
            "a field that is not known",
            "a value that is an object",
            "a connector without a configuration",
        ),
        _UNREADABLE,
    ),
}
