"""Commands that ask a cluster's brokers: what all of them take and need, declared once.

Owns: the options behind every such command's own (``--bootstrap``, ``--command-config``, ``-X``, ``--json``) and the
``Session`` made of them.  A command says its own parameters after the session's, and checks them before it opens a
client.  Options that several commands share are the fields of a ``NamedTuple``, which is one parameter of each.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, get_type_hints

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


def _is_shared(parameter: inspect.Parameter) -> bool:
    """Whether a parameter stands for several options."""
    return hasattr(parameter.annotation, "_fields")


def _options_of(parameter: inspect.Parameter) -> list[inspect.Parameter]:
    """The options that a parameter of a command stands for."""
    if not _is_shared(parameter):
        return [parameter]
    shared = parameter.annotation
    return [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=shared._field_defaults.get(name, inspect.Parameter.empty),
            annotation=annotation,
        )
        for name, annotation in get_type_hints(shared, include_extras=True).items()
    ]


def admin_command(app: typer.Typer, name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a function of a ``Session`` and keyword-only options as the command ``name`` of ``app``."""

    def register(command: Callable[..., None]) -> Callable[..., None]:
        own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]

        def run(
            *, bootstrap: str, command_config: str | None, properties: list[str], as_json: bool, **given: Any
        ) -> None:
            options = ClientOptions(bootstrap, properties, command_config)
            arguments = {
                each.name: each.annotation(**{field: given[field] for field in each.annotation._fields})
                if _is_shared(each)
                else given[each.name]
                for each in own
            }
            command(Session(options, Output(as_json=as_json)), **arguments)

        common = inspect.signature(_common, eval_str=True).parameters.values()
        signature = inspect.Signature([*(option for each in own for option in _options_of(each)), *common])
        run.__signature__ = signature  # type: ignore[attr-defined]  # what inspect looks for first
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in signature.parameters.values()}
        run.__name__, run.__doc__ = command.__name__, command.__doc__
        app.command(name)(run)
        return command

    return register
