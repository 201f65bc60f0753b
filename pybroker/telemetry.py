"""Client telemetry: which metrics each client is asked to push, and the last push of each (KIP-714).

Owns: subscriptions (from the client-metrics resources of the cluster image), and client instances with their pace and
last error. It keeps the latest payload of each instance, where an exporter would begin. Payloads are kept as they came:
OTLP, compressed by the client.

Invariants:
- Memory is bounded, by instances and by bytes of payloads, whatever clients invent as their instance ids.
- A client matches all subscriptions whose every pattern matches it, and pushes at the shortest of their intervals.

Counterpart in Kafka: ``org.apache.kafka.server.ClientMetricsManager``.
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from pybroker import limits
from pybroker.cluster.image.cluster_image import ClusterImage, ImageDelta
from pybroker.config.alter import compile_match
from pybroker.config.broker import BrokerConfig
from pybroker.config.group_settings import CLIENT_METRICS_SETTINGS
from pybroker.config.resources import CLIENT_METRICS
from pybroker.config.schema import ConfigError
from pybroker.env import Env
from pybroker_protocol.checksum import crc32c
from pybroker_protocol.compression import Compression
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.uuids import ZERO_UUID, is_reserved, uuid_text

if TYPE_CHECKING:
    from pybroker.cluster.image.metadata_cache import MetadataCache

log = logging.getLogger("pybroker.telemetry")

# An instance is forgotten after three missed pushes, but not before a minute.
_EXPIRY_MS_MIN: Final = 60_000
_EXPIRY_PUSHES: Final = 3

ALL_METRICS: Final = "*"
# In the order in which clients shall prefer them.
ACCEPTED_COMPRESSION_TYPES: Final = (Compression.ZSTD, Compression.LZ4, Compression.GZIP, Compression.SNAPPY)
_KNOWN_COMPRESSION_TYPES: Final = frozenset(Compression)
_DEFAULT_INTERVAL_MS: Final[int] = CLIENT_METRICS_SETTINGS["interval.ms"].default


class Client(NamedTuple):
    """What a subscription may match a client by; ``address`` without Kafka's leading slash."""

    client_id: str | None
    software_name: str
    software_version: str
    address: str

    def attributes(self, instance_id: bytes) -> dict[str, str | None]:
        """By the names that a ``match`` uses; a missing one matches nothing."""
        return {
            "client_instance_id": uuid_text(instance_id),
            "client_id": self.client_id,
            "client_software_name": self.software_name or None,
            "client_software_version": self.software_version or None,
            "client_source_address": self.address,
        }


class Subscription(NamedTuple):
    """One client-metrics resource."""

    metrics: tuple[str, ...]
    interval_ms: int
    match: Mapping[str, re.Pattern[str]]

    def matches(self, attributes: Mapping[str, str | None]) -> bool:
        """Whether every pattern matches its attribute wholly; no pattern matches every client."""
        for name, pattern in self.match.items():
            value = attributes.get(name)
            if value is None or pattern.fullmatch(value) is None:
                return False
        return True


class Payload(NamedTuple):
    """The latest push of one client instance; ``received_ms`` is wall-clock time."""

    client: Client
    received_ms: int
    compression_type: int
    terminating: bool
    metrics: bytes


class Assigned(NamedTuple):
    """What one client is asked to push."""

    error_code: int
    instance_id: bytes
    subscription_id: int = 0
    push_interval_ms: int = 0
    metrics: tuple[str, ...] = ()


