"""The checks of ``pybroker doctor`` over the network: can this client get in, and is the cluster well.

Owns: which checks there are, in which order, and what each makes of the answers.  Every connection is made as the user
says (``client_settings``); nothing is changed in the cluster.

A clock is looked at by DescribeQuorum: the active controller says when it heard its own replica last, which is now.
"""

from __future__ import annotations

import ssl
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any, Final, NamedTuple

from pybroker.cli.commands.cluster_description import quorum_request
from pybroker.cli.connection.broker_connection import BrokerConnection, NotReached, Step
from pybroker.cli.connection.client_settings import Access, Address
from pybroker.cli.requests.acl_requests import word_of
from pybroker.cli.terminal.failure import CommandFailed, describe_error_code
from pybroker.cli.terminal.findings import Finding, Status
from pybroker.cli.terminal.output import counted
from pybroker.security.acl_bindings import AclOperation
from pybroker_protocol.messages.describe_cluster import DescribeClusterRequest
from pybroker_protocol.messages.metadata import MetadataRequest

REACHED: Final = ("name", "tcp", "tls", "protocol", "login")
INSIDE: Final = (
    *("rights", "advertised addresses", "clock", "versions"),
    *("partitions", "internal topics", "hanging transactions"),
)
_WAIT_S: Final = 5.0
_SOON_S: Final = 30 * 86_400
_CLOCK_MS_MAX: Final = 1_000
_NAMES_SHOWN_MAX: Final = 5
_ADVICE: Final = {
    Step.NAME: "check the name in --bootstrap, DNS and /etc/hosts",
    Step.TCP: "check that the broker runs, which address its listeners have, and firewalls",
    Step.TLS: "check the keystore and the truststore of both sides; pybroker certs makes new ones",
    Step.PROTOCOL: "check that the address and port are a Kafka listener's",
    Step.LOGIN: "check sasl.mechanism, sasl.username and sasl.password; pybroker users list shows the users",
}


class Searches(NamedTuple):
    """What is found by a client of its own; both may raise ``CommandFailed``.

    ``find_hanging``: the partitions in which a transaction hangs, and how many could not be looked at.  ``find_lack``:
    a sentence where too few brokers are registered for internal topics, else "".
    """

    find_hanging: Callable[[], tuple[list[str], int]]
    find_lack: Callable[[], str]


def cluster_findings(address: Address, access: Access, searches: Searches) -> Iterator[Finding]:
    """The findings about one broker and the cluster behind it; what comes behind a failed step is skipped."""
    with ExitStack() as stack:
        connection = stack.enter_context(BrokerConnection(address, access, _WAIT_S))
        try:
            for step, text in _steps(connection, access):
                yield Finding(step, Status.OK, text) if isinstance(text, str) else text
        except NotReached as error:
            yield Finding(error.step, Status.FAILED, str(error), _ADVICE[error.step])
            yield from skipped((*REACHED[REACHED.index(error.step) + 1 :], *INSIDE), error.step)
            return
        yield from _inside(stack, connection, access, searches)


def skipped(checks: Iterable[str], after: str) -> Iterator[Finding]:
    """The findings of checks that come behind a failed one."""
    return (Finding(each, Status.SKIPPED, f"not checked, since {after} failed") for each in checks)


def _steps(connection: BrokerConnection, access: Access) -> Iterator[tuple[Step, str | Finding]]:
    """Each step that succeeds, and what is worth telling of it."""
    places = connection.resolve()
    yield Step.NAME, f"{connection.address.host} resolves to {', '.join(sorted({str(each[1][0]) for each in places}))}"
    began_s = time.monotonic()
    connection.connect(places)
    yield Step.TCP, f"{connection.address} accepts a connection in {(time.monotonic() - began_s) * 1_000:.1f} ms"
    if access.protocol.endswith("SSL"):
        connection.start_tls()
        yield Step.TLS, _certificate(connection.certificate(), access.tls is not None and access.tls.check_hostname)
    else:
        yield Step.TLS, Finding(Step.TLS, Status.SKIPPED, f"security.protocol is {access.protocol}, without TLS")
    began_s = time.monotonic()
    connection.ask_versions()
    yield Step.PROTOCOL, f"the broker answers ApiVersions in {(time.monotonic() - began_s) * 1_000:.1f} ms"
    connection.log_in()
    user = f"{access.user or 'the bearer of the token'} logs in by {access.mechanism}"
    yield Step.LOGIN, user if access.mechanism is not None else "the broker asks for no login"


