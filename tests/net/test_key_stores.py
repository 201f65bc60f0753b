"""Keys and certificates while the broker serves: the loop reads no file, and no file keeps an alteration for good."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from harness.virtual_world import VirtualExecutor, VirtualWorld

from pybroker.config.schema import ConfigError
from pybroker.net import key_stores
from pybroker.net.key_stores import NAMED_FILES_MS, KeyStores, WantedTls
from pybroker.security.tls_stores import Tls

LOCATION = "listener.name.ssl.ssl.keystore.location"


class Settings(SimpleNamespace):
    """Those of a listener whose key store lies at ``location``; how reading it ends is ``found``."""

    def get(self, name: str) -> Any:
        return self.location if name == "ssl.keystore.location" else None

    def name_of(self, name: str) -> str:
        return f"listener.name.ssl.{name}"


def tls(subject: str = "CN=broker", newer: bool = False) -> Any:
    return SimpleNamespace(subject=subject, alternative_names=frozenset(), has_newer_files=newer)


class Stores:
    """Key stores in a world of which nothing moves by itself."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = VirtualWorld()
        self.stores = KeyStores(self.world.env)
        self.read: list[str] = []
        self.answers: list[ConfigError | None] = []
        monkeypatch.setattr(key_stores, "tls_of", self._tls_of)

    def _tls_of(self, settings: Settings, _now_ms: int, *, with_sasl: bool) -> Tls:
        self.read.append(settings.location)
        if isinstance(settings.found, ConfigError):
            raise settings.found
        found: Tls = settings.found
        return found

    @property
    def executor(self) -> VirtualExecutor:
        return self.world.executors["key-stores"]

    def wanted(self, found: Any, *, location: str = "/k", is_new: bool = True, newer: bool = False) -> WantedTls:
        configured = {LOCATION: location}
        settings: Any = Settings(location=location, found=found)
        return WantedTls("SSL", settings, False, configured, not is_new, tls(newer=newer))

    def look(self, *wanted: WantedTls) -> None:
        self.stores.look(wanted, self.answers.append)


@pytest.fixture
def stores(monkeypatch: pytest.MonkeyPatch) -> Stores:
    return Stores(monkeypatch)


def test_files_are_read_by_the_thread_alone_and_what_was_read_is_taken_once(stores: Stores) -> None:
    found = tls()
    wanted = stores.wanted(found)
    stores.look(wanted)
    assert (stores.read, stores.answers) == ([], [])
    stores.executor.run()
    assert (stores.read, stores.answers) == (["/k"], [None])
    assert stores.stores.take("SSL", {LOCATION: "/other"}) is None
    stores.look(wanted)
    stores.executor.run()
    assert stores.stores.take("SSL", wanted.configured) is found
    assert stores.stores.take("SSL", wanted.configured) is None


def test_what_cannot_be_refuses_an_alteration_that_says_it_and_no_other(
    stores: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = ConfigError("wrong")
    stores.look(stores.wanted(wrong))
    stores.look(stores.wanted(wrong, is_new=False, newer=True))
    stores.look(stores.wanted(wrong, is_new=False))  # nothing of it is new: not even read
    stores.look(stores.wanted(tls("CN=mallory")))
    stores.executor.run()
    assert stores.answers[:3] == [wrong, None, None]
    assert "is another one's" in str(stores.answers[3])
    assert len(stores.read) == 3
    assert "listener SSL stays as it was: wrong" in caplog.text


def test_an_alteration_is_answered_though_its_file_is_never_read(stores: Stores) -> None:
    stores.look(stores.wanted(tls()))
    stores.world.step()
    (error,) = stores.answers
    assert str(error) == f"{LOCATION}=/k: not read within {NAMED_FILES_MS} ms"
    stores.look(stores.wanted(tls(), is_new=False))
    stores.look(stores.wanted(tls()))
    assert [each is None for each in stores.answers] == [False, True, False], "at once, while the thread is held"
    assert len(stores.executor.jobs) == 1, "nothing more is put behind what does not end"
    stores.stores.close()
    assert not stores.executor.closed, "nor does the stop wait for it"

    stores.executor.run()
    assert len(stores.answers) == 3, "one that was answered is not answered again"
    assert stores.executor.closed, "the thread ends once it can"


def test_a_thread_that_was_held_goes_on_and_ends_with_the_broker(stores: Stores) -> None:
    stores.look(stores.wanted(tls()))
    stores.world.step()
    stores.executor.run()
    stores.look(stores.wanted(tls()))
    stores.executor.run()
    assert stores.answers[-1] is None
    stores.stores.close()
    assert stores.executor.closed


def test_a_stop_does_not_wait_for_a_file_that_is_being_read(stores: Stores) -> None:
    """Whether a file system answers at all shows later than a stop may take."""
    stores.look(stores.wanted(tls()))
    stores.stores.close()
    assert not stores.executor.closed
    stores.executor.run()
    assert not stores.answers
    assert stores.executor.closed


def test_changes_that_nobody_looked_into_are_read_a_moment_later_however_many(stores: Stores) -> None:
    renewed: list[tuple[str, Mapping[str, Any], Any]] = []
    found = tls()
    for _ in range(5):
        stores.stores.read_anew(lambda: [stores.wanted(found)], lambda *new: renewed.append(new))
    assert not renewed
    stores.executor.run()
    assert len(stores.read) == 2
    assert renewed == [("SSL", {LOCATION: "/k"}, found)] * 2


def test_what_was_looked_into_is_not_read_again(stores: Stores) -> None:
    stores.look(stores.wanted(tls()))
    stores.executor.run()
    stores.stores.read_anew(lambda: [stores.wanted(tls())], lambda *_: None)
    stores.executor.run()
    assert stores.read == ["/k"]
    stores.stores.read_anew(lambda: [stores.wanted(tls())], lambda *_: None)
    stores.executor.run()
    assert stores.read == ["/k", "/k"]


def test_reading_that_fails_otherwise_is_logged_and_answered(stores: Stores, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        wanted = stores.wanted(tls())._replace(before=None)  # type: ignore[arg-type]
        stores.look(wanted)
        stores.executor.run()
    assert isinstance(stores.answers[0], ConfigError)
    assert LOCATION in str(stores.answers[0])
    assert "were not read" in caplog.text


def test_a_store_of_beginnings_without_ends_costs_no_more_than_its_length() -> None:
    from time import process_time

    from pybroker.security import tls_stores

    hostile = "-----BEGIN CERTIFICATE-----\n" * 100_000 + "-----BEGIN PRIVATE KEY-----\n" * 100_000
    begun = process_time()
    assert not list(tls_stores._CERTIFICATE.finditer(hostile))
    assert tls_stores._KEY.search(hostile) is None
    assert process_time() - begun < 10, "a second reading of each beginning takes hours"
    assert ssl.OPENSSL_VERSION
