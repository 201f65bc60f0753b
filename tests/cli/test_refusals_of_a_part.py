"""A change of several things of which a broker refuses some: for good, for a while, and without an answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from typing import Any

import pytest

from pybroker.cli.connection import retries
from pybroker.cli.connection.admin_client import AdminClient
from pybroker.cli.connection.admin_command import Session
from pybroker.cli.connection.client_settings import Access, ClientOptions
from pybroker.cli.connection.retries import Passing
from pybroker.cli.requests import topic_requests
from pybroker.cli.requests.partition_leaders import Partition
from pybroker.cli.terminal.error_names import Part, part_of, refused, report
from pybroker.cli.terminal.failure import CommandFailed
from pybroker.cli.terminal.options import DEFAULT_BOOTSTRAP
from pybroker.cli.terminal.output import Output
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from pybroker_protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from pybroker_protocol.schema import Request, Response
from tests.cli.command import CommandLine
from tests.cli.scripted_broker import scripted_broker

NOT_CONTROLLER = int(ErrorCode.NOT_CONTROLLER)


def answer_to(request: CreateTopicsRequest, refused: Sequence[str]) -> CreateTopicsResponse:
    """All are created but those."""
    return CreateTopicsResponse(
        throttle_time_ms=0,
        topics=[
            CreatableTopicResult(name=each.name, error_code=NOT_CONTROLLER * (each.name in refused), error_message=None)
            for each in request.topics
        ],
    )


@contextmanager
def controller_that_refuses_once(*refused: str) -> Iterator[tuple[str, list[list[str]]]]:
    """Its address, and the topics that each request to make some names; these the first request is refused."""
    asked: list[list[str]] = []
    bootstrap = ""

    def script(request: Request) -> Response:
        if isinstance(request, MetadataRequest):
            host, _, port = bootstrap.rpartition(":")
            brokers = [MetadataResponseBroker(node_id=1, host=host, port=int(port), rack=None)]
            return MetadataResponse(brokers=brokers, controller_id=1, topics=[])
        assert isinstance(request, CreateTopicsRequest)
        asked.append([topic.name for topic in request.topics])
        return answer_to(request, refused if len(asked) == 1 else ())

    with scripted_broker(script, (MetadataRequest, CreateTopicsRequest)) as address:
        bootstrap = address
        yield bootstrap, asked


def test_those_alone_are_asked_for_again_that_are_refused_for_a_while() -> None:
    with controller_that_refuses_once("b") as (bootstrap, asked):
        created = CommandLine(bootstrap).ok("topics", "create", "a", "b", "c")
    assert asked == [["a", "b", "c"], ["b"]]
    assert created.decode() == "TOPIC\tSTATUS\na\tcreated\nb\tcreated\nc\tcreated\n"


class Controller(AdminClient):
    """Refuses one topic each time; with ``loses`` the answer to each request but the first is lost."""

    def __init__(self, refused: str, *, loses: bool) -> None:
        super().__init__([], Access(), 1)
        self._refused, self._loses, self._asked = refused, loses, 0

    def controller(self) -> int | None:
        return 1

    def ask(self, request: Request, *_: Any, **__: Any) -> Any:
        assert isinstance(request, CreateTopicsRequest)
        self._asked += 1
        if self._loses and self._asked > 1:
            self._in_doubt["CreateTopics"] = None
            raise Passing("the connection is closed")
        return answer_to(request, [self._refused])


@pytest.mark.parametrize(
    ("loses", "message"),
    [(False, None), (True, "the connection is closed; CreateTopics got no answer, and may be done even so")],
)
def test_what_was_created_is_told_beside_what_is_refused_to_the_end(
    monkeypatch: pytest.MonkeyPatch, loses: bool, message: str | None
) -> None:
    attempts = iter([True, False])
    monkeypatch.setattr(topic_requests, "retried", lambda call: retries.retried(call, 60, lambda error: next(attempts)))
    outcomes = topic_requests.create(Controller("b", loses=loses), ["a", "b"], 1, 1, {}, dry_run=False)
    assert [tuple(each.values()) for each in outcomes] == [("a", 0, None), ("b", NOT_CONTROLLER, message)]


def test_what_is_refused_as_a_whole_to_the_end_is_one_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_requests, "retried", lambda call: retries.retried(call, 0))
    with pytest.raises(CommandFailed, match="NOT_CONTROLLER"):
        topic_requests.create(Controller("b", loses=False), ["b"], 1, 1, {}, dry_run=False)


def printed(parts: Sequence[Part], *, as_json: bool = False) -> str:
    stream = BytesIO()
    output = Output(as_json=as_json, stream=stream)
    if any(failure for _, failure in parts):
        with pytest.raises(CommandFailed):
            report(output, ("NAME", "STATUS"), parts)
    else:
        report(output, ("NAME", "STATUS"), parts)
    return stream.getvalue().decode()


@pytest.mark.parametrize("told", [None, "This server does not host this topic-partition."])
def test_what_one_broker_says_of_itself_is_said_of_the_cluster(told: str | None) -> None:
    missing = "UNKNOWN_TOPIC_OR_PARTITION: The cluster has no such topic"
    assert str(refused("topic t", 3, told)) == f"topic t: {missing}."
    assert str(refused(Partition("t", 1), 3, told)) == f"t-1: {missing} or partition."
    assert str(refused("user ada", 91)) == "user ada: RESOURCE_NOT_FOUND: The user does not exist."
    assert str(refused("user ada", 91, "No credential.")) == "user ada: RESOURCE_NOT_FOUND: No credential."


def test_options_of_a_further_command_name_the_cluster_and_no_password() -> None:
    options = ClientOptions("a:1,b:2", ["sasl.username=ada", "sasl.password=hunter2"], "my file")
    words = Session(options, Output(stream=BytesIO())).same_cluster()
    assert words == [
        *("--bootstrap", "a:1,b:2", "--command-config", "my file"),
        *("-X", "sasl.username=...", "-X", "sasl.password=..."),
    ]
    assert Session(ClientOptions(DEFAULT_BOOTSTRAP), Output(stream=BytesIO())).same_cluster() == []


def test_a_failure_is_in_json_and_on_stderr_and_not_in_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    done, failed = (part_of({"name": name}, f"it {name}", code, "done") for name, code in (("a", 0), ("b", 3)))
    assert printed([done]) == "NAME\tSTATUS\na\tdone\n"
    assert printed([]) == "NAME\tSTATUS\n"
    assert printed([failed]) == ""
    assert capsys.readouterr().err == "", "the last is said where commands end"
    assert printed([failed, done, failed]) == "NAME\tSTATUS\na\tdone\n"
    assert capsys.readouterr().err.startswith("pybroker: it b: UNKNOWN_TOPIC_OR_PARTITION: ")
    whole = '[{"name": "a", "status": "done"}, {"name": "b", "status": "UNKNOWN_TOPIC_OR_PARTITION"}]\n'
    assert printed([done, failed], as_json=True) == whole
