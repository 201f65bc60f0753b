"""After every event of a broker: its logs, its leaderships and its image against what the cluster has promised.

Owns the invariants of a cluster that need no client, each with a name of its own:

- one leader per leader epoch;
- the committed prefix is the same on all replicas, never shrinks, and is in every later leader's log (a replica may cut
  what its leader has cleaned away);
- the high watermark never goes back within a leader epoch, and a follower's never passes what a leader committed;
- leader epochs never go back;
- a topic that is made anew under a name shows nothing of the one before it, and keeps its partitions;
- a log's start never goes back in a process's life, and moves in no topic of which nothing is deleted;
- images of one epoch are the same on all brokers;
- one controller per controller epoch, and no other broker writes;
- who is in sync by the store has what is committed, whenever more is, and when a replica joins;
- a producer's epoch, and that of the coordinator which ends its transactions, never go back in a log;
- what a log remembers of its producers is what its batches say (``producer_replay``): as it is opened, when it is cut,
  when its leader is elected, and at rest.

Committed is what was once below any leader's high watermark.  Logs are read from their files, never through the broker.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

from pybroker.cluster.image.cluster_image import NO_LEADER, RECOVERED
from pybroker.cluster.image.coordinator_table import TRANSACTIONS
from pybroker.cluster.store import store_codec
from pybroker.storage.log.log_state import LogState
from pybroker_protocol.uuids import uuid_text
from tests.simulation.model import FLEETING, REACHED, Batch, LogModel, Model, Violation, check, read_directory
from tests.simulation.observer import batch_at, bytes_at
from tests.simulation.producer_replay import (
    EPOCHS_OF_PRODUCERS,
    MARKERS,
    check_producers,
    check_snapshots,
    coordinator_epoch,
)

if TYPE_CHECKING:
    from pybroker.cluster.image.cluster_image import ClusterImage
    from pybroker.cluster.store.metadata_store import Transaction
    from pybroker.storage.log.log import Log
    from tests.simulation.processes import Process
    from tests.simulation.scheduler import Scheduler
    from tests.simulation.store import Ensemble

ONE_LEADER = "one leader per leader epoch"
SAME_PREFIX = "the committed prefix is the same on all replicas"
PREFIX_STAYS = "the committed prefix never shrinks"
LEADER_HAS_IT = "what was committed is in every later leader's log"
WATERMARK = "the high watermark never goes back within a leader epoch"
FOLLOWERS_WATERMARK = "a follower's high watermark never passes what a leader committed"
EPOCHS = "leader epochs never go back"
START = "the log start never goes back"
PARTITIONS_STAY = "a topic keeps its partitions"
PREDECESSOR = "a topic shows nothing of the one that had its name before"
REMAINS = "what is deleted goes from every disk"
SAME_IMAGE = "images of one epoch are the same on all brokers"
ONE_CONTROLLER = "one controller per controller epoch"
CONTROLLER_WRITES = "nobody but the controller writes"
IN_SYNC = "who is in sync by the store has what is committed"

LIVE = "/live/"
OFFSETS = frozenset({"log_start_offset", "log_end_offset", "high_watermark"})  # of a log

Partition = tuple[str, int]


class ReplicaFiles:
    """The files of one replica, read on from where the last look ended, or anew where they are cleaned."""

    def __init__(self, path: Path, is_cleaned: bool) -> None:
        self._path = path
        self._prefix = f"{path}{os.sep}"
        self._is_cleaned = is_cleaned
        self._base = -1
        self._position = 0
        self._offset = -1  # of the batch that is read next, where the place is known

    def lie_in(self, path: Path) -> None:
        """A replica may move to another log dir."""
        if path is not self._path:
            self._path, self._prefix, self._base = path, f"{path}{os.sep}", -1

    def go_on_with(self, expected: Batch) -> bool:
        """Whether exactly this batch lies where reading goes on; where it does not ``batch`` may find it elsewhere."""
        size = len(expected.data)
        if expected.base_offset != self._offset or self._base < 0 or self._is_cleaned:
            return False
        if bytes_at(f"{self._prefix}{self._base:020d}.log", self._position, size) != expected.data:
            return False
        self._position += size
        self._offset = expected.last_offset + 1
        return True

    def batch(self, offset: int) -> Batch | None:
        """The batch at an offset; None where the files have none."""
        if offset != self._offset or self._base < 0 or self._is_cleaned:
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
        return batch_at(f"{self._prefix}{self._base:020d}.log", self._position)

    def _find(self, offset: int) -> None:
        self._base, self._position = -1, 0
        for file in sorted(self._path.glob("*.log"), reverse=True):
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


class Holders:
    """Who may be relied on for what is committed to a partition: the replicas in sync, and those eligible to lead.

    One whose machine lost power, and with that the end of its log, has not everything any more until it has come back
    into this company.  As long as there is another nothing is lost, however many processes die; with the last one the
    promise ends.
    """

    def __init__(self) -> None:
        self.all: frozenset[int] = frozenset()
        self.torn: frozenset[int] = frozenset()

    def become(self, holders: frozenset[int], gone: frozenset[int], *, caught_up: bool) -> None:
        """The metadata names others; ``gone`` are machines that lost power and have not registered since.

        ``caught_up``: whoever was away and is back has what the others have; it may be relied on for want of others.
        """
        if caught_up:
            self.torn -= holders - self.all - gone
        self.all = holders

    def would_lose_all(self, broker_id: int) -> bool:
        """Whether nobody would be left who has everything, if this one's machine lost power."""
        return broker_id in self.all and self.all <= self.torn | {broker_id}

    @property
    def has_lost_all(self) -> bool:
        return bool(self.all) and self.all <= self.torn


