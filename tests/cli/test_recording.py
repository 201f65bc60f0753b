"""The recording is of every command."""

from __future__ import annotations

import shlex

from tests.cli.recorded_commands import STEPS
from tests.cli.recording import helps


def test_each_command_has_a_step_that_shows_a_table_or_an_error() -> None:
    helped = [arguments[:-1] for arguments in helps()]
    groups = [[], *(words[:1] for words in helped if len(words) == 2)]
    typed = [shlex.split(step.line) for step in STEPS if "--help" not in step.line]
    leaves = [words for words in helped if words not in groups]
    assert len(leaves) > 80
    assert not [words for words in leaves if not any(line[: len(words)] == words for line in typed)]
