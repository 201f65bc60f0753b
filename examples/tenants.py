"""Two tenants on one broker, who cannot see, stop or starve each other: ``scripts/demo --tenants``.

Starts a broker with logins and ACLs, makes the tenants ``blue`` and ``red`` by ``pybroker tenants create``, and shows
what red can do to blue: nothing by name, and by load as much as its quotas let it.  Ends with 1 where that is not so.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.synchronize import Event
from pathlib import Path
from statistics import quantiles
from typing import Any, NamedTuple

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from harness.pybroker_process import COMMAND, serving

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:root",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{PLAIN} required user_root="root-secret";',
}
QUOTAS = {"producer_byte_rate": 4e6, "request_percentage": 20.0}
# The 99th percentile of blue's sends beside red, which its quotas hold: bounds that a slow machine keeps, too.
P99_MS_MAX = 250.0
FLOOD_PROCESSES = 2


class Tenant(NamedTuple):
    """A tenant's login, as librdkafka takes it."""

    name: str
    login: dict[str, str]


class Cluster:
    """The broker, as its administrator and its tenants see it."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.root = self.login("PLAIN", "root", "root-secret")

    def login(self, mechanism: str, user: str, password: str) -> dict[str, str]:
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
        }

    def command(self, login: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command as somebody."""
        options = [
            each for name, text in login.items() if name != "bootstrap.servers" for each in ("-X", f"{name}={text}")
        ]
        return subprocess.run(
            [COMMAND, *arguments, "-b", self.bootstrap, *options],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    def tenant(self, name: str) -> Tenant:
        """Make one."""
        quotas = [each for key, value in QUOTAS.items() for each in (f"--{key.replace('_', '-')}", str(value))]
        made = self.command(self.root, "tenants", "create", name, *quotas, "--json")
        if made.returncode:
            sys.exit(made.stderr)
        (user,) = json.loads(made.stdout)
        return Tenant(name, self.login(user["mechanism"], name, user["password"]))


def send_steadily(tenant: Tenant, seconds: float) -> list[float]:
    """A hundred records a second, one after another; how long each took, in ms."""
    producer = Producer({**tenant.login, "linger.ms": 0, "acks": "all"})
    took: list[float] = []
    ends = time.monotonic() + seconds
    while (begun := time.monotonic()) < ends:
        producer.produce(f"{tenant.name}.steady", b"x" * 100)
        producer.flush(30)
        took.append((time.monotonic() - begun) * 1000)
        time.sleep(max(0.0, 0.01 - (time.monotonic() - begun)))
    return took[10:]  # without the connection and the topic


def flood(tenant: Tenant, stop: Event, sent: Any) -> None:
    """As much as a client can send, in small and large records, until told to stop."""
    producer = Producer(
        {**tenant.login, "linger.ms": 0, "batch.num.messages": 10, "queue.buffering.max.messages": 2_000}
    )

    def count(error: object, message: Any) -> None:
        if error is None:
            with sent.get_lock():
                sent.value += len(message)

    while not stop.is_set():
        try:
            producer.produce(f"{tenant.name}.flood", b"y" * 2_000, callback=count)
        except BufferError:
            producer.poll(0.05)
        producer.poll(0)
    producer.purge()
    producer.flush(1)


def beside_a_flood(quiet: Tenant, loud: Tenant, seconds: float) -> tuple[list[float], float]:
    """``send_steadily`` of one while the other floods: what it took, and the flood's bytes per second."""
    context = multiprocessing.get_context("spawn")
    stop, sent = context.Event(), context.Value("q", 0)
    floods = [context.Process(target=flood, args=(loud, stop, sent)) for _ in range(FLOOD_PROCESSES)]
    for each in floods:
        each.start()
    try:
        # What its quota lets through at once, a window's worth, is no part of this.
        deadline = time.monotonic() + 60
        while sent.value < 10 * QUOTAS["producer_byte_rate"] and time.monotonic() < deadline:
            time.sleep(0.1)
        before, begun = sent.value, time.monotonic()
        took = send_steadily(quiet, seconds)
        return took, (sent.value - before) / (time.monotonic() - begun)
    finally:
        stop.set()
        for each in floods:
            each.join(20)
            if each.is_alive():
                each.kill()


def line(what: str, took: list[float], note: str = "") -> float:
    """Print the latencies; the 99th percentile."""
    cuts = quantiles(took, n=100)
    print(f"  {what:<44} p50 {cuts[49]:7.2f} ms   p99 {cuts[98]:7.2f} ms   {note}")
    return cuts[98]


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/demo --tenants", description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    seconds = parser.parse_args().seconds
    options = [each for name, text in SETTINGS.items() for each in ("--set", f"{name}={text}")]
    with tempfile.TemporaryDirectory(prefix="tenants-") as directory:
        listen = ["--listen", "SASL_PLAINTEXT://127.0.0.1:0", "--data-dir", str(Path(directory) / "data")]
        with (
            (Path(directory) / "broker.log").open("w") as log,
            serving([COMMAND, "serve", *listen, *options], log) as broker,
        ):
            failures = show(Cluster(broker.bootstrap), seconds)
            broker.stop()
    print("\n".join(["", *failures]) if failures else "\nThey cannot see, stop or starve each other.")
    return 1 if failures else 0


def show(cluster: Cluster, seconds: float) -> list[str]:
    """The three parts; what was not as it should be."""
    blue, red = cluster.tenant("blue"), cluster.tenant("red")
    print("Two tenants, made by `pybroker tenants create`:")
    print(cluster.command(cluster.root, "tenants", "list").stdout)
    send_steadily(blue, 1.0)
    failures = unseen(blue, red) + unstopped(cluster, blue, red)
    print("They cannot starve each other: blue sends a hundred records a second,")
    line("alone", send_steadily(blue, seconds))
    took, rate = beside_a_flood(blue, red, seconds)
    p99_ms = line("while red sends all it can, within its quotas", took, f"red {rate / 1e6:.1f} MB/s")
    if p99_ms > P99_MS_MAX:
        failures.append(f"blue's p99 beside red is {p99_ms:.0f} ms, over {P99_MS_MAX:.0f}")
    if rate > 1.5 * QUOTAS["producer_byte_rate"]:
        failures.append(f"red sent {rate / 1e6:.1f} MB/s, and its quota is {QUOTAS['producer_byte_rate'] / 1e6:.1f}")
    quotas = [*QUOTAS]
    cluster.command(cluster.root, "quotas", "remove", "--user", "red", *quotas)
    took, rate = beside_a_flood(blue, red, seconds)
    line("and without any quota, to compare", took, f"red {rate / 1e6:.1f} MB/s")
    return failures


def unseen(blue: Tenant, red: Tenant) -> list[str]:
    seen = {name: sorted(AdminClient(dict(login)).list_topics(timeout=20).topics) for name, login in (blue, red)}
    print(f"They cannot see each other: blue sees {seen['blue']}, red sees {seen['red']}.\n")
    return [] if seen == {"blue": ["blue.steady"], "red": []} else ["they see each other"]


def unstopped(cluster: Cluster, blue: Tenant, red: Tenant) -> list[str]:
    """What red tries, and what it is told."""
    print("They cannot stop each other; red tries:")

    def fence() -> None:
        producer = Producer({**red.login, "transactional.id": "blue.payments", "log_level": 0})
        producer.init_transactions(20)

    attempts: dict[str, Callable[[], object]] = {
        "delete blue.steady": lambda: cluster.command(red.login, "topics", "delete", "blue.steady"),
        "make blue.mine": lambda: cluster.command(red.login, "topics", "create", "blue.mine"),
        "fence blue's producer blue.payments": fence,
        "read the ACLs": lambda: cluster.command(red.login, "acls", "list"),
        "lift its own quotas": lambda: cluster.command(
            red.login, "quotas", "set", "--user", "red", "producer_byte_rate=1e12"
        ),
    }
    failures = []
    for what, attempt in attempts.items():
        try:
            answer = attempt()
            told = answer.stdout + answer.stderr if isinstance(answer, subprocess.CompletedProcess) else "done"
        except KafkaException as error:
            told = str(error)
        refusal = re.search(r"\w*authoriz[\w ]*", told, re.IGNORECASE)
        print(f"  {what:<44} {told.strip() if refusal is None else refusal[0]}")
        if refusal is None:
            failures.append(f"red could {what}")
    print()
    return failures


if __name__ == "__main__":
    sys.exit(main())