def _certificate(found: Mapping[str, Any], names_are_checked: bool) -> str | Finding:
    """Of a certificate: whether and as what it has been verified, whose it is, and for how long."""
    if "notAfter" not in found:
        return Finding(Step.TLS, Status.WARNING, "the certificate is not verified", "set ssl.ca.location")
    ends_s = ssl.cert_time_to_seconds(found["notAfter"])
    names = ", ".join(name for _, name in found.get("subjectAltName", ()))
    message = f"the certificate of {names} ends {found['notAfter']}"
    if not names_are_checked:
        message = f"chain and dates are right, the host name is not looked at; {message}"
        return Finding(Step.TLS, Status.WARNING, message, "leave the check of host names on")
    message = f"chain, dates and host name are right; {message}"
    if ends_s - time.time() < _SOON_S:
        return Finding(Step.TLS, Status.WARNING, message, "have it made anew; pybroker certs signs one")
    return message


def _inside(stack: ExitStack, connection: BrokerConnection, access: Access, searches: Searches) -> Iterator[Finding]:
    try:
        cluster = connection.ask(DescribeClusterRequest(include_cluster_authorized_operations=True))
        metadata = connection.ask(MetadataRequest(topics=None, include_topic_authorized_operations=True))
    except CommandFailed as error:
        yield Finding(INSIDE[0], Status.FAILED, str(error), "ask another broker")
        yield from skipped(INSIDE[1:], INSIDE[0])
        return
    for name, answer in (("DescribeCluster", cluster), ("Metadata", metadata)):
        if answer.error_code:
            text = f"{name} is refused: {describe_error_code(answer.error_code)}"
            yield Finding(INSIDE[0], Status.FAILED, text, "ask another broker")
            yield from skipped(INSIDE[1:], INSIDE[0])
            return
    yield _rights(cluster, metadata)
    others: dict[int, BrokerConnection] = {}
    yield _advertised(stack, cluster.brokers, access, others)
    yield _clock(others.get(cluster.controller_id, connection))
    yield _versions(others or {-1: connection})
    yield _partitions(metadata.topics)
    if not others:
        # Both ask brokers at these addresses, for as long as one may take to start anew.
        yield from skipped(INSIDE[-2:], INSIDE[1])
        return
    yield _internal_topics(searches.find_lack)
    yield _hanging(searches.find_hanging)


def _rights(cluster: Any, metadata: Any) -> Finding:
    of_cluster = _operations(cluster.cluster_authorized_operations)
    of_topics = Counter(", ".join(_operations(topic.topic_authorized_operations)) for topic in metadata.topics)
    shown = "; ".join(
        f"on {counted(count, 'topic')}: {operations or 'no operations'}"
        for operations, count in of_topics.most_common(_NAMES_SHOWN_MAX)
    )
    message = f"on the cluster: {', '.join(of_cluster) or 'no operations'}; {shown or 'this user sees no topic'}"
    if not of_cluster and not any(of_topics):
        return Finding("rights", Status.WARNING, message, "have a user with rights add some: pybroker acls add")
    return Finding("rights", Status.OK, message)


def _operations(bits: int) -> list[str]:
    """The names of operations in a set of bits, in Kafka's order; none where the broker does not say."""
    return [] if bits < 0 else [word_of(each) for each in AclOperation if bits >> each & 1]


def _advertised(
    stack: ExitStack, brokers: Iterable[Any], access: Access, others: dict[int, BrokerConnection]
) -> Finding:
    """Each broker by the address that clients are given; those that are reached go to ``others``."""
    failed = []
    for broker in sorted(brokers, key=lambda each: int(each.broker_id)):
        other = stack.enter_context(BrokerConnection(Address(broker.host, broker.port), access, _WAIT_S))
        try:
            other.open()
        except NotReached as error:
            failed.append(f"broker {broker.broker_id}: {error}")
        else:
            others[broker.broker_id] = other
    check = INSIDE[1]
    if failed:
        advice = "set advertised.listeners of these brokers to addresses that clients reach, or start them"
        return Finding(check, Status.FAILED, " | ".join(failed), advice)
    shown = ", ".join(f"{number} at {each.address}" for number, each in sorted(others.items()))
    return Finding(check, Status.OK, f"each broker is reached: {shown}")


