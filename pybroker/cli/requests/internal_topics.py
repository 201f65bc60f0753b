"""Kafka's own topics as a client sees them: whether a cluster has brokers enough for those that are not there yet.

Owns: the questions.  The sentence is that of a broker's log (``cluster/membership/too_few_brokers``).
"""

from __future__ import annotations

from typing import Final

from pybroker.cli.connection.admin_client import AdminClient
from pybroker.cli.connection.retries import retried
from pybroker.cli.requests import config_requests, topic_requests
from pybroker.cli.requests.wire_requests import described_cluster
from pybroker.public import COORDINATORS, too_few_brokers_message
from pybroker_protocol.errors import ErrorCode

_STORE: Final = "pybroker.metadata"
_IS_DEFAULT: Final = "DEFAULT_CONFIG"


def too_few_brokers(client: AdminClient, without: int | None = None) -> str:
    """What groups or transactions wait for, by the settings of the broker that is the controller; "" if for nothing.

    ``without`` is a broker that is gone, of which the one that is asked may not know yet.  Raises ``CommandFailed``,
    also where the user may not ask.
    """
    cluster = retried(lambda: described_cluster(client))
    topics = retried(lambda: topic_requests.described(client, [each.topic for each in COORDINATORS]))
    there = {each["name"] for each in topics if each["error_code"] != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    settings = {each["name"]: each for each in config_requests.described(client, "broker", str(cluster.controller_id))}
    is_alone = _STORE in settings and settings[_STORE]["value"] is None
    factors = {
        # A broker that is alone begins with one replica, unless it is set.
        each.topic: 1 if is_alone and factor["source"] == _IS_DEFAULT else int(factor["value"])
        for each in COORDINATORS
        if (factor := settings.get(each.factor_setting)) is not None
    }
    return too_few_brokers_message(factors, there, len({each.broker_id for each in cluster.brokers} - {without}))
