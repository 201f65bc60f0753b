"""After every event of a broker: its logs, its leaderships and its image against what the cluster has promised.

Owns the invariants of a cluster that need no client, each with a name of its own:

- one leader per leader epoch;
- the committed prefix is the same on all replicas, never shrinks, and is in every later leader's log;
- the high watermark never goes back within a leader epoch, and a follower's never passes what a leader committed;
- leader epochs never go back;
- images of one epoch are the same on all brokers;
- one controller per controller epoch, and nobody else writes.

Committed is what was once below any leader's high watermark.  Logs are read from their files, never through the broker.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pybroker.cluster import store_codec
from tests.simulation.model import Batch, LogModel, Model, check
from tests.simulation.observer import batch_at

if TYPE_CHECKING:
    from pybroker.cluster.image import ClusterImage
    from pybroker.cluster.metadata_store import Transaction
    from pybroker.storage.log.log import Log
    from tests.simulation.processes import Process
    from tests.simulation.store import Ensemble

ONE_LEADER = "one leader per leader epoch"
SAME_PREFIX = "the committed prefix is the same on all replicas"
PREFIX_STAYS = "the committed prefix never shrinks"
LEADER_HAS_IT = "what was committed is in every later leader's log"
WATERMARK = "the high watermark never goes back within a leader epoch"
FOLLOWERS_WATERMARK = "a follower's high watermark never passes what a leader committed"
EPOCHS = "leader epochs never go back"
SAME_IMAGE = "images of one epoch are the same on all brokers"
ONE_CONTROLLER = "one controller per controller epoch"
CONTROLLER_WRITES = "nobody but the controller writes"

LIVE = "/live/"

Partition = tuple[str, int]


class ReplicaFiles:
    """The files of one replica, read on from where the last look ended."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._base = -1
        self._position = 0
        self._offset = -1  # of the batch that is read next, where the place is known

    def batch(self, offset: int) -> Batch | None:
        """The batch at an offset; None where the files have none."""
        if offset != self._offset or self._base < 0:
            self._find(offset)
        if self._base < 0:
            return None
        found = self._here()
        if found is None:  # the segment may have ended there
            self._base, self._position = offset, 0
            found = self._here()
        if found is None or found.base_offset != offset:
            self._base = -1
            return None
        self._position += len(found.data)
        self._offset = found.last_offset + 1
        return found

    def _here(self) -> Batch | None:
        return batch_at(self._directory / f"{self._base:020d}.log", self._position)

    def _find(self, offset: int) -> None:
        self._base, self._position = -1, 0
        for file in sorted(self._directory.glob("*.log"), reverse=True):
            base = int(file.stem)
            if base <= offset:
                position = 0
                while (found := batch_at(file, position)) is not None and found.base_offset < offset:
                    position += len(found.data)
                self._base, self._position = base, position
                return


class Commit(NamedTuple):
    """Up to ``end_offset`` a leader of ``leader_epoch`` has committed."""

    end_offset: int
    leader_epoch: int


class Replica:
    """One replica in one life of its broker, as it was seen last."""

    def __init__(self, log: Log) -> None:
        self.files = ReplicaFiles(Path(log.path))
        self.seen = (-1, -1, -1)  # end, high watermark, leader epoch if it leads
        self.verified = 0  # up to here it is the committed prefix
        self.led_epoch = -1
        self.led_high_watermark = -1