class Instance:
    """One client instance: what it is asked for, when it asked and pushed last."""

    __slots__ = (
        "asked",
        "client",
        "last_error",
        "last_get_ms",
        "last_push_ms",
        "metrics",
        "push_interval_ms",
        "subscription_id",
        "terminating",
        "used_ms",
        "version",
    )

    def __init__(self, instance_id: bytes, client: Client, subscriptions: Iterable[Subscription], version: int) -> None:
        attributes = client.attributes(instance_id)
        matching = [subscription for subscription in subscriptions if subscription.matches(attributes)]
        metrics = sorted({metric for subscription in matching for metric in subscription.metrics})
        self.client = client
        self.metrics = (ALL_METRICS,) if ALL_METRICS in metrics else tuple(metrics)
        self.push_interval_ms = min((s.interval_ms for s in matching), default=_DEFAULT_INTERVAL_MS)
        self.push_interval_ms = min(self.push_interval_ms, _DEFAULT_INTERVAL_MS)
        self.subscription_id = subscription_id(self.metrics, self.push_interval_ms, instance_id)
        self.version = version
        self.terminating = False
        self.last_error = ErrorCode.NONE
        self.asked = False
        self.last_get_ms: int | None = None
        self.last_push_ms: int | None = None
        self.used_ms = 0

    @property
    def expiry_ms(self) -> int:
        """How long the instance is remembered after its last request."""
        return max(_EXPIRY_MS_MIN, _EXPIRY_PUSHES * self.push_interval_ms)

    def may_get(self, now_ms: int) -> bool:
        """Whether it may ask again: after the push interval, or at once when it heard that it is out of date."""
        if self.last_error in (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE):
            return True
        last_ms = max((at for at in (self.last_get_ms, self.last_push_ms) if at is not None), default=None)
        return last_ms is None or now_ms - last_ms >= self.push_interval_ms

    def may_push(self, now_ms: int) -> bool:
        """Whether it may push: after the interval, or at any time for the first push after asking (it jitters that)."""
        return self.asked or self.last_push_ms is None or now_ms - self.last_push_ms >= self.push_interval_ms

    def on_get(self, now_ms: int) -> None:
        """It got what to push; the next push may come at any time."""
        self.last_get_ms = now_ms
        self.asked = True
        self.last_error = ErrorCode.NONE

    def on_push(self, now_ms: int) -> None:
        """A push came in time, acceptable or not."""
        self.last_push_ms = now_ms
        self.asked = False


