"""When a request is forwarded, again or not at all, and what a client is told of which nothing came.

The handler is real; the other brokers, the controller and the clock are the test's.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from importlib import import_module
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from harness.virtual_world import VirtualWorld

from pybroker.apis import APIS, Api, Route
from pybroker.cluster.decisions.operations import TopicCreation
from pybroker.cluster.image.cluster_image import BrokerRegistration, ClusterImage
from pybroker.cluster.membership.controller_channel import ControllerChannel
from pybroker.cluster.membership.peers import PeerError, PeerFailure
from pybroker.config.broker import BrokerConfig
from pybroker.handlers import create_topics, delete_topics, envelope, forwarding
from pybroker.handlers.context import CloseConnection, Parked, RequestContext
from pybroker.handlers.forwarding import Forwarder
from pybroker_protocol import codec
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages import request_class, request_header_version, response_class, response_header_version
from pybroker_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from pybroker_protocol.messages.delete_topics import DeleteTopicsRequest
from pybroker_protocol.messages.elect_leaders import ElectLeadersRequest
from pybroker_protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from pybroker_protocol.messages.headers import RequestHeader, ResponseHeader
from pybroker_protocol.schema import Request, Struct
from tests.handled import answer_of
from tests.protocol.random_messages import random_message

THIS, HOLDER, NEXT = 1, 2, 3
KEY, VERSION, CORRELATION_ID = 19, 7, 4711
TIMEOUT_MS = 5_000
ROUTED = [api for api in APIS if api.routed_to is Route.CONTROLLER]
NOT_SENT = PeerError(PeerFailure.UNREACHABLE, may_be_done=False)
Done = Callable[[Any, PeerError | None], None]


class Elsewhere:
    """The other brokers, as the test answers for them: ``asked`` has (broker, frame, principal, host)."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, bytes, str, str]] = []
        self.waiting: list[Done] = []
        self.frame_bytes_max = 1 << 20

    def forward(
        self,
        broker_id: int,
        frame: bytes,
        principal: str,
        client_host: str,
        done: Done,
        *,
        timeout_ms: int,
        by_token: bool = False,
    ) -> None:
        assert 0 < timeout_ms <= forwarding.FORWARD_TIMEOUT_MAX_MS + forwarding.FORWARD_GRACE_MS
        if len(frame) > self.frame_bytes_max:
            raise ValueError("it is too long")
        self.asked.append((broker_id, frame, principal, client_host))
        self.waiting.append(done)

    def answer(self, error_code: int = 0, data: bytes | None = None) -> None:
        self.waiting.pop()(EnvelopeResponse(response_data=data, error_code=error_code), None)

    def fail(self, error: PeerError) -> None:
        self.waiting.pop()(None, error)


class Deciding:
    """This broker's controller, which creates nothing and says ``codes``, one after another."""

    def __init__(self) -> None:
        self.is_active = False
        self.codes = [0]

    def create_topics(self, topics: Any, done: Callable[[Any], None], **_: Any) -> None:
        done([TopicCreation(topic.name, self.codes.pop(0)) for topic in topics])


