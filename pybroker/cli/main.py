"""The console script ``pybroker``.

Owns: the fork in the road between ``serve`` (what every install has; start-up counts) and the client commands
(typer, rich, client libraries: the extra ``cli``).  Owns no command.
"""

from __future__ import annotations

import sys
from typing import Final

_FAILED: Final = 1
_INTERRUPTED: Final = 130


def main() -> None:
    """Run the command line of this process and exit with its code: 0 done, 1 failed, 2 used wrongly."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["serve"]:
        try:
            from pybroker.cli.serve import run_serve

            sys.exit(run_serve(arguments[1:]))
        except KeyboardInterrupt:
            # Ctrl-C before the broker heeds signals: nothing runs yet, and the shell's code says it all.
            sys.exit(_INTERRUPTED)

    from pybroker.cli.requirements import unmet_requirements

    if unmet := unmet_requirements():
        print(
            f"pybroker: all commands but serve need {', '.join(unmet)}: pip install 'pybroker[cli]'",
            file=sys.stderr,
        )
        sys.exit(_FAILED)

    from pybroker.cli.app import run_client

    sys.exit(run_client(arguments))
