"""Nobody learns by asking who exists: what is asked of a user who does not looks like that of those who do."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.security.scram import ITERATIONS_MIN, MECHANISMS, SHA_256, SHA_512, ScramCredential, ScramMechanism
from pybroker.security.unknown_users import SaltForm, fake_credential, forms_of

KEY = b"the cluster's"
TEXT = SaltForm(None, 4096)
BINARY = SaltForm(64, 10_000)


def fake(
    user: str, forms: Counter[SaltForm] | None = None, key: bytes = KEY, mechanism: ScramMechanism = SHA_256
) -> ScramCredential:
    return fake_credential(mechanism, key, user, forms or Counter())


def names(count: int) -> list[str]:
    return [f"user-{index}" for index in range(count)]


def test_each_name_has_one_salt_for_ever_and_another_than_others() -> None:
    assert fake("a") == fake("a")
    others = [fake("b"), fake("a", key=b"another cluster's"), fake("a", mechanism=SHA_512), fake("a\0")]
    assert len({fake("a").salt, *(other.salt for other in others)}) == 5


def test_where_nobody_exists_a_fake_looks_as_if_kafkas_tools_had_made_it() -> None:
    fakes = [fake(name) for name in names(300)]
    assert forms_of(fakes) == {TEXT: 300}
    lengths = Counter(len(each.salt) for each in fakes)
    assert set(lengths) <= {23, 24, 25, 26}
    assert 0.3 < lengths[26] / 300 < 0.5, "a number of 130 bits has 26 digits in 41 of 100 cases"
    assert {each.salt[:1] for each in fakes if len(each.salt) == 26} == {b"1"}, "and begins with this one then"
    assert {each.iterations for each in fakes} == {ITERATIONS_MIN}


def test_fakes_are_of_the_forms_that_there_are_and_as_often() -> None:
    fakes = forms_of(fake(name, Counter({TEXT: 30, BINARY: 70})) for name in names(1_000))
    assert set(fakes) == {TEXT, BINARY}
    assert 0.6 < fakes[BINARY] / 1_000 < 0.8


@given(
    st.dictionaries(st.builds(SaltForm, st.integers(1, 200), st.integers(4096, 16384)), st.integers(1, 50), min_size=1)
)
def test_no_fake_has_a_form_of_its_own(forms: dict[SaltForm, int]) -> None:
    made = fake("anna", Counter(forms))
    assert SaltForm(len(made.salt), made.iterations) in forms


def test_hardly_any_name_changes_when_a_user_comes() -> None:
    before, after = Counter({TEXT: 50, BINARY: 50}), Counter({TEXT: 51, BINARY: 50})
    changed = [name for name in names(2_000) if fake(name, before) != fake(name, after)]
    assert len(changed) < 40
    assert all(len(fake(name, after).salt) < 64 for name in changed), "only towards the form of who has come"


@pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=lambda mechanism: mechanism.name)
def test_no_password_fits(mechanism: ScramMechanism) -> None:
    made = fake("anna", mechanism=mechanism)
    assert made.stored_key == bytes(len(made.stored_key))
    assert len(made.stored_key) == len(made.server_key) == len(mechanism.hash(b""))


def test_forms_tell_texts_of_kafkas_tools_from_bytes() -> None:
    salts = [b"1" + b"z" * 25, b"Z" * 26, b"a" * 16, bytes(26), b""]
    found = forms_of(ScramCredential(salt, b"", b"", 4096) for salt in salts)
    assert found == {TEXT: 1, SaltForm(26, 4096): 2, SaltForm(16, 4096): 1, SaltForm(0, 4096): 1}