class ClusterObserver:
    """See the module's docstring."""

    def __init__(self, model: Model, processes: list[Process], ensemble: Ensemble) -> None:
        self._model = model
        self._processes = processes
        self._replicas: dict[tuple[str, Partition], Replica] = {}
        self._lives: dict[str, int] = {}
        self._leaders: dict[tuple[bytes, int, int], str] = {}  # topic id, index, leader epoch
        self._commits: dict[Partition, list[Commit]] = {}
        self._images: dict[int, tuple[str, ClusterImage]] = {}
        self._seen_images: dict[str, ClusterImage] = {}
        self._controllers: dict[int, int] = {}  # controller epoch -> broker id
        self._stored_epochs: dict[str, tuple[int, int]] = {}
        ensemble.on_commit = self.committed_to_store

    # --- one event of a broker ---------------------------------------------------------------------------------------

    def look(self, process: Process) -> None:
        """Whatever the event may have changed."""
        server: Any = process.server
        if server is None or server._logs is None:
            return
        if self._lives.get(process.name) != process.lives:
            self._lives[process.name] = process.lives
            self._seen_images.pop(process.name, None)
            self._replicas = {key: seen for key, seen in self._replicas.items() if key[0] != process.name}
        metadata = getattr(server.services, "metadata", None)
        if metadata is not None and metadata.image is not self._seen_images.get(process.name):
            self._look_at_image(process.name, metadata.image)
        led = self._led(server)
        for partition_log in server._logs._logs.values():
            log = partition_log.opened
            if log is not None:
                self._look_at_log(process, log, led.get((log.topic, log.partition)))

    @staticmethod
    def _led(server: Any) -> dict[Partition, Any]:
        """The partitions that the broker leads, as far as it believes so itself."""
        replicas = getattr(server.services, "replicas", None)
        if replicas is None:
            return {}
        return {
            (partition.topic, partition.index): partition
            for key, partitions in replicas._topics.items()
            if isinstance(key, bytes)
            for partition in partitions.values()
            if not partition.gone
        }

    # --- logs --------------------------------------------------------------------------------------------------------

    def _look_at_log(self, process: Process, log: Log, leader: Any) -> None:
        part = (log.topic, log.partition)
        replica = self._replicas.get((process.name, part))
        if replica is None:
            replica = self._replicas[process.name, part] = Replica(log)
        seen = (log.log_end_offset, log.high_watermark, -1 if leader is None else leader.leader_epoch)
        if seen == replica.seen:
            return
        replica.seen = seen
        where = f"{log.topic}-{log.partition} on {process.name}"
        end, high = log.log_end_offset, log.high_watermark
        stable = log.last_stable_offset
        check(
            log.log_start_offset <= stable <= high <= end <= log.next_offset,
            "last stable offset <= high watermark <= log end",
            f"{where}: start {log.log_start_offset}, stable {stable}, high {high}, end {end}, next {log.next_offset}",
        )
        check(end >= replica.verified, PREFIX_STAYS, f"{where}: cut at {end}, {replica.verified} was committed")
        model = self._model.log(*part)
        if leader is not None:
            self._look_at_leader(process.name, where, leader, replica, high, end)
            if high > model.end_offset:
                self._commit(part, where, replica, high, leader.leader_epoch)
        else:
            replica.led_epoch = -1
            check(
                high <= model.end_offset,
                FOLLOWERS_WATERMARK,
                f"{where}: it is {high}, and {model.end_offset} is committed",
            )
        self._verify(where, replica, model, min(high, model.end_offset), SAME_PREFIX)

    def _look_at_leader(self, broker: str, where: str, leader: Any, replica: Replica, high: int, end: int) -> None:
        epoch = leader.leader_epoch
        if replica.led_epoch != epoch:
            other = self._leaders.setdefault((leader.topic_id, leader.index, epoch), broker)
            check(other == broker, ONE_LEADER, f"{where} leads in epoch {epoch}, and so did {other}")
            replica.led_epoch, replica.led_high_watermark = epoch, -1
            self._check_has_committed(where, leader, replica, end)
        check(
            high >= replica.led_high_watermark,
            WATERMARK,
            f"{where}: from {replica.led_high_watermark} to {high} in epoch {epoch}",
        )
        replica.led_high_watermark = high

    def _check_has_committed(self, where: str, leader: Any, replica: Replica, end: int) -> None:
        """The leader's log has whatever a leader of its epoch, or of one before, has committed."""
        part = (leader.topic, leader.index)
        commits = self._commits.get(part, [])
        required = max(
            (commit.end_offset for commit in commits if commit.leader_epoch <= leader.leader_epoch), default=0
        )
        check(
            end >= required,
            LEADER_HAS_IT,
            f"{where} leads in epoch {leader.leader_epoch} and ends at {end}; {required} was committed before",
        )
        self._verify(where, replica, self._model.log(*part), required, LEADER_HAS_IT)

    def _commit(self, part: Partition, where: str, replica: Replica, high: int, epoch: int) -> None:
        """A leader's high watermark has passed all that were seen before: what is below it is committed."""
        model = self._model.log(*part)
        self._verify(where, replica, model, model.end_offset, SAME_PREFIX)
        while model.end_offset < high:
            batch = replica.files.batch(model.end_offset)
            assert batch is not None, (
                f"{where}: nothing is written at {model.end_offset}, below the high watermark {high}"
            )
            model.append(batch)
        replica.verified = model.end_offset
        commits = self._commits.setdefault(part, [])
        commits[:] = [commit for commit in commits if commit.leader_epoch != epoch]
        commits.append(Commit(model.end_offset, epoch))
        for process in self._processes:
            server: Any = process.server
            later = self._led(server).get(part) if server is not None else None
            if later is not None and later.leader_epoch > epoch:
                other = self._replicas.get((process.name, part))
                if other is not None:
                    end = later.log.log_end_offset
                    self._check_has_committed(f"{part[0]}-{part[1]} on {process.name}", later, other, end)

    @staticmethod
    def _verify(where: str, replica: Replica, model: LogModel, end: int, invariant: str) -> None:
        """The replica's bytes are the committed ones up to ``end``."""
        for expected in model.batches_from(replica.verified):
            if expected.base_offset >= end:
                break
            found = replica.files.batch(expected.base_offset)
            there = "nothing" if found is None else f"{found.base_offset} to {found.last_offset}, other bytes"
            check(
                found is not None and found.data == expected.data,
                invariant,
                f"{where}: {there}, where {expected.base_offset} to {expected.last_offset} is committed",
            )
            replica.verified = expected.last_offset + 1

    # --- images and the store ----------------------------------------------------------------------------------------

    def _look_at_image(self, broker: str, image: ClusterImage) -> None:
        before = self._seen_images.get(broker)
        self._seen_images[broker] = image
        known = self._images.setdefault(image.epoch, (broker, image))
        if known[1] is not image:
            difference = _difference(known[1], image)
            check(not difference, SAME_IMAGE, f"epoch {image.epoch} on {broker} and on {known[0]}: {difference}")
        if before is not None:
            _check_epochs(broker, before, image)

    def committed_to_store(self, revision: int, transaction: Transaction) -> None:
        """The metadata store has taken a transaction."""
        puts = {key: value for key, value in transaction.puts.items() if key != store_codec.CLUSTER}
        if store_codec.CONTROLLER in puts:
            taken = store_codec.decode_controller(puts.pop(store_codec.CONTROLLER))
            latest = max(self._controllers, default=-1)
            check(
                taken.controller_epoch > latest,
                ONE_CONTROLLER,
                f"broker {taken.broker_id} takes epoch {taken.controller_epoch}, and {latest} was there",
            )
            self._controllers[taken.controller_epoch] = taken.broker_id
        elif (puts or transaction.deletes) and store_codec.CLUSTER not in transaction.puts:
            named = [key for key in (*puts, *transaction.deletes) if not key.startswith(LIVE)]
            checked = store_codec.CONTROLLER in transaction.checks
            check(checked or not named, CONTROLLER_WRITES, f"revision {revision} puts {named} and checks nothing")
        for key, value in puts.items():
            if key.startswith(store_codec.PARTITIONS):
                self._check_stored_partition(key, json.loads(value))

    def _check_stored_partition(self, key: str, fields: dict[str, Any]) -> None:
        epochs = fields["leaderEpoch"], fields["partitionEpoch"]
        before = self._stored_epochs.get(key, (-1, -1))
        check(epochs >= before, EPOCHS, f"{key}: from {before} to {epochs}")
        self._stored_epochs[key] = epochs
        isr, replicas = set(fields["isr"]), set(fields["replicas"])
        check(isr <= replicas, "who is in sync is a replica", f"{key}: ISR {isr} of {replicas}")
        leader = fields["leader"]
        check(leader < 0 or leader in isr, "the leader is in sync", f"{key}: leader {leader}, ISR {isr}")


