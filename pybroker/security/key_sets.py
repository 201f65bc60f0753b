"""Key sets (JWKS, RFC 7517): the public keys by which tokens of OAUTHBEARER are checked, fetched and kept fresh.

Owns: which keys of a set are used, when a set is fetched, and who waits for that.  Owns no I/O: ``fetch`` runs in a
thread, and is handed in.

Invariants:
- Only public keys of asymmetric algorithms are used, each by the algorithms of its own kind alone. So no token can have
  a public key taken for a shared secret.
- A fetch never runs on the loop, and one of a set is under way at a time.
- Keys that are there stay until a fetch brings others.

States of a set::

    EMPTY      no fetch has ended yet: logins wait for it, whatever it brings
    FETCHED    the keys of the last fetch that succeeded, perhaps none; fetched anew every ``refresh_ms``, after a
               failure sooner, and when a token names a key that is not there, at most once in ``UNKNOWN_KEY_MS``

Counterpart in Kafka: ``RefreshingHttpsJwks`` and ``VerificationKeyResolverFactory``.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pybroker import limits
from pybroker.security.sasl import NotYet

if TYPE_CHECKING:
    from pybroker.env import Cancellable, Env, Executor

# The least pause between two fetches of a key set.
KEYS_PAUSE_MS_MIN = 100

log = logging.getLogger(__name__)

UNKNOWN_KEY_MS: Final = 10_000
_RSA: Final = frozenset(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"))
_CURVES: Final = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
_RSA_BITS_MIN: Final = 2048


class KeySource(NamedTuple):
    """Where a set is, a URL of http, https or file, and how often it is looked for; see the settings of these names."""

    url: str
    refresh_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    connect_timeout_ms: int
    read_timeout_ms: int


class VerificationKey(NamedTuple):
    """A public key with the algorithms that it is for; ``key_id`` is None where it has none."""

    key_id: str | None
    algorithms: frozenset[str]
    key: Any


Fetch = Callable[[KeySource], bytes]


def parse_keys(data: bytes) -> list[VerificationKey]:
    """The keys of a set that can be used; ValueError for what is no set.  Others are passed over."""
    try:
        document = json.loads(data)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    entries = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise ValueError("it has no list of keys")
    keys = []
    for entry in entries:
        key = _usable(entry) if isinstance(entry, dict) else None
        if key is not None:
            keys.append(key)
    return keys


def _usable(entry: dict[str, Any]) -> VerificationKey | None:
    """The key of an entry, or None."""
    import jwt

    algorithms = _algorithms(entry)
    if not algorithms or entry.get("use", "sig") != "sig":
        return None
    public = {name: value for name, value in entry.items() if name not in ("d", "p", "q", "dp", "dq", "qi", "oth")}
    try:
        key = jwt.PyJWK(public, algorithm=min(algorithms)).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError) as error:
        log.warning("a key of a key set cannot be read: %s", type(error).__name__)
        return None
    if entry["kty"] == "RSA" and key.key_size < _RSA_BITS_MIN:
        log.warning("a key of a key set has %d bits, less than %d: it is not used", key.key_size, _RSA_BITS_MIN)
        return None
    key_id = entry.get("kid")
    return VerificationKey(key_id if isinstance(key_id, str) else None, algorithms, key)


def _algorithms(entry: dict[str, Any]) -> frozenset[str]:
    """Those of its kind or, where it names one, that one; none for secrets (``oct``) and unknown kinds."""
    kind, curve = entry.get("kty"), entry.get("crv")
    of_kind: frozenset[str] = frozenset()
    if kind == "RSA":
        of_kind = _RSA
    elif kind == "EC" and isinstance(curve, str) and curve in _CURVES:
        of_kind = frozenset((_CURVES[curve],))
    elif kind == "OKP" and curve in ("Ed25519", "Ed448"):
        of_kind = frozenset(("EdDSA",))
    named = entry.get("alg")
    return of_kind if named is None else of_kind & {str(named)}


class KeySet:
    """One set.  ``find`` is asked at logins."""

    __slots__ = ("_env", "_executor", "_failures", "_fetch", "_fetched_ms", "_is_fetching", "_source", "_timer",
                 "_waiting", "keys")  # fmt: skip

    def __init__(self, env: Env, source: KeySource, fetch: Fetch, executor: Callable[[], Executor]) -> None:
        self._env = env
        self._source = source
        self._fetch = fetch
        self._executor = executor
        self.keys: list[VerificationKey] | None = None  # None: no fetch has ended
        self._fetched_ms = 0  # when the last fetch ended
        self._failures = 0
        self._is_fetching = False
        self._waiting: list[Callable[[], None]] = []
        self._timer: Cancellable | None = None
        self._begin()

    def find(self, key_id: str | None, algorithm: str) -> Any | NotYet | None:
        """The key for a token with this header; ``NotYet`` where a fetch may bring it; None where there is none.

        A token that names no key is checked by the only one of its algorithm.
        """
        if self.keys is not None:
            fitting = [each for each in self.keys if algorithm in each.algorithms]
            named = [each for each in fitting if key_id is None or each.key_id == key_id]
            if len(named) == 1:
                return named[0].key
            if named or key_id is None or any(each.key_id == key_id for each in self.keys):
                return None
            if not self._is_fetching and self._env.clock.monotonic_ms() - self._fetched_ms < UNKNOWN_KEY_MS:
                return None
        return NotYet(self._wait)

    def close(self) -> None:
        """Fetch nothing more; those that wait hear nothing."""
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self, go_on: Callable[[], None]) -> Callable[[], None]:
        self._waiting.append(go_on)
        self._begin()

        def call_off() -> None:
            if go_on in self._waiting:
                self._waiting.remove(go_on)

        return call_off

    def _begin(self) -> None:
        if self._is_fetching:
            return
        self._is_fetching = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._executor().submit(lambda: parse_keys(self._fetch(self._source)), self._fetched)

    def _fetched(self, keys: list[VerificationKey] | None, error: BaseException | None) -> None:
        self._is_fetching = False
        self._fetched_ms = self._env.clock.monotonic_ms()
        source = self._source
        if keys is None:
            if not self._failures:
                log.warning("the keys of tokens cannot be fetched from %s: %s", source.url, error)
            pause_ms = min(source.retry_backoff_ms << min(self._failures, 30), source.retry_backoff_max_ms)
            self._failures += 1
            self.keys = self.keys or []
        else:
            log.info("%d keys of tokens were fetched from %s", len(keys), source.url)
            self.keys, self._failures, pause_ms = keys, 0, source.refresh_ms
        self._timer = self._env.timers.call_later(max(pause_ms, KEYS_PAUSE_MS_MIN), self._begin)
        waiting, self._waiting = self._waiting, []
        for go_on in waiting:
            go_on()


class KeySets:
    """The sets of all listeners, each fetched once however many ask for it, by one thread."""

    __slots__ = ("_env", "_executor", "_fetch", "_sets")

    def __init__(self, env: Env, fetch: Fetch) -> None:
        self._env = env
        self._fetch = fetch
        self._sets: dict[KeySource, KeySet] = {}
        self._executor: Executor | None = None

    def get(self, source: KeySource) -> KeySet:
        """The set of that source; its first fetch begins with the first who asks."""
        found = self._sets.get(source)
        if found is None:
            found = self._sets[source] = KeySet(self._env, source, self._fetch, self._thread)
        return found

    def close(self) -> None:
        """Nothing is fetched any more."""
        for key_set in self._sets.values():
            key_set.close()
        if self._executor is not None:
            self._executor.close()

    def _thread(self) -> Executor:
        if self._executor is None:
            self._executor = self._env.executor("key-sets", limits.WORKER_NICENESS)
        return self._executor
