"""The clients that ask whether a login's end is kept: of a broker that forgets it they find that, of ours nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Thread

import pytest
from harness.client_access import access_to_json
from harness.waiting import wait_until

from histories.checker import check
from histories.clients import Names
from histories.history import Client, Event, merge_journals, read_events
from histories.wire_clients import WireClients
from histories.worker import AGAIN, Specification, Worker
from pybroker.net.connection import Connection
from pybroker.net.dispatch import Dispatcher
from pybroker.security.client_access import ClientAccess
from pybroker.testing import Broker, Security
from pybroker_protocol.messages.find_coordinator import FindCoordinatorRequest

USER, PASSWORD, MECHANISM = "anna", "anna-secret", "SCRAM-SHA-512"
# So short that its end is soon, and that one login anew comes before it.
SESSION_MS = 400
PREFIX, TOPICS = "histories-", {"relay": 1}
LOGINS = ("once",) * 4 + (AGAIN,) * 2  # among the first four are such that commit, and such that do not


def access_to(broker: Broker) -> ClientAccess:
    return ClientAccess(broker.bootstrap, "SASL_SSL", broker.certificates / "ca.pem", None, MECHANISM, USER, PASSWORD)


@contextmanager
def asking(broker: Broker, directory: Path) -> Iterator[list[Path]]:
    """Clients at work, each on a thread; their journals."""
    access = access_to(broker)
    journals = []
    with ExitStack() as stack:
        for number, login in enumerate(LOGINS):
            journals.append(directory / f"{number}.journal")
            worker = Worker(
                Specification(
                    role="ask",
                    client=Client("wire", login=login),
                    protocol="classic",
                    reads=(),
                    writes=(),
                    access=access_to_json(access),
                    prefix=PREFIX,
                    partitions=TOPICS,
                    journal=str(journals[-1]),
                    number=number,
                    seed=1,
                    rest_s=0.05,
                )
            )
            stack.callback(worker.journal.close)
            thread = Thread(target=worker.run)
            thread.start()
            stack.callback(thread.join)
            stack.callback(worker.stop)
        yield journals


def so_far(journals: list[Path]) -> list[Event]:
    """The events up to now."""
    merged = journals[0].with_name("merged")
    merge_journals(journals, merged)
    return list(read_events(merged))


@pytest.fixture
def broker() -> Iterator[Broker]:
    """Its groups have a coordinator, so that commits succeed."""
    with Broker({"connections.max.reauth.ms": SESSION_MS}, security=Security("SASL_SSL", {USER: PASSWORD})) as broker:
        broker.create_topic(f"{PREFIX}relay")
        clients = WireClients(access_to(broker), Names(PREFIX, TOPICS))

        def has_coordinator() -> bool:
            with clients.connection(commits=False) as connection:
                connection.log_in()
                found = connection.ask(FindCoordinatorRequest(key=PREFIX, key_type=0), 3)
            return bool(found is not None and found.error_code == 0)

        wait_until(has_coordinator, "the coordinator of groups")
        yield broker


def test_of_a_broker_that_keeps_the_end_of_sessions_nothing_is_found(broker: Broker, tmp_path: Path) -> None:
    with asking(broker, tmp_path) as journals:

        def all_were_sent_away() -> bool:
            gone = {event.process // 1_000 for event in so_far(journals) if event.kind == "crash"}
            return gone >= set(range(4))

        wait_until(all_were_sent_away, "clients that log in once are sent away")
    report = check(so_far(journals), whole=False)
    assert report.anomalies == {}, report.examples
    assert report.statistics["sessions renewed"] > 0
    assert report.statistics["sessions tried after their end"] > 0


def forget_the_end(self: Connection) -> None:
    """In the place of ``Connection._expire``."""


def keep_the_front(self: Connection, dispatcher: Dispatcher) -> None:
    """In the place of ``Connection._serve_only``: what is repeated is served on by its fast path."""
    self._requests.serve_by(dispatcher)


@pytest.mark.parametrize(("method", "mistake"), [("_expire", forget_the_end), ("_serve_only", keep_the_front)])
def test_a_broker_that_serves_connections_beyond_their_sessions_is_found(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, mistake: object
) -> None:
    monkeypatch.setattr(Connection, method, mistake)
    with asking(broker, tmp_path) as journals:
        wait_until(lambda: check(so_far(journals), whole=False).anomalies, "an anomaly")
    assert set(check(so_far(journals), whole=False).anomalies) == {"served-beyond-session"}