_IMAGE_FIELDS = ("cluster_id", "brokers", "controller_id", "topics_by_name", "configs", "features", "next_producer_id")


def _difference(one: ClusterImage, other: ClusterImage) -> str:
    """In what two images differ, in short; "" if in nothing."""
    found = []
    for field in _IMAGE_FIELDS:
        mine, theirs = getattr(one, field), getattr(other, field)
        if mine == theirs:
            continue
        if isinstance(mine, dict) and isinstance(theirs, dict):
            keys = [key for key in {**mine, **theirs} if mine.get(key) != theirs.get(key)]
            found.append(f"{field} of {keys[0]}: {theirs.get(keys[0])} and {mine.get(keys[0])}")
        else:
            found.append(f"{field}: {theirs} and {mine}")
    return "; ".join(found)


def _check_epochs(broker: str, before: ClusterImage, image: ClusterImage) -> None:
    """No partition's epochs went back from one image of a broker to the next."""
    for topic_id, topic in image.topics_by_id.items():
        old = before.topics_by_id.get(topic_id)
        if old is None or old is topic:
            continue
        for index, (was, now) in enumerate(zip(old.partitions, topic.partitions, strict=False)):
            went = (was.leader_epoch, was.partition_epoch), (now.leader_epoch, now.partition_epoch)
            check(went[0] <= went[1], EPOCHS, f"{topic.name}-{index} on {broker}: from {went[0]} to {went[1]}")
