"""kafka-delegation-tokens, and a console of Kafka's that logs in by a token, against a broker of ours."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.apache_kafka import run_kafka_tool

from pybroker.testing import Broker, Security

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(180)]

TOKENS = "org.apache.kafka.tools.DelegationTokenCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    security = Security("SASL_PLAINTEXT", users={"admin": "admin-secret"})
    with Broker({"delegation.token.secret.key": "the key"}, security=security) as broker:
        yield broker


def properties(path: Path, user: str, password: str, more: str = "") -> Path:
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
        f'sasl.jaas.config={SCRAM_MODULE} required username="{user}" password="{password}"{more};\n'
    )
    return path


def test_kafkas_tool_makes_shows_renews_and_ends_tokens_and_its_clients_log_in_by_them(
    broker: Broker, tmp_path: Path
) -> None:
    admin = properties(tmp_path / "admin.properties", "admin", "admin-secret")
    common = ("--bootstrap-server", broker.bootstrap, "--command-config", str(admin))
    made = run_kafka_tool(
        TOKENS, *common, "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob"
    ).stdout
    row = next(line for line in made.splitlines() if "User:admin" in line)
    token_id, hmac = row.split()[:2]
    holder = properties(tmp_path / "holder.properties", token_id, hmac, " tokenauth=true")
    listed = (TOPICS, "--bootstrap-server", broker.bootstrap, "--command-config", str(holder), "--list")
    run_kafka_tool(*listed)
    shown = run_kafka_tool(TOKENS, *common, "--describe", "--owner-principal", "User:admin").stdout
    assert token_id in shown
    assert "User:bob" in shown
    renewed = run_kafka_tool(TOKENS, *common, "--renew", "--renew-time-period", "60000", "--hmac", hmac).stdout
    assert re.search(r"Completed renew operation", renewed), renewed
    ended = run_kafka_tool(TOKENS, *common, "--expire", "--expiry-time-period", "-1", "--hmac", hmac).stdout
    assert re.search(r"Completed expire operation", ended), ended
    refused = run_kafka_tool(*listed, check=False)
    assert "SaslAuthenticationException" in refused.stdout + refused.stderr
