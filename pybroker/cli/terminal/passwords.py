"""The password of a user: asked for at a terminal, else the first line of standard input.

Owns: asking.  A password is never an argument, because every user of the machine may read those.
"""

from __future__ import annotations

import sys
from getpass import getpass

from pybroker.cli.terminal.failure import CommandFailed


def read_password(what: str) -> str:
    """The password, without its end of line; asked for twice at a terminal.  CommandFailed."""
    if sys.stdin.isatty():
        password = getpass(f"Password of {what}: ")
        if password != getpass("Once more: "):
            raise CommandFailed("the two passwords differ")
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    try:
        password.encode()
    except UnicodeEncodeError:
        raise CommandFailed("a password must be UTF-8") from None
    if not password:
        raise CommandFailed("a password must not be empty")
    return password
