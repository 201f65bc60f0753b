"""``pybroker serve --workers N``: several brokers on one machine that are one cluster, as one command.

Owns: the arguments of each worker.  Worker i has the ports + i, the node id + i and ``DIR/worker-i`` of each data dir;
the metadata they share lies in ``DIR/metadata.db``, unless ``pybroker.metadata`` says otherwise.  Does not own their
processes (``supervisor``).

Invariant: no setting that all share, and no user, is an argument of a worker's process: it may be a secret.
"""

from __future__ import annotations

import asyncio
import re
import socket
import sys
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Final

from pybroker.cli.serve.supervisor import Member, Supervisor
from pybroker.cli.serve.worker_count import automatic_count
from pybroker.cli.terminal.failure import exit_code_of
from pybroker.cli.terminal.standard_streams import log_to_stderr, say
from pybroker.config.broker import BrokerConfig, internal_topic_factors
from pybroker.config.listeners import bound_hosts, listeners_of
from pybroker.config.schema import ConfigError
from pybroker.operating_system import cannot_listen

METADATA_FILE: Final = "metadata.db"
COMMAND: Final = (sys.executable, "-m", "pybroker", "serve")

# What is different for each broker of one machine.
OWN_SETTINGS: Final = frozenset(
    {"node.id", "broker.id", "log.dir", "log.dirs", "metadata.log.dir", "listeners", "advertised.listeners"}
)
_METADATA: Final = "pybroker.metadata"
_PORT: Final = re.compile(r"(?<=:)\d+$")
_ADDRESS: Final = re.compile(r"(?:[^/]*://)?(?P<host>.*):(?P<port>\d+)")
_ANY_HOST: Final = frozenset({"", "0.0.0.0", "[::]"})


def run_workers(
    wanted: int | str,
    *,
    listen: Sequence[str],
    data_dir: str | None,
    config_file: str | None,
    settings: Sequence[tuple[str, str]],
    dev: bool,
    add_scram: Sequence[str] = (),
) -> int:
    """Run so many workers, or as many as suit (``auto``), until SIGTERM or SIGINT.

    The result is the exit code: 1 when one could not start, 2 for wrong use.
    """
    log_to_stderr()
    try:
        config = BrokerConfig.load(
            config_file=config_file, settings=settings, listen=listen, data_dir=data_dir, dev=dev
        )
        count = wanted if isinstance(wanted, int) else automatic_count(config.log_dirs)
        require_ports_apart(listen or config.get_list("listeners"), count)
        listeners = listeners_of(config)
        url = _shared_metadata(config)
    except (ConfigError, OSError) as error:
        return _refuse(error)
    common = [*COMMAND, *(("--config", config_file) if config_file else ()), *(("--dev",) if dev else ())]
    unseen = [f"--set={name}={value}" for name, value in settings if name not in {*OWN_SETTINGS, _METADATA}]
    unseen += [f"--add-scram={user}" for user in add_scram]
    factors = {name: value for name, value in internal_topic_factors(count).items() if not config.is_set(name)}
    common += [word for name, value in factors.items() for word in ("--set", f"{name}={value}")]
    common += ["--set", f"{_METADATA}={url}"]
    members = [
        Member(
            f"worker {i}",
            [*common, *_own_arguments(config, listen, i)],
            data_dirs=_own_dirs(config, i),
            unseen=unseen,
        )
        for i in range(count)
    ]
    try:
        require_free_ports(members, [(each.host, each.port) for each in listeners])
    except OSError as error:
        return _refuse(error)

    async def serve() -> int:
        supervisor = Supervisor(members, url, config.get_int("pybroker.metadata.session.timeout.ms"), restarts=True)
        return await supervisor.run(lambda: say(f"pybroker ready on {members[0].address}"))

    return asyncio.run(serve())


def _refuse(error: Exception) -> int:
    print(f"pybroker: {error}", file=sys.stderr)
    return exit_code_of(error)


