"""What brokers ask of each other is answered to those that know the cluster's secret, and to nobody else."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pybroker.cluster.image.cluster_image import BrokerRegistration, ClusterImage, Endpoint
from pybroker.cluster.image.metadata_cache import MetadataCache
from pybroker.cluster.membership.peers import PeerError, PeerFailure
from pybroker.net.loop_env import loop_env
from pybroker.net.peer_client import PeerClient
from pybroker.net.peer_login import SaltedSecret
from pybroker.security.mechanisms import CLUSTER_MECHANISM
from pybroker.security.scram import cluster_salt
from pybroker.testing import Broker
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.alter_partition import AlterPartitionRequest
from pybroker_protocol.messages.fetch import FetchRequest, ReplicaState
from pybroker_protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from pybroker_protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.broker.wire_client import WireClient

LISTENER = "PLAINTEXT"
MECHANISM = "SCRAM-SHA-256"
ALTER_PARTITION = AlterPartitionRequest(broker_id=9, topics=[])


@pytest.fixture
def member(tmp_path: Path) -> Iterator[Broker]:
    """The only broker, so far, of a cluster that others may join."""
    with Broker({"pybroker.metadata": f"sqlite://{tmp_path}/metadata.db"}) as broker:
        yield broker


def ask_as_broker(member: Broker, secret: bytes, listener: str = LISTENER) -> tuple[Any, PeerError | None]:
    """What a broker that knows ``secret`` gets for an AlterPartition."""

    async def run() -> tuple[Any, PeerError | None]:
        endpoint = Endpoint(member.host, member.port)
        brokers = {1: BrokerRegistration(1, 1, bytes(16), {listener: endpoint})}
        peers = PeerClient(
            loop_env(),
            MetadataCache(ClusterImage(epoch=1, brokers=brokers)),
            9,
            listener,
            secret=secret,
            over_sasl=listener != LISTENER,
        )
        outcome: asyncio.Future[tuple[Any, PeerError | None]] = asyncio.get_running_loop().create_future()
        peers.ask(
            1, ALTER_PARTITION, 3, lambda response, error: outcome.set_result((response, error)), timeout_ms=10_000
        )
        found = await asyncio.wait_for(outcome, 20)
        peers.close()
        await peers.wait_closed()
        return found

    return asyncio.run(run())


def secret_of(member: Broker) -> bytes:
    """What proves to the broker that another one of its cluster speaks."""
    membership = member._running()._membership
    assert membership is not None
    return membership.secret


def test_a_broker_that_knows_the_secret_is_answered(member: Broker) -> None:
    secret = secret_of(member)
    response, error = ask_as_broker(member, secret)
    assert error is None
    assert response.error_code == ErrorCode.STALE_BROKER_EPOCH, "it is not registered, and that is another matter"


def test_a_broker_of_another_cluster_is_not_answered_and_told_why(member: Broker) -> None:
    response, error = ask_as_broker(member, b"of another cluster")
    assert response is None
    assert error is not None
    assert error.reason is PeerFailure.UNREACHABLE
    assert not error.may_be_done
    assert "secret" in str(error)


def test_a_stranger_that_asks_what_brokers_ask_loses_its_connection(member: Broker) -> None:
    with WireClient((member.host, member.port)) as stranger:
        assert stranger.ask(ALTER_PARTITION, 3) is None


def test_a_stranger_that_fetches_as_a_replica_moves_nothing(member: Broker) -> None:
    broker_id = member._running().services.broker_id
    request = FetchRequest(
        replica_state=ReplicaState(replica_id=broker_id, replica_epoch=0),
        max_wait_ms=0,
        min_bytes=0,
        isolation_level=0,
        topics=[],
        forgotten_topics_data=[],
        rack_id="",
    )
    with WireClient((member.host, member.port)) as stranger:
        assert stranger.ask(request, 17).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_a_login_keeps_to_its_order_and_its_mechanism(member: Broker) -> None:
    with WireClient((member.host, member.port)) as stranger:
        step = SaslAuthenticateRequest(auth_bytes=b"n,,n=x,r=y")
        assert stranger.ask(step, 2).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert stranger.ask(ALTER_PARTITION, 3) is None
    with WireClient((member.host, member.port)) as stranger:
        refused = stranger.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert (refused.error_code, refused.mechanisms) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, [MECHANISM])
        assert stranger.ask(SaslHandshakeRequest(mechanism=MECHANISM), 1) is None
    with WireClient((member.host, member.port)) as stranger:
        assert stranger.ask(SaslHandshakeRequest(mechanism=MECHANISM), 1).error_code == 0
        assert stranger.ask(step, 2).error_code == 0
        assert stranger.ask(step, 2).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert stranger.ask(step, 2) is None, "one try for each connection"


def test_the_keys_of_the_secret_are_derived_once(member: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    derived = []

    def count(*_: object) -> bytes:
        derived.append(True)
        return bytes(32)

    monkeypatch.setattr(hashlib, "pbkdf2_hmac", count)
    for _ in range(3):
        with WireClient((member.host, member.port)) as stranger:
            stranger.ask(SaslHandshakeRequest(mechanism=MECHANISM), 1)
            stranger.ask(SaslAuthenticateRequest(auth_bytes=b"n,,n=x,r=y"), 2)
            stranger.ask(SaslAuthenticateRequest(auth_bytes=b"c=biws,r=y,p=x"), 2)
    assert not derived, "strangers cost no iterated hash"


def test_a_broker_salts_the_secret_once_for_all_the_brokers_that_it_logs_in_at(monkeypatch: pytest.MonkeyPatch) -> None:
    derived = []

    def count(*arguments: object) -> bytes:
        derived.append(arguments)
        return bytes(32)

    monkeypatch.setattr(hashlib, "pbkdf2_hmac", count)
    secret = SaltedSecret(b"secret")
    salt = cluster_salt(b"secret")
    assert {secret.salted(salt, 4096) for _ in range(3)} == {bytes(32)}
    assert len(derived) == 1
    secret.salted(b"another salt", 4096)
    assert len(derived) == 2, "what another salt makes is another key"


def test_brokers_log_in_over_a_listener_with_sasl_by_a_mechanism_of_their_own(tmp_path: Path) -> None:
    settings = {"pybroker.metadata": f"sqlite://{tmp_path}/metadata.db", "sasl.enabled.mechanisms": "SCRAM-SHA-256"}
    with Broker(settings, listen="SASL_PLAINTEXT://127.0.0.1:0") as member:
        secret = secret_of(member)
        response, error = ask_as_broker(member, secret, "SASL_PLAINTEXT")
        assert error is None
        assert response.error_code == ErrorCode.STALE_BROKER_EPOCH
        with WireClient((member.host, member.port)) as stranger:
            refused = stranger.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            assert refused.mechanisms == ["SCRAM-SHA-256"], "clients are not told of it"
        assert CLUSTER_MECHANISM not in refused.mechanisms


def test_a_user_who_has_logged_in_by_the_listener_of_brokers_is_none(tmp_path: Path) -> None:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    settings = {
        "pybroker.metadata": f"sqlite://{tmp_path}/metadata.db",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{module} required user_alice="secret";',
    }
    with (
        Broker(settings, listen="SASL_PLAINTEXT://127.0.0.1:0") as member,
        WireClient((member.host, member.port)) as alice,
    ):
        assert alice.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
        assert alice.ask(SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"), 2).error_code == 0
        assert alice.ask(ALTER_PARTITION, 3) is None
