"""What a user of SCRAM who does not exist is asked with, so that a client does not learn who exists.

Owns: fake credentials: their salts and iterations look like those of the users that there are, and stay the same for
each name.  Owns no exchange (``scram``), and not who exists (the cluster's image).

A client chooses the salt and the iterations of the user that it makes, and clients choose differently. So the form of a
fake is drawn by its name from the forms of those that exist, each with the weight of its users (rendezvous hashes).
Then the answers for many names are distributed as those of real users are. Where a user comes or goes hardly any name
changes its form: a client that asks twice sees what it would see of a user whose password was changed.

Counterpart in Kafka: none; there who does not exist is refused at once.
"""

from __future__ import annotations

import hmac
from collections import Counter
from collections.abc import Iterable, Mapping
from math import log
from typing import Final, NamedTuple

from pybroker.security.scram import ITERATIONS_MIN, ScramCredential, ScramMechanism

_DIGITS: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"
# ScramFormatter.secureRandomString: a number of 130 bits to the base 36, of 26 digits or a few less.
_TEXT_BITS: Final = 130
_TEXT_CHARS: Final = range(20, 27)


class SaltForm(NamedTuple):
    """What the salt and the iterations of a user show.  ``size`` is None for a text as Kafka's own tools make it."""

    size: int | None
    iterations: int


# Where nobody exists: as Kafka's tools would make the first one.
_OF_KAFKA: Final = SaltForm(None, ITERATIONS_MIN)


def forms_of(credentials: Iterable[ScramCredential]) -> Counter[SaltForm]:
    """How many users have which form."""
    return Counter(
        SaltForm(None if _is_text(credential.salt) else len(credential.salt), credential.iterations)
        for credential in credentials
    )


def fake_credential(mechanism: ScramMechanism, key: bytes, user: str, forms: Mapping[SaltForm, int]) -> ScramCredential:
    """What passes for the credential of a user who has none; no password fits it.  ``key`` is the cluster's own."""
    name = f"{mechanism.name}\0{user}".encode(errors="surrogatepass")
    form = max(forms, key=lambda each: _rank(key, name, each, forms[each])) if forms else _OF_KAFKA
    size = len(mechanism.hash(b""))
    return ScramCredential(_salt(key, name, form.size), bytes(size), _bytes(key, b"k" + name, size), form.iterations)


def _is_text(salt: bytes) -> bool:
    return len(salt) in _TEXT_CHARS and not salt.strip(_DIGITS)


def _rank(key: bytes, name: bytes, form: SaltForm, weight: int) -> float:
    """A name draws the form of the highest rank: each with a probability in proportion to its weight."""
    drawn = hmac.digest(key, b"f" + name + b"\0%d,%d" % (form.size or 0, form.iterations), "sha256")
    return weight / -log((int.from_bytes(drawn[:8]) + 1) / ((1 << 64) + 1))


def _salt(key: bytes, name: bytes, size: int | None) -> bytes:
    if size is not None:
        return _bytes(key, b"s" + name, size)
    number, digits = int.from_bytes(_bytes(key, b"s" + name, 17)) >> (17 * 8 - _TEXT_BITS), bytearray()
    while number:
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return bytes(reversed(digits))


def _bytes(key: bytes, name: bytes, size: int) -> bytes:
    """So many bytes that stay the same for the name, and say nothing to who does not know the key."""
    blocks = (hmac.digest(key, b"%d," % block + name, "sha512") for block in range(-(-size // 64)))
    return b"".join(blocks)[:size]
