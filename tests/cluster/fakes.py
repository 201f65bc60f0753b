"""A controller over a real store in a virtual world."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from harness.virtual_world import VirtualWorld

from pybroker.cluster.controller.auto_topic_creation import AutoTopicCreation
from pybroker.cluster.controller.token_operations import DelegationTokens
from pybroker.cluster.failure_detection.recently_fenced import RecentlyFenced
from pybroker.cluster.failure_detection.suspected_brokers import SuspectedBrokers
from pybroker.cluster.image.cluster_image import Endpoint
from pybroker.cluster.image.metadata_cache import MetadataCache
from pybroker.cluster.membership.standalone import Standalone
from pybroker.cluster.store.initial_metadata import InitialMetadata, new_cluster
from pybroker.cluster.store.metadata_store import MetadataStore
from pybroker.cluster.store.sqlite.sqlite_store import FILE_NAME, SqliteStore
from pybroker.config.broker import BrokerConfig
from pybroker.handlers.context import Parked, RequestContext
from pybroker.quotas.client_quotas import ClientQuotas
from tests.handled import answer_of

CLUSTER_ID = "abcdefghijklmnopqrstuv"
LISTENER = "PLAINTEXT"


class FakeCluster:
    """A controller over a real SQLite file, registered as the broker ``node_id``."""

    def __init__(
        self,
        folder: Path,
        settings: dict[str, str] | None = None,
        *,
        node_id: int = 1,
        store: MetadataStore | None = None,
        initial_metadata: InitialMetadata | None = None,
    ) -> None:
        self.world = VirtualWorld()
        self.env = self.world.env
        self.config = BrokerConfig(settings or {})
        self.cache = MetadataCache()
        self.suspected_brokers = SuspectedBrokers(self.env)
        self.recently_fenced = RecentlyFenced(self.env, self.cache.image)
        self.cache.subscribe(self.recently_fenced.on_image)
        self.store = store or SqliteStore(str(folder / FILE_NAME), self.env, fsync=False)
        first = initial_metadata or new_cluster(CLUSTER_ID)
        self.standalone = Standalone(self.env, self.config, self.cache, self.store, node_id, lambda: first)
        self.quotas: ClientQuotas | None = None
        self.endpoints = {LISTENER: Endpoint("localhost", 9092), "OTHER": Endpoint("other.example", 9999)}

    def start(self, *, clean_shutdown: bool = True) -> FakeCluster:
        self.standalone.load()
        self.controller = self.standalone.controller
        self.tokens = DelegationTokens(self.env, self.config, self.controller, self.cache)
        self.auto_topics = AutoTopicCreation(self.env, self.config, self.cache, self.controller.create_topics)
        self.standalone.register(self.endpoints, None, [bytes(15) + b"\x09"], clean_shutdown=clean_shutdown)
        return self

    def close(self) -> None:
        self.standalone.close()

    def ask(self, operation: Callable[..., None], *args: Any, **options: Any) -> Any:
        """Call an operation of the controller and run the loop until it has answered."""
        answers: list[Any] = []
        operation(*args, answers.append, **options)
        assert not answers, "no operation answers before it returns"
        self.world.run()
        (answer,) = answers
        return answer

    def handle(self, handler: Any, request: Any, version: int, listener: str = LISTENER) -> Any:
        """What a handler module answers, a parked reply included."""
        response = answer_of(handler.handle(self.context(version, listener), request))
        if isinstance(response, Parked):
            self.world.run()
            assert response.completed
            return response.response
        return response

    def context(self, version: int, listener: str = LISTENER) -> RequestContext:
        context = RequestContext()
        services: Any = SimpleNamespace(
            quotas=self.quotas,
            authorizer=None,
            controller=self.controller,
            tokens=self.tokens,
            auto_topic_creation=self.auto_topics,
            metadata=self.cache,
            config=self.config,
            env=self.env,
            suspected_brokers=self.suspected_brokers,
            recently_fenced=self.recently_fenced,
        )
        context.services = services
        context.api_version = version
        context.listener = listener
        context.principal = "User:ANONYMOUS"
        context.client_id = "client"
        context.connection = SimpleNamespace(is_broker=False)
        return context
