"""What the leaders of mirrored partitions have found, as an operation of the controller and a way to it.

Owns: both ends of the message, which travels in a broker's heartbeat.  Owns no rule (``decisions/mirrored_topics``).

Counterpart in Kafka: ``WriteMirrorStates`` of KIP-1279.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pybroker.cluster.decisions.mirrored_topics import take_reports
from pybroker.cluster.decisions.operations import Heartbeat
from pybroker.cluster.image.links import MirrorReport

if TYPE_CHECKING:
    from pybroker.cluster.controller.controller import Controller
    from pybroker.cluster.image.cluster_image import BrokerRegistration, ImageBuilder


def report_mirrors(
    controller: Controller,
    broker_id: int,
    broker_epoch: int,
    reports: Sequence[MirrorReport],
    done: Callable[[Heartbeat], None],
) -> None:
    """A broker tells what it has found in mirrored partitions that it leads."""

    def decide(builder: ImageBuilder, broker: BrokerRegistration) -> Heartbeat:
        take_reports(builder, broker_id, reports)
        return Heartbeat(0, broker.fenced)

    controller.submit_of(broker_id, broker_epoch, decide, Heartbeat, done)