class ClientTelemetry:
    """Serves GetTelemetrySubscriptions and PushTelemetry; ``payloads`` has the latest push by client instance id."""

    def __init__(self, env: Env, metadata: MetadataCache, config: BrokerConfig) -> None:
        self._env = env
        self._subscriptions: tuple[Subscription, ...] = ()
        self._version = 0
        self._instances: OrderedDict[bytes, Instance] = OrderedDict()
        self._payload_bytes = 0
        self.max_bytes = config.get_int("telemetry.max.bytes")
        self.payloads: OrderedDict[bytes, Payload] = OrderedDict()
        metadata.subscribe(self.on_image)

    @property
    def has_subscriptions(self) -> bool:
        """Whether telemetry is announced to clients at all."""
        return bool(self._subscriptions)

    def on_image(self, image: ClusterImage, delta: ImageDelta) -> None:
        """Take over changed subscriptions; instances are matched anew at their next request."""
        if any(resource_type == CLIENT_METRICS for resource_type, _ in delta.configs_changed):
            self._subscriptions = tuple(_subscriptions(image))
            self._version += 1

    def assign(self, instance_id: bytes, client: Client) -> Assigned:
        """What the client shall push; a zero ``instance_id`` gets a new one."""
        if instance_id == ZERO_UUID:
            instance_id = self._env.new_uuid()
        now_ms = self._env.clock.monotonic_ms()
        instance = self._instance(instance_id, client, now_ms)
        if not instance.may_get(now_ms):
            return Assigned(ErrorCode.THROTTLING_QUOTA_EXCEEDED, instance_id)
        instance.on_get(now_ms)
        return Assigned(
            ErrorCode.NONE, instance_id, instance.subscription_id, instance.push_interval_ms, instance.metrics
        )

    def push(
        self,
        instance_id: bytes,
        client: Client,
        subscription_id: int,
        terminating: bool,
        compression_type: int,
        metrics: bytes,
    ) -> int:
        """Accept a push; returns the error code."""
        if is_reserved(instance_id):
            return ErrorCode.INVALID_REQUEST
        now_ms = self._env.clock.monotonic_ms()
        instance = self._instance(instance_id, client, now_ms)
        in_time = instance.may_push(now_ms)
        if in_time and not instance.terminating:
            instance.on_push(now_ms)
        error = self._push_error(instance, in_time or terminating, subscription_id, compression_type, metrics)
        instance.terminating = terminating
        instance.last_error = error
        if error == ErrorCode.NONE and metrics:
            received_ms = self._env.clock.now_ms()
            self._keep(instance_id, Payload(client, received_ms, compression_type, terminating, metrics))
        return error

    def _push_error(
        self, instance: Instance, in_time: bool, subscription_id: int, compression_type: int, metrics: bytes
    ) -> ErrorCode:
        if instance.terminating:
            return ErrorCode.INVALID_REQUEST
        if not in_time:
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        if subscription_id != instance.subscription_id:
            return ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        if compression_type not in _KNOWN_COMPRESSION_TYPES:
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        if len(metrics) > self.max_bytes:
            return ErrorCode.TELEMETRY_TOO_LARGE
        return ErrorCode.NONE

    def _instance(self, instance_id: bytes, client: Client, now_ms: int) -> Instance:
        """The instance, matched against the current subscriptions, and made the most recently used."""
        self._expire(now_ms)
        instance = self._instances.get(instance_id)
        if instance is None or instance.version != self._version:
            instance = Instance(instance_id, client, self._subscriptions, self._version)
            self._instances[instance_id] = instance
        instance.used_ms = now_ms
        self._instances.move_to_end(instance_id)
        if len(self._instances) > limits.TELEMETRY_INSTANCES:
            self._instances.popitem(last=False)
        return instance

    def _expire(self, now_ms: int) -> None:
        """Forget the least recently used instances that are overdue; others wait until they are at the front."""
        while self._instances:
            instance_id, instance = next(iter(self._instances.items()))
            if now_ms - instance.used_ms < instance.expiry_ms:
                return
            del self._instances[instance_id]

    def _keep(self, instance_id: bytes, payload: Payload) -> None:
        before = self.payloads.pop(instance_id, None)
        self.payloads[instance_id] = payload
        self._payload_bytes += len(payload.metrics) - (len(before.metrics) if before is not None else 0)
        while self._payload_bytes > limits.TELEMETRY_PAYLOAD_BYTES or len(self.payloads) > limits.TELEMETRY_INSTANCES:
            _, dropped = self.payloads.popitem(last=False)
            self._payload_bytes -= len(dropped.metrics)


def subscription_id(metrics: Sequence[str], push_interval_ms: int, instance_id: bytes) -> int:
    """A signed 32-bit number that changes with what the client is asked for: CRC-32C, mixed with the id's Java hash."""
    checksum = crc32c(f"[{', '.join(metrics)}]{push_interval_ms}".encode())
    words = (int.from_bytes(instance_id[at : at + 4], "big") for at in range(0, 16, 4))
    for word in words:
        checksum ^= word
    return checksum - (1 << 32) if checksum >> 31 else checksum


def _subscriptions(image: ClusterImage) -> Iterable[Subscription]:
    for (resource_type, name), overrides in image.configs.items():
        if resource_type != CLIENT_METRICS:
            continue
        values = {key: setting.default for key, setting in CLIENT_METRICS_SETTINGS.items()}
        try:
            for key, text in overrides.items():
                if key in CLIENT_METRICS_SETTINGS:
                    values[key] = CLIENT_METRICS_SETTINGS[key].parse(text)
            match = compile_match(values["match"])
        except ConfigError as error:
            log.warning("client-metrics subscription %s ignored: %s", name, error)
            continue
        yield Subscription(values["metrics"], values["interval.ms"], match)
