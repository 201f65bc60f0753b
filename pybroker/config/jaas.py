"""The lines of JAAS in Kafka's settings: ``<login module> <control flag> (<option>=<value>)* ;``.

Owns: the syntax, reading and writing it, and what a client's line says of a user (``login_of``).  Owns no meaning of a
broker's options (``security/plain``, ``security/scram``).  No error quotes a value: they are passwords.

Counterpart in Kafka: ``JaasConfig``, which reads by Java's ``StreamTokenizer``.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

FLAGS: Final = ("REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL")

_TOKEN: Final = re.compile(
    r"""(?P<space>\s+|//[^\n\r]*|/\*.*?\*/)
      | (?P<quoted>"(?:\\.|[^"\\\n\r])*"|'(?:\\.|[^'\\\n\r])*')
      | (?P<word>[A-Za-z0-9_$\-.\u00a0-\U0010ffff]+)
      | (?P<sign>[=;])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_WORD: Final = re.compile(r"[A-Za-z0-9_$\-.]+")
# What a quoted token cannot hold as it is: a line ends it.
_TO_BE_ESCAPED: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r"})
_ESCAPED: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class JaasError(ValueError):
    """The text is no JAAS configuration."""


class LoginModule(NamedTuple):
    """One entry; ``options`` may hold passwords, so it is printed without them."""

    name: str
    flag: str
    options: dict[str, str]

    def __repr__(self) -> str:
        return "LoginModule([hidden])"


def text_of(module: LoginModule) -> str:
    """The line that ``parse`` reads as ``module``."""
    options = "".join(f" {_written(name)}={_quoted(text)}" for name, text in module.options.items())
    return f"{_written(module.name)} {module.flag.lower()}{options};"


def _written(word: str) -> str:
    return word if _WORD.fullmatch(word) else _quoted(word)


def _quoted(text: str) -> str:
    """``text`` as one token, whatever is in it."""
    return f'"{text.translate(_TO_BE_ESCAPED)}"'


def parse(text: str) -> list[LoginModule]:
    """The entries of one value; JaasError for what is none, and for none at all."""
    tokens = _tokens(text)
    modules: list[LoginModule] = []
    pos = 0
    while pos < len(tokens):
        module, pos = _entry(tokens, pos)
        modules.append(module)
    if not modules:
        raise JaasError("Login module not specified in JAAS config")
    return modules


class Login(NamedTuple):
    """A user's name and password, or the id and the HMAC of a delegation token."""

    user: str
    password: str
    is_token: bool = False

    def __repr__(self) -> str:
        return f"Login({self.user!r}, [hidden])"


def login_of(text: str, *, takes_tokens: bool = False) -> Login:
    """Of the one login module of a client's line; JaasError where it has none, or holds a token that is not taken."""
    (module, *others) = parse(text)
    if others or not {"username", "password"} <= module.options.keys():
        raise JaasError("one login module with a username and a password is served")
    is_token = module.options.get("tokenauth", "").lower() == "true"
    if is_token and not takes_tokens:
        raise JaasError("logins by delegation tokens are not served")
    return Login(module.options["username"], module.options["password"], is_token)


def _entry(tokens: list[tuple[str, bool]], pos: int) -> tuple[LoginModule, int]:
    """The entry that begins at ``pos``, and where the next one does."""
    name, is_sign = tokens[pos]
    if is_sign:
        raise JaasError("Login module not specified in JAAS config")
    if pos + 1 >= len(tokens):
        raise JaasError("Login module control flag not specified in JAAS config")
    flag, is_sign = tokens[pos + 1]
    if is_sign:
        raise JaasError("Login module control flag is not available in the JAAS config")
    if flag.upper() not in FLAGS:
        raise JaasError("Invalid login module control flag in JAAS config")
    options: dict[str, str] = {}
    pos += 2
    while pos < len(tokens) and tokens[pos] != (";", True):
        key = tokens[pos][0]
        if tokens[pos][1] or tokens[pos + 1 : pos + 2] != [("=", True)]:
            raise JaasError("an option of the JAAS config is not of the form key=value")
        if pos + 2 >= len(tokens) or tokens[pos + 2][1]:
            raise JaasError(f"Value not specified for key '{key}' in JAAS config")
        options[key] = tokens[pos + 2][0]
        pos += 3
    if pos >= len(tokens):
        raise JaasError("JAAS config entry not terminated by semi-colon")
    return LoginModule(name, flag.upper(), options), pos + 1


def _tokens(text: str) -> list[tuple[str, bool]]:
    """Words, and signs (True)."""
    tokens: list[tuple[str, bool]] = []
    pos = 0
    while pos < len(text):
        match = _TOKEN.match(text, pos)
        if match is None:
            raise JaasError("an unexpected character, or a quote without its end, in JAAS config")
        pos = match.end()
        if match["quoted"] is not None:
            tokens.append((_ESCAPE.sub(_unescaped, match["quoted"][1:-1]), False))
        elif match["space"] is None:
            tokens.append((match[0], match["sign"] is not None))
    return tokens


def _unescaped(match: re.Match[str]) -> str:
    escaped = match[1]
    return chr(int(escaped, 8)) if escaped[0] in "01234567" else _ESCAPED.get(escaped, escaped)
