"""Which texts of a configuration are secrets, by the names that they stand under, and by what they look like.

Owns the names and the forms, and what is shown in place of a value.  A reference to a config provider is no secret, for
it stands where the secret would.  Does not own which keys of a kind are secrets: the kind's keys say that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import unquote_plus

HIDDEN: Final = "[hidden]"
_REFERENCE: Final = re.compile(r"\$\{[^}]*\}")
# A reference, with the name of what it is given to.
_REFERRED: Final = re.compile(r"[^?#&;=\s]*=?\$\{[^}]*\}")
# What a reference stands for, once it is cut out: no text has such a character of its own.
_FOUND: Final = "\0"
_WORDS: Final = (
    r"passw|passphrase|secret|token|authorization|(?:api|access|account|private|shared)[._-]?key"
    # Where credentials are, or of which kind, is none.
    r"|credential(?!s?[._-]?(?:source|provider|type))"
)
_SAYS_SO: Final = re.compile(rf"(?i){_WORDS}")
_OF_SECRETS: Final = re.compile(
    rf"(?i){_WORDS}|jaas\.config|user\.info$|keystore\.key$|(?:^|[._])key\.material|(?:^|[._-])(?:pwd|pass)(?:$|[._-])"
)
# The name of a transform is its owner's choice, and says nothing of a value.
_ALIAS: Final = re.compile(r"^(?:transforms|predicates)\.[^.]*\.")
# A number of tokens is none: servers of language models are asked for one.  The token of a page is none either.
_OF_PARAMETERS: Final = re.compile(
    rf"(?i)^(?!.*(?:tokens|(?:page|next|continuation)[._-]?token|[._-]type)$).*(?:{_WORDS})(?!ize|ary)"
    r"|^(?:key|auth)$|(?:^|[._-])(?:sig|signature|pwd|pass)$"
)
_PRIVATE_KEY: Final = re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY")
_URL: Final = re.compile(r"\s*[A-Za-z][A-Za-z0-9+.:-]*:/\S*\s*")
# The user of a URL may be a token, or have a password of any characters.
_USER: Final = re.compile(r"://([^/?#]*)@|://([^/]*:[^/]*)@")


def is_reference(text: str) -> bool:
    """Whether the text is one reference to a config provider, ``${provider:[path:]key}``, and nothing else."""
    return text.startswith("${") and text.endswith("}") and ":" in text and text.count("${") == 1


def without_references(text: str, stand_in: str) -> str:
    """The text with ``stand_in`` where it has a reference."""
    return _REFERENCE.sub(stand_in, text)


def names_a_secret(name: str) -> bool:
    """Whether a key that is not known here is a secret's, as far as its name tells."""
    return _OF_SECRETS.search(_ALIAS.sub("", name)) is not None


def parameter_names_a_secret(name: str) -> bool:
    """Whether a parameter of a URL is a secret's, as far as its name tells; the name may have %XX."""
    return _OF_PARAMETERS.search(unquote_plus(name)) is not None


def secret_parameters(url: str) -> Iterator[str]:
    """The names of a URL's parameters that have a secret in plain text."""
    for part in re.split("[?#&;]", without_references(url, _FOUND))[1:]:
        name, _, value = part.partition("=")
        if value.strip() and _FOUND not in value and parameter_names_a_secret(name):
            yield name


def looks_secret(text: str) -> bool:
    """Whether a text is a private key or a URL with a secret, whatever it stands under.

    A statement, or a plan, that has such a URL inside is none: it is needed whole.
    """
    return _PRIVATE_KEY.search(text) is not None or (_URL.fullmatch(text) is not None and _holds_login(text))


def shown(text: str, *, is_secret: bool = False) -> str:
    """The value of a known key, which is hidden where it is a secret's or looks like one."""
    return HIDDEN if (is_secret or looks_secret(text)) and not is_reference(text) else text


def quoted(text: str) -> str:
    """A value as an error quotes it."""
    holds_one = (
        _SAYS_SO.search(_REFERRED.sub("", text)) is not None
        or _PRIVATE_KEY.search(text) is not None
        or _holds_login(text)
    )
    return HIDDEN if holds_one else text


def hidden(name: str, text: str) -> str:
    """The value of a key that is not known here, unless it is a secret by its name, or by what it looks like."""
    if is_reference(text):
        return text
    return HIDDEN if names_a_secret(name) or looks_secret(text) or ("://" in text and quoted(text) == HIDDEN) else text


def _holds_login(text: str) -> bool:
    user = _USER.search(without_references(text, _FOUND))
    return (user is not None and _is_plain(user[1] or user[2] or "")) or (":/" in text and any(secret_parameters(text)))


def _is_plain(user: str) -> bool:
    """Whether a URL's ``name:password``, or its token, stands there itself: a plain name beside a reference may."""
    name, colon, password = user.partition(":")
    return _FOUND not in (password if colon else name)
