"""What peers cause at will is told once, then counted."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from pybroker import rate_limited_log
from pybroker.rate_limited_log import RateLimitedLog
from tests.net.fake_network import FakeNetwork, post

MANY = 1_000


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> FakeNetwork:
    return FakeNetwork(monkeypatch)


class Lines(logging.Handler):
    """Keeps them."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.kept.append(record)


@pytest.fixture
def lines() -> Iterator[list[logging.LogRecord]]:
    handler = Lines()
    logging.getLogger("pybroker.net").addHandler(handler)
    yield handler.kept
    logging.getLogger("pybroker.net").removeHandler(handler)


def refuse(network: FakeNetwork, times: int, host: str = "10.0.0.1", start: int = 0) -> None:
    """Have frames with a length that none can have refused, each another."""
    for number in range(start, start + times):
        post(network.connect(host), (-1 - number).to_bytes(4, "big", signed=True))
        network.turn()


def test_first_is_told_at_once_and_the_others_are_counted(network: FakeNetwork, lines: list[logging.LogRecord]) -> None:
    refuse(network, MANY)
    assert [line.getMessage() for line in lines] == [
        "closing the connection of /10.0.0.1 (client '', listener PLAINTEXT): a frame of -1 bytes "
        "(at most 104857600 are served)"
    ]
    network.pass_ms(rate_limited_log.FOLDED_LOG_MS)
    assert len(lines) == 2
    assert lines[1].getMessage().startswith(f"… and {MANY - 1} more of /10.0.0.1 in the last 10 s: a frame of")


def test_what_goes_on_is_told_once_in_a_while_and_begins_anew_after_a_pause(
    network: FakeNetwork, lines: list[logging.LogRecord]
) -> None:
    for _ in range(3):
        refuse(network, 10)
        network.pass_ms(rate_limited_log.FOLDED_LOG_MS)
    assert [line.args[0] for line in lines[1:] if isinstance(line.args, tuple)] == [9, 10, 10]
    network.pass_ms(rate_limited_log.FOLDED_LOG_MS)
    refuse(network, 1)
    assert len(lines) == 5
    assert lines[4].getMessage().startswith("closing the connection")
    network.pass_ms(2 * rate_limited_log.FOLDED_LOG_MS)
    assert len(lines) == 5
    assert not network.world.timers.pending


def test_hosts_and_reasons_are_told_apart(network: FakeNetwork, lines: list[logging.LogRecord]) -> None:
    refuse(network, 2)
    refuse(network, 2, host="10.0.0.2")
    post(network.connect(), (5).to_bytes(4, "big"), bytes(5))
    network.turn()
    assert len(lines) == 3


def test_hosts_without_end_cause_no_lines_without_end(network: FakeNetwork, lines: list[logging.LogRecord]) -> None:
    for number in range(MANY):
        refuse(network, 1, host=f"10.0.{number >> 8}.{number & 255}")
    assert len(lines) == rate_limited_log.FOLDED_LOG_KINDS
    network.pass_ms(rate_limited_log.FOLDED_LOG_MS)
    assert len(lines) == rate_limited_log.FOLDED_LOG_KINDS + 1
    assert f"{MANY - rate_limited_log.FOLDED_LOG_KINDS} more of others" in lines[-1].getMessage()


def test_end_tells_what_is_counted(network: FakeNetwork, lines: list[logging.LogRecord]) -> None:
    refuse(network, 5)
    network.processor.rate_limited_log.close()
    assert "4 more" in lines[-1].getMessage()
    network.pass_ms(2 * rate_limited_log.FOLDED_LOG_MS)
    assert len(lines) == 2


def test_lines_are_counted_at_their_own_level(network: FakeNetwork, lines: list[logging.LogRecord]) -> None:
    log = logging.getLogger("pybroker.net")
    log.setLevel(logging.INFO)
    folded = RateLimitedLog(log, network.world.timers)
    for level in (logging.INFO, logging.ERROR, None):
        assert folded.is_first("a", f"reason {logging.getLevelName(level or 0)}", level)
        for _ in range(2):
            assert not folded.is_first("a", f"reason {logging.getLevelName(level or 0)}", level)
    network.pass_ms(rate_limited_log.FOLDED_LOG_MS)
    assert [line.levelno for line in lines] == [logging.INFO, logging.ERROR, logging.WARNING]
    assert not folded.is_first("a", "reason INFO", logging.INFO)
    folded.close()
    assert [line.levelno for line in lines[3:]] == [logging.INFO]
    log.setLevel(logging.NOTSET)
