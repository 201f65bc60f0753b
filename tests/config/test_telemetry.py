"""Client telemetry (KIP-714): who is asked for what, when pushes are accepted, and what is kept."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from harness.virtual_world import VirtualWorld

from pybroker import limits
from pybroker.cluster.image.cluster_image import ClusterImage, ImageBuilder
from pybroker.cluster.image.metadata_cache import MetadataCache
from pybroker.config.broker import BrokerConfig
from pybroker.config.resources import CLIENT_METRICS
from pybroker.handlers import get_telemetry_subscriptions, push_telemetry
from pybroker.handlers.context import RequestContext
from pybroker.telemetry import Client, ClientTelemetry, subscription_id
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from pybroker_protocol.messages.push_telemetry import PushTelemetryRequest

CLIENT = Client("app-1", "apache-kafka-java", "4.3.1", "127.0.0.1")
INSTANCE = bytes(range(16))
ZSTD = 4


class Telemetry:
    """A ``ClientTelemetry`` with a clock and an image that move by hand."""

    def __init__(self, **settings: str) -> None:
        world = VirtualWorld(has_threads=False)
        self.clock = world.clock
        self.metadata = MetadataCache(ClusterImage())
        config = BrokerConfig({name.replace("_", "."): value for name, value in settings.items()})
        self.service = ClientTelemetry(world.env, self.metadata, config)

    def subscribe(self, name: str, **overrides: str) -> None:
        builder = ImageBuilder(self.metadata.image)
        builder.put_overrides(
            (CLIENT_METRICS, name), {key.replace("_", "."): value for key, value in overrides.items()}
        )
        self.metadata.apply(*builder.build(self.metadata.image.epoch + 1))

    def push(
        self,
        subscription: int,
        metrics: bytes = b"otlp",
        instance: bytes = INSTANCE,
        terminating: bool = False,
        compression_type: int = ZSTD,
    ) -> int:
        return self.service.push(instance, CLIENT, subscription, terminating, compression_type, metrics)


@pytest.fixture
def telemetry() -> Telemetry:
    telemetry = Telemetry()
    telemetry.subscribe("all", metrics="org.apache.kafka", interval_ms="5000")
    return telemetry


def test_there_are_subscriptions_only_while_one_is_configured() -> None:
    telemetry = Telemetry()
    found = [telemetry.service.has_subscriptions]
    telemetry.subscribe("all", interval_ms="5000")
    found.append(telemetry.service.has_subscriptions)
    telemetry.subscribe("all")
    found.append(telemetry.service.has_subscriptions)
    assert found == [False, True, False]


def test_new_client_gets_an_instance_id(telemetry: Telemetry) -> None:
    first = telemetry.service.assign(bytes(16), CLIENT)
    second = telemetry.service.assign(bytes(16), CLIENT)
    assert first.instance_id != second.instance_id
    assert bytes(16) not in {first.instance_id, second.instance_id}
    assert (first.error_code, first.push_interval_ms, first.metrics) == (0, 5000, ("org.apache.kafka",))


@pytest.mark.parametrize(
    ("match", "matches"),
    [
        ("", True),
        ("client_id=app-.*", True),
        ("client_id=app", False),
        ("client_id=app-1,client_software_name=apache.*,client_software_version=4\\.3.*", True),
        ("client_id=app-1,client_source_address=10\\..*", False),
        ("client_source_port=.*", False),
        ("client_instance_id=AAECAwQFBgcICQoLDA0ODw", True),
    ],
)
def test_client_matches_by_all_patterns_wholly(match: str, matches: bool) -> None:
    telemetry = Telemetry()
    telemetry.subscribe("some", metrics="m", match=match)
    assert telemetry.service.assign(INSTANCE, CLIENT).metrics == (("m",) if matches else ())


def test_matching_subscriptions_are_united_at_the_shortest_interval(telemetry: Telemetry) -> None:
    telemetry.subscribe("more", metrics="a,org.apache.kafka", interval_ms="2000")
    telemetry.subscribe("other", metrics="b", interval_ms="100", match="client_id=none")
    assigned = telemetry.service.assign(INSTANCE, CLIENT)
    assert (assigned.metrics, assigned.push_interval_ms) == (("a", "org.apache.kafka"), 2000)
    telemetry.subscribe("everything", metrics="*")
    assert telemetry.service.assign(INSTANCE, CLIENT).metrics == ("*",)


def test_subscription_that_cannot_be_read_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    telemetry = Telemetry()
    telemetry.subscribe("bad", match="client_id=[")
    telemetry.subscribe("good", metrics="m")
    assert telemetry.service.assign(INSTANCE, CLIENT).metrics == ("m",)
    assert "bad" in caplog.text


def test_subscription_id_changes_with_what_is_asked_for() -> None:
    ids = {
        subscription_id(metrics, interval_ms, instance)
        for metrics in ((), ("a",), ("a", "b"))
        for interval_ms in (100, 5000)
        for instance in (INSTANCE, bytes(15) + b"x")
    }
    assert len(ids) == 12
    assert all(-(2**31) <= number < 2**31 for number in ids)


def test_asking_again_before_the_interval_is_throttled(telemetry: Telemetry) -> None:
    assert telemetry.service.assign(INSTANCE, CLIENT).error_code == ErrorCode.NONE
    assert telemetry.service.assign(INSTANCE, CLIENT).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    telemetry.clock.pass_ms(5000)
    assert telemetry.service.assign(INSTANCE, CLIENT).error_code == ErrorCode.NONE


def test_first_push_after_asking_comes_at_any_time_and_the_next_after_the_interval(telemetry: Telemetry) -> None:
    asked = telemetry.service.assign(INSTANCE, CLIENT)
    telemetry.clock.pass_ms(10)
    assert telemetry.push(asked.subscription_id) == ErrorCode.NONE
    telemetry.clock.pass_ms(10)
    assert telemetry.push(asked.subscription_id) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    telemetry.clock.pass_ms(5000)
    assert telemetry.push(asked.subscription_id) == ErrorCode.NONE


def test_changed_subscription_makes_the_old_id_unknown_and_the_new_one_can_be_asked_for(telemetry: Telemetry) -> None:
    asked = telemetry.service.assign(INSTANCE, CLIENT)
    telemetry.subscribe("more", metrics="a")
    assert telemetry.push(asked.subscription_id) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    again = telemetry.service.assign(INSTANCE, CLIENT)
    assert again.error_code == ErrorCode.NONE
    assert again.subscription_id != asked.subscription_id
    telemetry.clock.pass_ms(1)
    assert telemetry.push(again.subscription_id) == ErrorCode.NONE


def test_last_push_ends_the_instance(telemetry: Telemetry) -> None:
    asked = telemetry.service.assign(INSTANCE, CLIENT)
    assert telemetry.push(asked.subscription_id) == ErrorCode.NONE
    assert telemetry.push(asked.subscription_id, terminating=True) == ErrorCode.NONE
    telemetry.clock.pass_ms(5000)
    assert telemetry.push(asked.subscription_id) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("instance", [bytes(16), bytes(15) + b"\x01", bytes(15) + b"\x63"])
def test_reserved_instance_ids_cannot_push(telemetry: Telemetry, instance: bytes) -> None:
    assert telemetry.push(0, instance=instance) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("compression_type", [-1, 5, 99])
def test_unknown_codec_is_refused(telemetry: Telemetry, compression_type: int) -> None:
    asked = telemetry.service.assign(INSTANCE, CLIENT)
    error = telemetry.push(asked.subscription_id, compression_type=compression_type)
    assert error == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_push_over_the_limit_is_refused() -> None:
    telemetry = Telemetry(telemetry_max_bytes="10")
    telemetry.subscribe("all")
    asked = telemetry.service.assign(INSTANCE, CLIENT)
    assert telemetry.push(asked.subscription_id, metrics=bytes(11)) == ErrorCode.TELEMETRY_TOO_LARGE
    assert telemetry.service.payloads == {}


def test_latest_payload_of_each_instance_is_kept(telemetry: Telemetry) -> None:
    asked = telemetry.service.assign(INSTANCE, CLIENT)
    telemetry.push(asked.subscription_id, metrics=b"one")
    telemetry.clock.pass_ms(5000)
    telemetry.push(asked.subscription_id, metrics=b"two")
    (payload,) = telemetry.service.payloads.values()
    assert (payload.metrics, payload.client, payload.compression_type) == (b"two", CLIENT, ZSTD)


def test_memory_is_bounded_whatever_clients_send(monkeypatch: pytest.MonkeyPatch, telemetry: Telemetry) -> None:
    monkeypatch.setattr(limits, "TELEMETRY_INSTANCES", 8)
    monkeypatch.setattr(limits, "TELEMETRY_PAYLOAD_BYTES", 25)
    for number in range(50):
        instance = (1000 + number).to_bytes(16, "big")
        asked = telemetry.service.assign(instance, CLIENT)
        assert telemetry.push(asked.subscription_id, metrics=bytes(10), instance=instance) == ErrorCode.NONE
    assert len(telemetry.service.payloads) == 2
    assert len(telemetry.service._instances) == 8


def test_silent_instances_are_forgotten(telemetry: Telemetry) -> None:
    telemetry.service.assign(INSTANCE, CLIENT)
    telemetry.clock.pass_ms(60_000)
    telemetry.service.assign(bytes(16), CLIENT)
    assert INSTANCE not in telemetry.service._instances


def test_handlers_serve_both_requests(telemetry: Telemetry) -> None:
    ctx = RequestContext()
    ctx.client_id, ctx.client_host = "app-1", "/127.0.0.1"
    ctx.connection = SimpleNamespace(client_software=("apache-kafka-java", "4.3.1"))
    ctx.services = SimpleNamespace(authorizer=None, telemetry=telemetry.service)  # type: ignore[assignment]
    asked = get_telemetry_subscriptions.handle(ctx, GetTelemetrySubscriptionsRequest(client_instance_id=INSTANCE))
    assert (asked.client_instance_id, asked.telemetry_max_bytes) == (INSTANCE, 1 << 20)
    assert (asked.accepted_compression_types, asked.delta_temporality) == ([4, 3, 1, 2], True)
    push = PushTelemetryRequest(
        client_instance_id=INSTANCE,
        subscription_id=asked.subscription_id,
        terminating=False,
        compression_type=ZSTD,
        metrics=b"otlp",
    )
    assert push_telemetry.handle(ctx, push).error_code == ErrorCode.NONE
    assert telemetry.service.payloads[INSTANCE].client == CLIENT
    assert push_telemetry.handle(ctx, push).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
