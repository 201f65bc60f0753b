"""The targets hold for what they begin with and for a moment of Hypothesis; and they notice mistakes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz.targets import TARGETS, logins
from pybroker.security.scram import ScramServer

each_target = pytest.mark.parametrize("target", TARGETS)


@each_target
def test_seeds_hold(target: str) -> None:
    seeds = list(TARGETS[target].seeds())
    assert seeds
    for seed in seeds:
        TARGETS[target].run(seed)


@each_target
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_bytes_hold(target: str, data: st.DataObject) -> None:
    TARGETS[target].run(data.draw(st.binary(max_size=300)))


def test_somebody_who_gets_in_without_the_password_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def lax(self: ScramServer, message: bytes, credential: object) -> bytes:
        self.user = "alice"
        return b"v="

    monkeypatch.setattr(ScramServer, "_final", lax)
    with pytest.raises(AssertionError, match="nobody showed the password"):
        logins(bytes((3, 0, 7, 0, 8, 40)))
