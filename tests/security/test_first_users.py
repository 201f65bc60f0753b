"""What ``--add-scram`` says becomes credentials, or a line that tells no password."""

from __future__ import annotations

from base64 import b64encode

import pytest

from pybroker.config.schema import ConfigError
from pybroker.security.first_users import credentials_of, first_users
from pybroker.security.scram import SHA_256, SHA_512, credential_of


def test_users_are_written_as_kafkas_storage_tool_takes_them() -> None:
    users = first_users(
        [
            "SCRAM-SHA-256=[name=alice,password=alice-secret]",
            'SCRAM-SHA-512=[name="alice", iterations=8192, password="with, commas]"]',
        ]
    )
    assert users.keys() == {(1, "alice"), (2, "alice")}
    first, second = users[1, "alice"], users[2, "alice"]
    assert first == credential_of(SHA_256, b"alice-secret", first.salt, 4096)
    assert second == credential_of(SHA_512, b"with, commas]", second.salt, 8192)
    assert len(first.salt) == 26


def test_a_password_may_come_salted() -> None:
    salt, salted = b"salt" * 4, SHA_256.salted(b"secret", b"salt" * 4, 4096)
    fields = f"name=a,salt={b64encode(salt).decode()},saltedpassword={b64encode(salted).decode()}"
    assert first_users([f"SCRAM-SHA-256=[{fields}]"]) == {(1, "a"): credential_of(SHA_256, b"secret", salt)}


def test_every_user_gets_salts_of_its_own_and_all_mechanisms() -> None:
    users = credentials_of({"a": "same", "b": "same"})
    assert users.keys() == {(1, "a"), (1, "b"), (2, "a"), (2, "b")}
    assert len({each.salt for each in users.values()}) == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("alice:hunter2", "expected SCRAM-SHA-256=[name=...,password=...]"),
        ("SCRAM-SHA-1=[name=a,password=hunter2]", "no such mechanism; there are SCRAM-SHA-256, SCRAM-SHA-512"),
        ("SCRAM-SHA-256=[password=hunter2]", "name is missing"),
        ("SCRAM-SHA-256=[name=a]", "either password or saltedpassword is needed"),
        ("SCRAM-SHA-256=[name=a,password=]", "either password or saltedpassword is needed"),
        ("SCRAM-SHA-256=[name=a,password=hunter2,saltedpassword=aHVudGVyMg==]", "either password or saltedpassword"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=aHVudGVyMg==]", "saltedpassword needs its salt"),
        ("SCRAM-SHA-256=[name=a,password=hunter2,salt=hunter2]", "salt is not base64"),
        ("SCRAM-SHA-256=[name=a,password=hunter2,iterations=4095]", "iterations is not from 4096 to 16384"),
        ("SCRAM-SHA-256=[name=a,password=hunter2,iterations=many]", "iterations is not from 4096 to 16384"),
        ("SCRAM-SHA-256=[name=a,password=hunter2,password=hunter2]", "each once"),
        ("SCRAM-SHA-256=[name=a,hunter2=hunter2]", "expected iterations, name, password"),
        ("SCRAM-SHA-256=[name=a,password=hunt,er2]", "expected iterations, name, password"),
    ],
)
def test_what_cannot_be_is_refused_without_the_password(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        first_users(["SCRAM-SHA-256=[name=ok,password=ok]", text])
    assert str(caught.value).startswith("--add-scram, user 2: ")
    assert message in str(caught.value)
    assert "hunt" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_user_has_one_password_for_a_mechanism() -> None:
    with pytest.raises(ConfigError, match="a has SCRAM-SHA-256 twice"):
        first_users(["SCRAM-SHA-256=[name=a,password=x]"] * 2)
