"""The console script ``pybroker``.

Owns: the fork in the road between ``serve`` (what every install has; start-up counts) and the client commands
(typer, rich, client libraries: the extra ``cli``).  Owns no command.
"""

from __future__ import annotations

import sys
from typing import Final

from pybroker import __version__

_FAILED: Final = 1
_MISUSED: Final = 2
_HELP: Final = ((), ("--help",), ("-h",))
_INTERRUPTED: Final = 130


def _run_base(arguments: list[str], unmet: list[str]) -> int:
    """What there is of the command line where the extra is not installed; the exit code."""
    from pybroker.cli.command_names import COMMANDS, base_help
    from pybroker.extras import how_to_install

    if tuple(arguments) in _HELP:
        print(base_help(), end="")
        return 0
    if arguments == ["--version"]:
        print(f"pybroker {__version__}")
        return 0
    if arguments[0] in COMMANDS:
        why = f"`pybroker {arguments[0]}` needs {', '.join(unmet)}: {how_to_install('cli')}"
    else:
        why = f"there is no command {arguments[0]!r}; see `pybroker --help`"
    print(f"pybroker: {why}", file=sys.stderr)
    return _FAILED if arguments[0] in COMMANDS else _MISUSED


def main() -> None:
    """Run the command line of this process and exit with its code: 0 done, 1 failed, 2 used wrongly."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["serve"]:
        try:
            from pybroker.cli.serve.serve_command import run_serve

            sys.exit(run_serve(arguments[1:]))
        except KeyboardInterrupt:
            # Ctrl-C before the broker heeds signals: nothing runs yet, and the shell's code says it all.
            sys.exit(_INTERRUPTED)

    from pybroker.cli.requirements import unmet_requirements

    if unmet := unmet_requirements():
        sys.exit(_run_base(arguments, unmet))

    from pybroker.cli.commands.app import run_client

    sys.exit(run_client(arguments))