class Broker:
    """What a forwarder needs of its own."""

    def __init__(self) -> None:
        self.world = VirtualWorld(1, has_threads=False)
        self.elsewhere = Elsewhere()
        self.held_bytes = 0
        self.controller = Deciding()
        self.services: Any = SimpleNamespace(
            env=self.world.env,
            broker_id=THIS,
            authorizer=None,
            config=BrokerConfig({}),
            configs=SimpleNamespace(settle_here=lambda alterations, _, done: done([None] * len(alterations))),
            controller=self.controller,
            peers=self.elsewhere,
            metadata=SimpleNamespace(image=None),
            quotas=None,
        )
        self.elect(HOLDER)

    def elect(self, controller_id: int) -> None:
        brokers = {broker: BrokerRegistration(broker, 1, bytes(16), {}) for broker in (THIS, HOLDER, NEXT)}
        self.services.metadata.image = ClusterImage(brokers=brokers, controller_id=controller_id)

    def context(self, key: int = KEY, version: int = VERSION) -> RequestContext:
        ctx = RequestContext()
        ctx.services = self.services
        ctx.api_key, ctx.api_version, ctx.correlation_id = key, version, CORRELATION_ID
        ctx.connection = SimpleNamespace(by_token=False, hold_copy=self.hold)
        ctx.client_id, ctx.client_host, ctx.principal, ctx.listener = "c", "/10.0.0.9", "User:alice", "PLAINTEXT"
        return ctx

    def hold(self, size: int) -> Any:
        """Bytes that count until they are released."""
        self.held_bytes += size

        def release() -> None:
            self.held_bytes -= size

        return SimpleNamespace(release=release)

    def forwarder(self) -> Forwarder:
        services = self.services
        channel = ControllerChannel(
            self.world.env, THIS, lambda: 1, services.controller, services.metadata, services.peers
        )
        return Forwarder(services, channel)

    def serve(self, request: Request, handler: Any = create_topics, ctx: RequestContext | None = None) -> Any:
        return answer_of(self.forwarder().handle(handler, ctx or self.context(), request))

    def pass_ms(self, ms: int) -> None:
        for _ in range(ms):
            self.world.clock.pass_ms(1)
            self.world.turn()


def wanted(*names: str) -> CreateTopicsRequest:
    topics = [
        CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
        for name in names or ("t",)
    ]
    return CreateTopicsRequest(topics=topics, timeout_ms=TIMEOUT_MS, validate_only=False)


def reply(*codes: int) -> bytes:
    response = create_topics.refuse(Broker().context(), wanted(*(f"t{at}" for at in range(len(codes)))), ErrorCode.NONE)
    for topic, code in zip(response.topics, codes, strict=True):
        topic.error_code = code
    header = ResponseHeader(correlation_id=CORRELATION_ID)
    return codec.encode(header, response_header_version(KEY, VERSION)) + codec.encode(response, VERSION)


def codes_of(answer: Any) -> list[int]:
    assert not isinstance(answer, Parked), "it still waits"
    assert isinstance(answer, CreateTopicsResponse)
    return [topic.error_code for topic in answer.topics]


def answered(parked: Any) -> Any:
    assert isinstance(parked, Parked)
    assert parked.completed, "it still waits"
    return parked.response


@pytest.fixture
def broker() -> Broker:
    return Broker()


# --- forwarding ------------------------------------------------------------------------------------------------------


def test_request_goes_to_the_holder_as_its_client_wrote_it_and_its_response_comes_back(broker: Broker) -> None:
    waiting = broker.serve(wanted())
    ((asked, frame, principal, host),) = broker.elsewhere.asked
    assert (asked, principal, host) == (HOLDER, "User:alice", "/10.0.0.9")
    header = RequestHeader(
        request_api_key=KEY, request_api_version=VERSION, correlation_id=CORRELATION_ID, client_id="c"
    )
    assert frame == codec.encode(header, request_header_version(KEY, VERSION)) + codec.encode(wanted(), VERSION)
    broker.elsewhere.answer(data=reply(0, 36))
    assert codes_of(answered(waiting)) == [0, 36]


def test_active_controller_here_is_asked_itself(broker: Broker) -> None:
    broker.controller.is_active = True
    assert codes_of(broker.serve(wanted())) == [0]
    assert not broker.elsewhere.asked


@pytest.mark.parametrize("answer", ["not the controller", "surely not sent"])
def test_request_that_was_not_done_is_forwarded_again_to_whoever_holds_then(broker: Broker, answer: str) -> None:
    waiting = broker.serve(wanted())
    if answer == "surely not sent":
        broker.elsewhere.fail(NOT_SENT)
    else:
        broker.elsewhere.answer(ErrorCode.NOT_CONTROLLER)
    broker.elect(NEXT)
    assert len(broker.elsewhere.asked) == 1, "not at once"
    broker.pass_ms(forwarding.FORWARD_RETRY_MS)
    assert [asked[0] for asked in broker.elsewhere.asked] == [HOLDER, NEXT]
    broker.elsewhere.answer(data=reply(0))
    assert codes_of(answered(waiting)) == [0]


