"""Alterations of a broker's own settings whose files are looked at, at the same moment: one goes by the other."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pybroker.config.broker import BrokerConfig
from pybroker.config.resources import BROKER, Alteration, AlterConfigOp, Outcome
from pybroker.config.schema import ConfigError
from pybroker_protocol.errors import ErrorCode
from tests.config.config_support import BROKER_ID, Configs

# The first stands for a key store's file, the second for its password.
FILE, PASSWORD = "log.segment.bytes", "log.retention.ms"
FORMER, LATTER = "2000000", "3000000"
Done = Callable[[ConfigError | None], None]


class Files:
    """A file of a name opens with the password of the same name; what is asked waits for ``answer``."""

    def __init__(self) -> None:
        self.asked: list[tuple[BrokerConfig, Done]] = []

    def look(self, config: BrokerConfig, done: Done) -> None:
        self.asked.append((config, done))

    def answer(self) -> None:
        """Answer all that was asked until now."""
        asked, self.asked = self.asked, []
        for config, done in asked:
            file, password = config.get_int(FILE), config.get_int(PASSWORD)
            done(ConfigError("it cannot be opened") if (file, password) == (int(LATTER), int(LATTER)) else None)


@pytest.fixture
def files() -> Files:
    return Files()


@pytest.fixture
def configs(files: Files) -> Configs:
    configs = Configs({FILE: FORMER, PASSWORD: FORMER})
    configs.service.look = files.look
    return configs


def asked(configs: Configs, name: str) -> list[Outcome]:
    """What an alteration that begins now is answered."""
    answers: list[Outcome] = []
    alteration = Alteration(BROKER, str(BROKER_ID), (AlterConfigOp(name, LATTER),))
    configs.service.alter([alteration], False, answers.extend)
    return answers


@pytest.mark.parametrize("is_slow", [False, True])
def test_of_two_that_are_impossible_together_the_second_is_refused(
    configs: Configs, files: Files, is_slow: bool
) -> None:
    if is_slow:
        configs.store.hold()
    first, second = asked(configs, FILE), asked(configs, PASSWORD)
    files.answer()
    if is_slow:
        assert (first, second) == ([], [])
        configs.store.release()
    assert (first, second) == ([Outcome(ErrorCode.NONE)], [])
    files.answer()
    assert [outcome.error_code for outcome in second] == [ErrorCode.INVALID_REQUEST]
    assert configs.overrides(BROKER, str(BROKER_ID)) == {FILE: LATTER}


def test_what_was_refused_for_what_is_no_more_is_looked_at_again(configs: Configs, files: Files) -> None:
    first = asked(configs, FILE)
    files.answer()
    second = asked(configs, PASSWORD)
    configs.service.look = None
    configs.alter(BROKER, str(BROKER_ID), AlterConfigOp(FILE, FORMER))
    configs.service.look = files.look
    files.answer()
    files.answer()
    assert first == second == [Outcome(ErrorCode.NONE)]
