"""A PostgreSQL of one's own, of the system's package: in a temporary directory, on loopback, as long as a `with`.

Owns the server's life.  PostgreSQL refuses to run as root: then it runs as the user ``postgres``, or as ``nobody``.
It can be stopped and started again on the same data and port, which is what an outage looks like to a client.
"""

import os
import pwd
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from examples.flights.failures import RunFailed

DRIVER_JAR = "org.postgresql:postgresql:42.7.8"

SUPERUSER = "tour"
DATABASE = "postgres"
WITHIN_S = 60.0
# Debian's packages keep the server's programs out of PATH.
DEBIAN_PROGRAMS = Path("/usr/lib/postgresql")

# The data are worth nothing after the run.
SETTINGS = {"fsync": "off", "listen_addresses": "127.0.0.1", "max_connections": "50"}


class PostgresMissing(RunFailed):
    """PostgreSQL is not installed."""


class PostgresFailed(RunFailed):
    """PostgreSQL did not start."""


def program(name: str) -> Path:
    """A program of the server, the newest of those installed; raises `PostgresMissing`."""
    if on_path := shutil.which(name):
        return Path(on_path)
    versions = sorted(DEBIAN_PROGRAMS.glob(f"*/bin/{name}"), key=lambda path: float(path.parts[-3]))
    if not versions:
        raise PostgresMissing("PostgreSQL is not installed: apt-get install postgresql, or let scripts/demo do it")
    return versions[-1]


@contextmanager
def own_postgres(settings: Mapping[str, str] | None = None) -> Iterator["Postgres"]:
    """A running server with an empty database; `settings` go before `SETTINGS`.

    Raises `PostgresMissing` and `PostgresFailed`.
    """
    user = _unprivileged_user()
    directory = Path(tempfile.mkdtemp(prefix="pybroker-postgres-"))
    try:
        if user is not None:
            os.chown(directory, user.pw_uid, user.pw_gid)
        server = Postgres(directory, user, {**SETTINGS, **(settings or {})})
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(directory)


class Postgres:
    """A server and where it is reached."""

    def __init__(self, directory: Path, user: pwd.struct_passwd | None, settings: Mapping[str, str]) -> None:
        self._data_dir = directory / "data"
        self._log_path = directory / "postgres.log"
        self._socket_dir = directory
        self._user = user
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self.password = secrets.token_hex(16)
        self._initialize(directory / "password")
        self.port = _free_port()

    @property
    def jdbc_url(self) -> str:
        """Where the database is, without who one is."""
        return f"jdbc:postgresql://127.0.0.1:{self.port}/{DATABASE}"

    @property
    def jdbc_properties(self) -> dict[str, str]:
        """Who one is, and which driver to take."""
        return {"user": SUPERUSER, "password": self.password, "driver": "org.postgresql.Driver"}

    def start(self) -> None:
        """Start the server and wait until it answers; raises `PostgresFailed`."""
        settings = {**self._settings, "port": str(self.port), "unix_socket_directories": str(self._socket_dir)}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [str(program("postgres")), "-D", str(self._data_dir), *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=self._data_dir,
                **self._identity(),
            )
        deadline = monotonic() + WITHIN_S
        while not self._answers():
            if self._process.poll() is not None or monotonic() > deadline:
                self.stop()
                raise PostgresFailed(f"PostgreSQL did not start; its log ends: {self._log_path.read_text()[-1000:]}")
            sleep(0.05)

    def stop(self) -> None:
        """End the server and its connections at once, as a restart by an administrator does; data stay."""
        if self._process is None:
            return
        self._process.send_signal(2)  # SIGINT: "fast shutdown"
        try:
            self._process.wait(WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def sql(self, text: str, rows: str = "") -> list[str]:
        """The lines that psql prints for statements, without headings; raises `PostgresFailed`.

        ``rows`` are what ``COPY … FROM STDIN`` reads.
        """
        address = {"PGHOST": "127.0.0.1", "PGPORT": str(self.port), "PGDATABASE": DATABASE}
        done = subprocess.run(
            [str(program("psql")), "-qAtX", "-v", "ON_ERROR_STOP=1", "-c", text],
            input=rows,
            env={**os.environ, **address, "PGUSER": SUPERUSER, "PGPASSWORD": self.password},
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
        if done.returncode != 0:
            raise PostgresFailed(f"PostgreSQL refused a statement: {done.stderr.strip()[-1000:]}")
        return done.stdout.split("\n")[:-1]

    def _initialize(self, password_file: Path) -> None:
        password_file.write_text(self.password)
        if self._user is not None:
            os.chown(password_file, self._user.pw_uid, self._user.pw_gid)
        command = [str(program("initdb")), "-D", str(self._data_dir), "-U", SUPERUSER, "--pwfile", str(password_file)]
        made = subprocess.run(
            [*command, "-A", "scram-sha-256", "-E", "UTF8", "--locale=C", "--no-sync"],
            capture_output=True,
            text=True,
            check=False,
            cwd=password_file.parent,
            **self._identity(),
        )
        password_file.unlink()
        if made.returncode != 0:
            raise PostgresFailed(f"PostgreSQL made no database: {(made.stderr or made.stdout).strip()[-1000:]}")

    def _identity(self) -> dict[str, Any]:
        if self._user is None:
            return {}
        return {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": []}

    def _answers(self) -> bool:
        asked = subprocess.run(
            [str(program("pg_isready")), "-q", "-h", "127.0.0.1", "-p", str(self.port), "-d", DATABASE],
            stdin=subprocess.DEVNULL,
            check=False,
        )
        return asked.returncode == 0


def _unprivileged_user() -> pwd.struct_passwd | None:
    """Who runs the server in root's place; None where this process is not root's."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise PostgresFailed("PostgreSQL does not run as root, and there is no user postgres or nobody")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
