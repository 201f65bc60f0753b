"""An administrator who gives up disks that are gone for good: what nobody is left to lead gets a leader.

Where every replica that may lead lay on a disk that was replaced by an empty one, its partition waits for the old disk,
unless somebody asks for an unclean election.  That loses nothing committed: an empty disk strikes only where another
replica has everything, or where there was nothing yet (``Holders``).

Owns: which partitions these are, and asking until none is left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybroker.cluster.image.cluster_image import NO_LEADER
from pybroker_protocol.errors import ErrorCode
from tests.simulation.administrator import ELECTION, UNCLEAN, ask_for_change, election
from tests.simulation.client import Disconnected

if TYPE_CHECKING:
    from pybroker.cluster.image.cluster_image import ClusterImage, PartitionImage
    from tests.simulation.cluster_simulation import ClusterSimulation
    from tests.simulation.processes import Process

PAUSE_MS = 1_000
KNOWN_ERRORS = ELECTION | {ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}


async def give_up_lost_disks(simulation: ClusterSimulation) -> None:
    """Look again and again, until the end of the run."""
    client, processes = simulation.client("disk-administrator"), simulation.processes
    while not simulation.leaving:
        await client.sleep(PAUSE_MS)
        image = simulation.newest_image()
        if image is None or not all(simulation.serves(process) for process in processes):
            continue  # whoever comes yet may be one that may lead
        for name, indexes in waiting_for_lost_disks(image, processes).items():
            what = f"gives up the disks of {name}-{indexes}"
            simulation.trace(client.name, what)
            try:
                await ask_for_change(client, election(UNCLEAN, name, indexes), 2, KNOWN_ERRORS, what)
            except Disconnected:
                client.disconnect()


def waiting_for_lost_disks(image: ClusterImage, processes: list[Process]) -> dict[str, list[int]]:
    """The partitions that nobody leads and nobody may lead, topic by topic."""
    found: dict[str, list[int]] = {}
    for name, topic in sorted(image.topics_by_name.items()):
        for index, partition in enumerate(topic.partitions):
            if partition.leader == NO_LEADER and all(
                _has_lost(image, processes[replica], partition, replica) for replica in partition.candidates
            ):
                found.setdefault(name, []).append(index)
    return found


def _has_lost(image: ClusterImage, process: Process, partition: PartitionImage, replica: int) -> bool:
    """Whether the replica's broker is there again, without the log dir that it had."""
    broker, directory = image.brokers.get(replica), partition.directory(replica)
    if broker is None or broker.fenced or broker.has_online_dir(directory):
        return False
    return not process.has_log_dir(directory)
