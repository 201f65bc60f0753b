"""The client commands put together: names, help, and what a failure becomes.

Owns: the tree of commands and the one place where an exception turns into a line on stderr and an exit code.
"""

from __future__ import annotations

import errno
import importlib
import logging
import os
import signal
import sys
from collections.abc import Iterable, Sequence
from types import FrameType
from typing import Annotated, Any

import typer

from pybroker import __version__
from pybroker.cli.command_names import COMMANDS, EXIT_STATUS, SUMMARY
from pybroker.cli.terminal.failure import ExitCode, OutputClosed, describe_error, is_expected
from pybroker.cli.terminal.help_texts import name_values
from pybroker.cli.terminal.output import remark
from pybroker.cli.terminal.standard_streams import open_closed_streams, silence_stdout


def show_version(wanted: bool) -> None:
    """Print the installed version and end."""
    if wanted:
        print(f"pybroker {__version__}")
        raise typer.Exit


def root(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show the client library's log on stderr.")] = False,
) -> None:
    """A Kafka broker in Python, and the tools to talk to any Kafka cluster."""
    # The library warns about every retry; a person at a prompt wants the outcome.
    logging.basicConfig(level=logging.INFO if verbose else logging.CRITICAL, stream=sys.stderr)


def serve(context: typer.Context) -> None:
    """Run a broker: `pybroker serve --help` lists its options."""
    from pybroker.cli.serve.serve_command import run_serve

    raise typer.Exit(run_serve(context.args))


def module_of(name: str) -> str:
    """The name of the module that has a command."""
    return f"pybroker.cli.commands.{name.replace('-', '_')}"


def app_of(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """The tree of the named commands, whose modules are imported."""
    app = typer.Typer(
        name="pybroker",
        help=SUMMARY,
        epilog=EXIT_STATUS,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(root)
    for name in names:
        if name == "serve":
            its_own = {"ignore_unknown_options": True, "allow_extra_args": True}
            app.command(add_help_option=False, context_settings=its_own)(serve)
            continue
        module = importlib.import_module(module_of(name))
        if isinstance(group := getattr(module, "app", None), typer.Typer):
            app.add_typer(group, name=name)
        else:
            app.command(name=name)(getattr(module, module.__name__.rpartition(".")[2]))
    return app


def command_of(names: Iterable[str] = COMMANDS) -> Any:
    """The named commands as one that can be run, with help for people."""
    command: Any = typer.main.get_command(app_of(names))
    # Typer has groups behind all others.
    command.commands = {name: command.commands[name] for name in names}
    name_values(command, typer.Context(command, info_name="pybroker", **command.context_settings))
    return command


def wanted_commands(arguments: Sequence[str]) -> tuple[str, ...]:
    """The command that ``arguments`` name, or all of them: for the help, and for what is meant by a wrong name."""
    named = next((argument for argument in arguments if not argument.startswith("-")), None)
    return (named,) if named in COMMANDS else COMMANDS


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    """End like Ctrl-C does, so that a consumer leaves its group and a producer closes."""
    raise SystemExit(ExitCode.TERMINATED)


def is_text(argument: str) -> bool:
    """Whether an argument can be sent as Kafka's strings are, which are UTF-8."""
    try:
        argument.encode()
    except UnicodeEncodeError:
        return False
    return True


def _run(arguments: Sequence[str]) -> int:
    """Run the command; typer ends each with ``SystemExit``, a good one too."""
    try:
        command_of(wanted_commands(arguments))(args=list(arguments), prog_name="pybroker")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else ExitCode.OK
    return ExitCode.OK


def run_client(arguments: Sequence[str]) -> int:
    """Run one client command and return its exit code; no exception of a command leaves this function."""
    open_closed_streams()
    # Names of files may be any bytes; everything else goes to a broker or is compared with text.
    if strange := next((text for text in arguments if not is_text(text) and not os.path.exists(text)), None):
        remark(f"pybroker: not UTF-8: {strange!r}")
        return ExitCode.MISUSED
    signal.signal(signal.SIGTERM, _terminate)
    try:
        exit_code = _run(arguments)
        sys.stdout.flush()
    except (OutputClosed, BrokenPipeError):
        silence_stdout()
        exit_code = ExitCode.OK
    except KeyboardInterrupt:
        exit_code = ExitCode.INTERRUPTED
    except Exception as error:
        if not is_expected(error):
            raise
        remark(f"pybroker: {describe_error(error)}")
        if isinstance(error, OSError) and error.errno in {errno.EBADF, errno.ENOSPC}:
            silence_stdout()
        exit_code = ExitCode.FAILED
    return exit_code
