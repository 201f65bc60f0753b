"""Commands that ask a cluster's brokers: what all of them take and need, declared once.

Owns: the options behind every such command's own (``--bootstrap``, ``--command-config``, ``-X``, ``--json``) and the
``Session`` made of them.  A command says its own parameters after the session's, and checks them before it opens a
client.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import typer

from pybroker.cli.connection.admin_client import AdminClient, admin_client
from pybroker.cli.connection.client_settings import ClientOptions
from pybroker.cli.terminal.options import DEFAULT_BOOTSTRAP, Bootstrap, ClientProperties, CommandConfig, Json
from pybroker.cli.terminal.output import Output


@dataclass(frozen=True, slots=True)
class Session:
    """The brokers that a command asks, and how it answers."""

    options: ClientOptions
    output: Output

    def client(self) -> AbstractContextManager[AdminClient]:
        """A connected client, closed at the end of the block."""
        return admin_client(self.options)

    def same_cluster(self) -> list[str]:
        """Arguments by which another command asks the same cluster; of ``-X`` the names: one may be a password."""
        bootstrap, properties, file = self.options
        arguments = [] if bootstrap == DEFAULT_BOOTSTRAP else ["--bootstrap", bootstrap]
        arguments += [] if file is None else ["--command-config", file]
        return arguments + [word for each in properties for word in ("-X", f"{each.partition('=')[0]}=...")]


def _common(
    *,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    properties: ClientProperties,
    as_json: Json = False,
) -> None:
    """The options that every command has, as typer reads them."""


def admin_command(app: typer.Typer, name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a function of a ``Session`` and keyword-only options as the command ``name`` of ``app``."""

    def register(command: Callable[..., None]) -> Callable[..., None]:
        def run(
            *, bootstrap: str, command_config: str | None, properties: list[str], as_json: bool, **own: Any
        ) -> None:
            options = ClientOptions(bootstrap, properties, command_config)
            command(Session(options, Output(as_json=as_json)), **own)

        own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
        common = inspect.signature(_common, eval_str=True).parameters.values()
        signature = inspect.Signature([*own, *common])
        run.__signature__ = signature  # type: ignore[attr-defined]  # what inspect looks for first
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in signature.parameters.values()}
        run.__name__, run.__doc__ = command.__name__, command.__doc__
        app.command(name)(run)
        return command

    return register
