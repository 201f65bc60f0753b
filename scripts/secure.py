"""``scripts/run --secure``: a broker with TLS, logins and ACLs, and what clients are told to get in.

Owns: the keys, the passwords and the settings beside the data, made once (certificates anew when they have ended), and
what is printed of them: never a password, but the file that has it.  Then it becomes ``pybroker serve``.
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509

from pybroker.security.certificate_authority import (
    CA_FILE,
    CA_KEY_FILE,
    CertificatesRefused,
    write_certificates,
)
from pybroker.security.client_access import ClientAccess
from pybroker.security.scram import SHA_512
from pybroker.security.standard_authorizer import STANDARD_AUTHORIZER

ADMIN = "admin"
HOSTS = ("localhost", "127.0.0.1", "::1")
# What ends with the authority, and is made anew together.
MADE = (CA_FILE, CA_KEY_FILE, "broker.pem", f"{ADMIN}.pem")
CLIENTS = {
    "kafka-python": ("from kafka import KafkaProducer", "KafkaProducer(**settings)"),
    "confluent-kafka": ("from confluent_kafka import Producer", "Producer(settings)"),
}


def write_secret(file: Path, text: str) -> None:
    """Write a new file that nobody else may read."""
    file.touch(0o600, exist_ok=False)
    file.write_text(text)


def properties(settings: dict[str, str]) -> str:
    """A file of properties; nothing here needs its escapes."""
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def has_ended(authority: Path) -> bool:
    """Whether there is an authority, which all certificates end with, whose time is over."""
    if not authority.exists():
        return False
    return x509.load_pem_x509_certificate(authority.read_bytes()).not_valid_after_utc <= datetime.now(UTC)


def prepare(keys: Path, hosts: list[str]) -> None:
    """Make keys and the password; what was made by an earlier start stays, unless its certificates have ended."""
    keys.mkdir(mode=0o700, parents=True, exist_ok=True)
    if has_ended(keys / CA_FILE):
        print(f"The certificates in {keys} have ended, and are made anew: clients need the new {CA_FILE}.")
        for name in MADE:
            (keys / name).unlink(missing_ok=True)
    if not (keys / CA_FILE).exists():
        try:
            write_certificates(keys, servers={"broker": hosts}, clients=[ADMIN], for_java=False)
        except CertificatesRefused as error:
            sys.exit(f"scripts/run: {error}; remove {', '.join(MADE)} from {keys}, and they are made anew")
    password = keys / f"{ADMIN}.password"
    if not password.exists():
        write_secret(password, secrets.token_urlsafe(18))


def server_settings(keys: Path, listen: str) -> dict[str, str]:
    """What the broker is told."""
    return {
        "listeners": f"SASL_SSL://{listen}",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keys / "broker.pem"),
        "sasl.enabled.mechanisms": SHA_512.name,
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": f"User:{ADMIN}",
        "group.initial.rebalance.delay.ms": "0",
    }


def described(keys: Path, listen: str) -> str:
    """What is printed for whoever connects: each snippet runs as it stands."""
    password, client_file = keys / f"{ADMIN}.password", keys / f"{ADMIN}.properties"
    access = ClientAccess(listen, "SASL_SSL", keys / CA_FILE, None, SHA_512.name, ADMIN, "?")
    parts = [f"The user {ADMIN} may do everything here.  Keys and the password lie in {keys}.\n"]
    for library, (imported, used) in CLIENTS.items():
        entries = [
            f"    {name!r}: open({str(password)!r}).read(),"
            if name.endswith("password")
            else f"    {name!r}: {text!r},"
            for name, text in access.settings(library).items()
        ]
        lines = (imported, "settings = {", *entries, "}", used)
        parts.append("\n".join((f"{library}:", *(f"    {line}" for line in lines), "")))
    read = f'settings = dict(line.split("=", 1) for line in open({str(client_file)!r}).read().splitlines())'
    options = '.options(**{f"kafka.{name}": value for name, value in settings.items()})'
    tool = f"kafka-topics.sh --list --bootstrap-server {listen} --command-config {client_file}"
    parts += [
        f"Java, and Kafka's own tools:\n    {tool}\n",
        f'Spark:\n    {read}\n    spark.readStream.format("kafka"){options}\n',
        f"pybroker's commands:\n    export PATH={Path(sys.executable).parent}:$PATH\n"
        f"    export PYBROKER_BOOTSTRAP={listen} PYBROKER_COMMAND_CONFIG={client_file}\n"
        "    pybroker users create alice\n"
        "    pybroker acls add --principal User:alice --topic greetings --group readers --operation all\n",
    ]
    return "\n".join(parts)


def main() -> None:
    """Prepare, tell, and serve."""
    parser = argparse.ArgumentParser(prog="scripts/run --secure", allow_abbrev=False)
    parser.add_argument("--listen", metavar="HOST:PORT", default="127.0.0.1:9092")
    parser.add_argument("--data-dir", metavar="DIR", required=True)
    options, others = parser.parse_known_args()
    keys = Path(f"{options.data_dir.rstrip('/')}-keys").absolute()
    host = options.listen.rpartition(":")[0].strip("[]")
    prepare(keys, list(dict.fromkeys((*HOSTS, host or "localhost"))))
    password = (keys / f"{ADMIN}.password").read_text()
    client = ClientAccess(options.listen, "SASL_SSL", keys / CA_FILE, None, SHA_512.name, ADMIN, password)
    for name, text in (
        ("server.properties", properties(server_settings(keys, options.listen))),
        (f"{ADMIN}.properties", properties(client.settings("java"))),
        ("users", f"{SHA_512.name}=[name={ADMIN},password={password}]\n"),
    ):
        (keys / name).unlink(missing_ok=True)
        write_secret(keys / name, text)
    print(described(keys, options.listen), flush=True)
    command = [str(Path(sys.executable).parent / "pybroker"), "serve", "--config", str(keys / "server.properties")]
    os.execv(command[0], [*command, "--add-scram", f"@{keys / 'users'}", "--data-dir", options.data_dir, *others])


if __name__ == "__main__":
    main()
