"""Who uses how much of which quota, and for how long a client is to be throttled.

Owns:
- ``ClientQuotas``, the quotas as the newest image has them and the clients that were seen lately.
- ``ClientShare``, what holds for one user and client id.
- ``Allowance``, one quota with the bucket of those who share it.
- ``MutationQuota``, one request's part of such a one (KIP-599).

Does not own what may be set (``cluster/decisions/quota_changes``), the order of precedence (``precedence``), how a
client is held up (``net/metering``), nor connections that come too fast (``connection_rates``).

Invariants:
- For a client whom no quota holds nothing is kept but that.
- A changed quota keeps what those have used for whom it holds.
- Who was not seen for an hour is forgotten.
- There are ``limits.QUOTA_CLIENTS`` at most, so that ever new ids cost no more.
- A user's new ones cost that user's own, so that no user makes another's used-up quota be forgotten.

Each broker measures for itself, as in Kafka.  Kafka counterparts: ClientQuotaManager, ClientRequestQuotaManager,
ControllerMutationQuotaManager, ClientQuotaMetadataManager.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from pybroker import limits
from pybroker.cluster.image.quota_entities import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)
from pybroker.quotas.precedence import Holder, quota_of
from pybroker.quotas.rates import TokenBucket, Window

if TYPE_CHECKING:
    from pybroker.cluster.image.cluster_image import ClusterImage
    from pybroker.cluster.image.quota_entities import QuotaEntity
    from pybroker.config.broker import BrokerConfig
    from pybroker.env import Cancellable, Env

# For how long after a client's last request what it uses of its quotas is kept (Kafka:
# ClientQuotaManager.InactiveSensorExpirationTimeSeconds), and how often that is looked at.
QUOTA_CLIENT_IDLE_MS = 3_600_000
QUOTA_LOOK_MS = 60_000

_OF_CLIENTS: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
_PERCENT_PER_NS: Final = 100 / 1e9


class Allowance:
    """A quota of those who share it: ``bound`` per second, and the bucket that they take from."""

    __slots__ = ("__weakref__", "bound", "bucket")

    def __init__(self, bucket: TokenBucket) -> None:
        self.bound = 0.0
        self.bucket = bucket

    def tokens(self, now_ms: int) -> float:
        """What is left."""
        return self.bucket.tokens(self.bound, now_ms)

    def take(self, count: float, now_ms: int) -> None:
        """Take so many, also more than there are; a negative count gives back."""
        self.bucket.take(count, self.bound, now_ms)

    def throttle_ms(self, now_ms: int) -> int:
        """How long those who share it are to rest."""
        return self.bucket.throttle_ms(self.bound, now_ms)


class ClientShare:
    """The quotas that hold for one user and client id; None where none does."""

    __slots__ = (
        "_quotas",
        "client_id",
        "fetch",
        "generation",
        "last_used_ms",
        "mutations",
        "produce",
        "request",
        "user",
    )

    def __init__(self, quotas: ClientQuotas, user: str, client_id: str) -> None:
        self._quotas = quotas
        self.user = user
        self.client_id = client_id
        self.generation = -1
        self.last_used_ms = 0
        self.produce: Allowance | None = None
        self.fetch: Allowance | None = None
        self.request: Allowance | None = None
        self.mutations: Allowance | None = None

    def may_produce(self, nbytes: int) -> bool:
        """Whether so many bytes more leave it within its quota, and its requests are within theirs."""
        now_ms = self._quotas.now_ms()
        produce, request = self.produce, self.request
        if produce is not None and produce.tokens(now_ms) < nbytes:
            return False
        return request is None or not request.tokens(now_ms) < 0

    def produced(self, nbytes: int) -> None:
        """A Produce of so many bytes has come."""
        if self.produce is not None:
            self.produce.take(nbytes, self._quotas.now_ms())

    def produce_throttle_ms(self) -> int:
        """How long it is to rest for what it has produced."""
        produce = self.produce
        return 0 if produce is None else produce.throttle_ms(self._quotas.now_ms())

    def worked(self, used_ns: int) -> None:
        """The loop has worked for it for so long."""
        if self.request is not None:
            self.request.take(used_ns * _PERCENT_PER_NS, self._quotas.now_ms())

    def request_throttle_ms(self) -> int:
        """How long it is to rest for the time that its requests took; a sample's length at most, as in Kafka."""
        request = self.request
        if request is None:
            return 0
        return min(request.throttle_ms(self._quotas.now_ms()), self._quotas.window.sample_ms)

    def fetched(self, nbytes: int) -> int:
        """A fetch would bring so many bytes: how long it is to rest instead; 0, and they count, if it may have them."""
        throttle_ms = self.request_throttle_ms()
        fetch = self.fetch
        if fetch is not None:
            now_ms = self._quotas.now_ms()
            fetch.take(nbytes, now_ms)
            throttle_ms = max(throttle_ms, fetch.throttle_ms(now_ms))
            if throttle_ms:
                fetch.take(-nbytes, now_ms)
        return throttle_ms

    @property
    def fetch_bytes_max(self) -> int:
        """What one fetch may bring: with more it could never be within its quota."""
        if self.fetch is None:
            return limits.FETCH_REPLY_BYTES
        at_once = self.fetch.bound * self._quotas.window.burst_ms / 1000
        return int(min(limits.FETCH_REPLY_BYTES, at_once))  # in this order: a bound may be no number (NaN)