def _shared_metadata(config: BrokerConfig) -> str:
    """The url of the store that the workers share; it lies above their directories, which they make."""
    refuse_directory_of_one(config.log_dirs)
    if config[_METADATA] is not None:
        return config.get_str(_METADATA)
    return f"sqlite://{Path(config.log_dirs[0]).absolute() / METADATA_FILE}"


def refuse_directory_of_one(directories: Sequence[str]) -> None:
    """ConfigError where a broker has its data in what is to be above the directories of several."""
    for directory in directories:
        if (Path(directory) / "meta.properties").exists():
            raise ConfigError(f"{directory} holds the data of a single broker: several need a directory of their own")


def _own_dirs(config: BrokerConfig, number: int) -> list[Path]:
    return [Path(directory) / f"worker-{number}" for directory in config.log_dirs]


def _own_arguments(config: BrokerConfig, listen: Sequence[str], number: int) -> list[str]:
    dirs = ",".join(map(str, _own_dirs(config, number)))
    node_id = config.node_id + number
    # Both names of it: a file may have the older one, and they have to say the same.
    arguments = ["--data-dir", dirs, "--set", f"node.id={node_id}", "--set", f"broker.id={node_id}"]
    if config["metadata.log.dir"]:
        arguments += ["--set", f"metadata.log.dir={Path(config['metadata.log.dir']) / f'worker-{number}'}"]
    if listen:
        arguments += [word for address in listen for word in ("--listen", shifted(address, number))]
    else:
        arguments += ["--set", f"listeners={_shifted_list(config.get_list('listeners'), number)}"]
    if config["advertised.listeners"]:
        arguments += ["--set", f"advertised.listeners={_shifted_list(config['advertised.listeners'], number)}"]
    return arguments


def _shifted_list(addresses: Sequence[str], number: int) -> str:
    return ",".join(shifted(address, number) for address in addresses)


def shifted(address: str, number: int) -> str:
    """``HOST:PORT`` with a port so much higher; 0 stays 0, which is any."""
    return _PORT.sub(lambda port: str(int(port[0]) + number if int(port[0]) else 0), address)


def require_ports_apart(addresses: Sequence[str], count: int) -> None:
    """ConfigError where one worker would have the port of another one's other listener."""
    found = [match for match in map(_ADDRESS.fullmatch, addresses) if match is not None and int(match["port"])]
    for one, other in combinations(found, 2):
        is_near = 0 < abs(int(one["port"]) - int(other["port"])) < count
        if is_near and _share_an_address(one["host"], other["host"]):
            raise ConfigError(
                f"{one[0]} and {other[0]} are too close for {count} workers, of which worker i has the port + i: "
                f"the ports of two listeners must be at least {count} apart"
            )


def require_free_ports(members: Sequence[Member], addresses: Sequence[tuple[str, int]]) -> None:
    """OSError where a broker could not listen, of which member i has the ports + i: before any of them begins."""
    for number, member in enumerate(members):
        for host, port in addresses:
            if port and not member.is_preceded:
                _try_to_listen(host, port + number)


def _try_to_listen(host: str, port: int) -> None:
    hosts: Sequence[str | None] = bound_hosts(host) or (None,)
    try:
        for each in hosts:
            for family, kind, _, _, address in socket.getaddrinfo(
                each, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            ):
                with socket.socket(family, kind) as trial:
                    trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    if family == socket.AF_INET6:
                        trial.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                    trial.bind(address)
    except OSError as error:
        raise cannot_listen(host, port, error) from error


def _share_an_address(one: str, other: str) -> bool:
    return one == other or not _ANY_HOST.isdisjoint((one, other)) or not _addresses(one).isdisjoint(_addresses(other))


def _addresses(host: str) -> set[str]:
    """Those that a name has here; none of an unknown name, which listening will complain of."""
    try:
        return {str(found[4][0]) for found in socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError):
        return set()