class Replica:
    """One replica in one life of its broker, as it was seen last."""

    def __init__(self, log: Log, is_cleaned: bool) -> None:
        self.topic_id: bytes = log.topic_id or b""  # of a cluster's topics there are none without
        self.files = ReplicaFiles(log.path, is_cleaned)
        self.seen = (-1, -1, -1, -1)  # start, end, high watermark, leader epoch if it leads
        self.verified = log.log_start_offset  # up to here it is the committed prefix
        self.led_epoch = -1
        self.led_high_watermark = -1
        # What it remembers of producers was read from its files, not gathered while they were written.
        self.was_read = log.log_end_offset > log.log_start_offset


class ClusterObserver:
    """See the module's docstring."""

    def __init__(self, model: Model, scheduler: Scheduler, processes: Sequence[Process], ensemble: Ensemble) -> None:
        self._model = model
        self._scheduler = scheduler
        self._processes = processes
        self._moved: dict[Process, set[LogState]] = {}  # the logs of which an offset was set since the last look
        self._replicas: dict[tuple[str, Partition], Replica] = {}
        self._first_epochs: dict[Partition, int] = {}  # of topics that were mirrored
        self._lives: dict[str, int] = {}
        # What was looked at last: each broker's image, numbers of led partitions and of logs.
        self._roles: dict[Process, Any] = {}
        self._leaders: dict[tuple[bytes, int, int], str] = {}  # topic id, index, leader epoch
        self._commits: dict[Partition, list[Commit]] = {}
        self._images: dict[int, tuple[str, ClusterImage]] = {}
        self._seen_images: dict[str, ClusterImage] = {}
        self._controllers: dict[int, int] = {}  # controller epoch -> broker id
        self._holders: dict[str, Holders] = {}  # by the partition's key in the store
        self._stored: dict[str, dict[str, Any]] = {}  # as the store has it, by the key as well
        self._partitions: dict[str, tuple[bytes, Partition]] = {}  # topic id and name, by the key as well
        # The epochs of a producer's last batch and of the coordinator of its last marker, in what is committed.
        self._producers: dict[tuple[Partition, int], tuple[int, int]] = {}
        self._is_cut_short = False  # the process died inside of the event that is looked at
        self._gone: set[int] = set()  # machines that lost power, and are not registered again
        self.on_election: Callable[[int, int], None] = lambda leader, former: None  # told of each by the store
        self.promise_ended = ""  # of which partition all replicas that had everything have lost something
        ensemble.on_commit = self.committed_to_store

    # --- one event of a broker ---------------------------------------------------------------------------------------

    def look(self, process: Process, *, is_dead: bool = False) -> None:
        """Whatever the event may have changed; ``is_dead``: the process ended in the middle of it."""
        self._is_cut_short = is_dead
        server: Any = process.server
        if server is None or server._logs is None:
            return
        if self._lives.get(process.name) != process.lives:
            self._lives[process.name] = process.lives
            self._seen_images.pop(process.name, None)
            self._roles.pop(process, None)
            self._replicas = {key: seen for key, seen in self._replicas.items() if key[0] != process.name}
        services = server.services
        metadata = getattr(services, "metadata", None)
        if metadata is not None and metadata.image is not self._seen_images.get(process.name):
            self._look_at_image(process.name, metadata.image)
        # A partition is led, or led no more, by another image, or by an object that is new.
        replicas = getattr(services, "replicas", None)
        logs = server._logs._logs
        count = sum(map(len, replicas._topics.values())) if replicas else 0
        roles = metadata and metadata.image, count, len(logs)
        moved = self._moved.pop(process, None) if self._moved else None
        if self._roles.get(process) != roles:
            self._roles[process] = roles
        elif moved is None:
            return
        elif len(moved) == 1:
            (log,) = moved
            there = logs.get((log.topic, log.partition))
            if there is not None and there.opened is log:
                self._look_at_log(process, log, self._led(server, log.topic_id, log.partition))
            return
        for partition_log in logs.values():
            log = partition_log.opened
            if log is not None:
                self._look_at_log(process, log, self._led(server, log.topic_id, log.partition))

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Hear of every change of a log's offsets, so that ``look`` has nothing to do where there was none."""
        set_anything = LogState.__setattr__

        def set_and_note(log: LogState, name: str, value: Any) -> None:
            set_anything(log, name, value)
            if name in OFFSETS:
                life = self._scheduler.life
                process = None if life is None else life.process
                for each in self._processes:
                    if process is None or process is each:
                        self._moved.setdefault(each, set()).add(log)

        with patch.object(LogState, "__setattr__", set_and_note):
            yield

    @staticmethod
    def _led(server: Any, topic_id: bytes, index: int) -> Any:
        """A partition that the broker leads, as far as it believes so itself, else None."""
        replicas = getattr(server.services, "replicas", None)
        partition = None if replicas is None else replicas._topics.get(topic_id, {}).get(index)
        return None if partition is None or partition.gone else partition

    # --- logs --------------------------------------------------------------------------------------------------------

    def _a_leader_has_some(self, log: Log, start: int, end: int) -> bool:
        """Whether a leader has a batch from ``start`` to ``end``, or none is there to tell.

        Where it has cleaned all of them away it may not know which leader epoch they were of, and has others cut them.
        """
        servers = [process.server for process in self._processes if process.server is not None]
        leaders = [leader for server in servers if (leader := self._led(server, log.topic_id or b"", log.partition))]
        batches = [batch for leader in leaders for batch in read_directory(Path(leader.log.path))]
        return not leaders or any(start <= batch.last_offset and batch.base_offset < end for batch in batches)

    def _look_at_log(self, process: Process, log: Log, leader: Any) -> None:
        part = (self._model.topic(log.topic, log.topic_id), log.partition)
        replica = self._replicas.get((process.name, part))
        is_new = replica is None
        if replica is None:
            is_cleaned = log.topic in self._model.compacted_topics
            replica = self._replicas[process.name, part] = Replica(log, is_cleaned)
            self._partitions[store_codec.partition_key(replica.topic_id, part[1])] = replica.topic_id, part
        start, epoch = log.log_start_offset, -1 if leader is None else leader.leader_epoch
        seen = (start, log.log_end_offset, log.high_watermark, epoch)
        if seen == replica.seen:
            return
        (before, end_before, *_, epoch_before), replica.seen = replica.seen, seen
        # One that is empty, and begins inside of its leader's first batch, begins with that batch, as in Kafka.
        was_empty = before == end_before
        replica.files.lie_in(log.path)
        where = f"{log.topic}-{log.partition} on {process.name}"
        end, high = log.log_end_offset, log.high_watermark
        stable = log.last_stable_offset
        if not start <= stable <= high <= end <= log.next_offset:
            offsets = f"start {start}, stable {stable}, high {high}, end {end}, next {log.next_offset}"
            raise Violation("last stable offset <= high watermark <= log end", f"{where}: {offsets}")
        if was_empty and start == end:
            replica.verified = start
        if end < replica.verified:
            if log.topic not in self._model.compacted_topics or self._a_leader_has_some(log, end, replica.verified):
                raise Violation(PREFIX_STAYS, f"{where}: cut at {end}, {replica.verified} was committed")
            replica.verified = end
        if start != before:
            check(before <= start or was_empty, START, f"{where}: from {before} to {start}")
            check(start == 0 or log.topic == FLEETING, START, f"{where}: it is {start}, and nothing was deleted")
        model = self._model.log(*part)
        model.start_offset = max(start, model.start_offset)
        replica.verified = max(start, replica.verified)
        if leader is not None:
            self._look_at_leader(process.name, where, leader, replica, high, end)
            if high > model.end_offset:
                self._commit(part, where, replica, high, leader.leader_epoch)
        else:
            replica.led_epoch = -1
            if high > model.end_offset:
                raise Violation(FOLLOWERS_WATERMARK, f"{where}: it is {high}, and {model.end_offset} is committed")
        self._verify(where, replica, model, min(high, model.end_offset), SAME_PREFIX)
        # By the process' death, or by a device that fails after the log's end has moved and before its files have.
        is_cut_short = self._is_cut_short or process.disk.fails_at(log.path)
        if end < end_before:
            REACHED["a log is cut"] += 1
            REACHED["a log is cut inside of an open transaction"] += bool(model.open_transactions)
            replica.was_read = True
            if not is_cut_short:  # else the next start finishes what was begun
                check_snapshots(where, log.path, end)
        # The cleaner keeps a producer's last batch: where that is cut away, what came before it may be gone already.
        is_whole = log.topic not in self._model.compacted_topics and end == log.next_offset
        if (
            is_whole
            and not (is_cut_short and end < end_before)
            and (is_new or end < end_before or epoch > epoch_before)
        ):
            self._check_producers(process, where, log, model, replica.was_read)

    def _first_epoch(self, process: Process, log: Log) -> int:
        """The leader epoch below which another cluster has written; 0 where none has, as far as brokers know."""
        part = (self._model.topic(log.topic, log.topic_id), log.partition)
        server: Any = process.server
        mirror = server.services.metadata.image.mirrors.get(log.topic)
        known = 0 if mirror is None else mirror.first_epoch(log.partition)
        self._first_epochs[part] = max(known, self._first_epochs.get(part, 0))
        return self._first_epochs[part]

    def _check_producers(self, process: Process, where: str, log: Log, model: LogModel, was_read: bool) -> None:
        """Of a cleaned log the committed batches are told by the model."""
        found = left = read_directory(log.path)
        is_cleaned = log.topic in self._model.compacted_topics
        if is_cleaned:
            found = [*model.batches, *(batch for batch in found if batch.base_offset >= model.end_offset)]
            found = [batch for batch in found if batch.base_offset < log.log_end_offset]
        check_producers(
            where,
            log,
            found,
            left if is_cleaned else None,
            all_batches=log.log_start_offset == 0,
            was_read=was_read,
            first_epoch=self._first_epoch(process, log),
        )

    def _look_at_leader(self, broker: str, where: str, leader: Any, replica: Replica, high: int, end: int) -> None:
        epoch = leader.leader_epoch
        if replica.led_epoch != epoch:
            other = self._leaders.setdefault((leader.topic_id, leader.index, epoch), broker)
            check(other == broker, ONE_LEADER, f"{where} leads in epoch {epoch}, and so did {other}")
            replica.led_epoch, replica.led_high_watermark = epoch, -1
            self._check_has_committed(where, leader, replica, end)
        if high < replica.led_high_watermark:
            raise Violation(WATERMARK, f"{where}: from {replica.led_high_watermark} to {high} in epoch {epoch}")
        replica.led_high_watermark = high

    def _check_has_committed(self, where: str, leader: Any, replica: Replica, end: int) -> None:
        """The leader's log has whatever a leader of its epoch, or of one before, has committed."""
        part = (self._model.topic(leader.topic, leader.topic_id), leader.index)
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
            self._check_predecessor(part, batch)
            self._check_producer(part, batch)
            model.append(batch)
        replica.verified = model.end_offset
        self._check_in_sync(store_codec.partition_key(replica.topic_id, part[1]), epoch, model.end_offset)
        commits = self._commits.setdefault(part, [])
        commits[:] = [commit for commit in commits if commit.leader_epoch != epoch]
        commits.append(Commit(model.end_offset, epoch))
        for process in self._processes:
            server: Any = process.server
            later = self._led(server, replica.topic_id, part[1]) if server is not None else None
            if later is not None and later.leader_epoch > epoch:
                other = self._replicas.get((process.name, part))
                if other is not None:
                    other.files.lie_in(later.log.path)
                    end = later.log.log_end_offset
                    self._check_has_committed(f"{part[0]}-{part[1]} on {process.name}", later, other, end)

    def _check_in_sync(self, key: str, epoch: int, end_offset: int) -> None:
        stored = self._stored.get(key)
        # A leader that was deposed commits nothing: that is found otherwise.
        if stored is not None and stored["leaderEpoch"] == epoch:
            for broker_id in stored["isr"]:
                self._check_has(key, broker_id, end_offset)

    def _check_has(self, key: str, broker_id: int, end_offset: int) -> None:
        """A broker that runs, and has lost nothing with its power, has a partition's records up to an offset."""
        topic_id, (_, index) = self._partitions[key]
        server: Any = next(each for each in self._processes if broker_id_of(each.name) == broker_id).server
        holders = self._holders.get(key)
        has_lost_some = broker_id in self._gone or (holders is not None and broker_id in holders.torn)
        if server is None or server._logs is None or has_lost_some:
            return
        for partition_log in server._logs._logs.values():
            log = partition_log.opened
            if log is not None and log.topic_id == topic_id and log.partition == index:
                where = f"{log.topic}-{index} on broker-{broker_id}"
                end = log.log_end_offset
                check(end >= end_offset, IN_SYNC, f"{where} ends at {end}, and {end_offset} is committed")

    def _check_producer(self, part: Partition, batch: Batch) -> None:
        """A producer's batches are of no earlier epoch than those before, its markers of no earlier coordinator."""
        if batch.producer_id < 0:
            return
        key = part, batch.producer_id
        epoch, coordinator = self._producers.get(key, (-1, -1))
        where = f"{part[0]}-{part[1]}: at {batch.base_offset} producer {batch.producer_id} writes"
        went_on = batch.producer_epoch >= epoch
        check(went_on, EPOCHS_OF_PRODUCERS, f"{where} in epoch {batch.producer_epoch} after {epoch}")
        if batch.is_control:
            check(coordinator_epoch(batch) >= coordinator, MARKERS, f"{where} of {coordinator} before")
            coordinator = coordinator_epoch(batch)
        self._producers[key] = batch.producer_epoch, coordinator

    def last_coordinator(self, part: Partition, producer_id: int) -> int:
        """The epoch of the coordinator whose marker is the last of a producer that is committed; -1 for none."""
        return self._producers.get((part, producer_id), (-1, -1))[1]

    @staticmethod
    def _check_predecessor(part: Partition, batch: Batch) -> None:
        name, _, topic_id = part[0].partition("@")
        if name == FLEETING:
            for offset, _, value in batch.records():
                same = value.startswith(topic_id.encode())
                check(same, PREDECESSOR, f"{part[0]}-{part[1]}: {value[:60]!r} at offset {offset}")

    @staticmethod
    def _verify(where: str, replica: Replica, model: LogModel, end: int, invariant: str) -> None:
        """The replica's bytes are the committed ones up to ``end``."""
        if replica.verified >= end:
            return
        for expected in model.batches_from(replica.verified):
            if expected.base_offset >= end:
                return
            if not replica.files.go_on_with(expected):
                break
            replica.verified = expected.last_offset + 1
        start = replica.verified
        found = []
        for expected in model.batches_from(start):
            if expected.base_offset >= end:
                break
            batch = replica.files.batch(expected.base_offset)
            found += [] if batch is None else [batch]
            replica.verified = expected.last_offset + 1
        model.check_replica(where, found, start, replica.verified, invariant)

    def check_at_rest(self, process: Process) -> None:
        """Everything that lies on a broker's disk is what was committed, from the start of each log to its end."""
        server: Any = process.server
        for partition_log in server._logs._logs.values():
            log = partition_log.open()
            model = self._model.log(self._model.topic(log.topic, log.topic_id), log.partition)
            where = f"{log.topic}-{log.partition} on {process.name}"
            check(log.log_end_offset == model.end_offset, SAME_PREFIX, f"{where} ends at {log.log_end_offset}")
            self._check_producers(process, where, log, model, was_read=True)  # it has just started
            found = read_directory(Path(log.path))
            model.check_replica(where, found, log.log_start_offset, model.end_offset, SAME_PREFIX)
        image = server.services.metadata.image
        for path in sorted(path for directory in process.log_dirs for path in directory.glob(f"{FLEETING}-*")):
            topic = image.topics_by_name.get(FLEETING)
            index = path.name.removeprefix(f"{FLEETING}-")
            if index.isdigit() and (path / "partition.metadata").exists():
                is_there = topic is not None and int(index) < len(topic.partitions)
                known = (path / "partition.metadata").read_text()
                same = is_there and topic is not None and uuid_text(topic.topic_id) in known
                check(same, REMAINS, f"{path} is of another topic than {topic and uuid_text(topic.topic_id)}: {known}")

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
        self._forget_replicas_elsewhere(broker, image)

    def _forget_replicas_elsewhere(self, broker: str, image: ClusterImage) -> None:
        """What is not a replica of the broker any more may be deleted, and may come back as an empty one."""
        for name, part in [key for key in self._replicas if key[0] == broker]:
            topic = image.topics_by_id.get(self._replicas[name, part].topic_id)
            if topic is None or broker_id_of(broker) not in topic.partitions[part[1]].replicas:
                del self._replicas[name, part]

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
        for key in transaction.deletes:
            self._holders.pop(key, None)
        self._gone -= {int(key[len(store_codec.BROKERS) :]) for key in puts if key.startswith(store_codec.BROKERS)}
        for key, value in puts.items():
            if key.startswith(store_codec.PARTITIONS):
                self._check_stored_partition(key, json.loads(value))

    def _check_stored_partition(self, key: str, fields: dict[str, Any]) -> None:
        before = self._stored.get(key)
        self._stored[key] = fields
        former, epochs = _epochs(before) if before is not None else (-1, -1), _epochs(fields)
        check(epochs >= former, EPOCHS, f"{key}: from {former} to {epochs}")
        isr, replicas = set(fields["isr"]), set(fields["replicas"])
        check(isr <= replicas, "who is in sync is a replica", f"{key}: ISR {isr} of {replicas}")
        leader = fields["leader"]
        check(leader < 0 or leader in isr, "the leader is in sync", f"{key}: leader {leader}, ISR {isr}")
        holders = self._holders.setdefault(key, Holders())
        in_sync = frozenset(isr) | frozenset(fields.get("elr", ()))
        is_recovering = fields.get("recovery", RECOVERED) != RECOVERED
        # Where nobody is in sync, nor eligible, who led last may lead again.
        all_holders = in_sync or frozenset(fields.get("lastKnownElr", ()))
        holders.become(all_holders, frozenset(self._gone), caught_up=bool(in_sync) and not is_recovering)
        if before is not None and fields["leader"] not in (before["leader"], NO_LEADER):
            self._note_election(key, before, fields["leader"])
        self._check_joined(key, isr - set(before["isr"] if before is not None else ()))
        self._note_end_of_promise(key, holders)

    def _note_election(self, key: str, before: dict[str, Any], leader: int) -> None:
        REACHED["an election"] += 1
        REACHED["an election while a reassignment runs"] += bool(before.get("adding") or before.get("removing"))
        REACHED["an election of one that is not in sync"] += leader not in before["isr"]
        _, part = self._partitions.get(key, (b"", ("", 0)))
        if part[0] == TRANSACTIONS.topic:
            is_open = any(log.open_transactions for log in self._model.logs.values())
            REACHED["a coordinator's move under an open transaction"] += is_open
        self.on_election(leader, before["leader"])

    def _check_joined(self, key: str, joined: set[int]) -> None:
        """Brokers that are in sync by the store from now on have what is committed by now."""
        if key in self._partitions:
            _, part = self._partitions[key]
            for broker_id in joined:
                self._check_has(key, broker_id, self._model.log(*part).end_offset)

    # --- power failures ----------------------------------------------------------------------------------------------

    def may_lose_power(self, process: Process) -> bool:
        """Whether everything committed outlives the loss of what this machine has not synced."""
        broker_id = broker_id_of(process.name)
        return not any(holders.would_lose_all(broker_id) for holders in self._holders.values())

    def power_fails(self, process: Process) -> Callable[[], None]:
        """A machine is about to lose what it has not synced; what is returned notes of which partitions it did."""
        before = list(self._ends_on(process.log_dirs)) if self._images else []

        def failed() -> None:
            broker_id = broker_id_of(process.name)
            self._gone.add(broker_id)  # its leader may have it join yet, for what it had
            for path, key, end in before:
                holders = self._holders.get(key)
                if holders is not None and _end_of(path) < end:
                    holders.torn |= {broker_id}
                    self._note_end_of_promise(key, holders)

        return failed

    def _ends_on(self, log_dirs: Sequence[Path]) -> Iterator[tuple[Path, str, int]]:
        """Each partition's directory on a machine, the partition's key in the store, and where its files end."""
        _, image = self._images[max(self._images)]
        for path in sorted(path for directory in log_dirs for path in directory.iterdir()):
            name, _, index = path.name.rpartition("-")
            topic = image.topics_by_name.get(name)
            if topic is not None and index.isdigit():
                yield path, store_codec.partition_key(topic.topic_id, int(index)), _end_of(path)

    def _note_end_of_promise(self, key: str, holders: Holders) -> None:
        if holders.has_lost_all and not self.promise_ended:
            self.promise_ended = f"{key}: all of {sorted(holders.all)} have lost something"


def broker_id_of(name: str) -> int:
    """Of a process of the run."""
    return int(name.rpartition("-")[2])


def _epochs(stored: dict[str, Any]) -> tuple[int, int]:
    """The leader epoch and the partition epoch of a partition, as the store has it."""
    return stored["leaderEpoch"], stored["partitionEpoch"]


def _end_of(path: Path) -> int:
    batches = read_directory(path)
    if batches:
        return batches[-1].last_offset + 1
    return max((int(file.stem) for file in path.glob("*.log")), default=0)  # all that it had may be deleted


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
        count = len(topic.partitions)
        check(count >= len(old.partitions), PARTITIONS_STAY, f"{topic.name} has {count} on {broker}")
        for index, (was, now) in enumerate(zip(old.partitions, topic.partitions, strict=False)):
            went = (was.leader_epoch, was.partition_epoch), (now.leader_epoch, now.partition_epoch)
            check(went[0] <= went[1], EPOCHS, f"{topic.name}-{index} on {broker}: from {went[0]} to {went[1]}")
