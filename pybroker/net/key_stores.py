"""Keys and certificates of listeners while the broker serves: read on a thread, because a disk may not answer.

Owns: the thread, how long an alteration waits for it, and what it has read until ``channel_builders`` takes that.  Owns
no door (``channel_builders``) and no format (``security/tls_stores``).  The start reads by itself, before anything is
served.

Invariants:
- The loop reads no file.
- An alteration is answered by its deadline, whatever the file system does.
- A thread that a file system holds is waited for by nothing, neither by other alterations nor by the stop.

Kafka counterpart: ``SslFactory.reconfigure`` and ``CertificateEntries``, which block a request's thread.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pybroker.config.schema import ConfigError
from pybroker.security.tls_stores import LOCATIONS, tls_of

if TYPE_CHECKING:
    from pybroker.config.listener_settings import ListenerSettings
    from pybroker.env import Cancellable, Env, Executor
    from pybroker.security.tls_stores import Tls

# How long an alteration waits for the files that it names: less than a client waits for the answer, and much longer
# than a busy machine takes.  A file system that does not answer keeps a thread, and the alteration is refused.
NAMED_FILES_MS = 20_000

log = logging.getLogger(__name__)


class WantedTls(NamedTuple):
    """What a listener is to show.  ``settings`` change no more; ``says_nothing_new``: its settings are as they were.

    ``configured`` is all that its settings say of security, ``before`` what it shows now.
    """

    listener: str
    settings: ListenerSettings
    with_sasl: bool
    configured: dict[str, Any]
    says_nothing_new: bool
    before: Tls


_Found = list[tuple[WantedTls, "Tls | ConfigError"]]


class KeyStores:
    """Those of one broker's listeners.  Called on the loop."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._executor: Executor | None = None
        self._begun_ms: deque[int] = deque()  # when the jobs were submitted that have not ended
        self._read: dict[str, tuple[dict[str, Any], Tls]] = {}  # by listener: what its settings said, and what was read
        self._looked_at: dict[str, dict[str, Any]] | None = None  # what was said when all was read last, for ``look``
        self._is_reading_anew = False
        self._reads_again = False
        self._is_closed = False

    def look(self, wanted: Sequence[WantedTls], done: Callable[[ConfigError | None], None]) -> None:
        """Read what is new; ``done(error)`` unless every listener of which something new is said can be that."""
        new = [each for each in wanted if not each.says_nothing_new]
        if self._is_stuck():
            done(_late(new))
            return
        timer: Cancellable | None = None
        is_over = False

        def end(error: ConfigError | None) -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                if timer is not None:
                    timer.cancel()
                done(error)

        def on_read(found: _Found | None) -> None:
            self._looked_at = {each.listener: each.configured for each in wanted}
            refused = None if found is not None else _unread(new)
            for each, tls in found or ():
                if not isinstance(tls, ConfigError):
                    self._read[each.listener] = each.configured, tls
                elif each.says_nothing_new:
                    log.warning("listener %s stays as it was: %s", each.listener, tls)
                else:
                    refused = refused or tls
            end(refused)

        timer = self._env.timers.call_later(NAMED_FILES_MS, lambda: end(_late(new)))
        self._submit(wanted, on_read)

    def take(self, listener: str, configured: dict[str, Any]) -> Tls | None:
        """What was read for exactly these settings, once."""
        before, tls = self._read.pop(listener, (None, None))
        return tls if before == configured else None

    def read_anew(
        self, wanted: Callable[[], Sequence[WantedTls]], renew: Callable[[str, dict[str, Any], Tls], None]
    ) -> None:
        """Have ``renew(listener, configured, tls)`` called with what is new of ``wanted()``; one look is under way."""
        if self._is_reading_anew:
            self._reads_again = True
            return
        now = wanted()
        looked_at, self._looked_at = self._looked_at, None
        if looked_at == {each.listener: each.configured for each in now}:
            return
        self._is_reading_anew = True

        def on_read(found: _Found | None) -> None:
            self._is_reading_anew = False
            for each, tls in found or ():
                if isinstance(tls, ConfigError):
                    log.warning("listener %s stays as it was: %s", each.listener, tls)
                else:
                    renew(each.listener, each.configured, tls)
            if self._reads_again:
                self._reads_again = False
                self.read_anew(wanted, renew)

        self._submit(now, on_read)

    def close(self) -> None:
        """End the thread; one that is reading ends when its file system answers, if there is a loop to hear it then."""
        self._reads_again = False
        self._is_closed = True
        if self._executor is not None and not self._begun_ms:
            self._executor.close()

    def _submit(self, wanted: Sequence[WantedTls], on_read: Callable[[_Found | None], None]) -> None:
        if self._executor is None:
            self._executor = self._env.executor("key-stores", 0)  # small work, for which a client waits
        self._begun_ms.append(self._env.clock.monotonic_ms())

        def done(found: _Found | None, error: BaseException | None) -> None:
            self._begun_ms.popleft()
            if self._is_closed:
                if not self._begun_ms:
                    executor.close()
                return
            if found is None:
                log.error("keys and certificates were not read: %r", error)
            on_read(found)

        executor = self._executor
        now_ms = self._env.clock.now_ms()
        executor.submit(lambda: _read_new(wanted, now_ms), done)

    def _is_stuck(self) -> bool:
        return bool(self._begun_ms) and self._env.clock.monotonic_ms() - self._begun_ms[0] >= NAMED_FILES_MS


def _late(new: Sequence[WantedTls]) -> ConfigError | None:
    """Why what is not read in time cannot be accepted; None where nothing new was to be read."""
    return _unread(new, f"not read within {NAMED_FILES_MS} ms")


def _unread(new: Sequence[WantedTls], why: str = "could not be read") -> ConfigError | None:
    names = [
        f"{each.settings.name_of(location)}={each.settings.get(location)}"
        for each in new
        for location in LOCATIONS
        if each.settings.get(location) is not None
    ]
    return ConfigError(f"{', '.join(names)}: {why}") if new else None


def _read_new(wanted: Sequence[WantedTls], now_ms: int) -> _Found:
    """On the thread: of listeners whose settings are new, or whose files are."""
    found: _Found = []
    for each in wanted:
        if not each.says_nothing_new or each.before.has_newer_files:
            try:
                tls = tls_of(each.settings, now_ms, with_sasl=each.with_sasl)
                _check_compatible(tls, each.before, each.settings)
                found.append((each, tls))
            except ConfigError as error:
                found.append((each, error))
    return found


def _check_compatible(tls: Tls, before: Tls, settings: ListenerSettings) -> None:
    """Raise ConfigError where clients that trusted the one may not trust the other (SslFactory.CertificateEntries)."""
    name = settings.name_of("ssl.keystore.location")
    if tls.subject != before.subject and not settings.get("ssl.allow.dn.changes"):
        raise ConfigError(
            f"{name}: the new certificate is another one's "
            f"({tls.subject}, not {before.subject}); ssl.allow.dn.changes would let it"
        )
    lost = before.alternative_names - tls.alternative_names
    if lost and not settings.get("ssl.allow.san.changes"):
        raise ConfigError(
            f"{name}: the new certificate lacks {len(lost)} of the alternative names of the one before; "
            "ssl.allow.san.changes would let it"
        )
