"""The commands by name, and what a base install says of them, which has `serve` alone.

Owns: the names in the order of the help.  A command is in the module of its name (``app``).  Standard library alone.
"""

from __future__ import annotations

from typing import Final

from pybroker.extras import how_to_install

COMMANDS: Final = (
    "serve",
    "topics",
    "partitions",
    "produce",
    "consume",
    "sql",
    "connect",
    "groups",
    "transactions",
    "brokers",
    "logdirs",
    "features",
    "quotas",
    "acls",
    "users",
    "tokens",
    "configs",
    "certs",
    "doctor",
    "tenants",
    "cluster",
    "links",
    "dump-log",
    "completion",
)
SUMMARY: Final = "A Kafka broker in Python, and the tools to talk to any Kafka cluster."
EXIT_STATUS: Final = (
    "Exit status: 0 where all was done, 1 where something failed, 2 for wrong use, 130 after Ctrl-C, 143 after SIGTERM."
)
_HELP: Final = """\
usage: pybroker [--help] [--version] COMMAND ...

{summary}

commands:
  serve       run a broker (see `pybroker serve --help`)

options:
  -h, --help  show this help message and exit
  --version   print the version and exit

This is a base install.  The other commands come with the extra `cli`:
  {install}
  {others}

{exit_status}
"""


def base_help() -> str:
    """The help where the extra is not installed."""
    import textwrap

    others = textwrap.fill(", ".join(COMMANDS[1:]), width=78, subsequent_indent="  ")
    exit_status = textwrap.fill(EXIT_STATUS, width=78)
    return _HELP.format(summary=SUMMARY, install=how_to_install("cli"), others=others, exit_status=exit_status)
