"""Users that a cluster begins with: what ``--add-scram`` says, as credentials.

Owns: the form, which is that of ``kafka-storage format --add-scram``:  ``SCRAM-SHA-256=[name=alice,password=secret]``.
Owns neither where they lie (the cluster's image) nor when they count (``cluster/store/initial_metadata``).  No error
quotes what it is about: it holds a password.

Counterpart in Kafka: ``ScramParser``.
"""

from __future__ import annotations

import re
import secrets
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Iterable, Mapping
from typing import Final

from pybroker.config.schema import ConfigError
from pybroker.security.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    MECHANISMS,
    USER_SALT_BYTES,
    ScramCredential,
    ScramMechanism,
    credential_of,
    credential_of_salted,
)

_FORM: Final = re.compile(r"\s*([A-Za-z0-9-]+)=\[(.*)\]\s*", re.DOTALL)
_FIELD: Final = re.compile(r'\s*(\w+)\s*=\s*(?:"([^"]*)"|([^",]*))\s*(?:,|$)')
_FIELDS: Final = frozenset({"name", "password", "salt", "saltedpassword", "iterations"})

# By number of the mechanism and name of the user, as an image has them.
FirstUsers = dict[tuple[int, str], ScramCredential]


def first_users(texts: Iterable[str]) -> FirstUsers:
    """The credentials that ``texts`` describe; ConfigError, which counts them from 1."""
    users: FirstUsers = {}
    for number, text in enumerate(texts, 1):
        try:
            mechanism, user, credential = _user(text)
            if (mechanism.type, user) in users:
                raise ConfigError(f"{user} has {mechanism.name} twice")
        except ConfigError as error:
            raise ConfigError(f"--add-scram, user {number}: {error}") from None
        users[mechanism.type, user] = credential
    return users


def credentials_of(passwords: Mapping[str, str]) -> FirstUsers:
    """The credentials of users by name, for every mechanism."""
    return {
        (mechanism.type, user): credential_of(mechanism, password.encode(), secrets.token_bytes(USER_SALT_BYTES))
        for user, password in passwords.items()
        for mechanism in MECHANISMS.values()
    }


def _user(text: str) -> tuple[ScramMechanism, str, ScramCredential]:
    form = _FORM.fullmatch(text)
    if form is None:
        raise ConfigError("expected SCRAM-SHA-256=[name=...,password=...]")
    mechanism = MECHANISMS.get(form[1])
    if mechanism is None:
        raise ConfigError(f"no such mechanism; there are {', '.join(MECHANISMS)}")
    fields = _fields(form[2])
    name, password, salted = fields.get("name"), fields.get("password"), fields.get("saltedpassword")
    if not name:
        raise ConfigError("name is missing")
    if (password is None) == (salted is None) or "" in (password, salted):
        raise ConfigError("either password or saltedpassword is needed")
    if salted is not None and "salt" not in fields:
        raise ConfigError("saltedpassword needs its salt")
    iterations = fields.get("iterations", str(ITERATIONS_MIN))
    if not iterations.isdecimal() or not ITERATIONS_MIN <= int(iterations) <= ITERATIONS_MAX:
        raise ConfigError(f"iterations is not from {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    salt = _decoded("salt", fields["salt"]) if "salt" in fields else secrets.token_bytes(USER_SALT_BYTES)
    if salted is not None:
        key = _decoded("saltedpassword", salted)
        return mechanism, name, credential_of_salted(mechanism, key, salt, int(iterations))
    assert password is not None
    return mechanism, name, credential_of(mechanism, password.encode(), salt, int(iterations))


def _fields(text: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    pos = 0
    while pos < len(text):
        match = _FIELD.match(text, pos)
        if match is None or match[1] not in _FIELDS or match[1] in fields:
            raise ConfigError(f"expected {', '.join(sorted(_FIELDS))}, each once, as field=value with commas between")
        fields[match[1]] = match[3] if match[2] is None else match[2]
        pos = match.end()
    return fields


def _decoded(field: str, text: str) -> bytes:
    try:
        decoded = b64decode(text, validate=True)
    except Base64Error:
        decoded = b""
    if not decoded:
        raise ConfigError(f"{field} is not base64")
    return decoded
