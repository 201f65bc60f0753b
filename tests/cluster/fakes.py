"""A broker's surroundings under the test's control: clock, loop and store thread move when they are told to."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

from pybroker.cluster.auto_topic_creation import AutoTopicCreation
from pybroker.cluster.delegation_tokens import DelegationTokens
from pybroker.cluster.departures import Departures
from pybroker.cluster.doubts import Doubts
from pybroker.cluster.founding import Founding, new_cluster
from pybroker.cluster.image import Endpoint
from pybroker.cluster.metadata_cache import MetadataCache
from pybroker.cluster.metadata_store import MetadataStore
from pybroker.cluster.sqlite_store import FILE_NAME, SqliteStore
from pybroker.cluster.standalone import Standalone
from pybroker.config.broker import BrokerConfig
from pybroker.env import Env
from pybroker.handlers.context import Parked, RequestContext
from pybroker.net.jobs import Job
from pybroker.quotas.client_quotas import ClientQuotas
from tests.handled import answer_of

CLUSTER_ID = "abcdefghijklmnopqrstuv"
LISTENER = "PLAINTEXT"


class ManualTimer:
    """A callback that can be called off."""

    def __init__(self, callback: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self._callback: Callable[..., Any] | None = callback
        self._args = args

    def cancel(self) -> None:
        self._callback = None

    def run(self) -> None:
        if self._callback is not None:
            self._callback(*self._args)


class ManualLoop:
    """Clock, timers and executors of one broker; ``run`` does everything that can be done without time passing."""

    def __init__(self) -> None:
        self.time_ms = 1_000_000
        self.store_is_stuck = False
        self._ready: deque[ManualTimer] = deque()
        self._later: list[tuple[float, int, ManualTimer]] = []
        self._jobs: deque[Job] = deque()
        self._count = 0

    def now_ms(self) -> int:
        return self.time_ms

    def monotonic_ms(self) -> int:
        return self.time_ms

    def monotonic_ns(self) -> int:
        return self.time_ms * 1_000_000

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> ManualTimer:
        timer = ManualTimer(callback, args)
        self._ready.append(timer)
        return timer

    def call_later(self, delay_ms: float, callback: Callable[..., Any], *args: Any) -> ManualTimer:
        timer = ManualTimer(callback, args)
        self._count += 1
        heapq.heappush(self._later, (self.time_ms + delay_ms, self._count, timer))
        return timer

    def submit(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> Job:
        job = Job(work, done)
        self._jobs.append(job)
        return job

    def close(self) -> None:
        self.store_is_stuck = False
        self.run()

    def run(self) -> None:
        while self._ready or (self._jobs and not self.store_is_stuck):
            if self._ready:
                self._ready.popleft().run()
            else:
                self._run_job(self._jobs.popleft())

    def advance(self, by_ms: int) -> None:
        self.time_ms += by_ms
        while self._later and self._later[0][0] <= self.time_ms:
            self._ready.append(heapq.heappop(self._later)[2])
        self.run()

    def _run_job(self, job: Job) -> None:
        if job.go_on(lambda: 0, ends_ns=-1):
            self.call_soon(job.complete)
        else:
            self._jobs.append(job)


def fake_env(loop: ManualLoop, seed: int = 1) -> Env:
    def call_threadsafe(callback: Callable[..., Any], *args: Any) -> None:
        loop.call_soon(callback, *args)

    return Env(
        clock=loop,
        timers=loop,
        executor=lambda name, niceness: loop,
        call_threadsafe=call_threadsafe,
        random=Random(seed),
    )


class FakeCluster:
    """A controller over a real SQLite file, registered as the broker ``node_id``."""

    def __init__(
        self,
        folder: Path,
        settings: dict[str, str] | None = None,
        *,
        node_id: int = 1,
        store: MetadataStore | None = None,
        founding: Founding | None = None,
    ) -> None:
        self.loop = ManualLoop()
        self.env = fake_env(self.loop)
        self.config = BrokerConfig(settings or {})
        self.cache = MetadataCache()
        self.doubts = Doubts(self.env)
        self.departures = Departures(self.env, self.cache.image)
        self.cache.subscribe(self.departures.on_image)
        self.store = store or SqliteStore(str(folder / FILE_NAME), self.env, fsync=False)
        first = founding or new_cluster(CLUSTER_ID)
        self.standalone = Standalone(self.env, self.config, self.cache, self.store, node_id, lambda: first)
        self.controller = self.standalone.controller
        self.tokens = DelegationTokens(self.env, self.config, self.controller, self.cache)
        self.auto_topics = AutoTopicCreation(self.env, self.config, self.cache, self.controller.create_topics)
        self.quotas: ClientQuotas | None = None
        self.endpoints = {LISTENER: Endpoint("localhost", 9092), "OTHER": Endpoint("other.example", 9999)}

    def start(self, *, clean_shutdown: bool = True) -> FakeCluster:
        self.standalone.load()
        self.standalone.register(self.endpoints, None, [bytes(15) + b"\x09"], clean_shutdown=clean_shutdown)
        return self

    def close(self) -> None:
        self.standalone.close()

    def ask(self, operation: Callable[..., None], *args: Any, **options: Any) -> Any:
        """Call an operation of the controller and run the loop until it has answered."""
        answers: list[Any] = []
        operation(*args, answers.append, **options)
        assert not answers, "no operation answers before it returns"
        self.loop.run()
        (answer,) = answers
        return answer

    def handle(self, handler: Any, request: Any, version: int, listener: str = LISTENER) -> Any:
        """What a handler module answers, a parked reply included."""
        response = answer_of(handler.handle(self.context(version, listener), request))
        if isinstance(response, Parked):
            self.loop.run()
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
            doubts=self.doubts,
            departures=self.departures,
        )
        context.services = services
        context.api_version = version
        context.listener = listener
        context.principal = "User:ANONYMOUS"
        context.client_id = "client"
        return context