def test_request_whose_connection_broke_is_forwarded_again_though_it_may_have_been_done(broker: Broker) -> None:
    waiting = broker.serve(wanted())
    broker.elsewhere.fail(PeerError(PeerFailure.DISCONNECTED, may_be_done=True))
    broker.elect(NEXT)
    broker.pass_ms(forwarding.FORWARD_RETRY_MS)
    broker.elsewhere.answer(data=reply(ErrorCode.TOPIC_ALREADY_EXISTS))
    assert codes_of(answered(waiting)) == [ErrorCode.TOPIC_ALREADY_EXISTS]


def test_deletion_that_may_have_been_done_is_not_forwarded_again(broker: Broker) -> None:
    request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=TIMEOUT_MS)
    waiting = broker.serve(request, delete_topics, broker.context(20, 5))
    broker.elsewhere.fail(PeerError(PeerFailure.DISCONNECTED, may_be_done=True))
    assert [result.error_code for result in answered(waiting).responses] == [ErrorCode.REQUEST_TIMED_OUT]
    broker.pass_ms(TIMEOUT_MS)
    assert len(broker.elsewhere.asked) == 1


@pytest.mark.parametrize("reason", [PeerFailure.TIMED_OUT, PeerFailure.CLOSED, PeerFailure.BAD_REPLY])
def test_request_of_unknown_fate_is_not_forwarded_again_where_no_connection_broke(
    broker: Broker, reason: PeerFailure
) -> None:
    waiting = broker.serve(wanted())
    broker.elsewhere.fail(PeerError(reason, may_be_done=True))
    assert codes_of(answered(waiting)) == [ErrorCode.REQUEST_TIMED_OUT]
    broker.pass_ms(TIMEOUT_MS)
    assert len(broker.elsewhere.asked) == 1


def test_request_that_is_too_long_to_be_forwarded_is_refused_at_once(broker: Broker) -> None:
    broker.elsewhere.frame_bytes_max = 10
    assert codes_of(broker.serve(wanted())) == [ErrorCode.MESSAGE_TOO_LARGE]
    assert not broker.held_bytes
    assert not broker.elsewhere.asked


@pytest.mark.parametrize("holder", [-1, THIS, 99], ids=["nobody", "this broker, not active", "one that is unknown"])
def test_request_waits_for_a_controller_as_long_as_its_client_does(broker: Broker, holder: int) -> None:
    broker.elect(holder)
    waiting = broker.serve(wanted())
    broker.pass_ms(TIMEOUT_MS - 1)
    assert not waiting.completed
    broker.pass_ms(1)
    assert codes_of(answered(waiting)) == [ErrorCode.REQUEST_TIMED_OUT]
    assert not broker.elsewhere.asked


def test_waiting_ends_when_this_broker_becomes_the_controller(broker: Broker) -> None:
    broker.elect(-1)
    waiting = broker.serve(wanted())
    broker.controller.is_active = True
    broker.pass_ms(forwarding.FORWARD_RETRY_MS)
    assert codes_of(answered(waiting)) == [0]


def test_controller_that_is_deposed_under_a_request_is_asked_elsewhere(broker: Broker) -> None:
    broker.controller.is_active = True
    broker.controller.codes = [ErrorCode.NOT_CONTROLLER, ErrorCode.TOPIC_ALREADY_EXISTS]
    waiting = broker.serve(wanted("t", "u"))
    broker.controller.is_active = False
    broker.pass_ms(forwarding.FORWARD_RETRY_MS)
    broker.elsewhere.answer(data=reply(0, 0))
    assert codes_of(answered(waiting)) == [0, 0]


def test_request_that_was_done_in_part_is_answered_as_it_is(broker: Broker) -> None:
    broker.controller.is_active = True
    broker.controller.codes = [0, ErrorCode.NOT_CONTROLLER]
    assert codes_of(broker.serve(wanted("t", "u"))) == [0, ErrorCode.NOT_CONTROLLER]


def test_controller_that_knows_no_such_version_closes_the_client_connection(broker: Broker) -> None:
    steps: Generator[Any, Any, Any] = broker.forwarder().handle(create_topics, broker.context(), wanted())
    while (parked := next(steps)) is None:
        pass
    with pytest.raises(CloseConnection):
        steps.send((EnvelopeResponse(response_data=None, error_code=ErrorCode.UNSUPPORTED_VERSION), None))
    assert isinstance(parked, Parked)


