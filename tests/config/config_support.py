"""A config service over an image in memory, and handlers called with encoded requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from pybroker.cluster.decisions.config_changes import alter_configs
from pybroker.cluster.image.cluster_image import BrokerRegistration, ClusterImage, ImageBuilder, TopicImage
from pybroker.cluster.image.metadata_cache import MetadataCache
from pybroker.config.broker import BrokerConfig
from pybroker.config.config_service import ConfigService
from pybroker.config.resources import Alteration, AlterConfigOp, ConfigEntry, Outcome
from pybroker.handlers.context import Parked, RequestContext
from pybroker_protocol import codec
from pybroker_protocol.messages import response_class
from tests.handled import answer_of

BROKER_ID = 1
TOPIC_NAME = "flights"


class MemoryStore:
    """Commits at once, or, after ``hold()``, when ``release()`` is called."""

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata
        self._held: list[Callable[[], None]] | None = None
        self.writes = 0

    def alter_configs(
        self, changes: Sequence[Any], done: Callable[[Any], None], *, validate_only: bool = False
    ) -> None:
        def commit() -> None:
            builder = ImageBuilder(self._metadata.image)
            results = alter_configs(builder, changes)
            if validate_only:
                done(results)
                return
            self.writes += 1
            self._metadata.apply(*builder.build(self._metadata.image.epoch + 1))
            done(results)

        if self._held is None:
            commit()
        else:
            self._held.append(commit)

    def hold(self) -> None:
        self._held = []

    def release(self) -> int:
        """Commit the writes that wait, in order; returns how many these were."""
        held, self._held = self._held or [], None
        for commit in held:
            commit()
        return len(held)


class Configs:
    """One broker's config service with a topic, and short ways to use it."""

    def __init__(self, static: Mapping[str, str] | None = None) -> None:
        self.metadata = MetadataCache(ClusterImage())
        self.store = MemoryStore(self.metadata)
        self.config = BrokerConfig(static or {})
        self.service = ConfigService(self.config, self.metadata, self.store, BROKER_ID)
        builder = ImageBuilder(self.metadata.image)
        builder.put_topic(TopicImage(TOPIC_NAME, b"t" * 16, ()))
        builder.put_broker(BrokerRegistration(BROKER_ID, 1, b"i" * 16, {}))
        self.metadata.apply(*builder.build(1))

    def alter(self, resource_type: int, name: str, *operations: AlterConfigOp, validate_only: bool = False) -> Outcome:
        return self.alter_all(Alteration(resource_type, name, operations), validate_only=validate_only)[0]

    def replace(self, resource_type: int, name: str, values: Mapping[str, str]) -> Outcome:
        operations = tuple(AlterConfigOp(key, value) for key, value in values.items())
        return self.alter_all(Alteration(resource_type, name, operations, replace=True))[0]

    def alter_all(self, *alterations: Alteration, validate_only: bool = False) -> list[Outcome]:
        answers: list[list[Outcome]] = []
        self.service.alter(alterations, validate_only, answers.append)
        assert len(answers) == 1
        return answers[0]

    def overrides(self, resource_type: int, name: str) -> dict[str, str]:
        return dict(self.metadata.image.overrides(resource_type, name))

    def entry(self, resource_type: int, name: str, key: str) -> ConfigEntry:
        description = self.service.describe(resource_type, name, [key], include_documentation=True)
        assert description.error_code == 0, description
        (entry,) = description.entries
        return entry

    def call(self, handler: str, request: Any, version: int) -> Any:
        """The handler's reply to the request, both through the wire's encoding."""
        ctx = RequestContext()
        ctx.api_version = version
        ctx.services = SimpleNamespace(authorizer=None, configs=self.service)  # type: ignore[assignment]
        decoded = codec.decode(type(request), version, codec.encode(request, version))
        reply = answer_of(import_module(f"pybroker.handlers.{handler}").handle(ctx, decoded))
        if isinstance(reply, Parked):
            assert reply.completed
            reply = reply.response
        key = type(request).__declaration__.key
        assert key is not None
        return codec.decode(response_class(key), version, codec.encode(reply, version))
