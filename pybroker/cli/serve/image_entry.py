"""The entry point of the container image: ``python -m pybroker.cli.serve.image_entry [ARGUMENT...]``.

Owns: the order in which file, variables and arguments count, and what is said of variables that set nothing.
The arguments are those of ``pybroker serve``, which runs in this process, the container's first, to which signals go.
Owns no name of a variable (``image_settings``) and no setting's meaning (``config``).

The later wins: SETTINGS_FILE or ``--config``, variables, arguments.

Invariant: no value of a variable is an argument of a process: it may be a secret.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Final, NoReturn

from pybroker.cli.serve.image_settings import DATA_DIR, HOST_PORT, SETTINGS_FILE, from_variables, listener_settings
from pybroker.cli.serve.serve_command import build_parser, run_serve

_FAILED: Final = 1
_ENDED_BY: Final = 128  # and the signal's number


def main(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Serve until SIGTERM or SIGINT; the exit code is that of ``pybroker serve``."""
    from pybroker.config.schema import ConfigError

    heed_early_stops()
    options = build_parser().parse_args(arguments)
    try:
        completed = serve_arguments(arguments, options, environment)
    except ConfigError as error:
        say(str(error))
        return _FAILED
    return run_serve(completed)


def heed_early_stops() -> None:
    """End at a signal before the broker heeds it: of SIGTERM a container's first process has no default."""

    def end(number: int, _frame: object) -> NoReturn:
        sys.exit(_ENDED_BY + number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)


def serve_arguments(arguments: Sequence[str], options: Namespace, environment: Mapping[str, str]) -> list[str]:
    """``arguments``, which are ``options``, with those that stand for variables, file and the image's defaults.

    Raises ConfigError for a file that cannot be read, for variables that contradict each other, and for a quorum that
    would be that many lone brokers.
    """
    from pybroker.config.named_files import read_named_text
    from pybroker.config.properties import parse_properties
    from pybroker.config.schema import ConfigError

    try:
        found = from_variables(environment, read_named_text)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    say_without_effect(found.of_the_jvm, "they are of the JVM, or of its image, and there is none")
    say_without_effect(found.of_kubernetes, "Kubernetes sets them for a service that is called kafka")
    own = known(found.settings)
    added: list[str] = []
    listeners: dict[str, str] = {}
    config_file = options.config
    if config_file is None and os.path.exists(SETTINGS_FILE):
        config_file = SETTINGS_FILE
        added += ["--config", config_file]
    of_file = {} if config_file is None else parse_properties(read_named_text(config_file, "--config"))
    given = {**of_file, **own, **dict(options.settings)}
    refuse_split_quorum(given)
    if options.workers is None and not options.listen:
        listeners = listener_settings(given, socket.gethostname())
    elif options.workers is not None and not (options.listen or given.get("listeners")):
        added += ["--listen", f"0.0.0.0:{HOST_PORT}"]
    if options.data_dir is None and not given.keys() & {"log.dir", "log.dirs"}:
        added += ["--data-dir", DATA_DIR]
    # Arguments win, but may not say a second time what they say already.
    passed_over = {"listeners"} if options.listen else set()
    passed_over |= {"log.dir", "log.dirs"} if options.data_dir is not None else set()
    variables = {name: value for name, value in own.items() if name not in passed_over}
    return [*added, *as_arguments(variables), *arguments, *as_arguments(listeners)]


def as_arguments(settings: Mapping[str, str]) -> list[str]:
    """The settings as ``pybroker serve`` takes them."""
    return [f"--set={name}={value}" for name, value in settings.items()]


def known(settings: Mapping[str, str]) -> dict[str, str]:
    """Those of variables that are settings of a broker; of others a line, as of what a file sets in vain."""
    from pybroker.config.names import OF_PROVIDERS, OF_THE_AUTHORIZER, base_name
    from pybroker.config.without_effect import suggestion

    found = {}
    for name, value in settings.items():
        if base_name(name) is not None or name in OF_THE_AUTHORIZER or name.startswith(OF_PROVIDERS):
            found[name] = value
        else:
            say(f"{name} has no effect: it is no setting that is known here{suggestion(name)}")
    return found


def refuse_split_quorum(given: Mapping[str, str]) -> None:
    """ConfigError where several controllers are named and no metadata store is: each would begin a cluster alone."""
    from pybroker.config.schema import ConfigError

    voters = given.get("controller.quorum.voters") or given.get("controller.quorum.bootstrap.servers") or ""
    count = len([voter for voter in voters.split(",") if voter.strip()])
    if count > 1 and not given.get("pybroker.metadata"):
        raise ConfigError(
            f"the quorum of {count} controllers would be {count} brokers that are alone: brokers of one cluster share "
            "a metadata store, which KAFKA_PYBROKER_METADATA=zookeeper://HOST:PORT names"
        )


def say_without_effect(variables: Sequence[str], why: str) -> None:
    """One line for variables that set nothing."""
    if variables:
        say(f"{', '.join(variables)}: no effect; {why}")


def say(line: str) -> None:
    """A line on standard error, as the broker's own refusals are."""
    print(f"pybroker: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