def test_request_that_an_older_controller_does_not_serve_is_answered_so(broker: Broker) -> None:
    waiting = broker.serve(wanted())
    broker.elsewhere.answer(ErrorCode.INVALID_REQUEST)
    assert codes_of(answered(waiting)) == [ErrorCode.UNSUPPORTED_VERSION]


@pytest.mark.parametrize(
    ("error_code", "data"),
    [(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None), (0, None), (0, b""), (0, b"\xff" * 30)],
    ids=["an error of the brokers", "nothing", "no header", "garbage"],
)
def test_what_brokers_have_among_themselves_is_an_unknown_error_to_clients(
    broker: Broker, error_code: int, data: bytes | None
) -> None:
    waiting = broker.serve(wanted())
    broker.elsewhere.answer(error_code, data)
    assert codes_of(answered(waiting)) == [ErrorCode.UNKNOWN_SERVER_ERROR]


def test_nothing_goes_on_for_a_client_that_is_gone(broker: Broker) -> None:
    waiting = broker.serve(wanted())
    broker.elsewhere.answer(ErrorCode.NOT_CONTROLLER)
    waiting.abandon()
    broker.pass_ms(TIMEOUT_MS)
    assert len(broker.elsewhere.asked) == 1


@pytest.mark.parametrize("end", ["answered", "gone"])
def test_bytes_of_a_request_count_while_it_is_away(broker: Broker, end: str) -> None:
    steps: Generator[Any, Any, Any] = broker.forwarder().handle(create_topics, broker.context(), wanted())
    while next(steps) is None:
        pass
    assert broker.held_bytes == len(broker.elsewhere.asked[0][1])
    if end == "gone":
        steps.close()
    else:
        response = EnvelopeResponse(response_data=reply(0), error_code=0)
        with pytest.raises(StopIteration):
            steps.send((response, None))
    assert not broker.held_bytes


@pytest.mark.parametrize("api", ROUTED, ids=lambda api: api.name)
def test_every_request_for_the_controller_has_a_refusal_in_each_version(
    monkeypatch: pytest.MonkeyPatch, broker: Broker, api: Api
) -> None:
    monkeypatch.setattr(forwarding, "FORWARD_TIMEOUT_MS", 50)
    handler = import_module(f"pybroker.handlers.{api.handler}")
    broker.elect(-1)
    random = Random(api.key)
    for version in range(api.versions[0], api.versions[1] + 1):
        for _ in range(20):
            request = random_message(random, request_class(api.key), version)
            if hasattr(request, "timeout_ms"):
                request.timeout_ms = 0
            waiting = broker.serve(request, handler, broker.context(api.key, version))
            if isinstance(waiting, Parked):
                broker.pass_ms(forwarding.FORWARD_TIMEOUT_MS)
                waiting = answered(waiting)
            told = codec.decode(response_class(api.key), version, codec.encode(waiting, version))
            assert isinstance(told, response_class(api.key))
            # Of what names nothing, nothing is said.
            assert all_codes(told) <= {ErrorCode.REQUEST_TIMED_OUT, 0}
            assert ErrorCode.REQUEST_TIMED_OUT in all_codes(told) or not names_something(request)


def all_codes(struct: Struct) -> set[int]:
    values = [getattr(struct, name) for name in type(struct).__declaration__.fields]
    parts = [part for value in values if isinstance(value, list) for part in value if isinstance(part, Struct)]
    own = {struct.error_code} if hasattr(struct, "error_code") else set()
    return own.union(*map(all_codes, parts))


def names_something(request: Request) -> bool:
    if isinstance(request, ElectLeadersRequest):
        return any(topic.partitions for topic in request.topic_partitions or ())
    return any(getattr(request, name, None) for name in ("topics", "topic_names", "resources", "feature_updates"))


# --- the envelope ----------------------------------------------------------------------------------------------------