def _clock(connection: BrokerConnection) -> Finding:
    try:
        before_ms = time.time() * 1_000
        answer = connection.ask(quorum_request())
        after_ms = time.time() * 1_000
    except CommandFailed as error:
        return Finding("clock", Status.SKIPPED, str(error))
    if answer.error_code:
        text = f"DescribeQuorum is refused: {describe_error_code(answer.error_code)}"
        return Finding("clock", Status.SKIPPED, text, "a user with the operation describe on the cluster may ask")
    partition = answer.topics[0].partitions[0]
    times = [
        voter.last_caught_up_timestamp
        for voter in partition.current_voters
        if voter.replica_id == partition.leader_id and voter.last_caught_up_timestamp > 0
    ]
    if not times:
        return Finding("clock", Status.SKIPPED, "no broker tells its time")
    # Between the question and the answer any moment may be the broker's, which counts whole milliseconds.
    difference_ms = round(max(before_ms - 1 - times[0], times[0] - after_ms, 0.0))
    message = (
        f"the clock of the active controller differs by {difference_ms} ms, to within {after_ms - before_ms:.0f} ms"
    )
    if difference_ms > _CLOCK_MS_MAX:
        return Finding("clock", Status.WARNING, message, "synchronise the clocks of both machines by NTP")
    return Finding("clock", Status.OK, message)


def _versions(connections: Mapping[int, BrokerConnection]) -> Finding:
    served = {number: connection.versions for number, connection in connections.items()}
    features = next(iter(connections.values())).features
    level = ", ".join(f"{name} {level}" for name, level in sorted(features.items())) or "none"
    apis = len(next(iter(served.values())))
    if len({tuple(sorted(each.items())) for each in served.values()}) > 1:
        counts = ", ".join(f"broker {number}: {counted(len(each), 'API')}" for number, each in sorted(served.items()))
        advice = "end the upgrade: all brokers are to run the same version"
        return Finding(
            "versions",
            Status.WARNING,
            f"the brokers serve different versions ({counts}); levels of features: {level}",
            advice,
        )
    return Finding(
        "versions", Status.OK, f"all brokers serve the same {counted(apis, 'API')}; levels of features: {level}"
    )


def _partitions(topics: Iterable[Any]) -> Finding:
    count, without_leader, under_replicated = 0, [], []
    for topic in topics:
        for partition in topic.partitions:
            count += 1
            name = f"{topic.name}-{partition.partition_index}"
            if partition.leader_id < 0:
                without_leader.append(name)
            elif len(partition.isr_nodes) < len(partition.replica_nodes):
                under_replicated.append(name)
    advice = "start the brokers that are missing; pybroker topics describe --under-replicated --unavailable"
    if without_leader:
        message = f"{len(without_leader)} of {count} partitions have no leader: {_some(without_leader)}"
        return Finding("partitions", Status.FAILED, message, advice)
    if under_replicated:
        message = f"{len(under_replicated)} of {count} partitions are under-replicated: {_some(under_replicated)}"
        return Finding("partitions", Status.FAILED, message, advice)
    return Finding(
        "partitions",
        Status.OK,
        f"{counted(count, 'partition')}, all with a leader and all replicas, as far as this user may see",
    )


def _internal_topics(find_lack: Callable[[], str]) -> Finding:
    check = INSIDE[-2]
    try:
        lack = find_lack()
    except CommandFailed as error:
        return Finding(
            check, Status.SKIPPED, str(error), "a user with the operation describe-configs on the cluster may ask"
        )
    if lack:
        return Finding(check, Status.WARNING, lack, "start more brokers, or set these to fewer and restart all brokers")
    return Finding(check, Status.OK, "the topics of groups and transactions exist, or can be created")


def _hanging(find_hanging: Callable[[], tuple[list[str], int]]) -> Finding:
    check = INSIDE[-1]
    try:
        found, unseen = find_hanging()
    except CommandFailed as error:
        return Finding(check, Status.SKIPPED, str(error), "a user with the operation read on the topics may ask")
    if found:
        message = f"readers of committed records are held back by {counted(len(found), 'transaction')}: {_some(found)}"
        return Finding(check, Status.FAILED, message, "pybroker transactions find-hanging, then abort")
    if unseen:
        message = f"no transaction is seen to hang, but {counted(unseen, 'partition')} could not be looked at"
        return Finding(check, Status.WARNING, message, "pybroker transactions find-hanging says why")
    return Finding(check, Status.OK, "no transaction hangs")


def _some(names: list[str]) -> str:
    more = len(names) - _NAMES_SHOWN_MAX
    return ", ".join(names[:_NAMES_SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")
