"""What a link is set to, as ``links create`` and ``links alter`` take it.

Owns: the options, and the settings that they come to.  A secret comes out of a file alone, because command lines stand
in lists of processes.  Which settings a link has is ``config/link_settings``'.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import typer

from pybroker.cli.connection.client_file import client_properties
from pybroker.cli.connection.client_settings import parse_pairs
from pybroker.cli.terminal.failure import CommandFailed
from pybroker.cli.terminal.options import misused, repeated
from pybroker.config.link_settings import row_of
from pybroker.config.providers import resolve
from pybroker.config.schema import PASSWORD, ConfigError

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,100}")
# Of the file of a client these are a link's, too; what else such a client has is passed over.
_OF_SOURCES: Final = ("security.", "sasl.", "ssl.")
# What a link proves by who it is; the rest of these says how.
_OF_LOGINS: Final = ("sasl.jaas.config", "sasl.oauthbearer.", "ssl.keystore.", "ssl.key.")

Source = Annotated[
    str | None, typer.Option("--source", metavar="HOST:PORT,…", help="Brokers of the source to ask for the rest of it.")
]
Topics = Annotated[
    list[str], repeated("--topic", "-t", metavar="TOPIC", help="A topic to mirror; * stands for any characters.")
]
Exclude = Annotated[
    list[str], repeated("--exclude", metavar="TOPIC", help="A topic that is not mirrored though --topic has it.")
]
Prefix = Annotated[
    str | None, typer.Option("--prefix", metavar="TEXT", help="What names of mirrored topics begin with here.")
]
Groups = Annotated[
    list[str], repeated("--group", "-g", metavar="GROUP", help="A group whose committed offsets are carried over.")
]
ReplicationFactor = Annotated[
    int | None,
    typer.Option(
        "--replicas", "-r", min=-1, max=2**15 - 1, help="Replicas of mirrored topics; -1 leaves it to the brokers."
    ),
]
SourceConfig = Annotated[
    str | None,
    typer.Option(
        "--source-config",
        metavar="FILE",
        help="A file of Kafka's client settings for the source; the place for passwords.",
    ),
]
Set = Annotated[list[str], repeated("--set", "-s", metavar="KEY=VALUE", help="Set another setting of the link.")]
Unset = Annotated[list[str], repeated("--unset", "-d", metavar="KEY", help="Reset a setting to its default.")]
Append = Annotated[
    list[str], repeated("--append", metavar="KEY=VALUE", help="Add a value to a setting that is a list.")
]
Subtract = Annotated[
    list[str], repeated("--subtract", metavar="KEY=VALUE", help="Take a value from a setting that is a list.")
]


def check_name(name: str) -> None:
    """A usage error for what cannot be a link's name."""
    if not _NAME.fullmatch(name):
        raise typer.BadParameter(f"a link is named by letters, digits, - and _, not {name!r}")


def given_settings(
    source: str | None,
    topics: Sequence[str],
    exclude: Sequence[str],
    prefix: str | None,
    groups: Sequence[str],
    replication_factor: int | None,
    source_config: str | None,
    settings: Sequence[str],
) -> dict[str, str]:
    """By names behind the link's; options win over the file.  Usage errors, and CommandFailed for the file."""
    given = {} if source_config is None else _of_file(source_config)
    options = {
        "bootstrap.servers": source,
        "topics": ",".join(topics) or None,
        "topics.exclude": ",".join(exclude) or None,
        "prefix": prefix,
        "groups": ",".join(groups) or None,
        "replication.factor": None if replication_factor is None else str(replication_factor),
    }
    named = {name: text for name, text in options.items() if text is not None}
    others = parse_pairs(settings, "--set")
    if twice := sorted(named.keys() & others.keys()):
        raise misused(f"{twice[0]} is named by two options")
    for name in others:
        row = row_of(name)
        if row is not None and row.type == PASSWORD:
            raise misused(f"{name} is a secret: a command line is no place for it, --source-config is")
    return {**given, **named, **others}


def kept_login(left: Sequence[str], given: Mapping[str, str]) -> list[str]:
    """What a link that is made keeps of the settings that stand under its name: a login, where it is given none.

    A secret may be nowhere else.  One login with settings of another would be none.
    """
    if any(name.startswith(_OF_LOGINS) for name in given):
        return []
    return [name for name in left if name.startswith(_OF_SOURCES) and name not in given]


def _of_file(path: str) -> dict[str, str]:
    """What a file of a client says of its cluster; references to config providers are resolved."""
    properties = client_properties(path, "--source-config")
    try:
        return _of_source(path, resolve(properties))
    except ConfigError as error:
        raise CommandFailed(f"{path}: {error}") from error


def _of_source(path: str, properties: Mapping[str, str]) -> dict[str, str]:
    of_security = {name: text for name, text in properties.items() if name.startswith(_OF_SOURCES)}
    for name in of_security:
        if row_of(name) is None:
            raise CommandFailed(f"{path}: a link has no setting {name}")
    source = properties.get("bootstrap.servers")
    return of_security if source is None else {"bootstrap.servers": source, **of_security}