def enveloped(
    request: Request | None = None, *, key: int = KEY, version: int = VERSION, **fields: Any
) -> EnvelopeRequest:
    header = RequestHeader(request_api_key=key, request_api_version=version, correlation_id=1, client_id="c")
    body = b"" if request is None else codec.encode(request, version)
    values: dict[str, Any] = {
        "request_data": codec.encode(header, request_header_version(KEY, VERSION)) + body,
        "request_principal": b"\x00\x00" + b"\x05User\x06alice\x00\x00",
        "client_host_address": bytes((10, 0, 0, 9)),
    }
    return EnvelopeRequest(**{**values, **fields})


def opened(broker: Broker, request: EnvelopeRequest) -> EnvelopeResponse:
    answer = answer_of(envelope.handle(broker.context(58, 0), request))
    assert isinstance(answer, EnvelopeResponse)
    return answer


def test_request_inside_of_an_envelope_is_its_clients(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.controller.is_active = True
    seen: list[RequestContext] = []

    def handle(ctx: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
        assert request == wanted()
        seen.append(ctx)
        return CreateTopicsResponse(throttle_time_ms=0, topics=[])

    monkeypatch.setattr(create_topics, "handle", handle)
    for address, host in ((bytes((10, 0, 0, 9)), "/10.0.0.9"), (bytes(15) + b"\x01", "/::1")):
        answer = opened(broker, enveloped(wanted(), client_host_address=address))
        assert answer.error_code == 0
        ctx = seen.pop()
        assert (ctx.principal, ctx.client_id, ctx.client_host) == ("User:alice", "c", host)
        assert (ctx.api_key, ctx.api_version, ctx.correlation_id, ctx.is_forwarded) == (KEY, VERSION, 1, True)


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (enveloped(wanted(), request_principal=b""), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (enveloped(wanted(), request_principal=None), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (enveloped(wanted(), request_principal=b"\x00\x01\x00"), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (enveloped(wanted(), client_host_address=b"abc"), ErrorCode.INVALID_REQUEST),
        (enveloped(wanted(), request_data=b"\x00"), ErrorCode.UNSUPPORTED_VERSION),
        (enveloped(wanted(), request_data=bytes((0, KEY, 0, VERSION))), ErrorCode.UNSUPPORTED_VERSION),
        (enveloped(wanted(), version=VERSION, key=3), ErrorCode.INVALID_REQUEST),
        (enveloped(None, key=58, version=0), ErrorCode.INVALID_REQUEST),
        (enveloped(None, key=999), ErrorCode.INVALID_REQUEST),
        (enveloped(None, version=8), ErrorCode.UNSUPPORTED_VERSION),
        (enveloped(None), ErrorCode.UNSUPPORTED_VERSION),
    ],
    ids=[
        "no principal",
        "a null principal",
        "a principal of the future",
        "an address of three bytes",
        "no key",
        "no header",
        "a request for any broker",
        "an envelope in an envelope",
        "an unknown key",
        "a version of the future",
        "no body",
    ],
)
def test_bad_envelope_is_refused_and_nothing_done(broker: Broker, request_: EnvelopeRequest, error: ErrorCode) -> None:
    broker.controller.is_active = True
    answer = opened(broker, request_)
    assert (answer.error_code, answer.response_data) == (error, None)
    assert broker.controller.codes == [0]


def test_envelope_wants_cluster_action_of_its_broker(broker: Broker) -> None:
    asked: list[tuple[str, int, str]] = []

    def allows(ctx: RequestContext, operation: int, _: int, name: str, *, log_if_denied: bool = True) -> bool:
        asked.append((ctx.principal, operation, name))
        return False

    broker.services.authorizer = SimpleNamespace(allows=allows)
    broker.controller.is_active = True
    assert opened(broker, enveloped(wanted())).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert asked == [("User:alice", 9, "kafka-cluster")]


@pytest.mark.parametrize("is_active", [False, True], ids=["before", "under the request"])
def test_envelope_tells_that_the_controller_is_another(broker: Broker, is_active: bool) -> None:
    broker.controller.is_active = is_active
    broker.controller.codes = [ErrorCode.NOT_CONTROLLER]
    answer = opened(broker, enveloped(wanted()))
    assert (answer.error_code, answer.response_data) == (ErrorCode.NOT_CONTROLLER, None)