class MutationQuota:
    """What one request may change: partitions made or deleted.

    A strict one refuses while the bucket is exhausted, another lets everything through and tells how long to rest.
    """

    __slots__ = ("_allowance", "_quotas", "_strict", "_throttled_until_ms")

    def __init__(self, quotas: ClientQuotas, allowance: Allowance, *, strict: bool) -> None:
        self._quotas = quotas
        self._allowance = allowance
        self._strict = strict
        self._throttled_until_ms = 0

    def allows(self, partitions: int) -> bool:
        """Count so many partitions; False if they may not be changed now."""
        allowance, now_ms = self._allowance, self._quotas.now_ms()
        if self._strict and allowance.tokens(now_ms) < 0:
            self._throttled_until_ms = now_ms + allowance.throttle_ms(now_ms)
            return False
        allowance.take(partitions, now_ms)
        if not self._strict:
            self._throttled_until_ms = now_ms + allowance.throttle_ms(now_ms)
        return True

    @property
    def throttle_ms(self) -> int:
        """How long its client is to rest from now on."""
        return max(self._throttled_until_ms - self._quotas.now_ms(), 0)


class ClientQuotas:
    def __init__(self, env: Env, config: BrokerConfig) -> None:
        self.now_ms = env.clock.monotonic_ms
        self.window = Window(config.get_int("quota.window.num"), 1000 * config.get_int("quota.window.size.seconds"))
        self._mutation_window = Window(
            config.get_int("controller.quota.window.num"), 1000 * config.get_int("controller.quota.window.size.seconds")
        )
        self._timers = env.timers
        self._timer: Cancellable | None = None
        self._generation = 0
        self._bounds: dict[str, dict[QuotaEntity, float]] = {name: {} for name in _OF_CLIENTS}
        self._client_count = 0
        self._clients: dict[str, OrderedDict[str, ClientShare]] = {}  # by user and client id; the last used is the last
        # They live as long as a client is remembered that shares them.
        self._allowances: WeakValueDictionary[tuple[str, Holder], Allowance] = WeakValueDictionary()

    def close(self) -> None:
        """Stop to forget clients."""
        if self._timer is not None:
            self._timer.cancel()

    def on_image(self, image: ClusterImage) -> bool:
        """The quotas are those of the image from now on; whether there is any of clients."""
        bounds: dict[str, dict[QuotaEntity, float]] = {name: {} for name in _OF_CLIENTS}
        for entity, values in image.quotas.items():
            for name, value in values.items():
                if name in bounds:
                    bounds[name][entity] = value
        self._bounds = bounds
        self._generation += 1
        if not any(bounds.values()):
            self._clients.clear()
            self._client_count = 0
        return any(map(bool, bounds.values()))

    def share(self, principal: str, client_id: str | None) -> ClientShare:
        """What holds for a client; ``principal`` as in ``RequestContext``."""
        user, client_id = principal.partition(":")[2], client_id or ""
        clients = self._clients.get(user)
        share = None if clients is None else clients.get(client_id)
        if clients is None or share is None:
            share = self._new_share(user, client_id)
        else:
            clients.move_to_end(client_id)
            if share.generation != self._generation:
                self._resolve(share)
        share.last_used_ms = self.now_ms()
        return share

    def mutations(self, principal: str, client_id: str | None, *, strict: bool) -> MutationQuota | None:
        """For a request that makes or deletes partitions; None where no quota holds."""
        allowance = self.share(principal, client_id).mutations
        return None if allowance is None else MutationQuota(self, allowance, strict=strict)

    def _new_share(self, user: str, client_id: str) -> ClientShare:
        share = ClientShare(self, user, client_id)
        self._resolve(share)  # first: what is forgotten for it may be the last that has its buckets
        if self._client_count >= limits.QUOTA_CLIENTS:
            self._forget_oldest(user if user in self._clients else max(self._clients, key=self._how_many_of))
        self._clients.setdefault(user, OrderedDict())[client_id] = share
        self._client_count += 1
        if self._timer is None:
            self._timer = self._timers.call_later(QUOTA_LOOK_MS, self._forget_idle)
        return share

    def _how_many_of(self, user: str) -> int:
        return len(self._clients[user])

    def _forget_oldest(self, user: str) -> None:
        clients = self._clients[user]
        clients.popitem(last=False)
        self._client_count -= 1
        if not clients:
            del self._clients[user]

    def _resolve(self, share: ClientShare) -> None:
        share.generation = self._generation
        share.produce = self._allowance(PRODUCER_BYTE_RATE, share, self.window.rate)
        share.fetch = self._allowance(CONSUMER_BYTE_RATE, share, self.window.rate)
        share.request = self._allowance(REQUEST_PERCENTAGE, share, self.window.rate)
        share.mutations = self._allowance(CONTROLLER_MUTATION_RATE, share, self._mutation_window.mutations)

    def _allowance(self, name: str, share: ClientShare, new_bucket: Callable[[], TokenBucket]) -> Allowance | None:
        found = quota_of(self._bounds[name], share.user, share.client_id)
        if found is None:
            return None
        holder, bound = found
        allowance = self._allowances.get((name, holder))
        if allowance is None:
            allowance = self._allowances[(name, holder)] = Allowance(new_bucket())
        allowance.bound = bound
        return allowance

    def _forget_idle(self) -> None:
        self._timer = None
        oldest_ms = self.now_ms() - QUOTA_CLIENT_IDLE_MS
        for user, clients in list(self._clients.items()):
            while clients and next(iter(clients.values())).last_used_ms <= oldest_ms:
                self._forget_oldest(user)
        if self._clients:
            self._timer = self._timers.call_later(QUOTA_LOOK_MS, self._forget_idle)
