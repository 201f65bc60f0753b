"""Seeds of two clusters and a link: none violates an invariant, and mistakes that are planted in links are found."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from pybroker.cluster.image.link_states import ENDED
from pybroker.handlers.read_only_topics import ReadOnlyTopics
from pybroker.replication.followed_partition import FollowedPartition
from pybroker.replication.mirror_fetcher import MirrorFetcher
from pybroker.replication.mirrored_partition import MirroredPartition
from pybroker.replication.replica_fetcher import ReplicaFetcher
from tests.simulation import link_simulation as link
from tests.simulation.link_simulation import LinkSimulation
from tests.simulation.planted import LOST
from tests.simulation.producer_replay import EPOCHS_OF_PRODUCERS
from tests.simulation.test_cluster_simulation import first_seed_of_the_commit
from tests.source_tree import ROOT

# Two brokers on each side find most, and are quick.
SHORT: dict[str, Any] = {"brokers": 2, "active_ms": 3_000}
SEEDS = 25
SEEDS_OF_MISTAKES = 30
HANGS = "no transaction hangs"
RESTS = "everything comes to rest"
# What a producer with another's id is answered, and what it then writes, may be wrong before the ids are compared.
CONFUSED = {
    "a batch in sequence is taken",
    "acknowledged data is where the acknowledgement says",
    "no duplicate (producer id, epoch, sequence)",
    "a transactional request is served",
    EPOCHS_OF_PRODUCERS,
}


@pytest.mark.parametrize(
    ("way", "brokers", "seed"), [(link.FAIL_OVER, 2, 2), (link.PROMOTE, 1, 14), (link.PROMOTE_AT_REST, 1, 9)]
)
def test_what_is_mirrored_is_the_sources_whatever_befalls_either_cluster(way: str, brokers: int, seed: int) -> None:
    outcome = LinkSimulation(seed, **{**SHORT, "way": way, "brokers": brokers}).run()
    assert outcome.violation is None, str(outcome.violation)


@pytest.mark.slow
@pytest.mark.flaky(reruns=0)  # a seed tells the same every time
@pytest.mark.timeout(900)
def test_many_seeds_of_a_link_violate_no_invariant() -> None:
    """Each commit draws its own; the output says how a seed is run again."""
    first = first_seed_of_the_commit()
    seeds = f"{first}-{first + SEEDS - 1}"
    options = ["--link", "--brokers", "3", "--active-ms", "10000", "--seeds", seeds, "--jobs", "2"]
    command = [sys.executable, "-m", "tests.simulation", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=850)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("violated by: none\n")


# --- planted mistakes ------------------------------------------------------------------------------------------------


class Planted(NamedTuple):
    """A mistake, the invariants that it violates, and where it shows: how the mirror comes to take writes, brokers."""

    plant: Callable[[pytest.MonkeyPatch], None]
    invariants: set[str]
    ways: tuple[str, ...] = link.WAYS
    brokers: int = SHORT["brokers"]


def give_ids_as_any_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Producer ids of a cluster that mirrors begin at zero, as those of its source do."""
    monkeypatch.setattr("pybroker.cluster.image.link_states.own_producer_ids", lambda cluster_id: 0)
    monkeypatch.setattr("pybroker.cluster.decisions.mirrored_topics.own_producer_ids", lambda cluster_id: 0)


def leave_transactions_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is open of the source's stays so."""
    monkeypatch.setattr("pybroker.replication.source_transactions._abort", lambda *_: None)


def take_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that is mirrored is written to."""
    monkeypatch.setattr(ReadOnlyTopics, "_is_read_only", lambda *_: False)


def commit_what_the_source_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mirror's leader takes the source's high watermark for its own, whatever its followers have."""
    monkeypatch.setattr(MirroredPartition, "append", FollowedPartition.append)


def tell_the_end_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A promotion ends whether all is here or not."""
    monkeypatch.setattr(MirroredPartition, "ends_at", lambda self, source_end: True)
    monkeypatch.setattr(MirroredPartition, "tell_if_ended", lambda self, *_: self._tell(self, ENDED, "") is None)


def forget_what_is_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that syncs before it shows anything does not show its last records."""
    monkeypatch.setattr(MirrorFetcher, "_on_synced", ReplicaFetcher._on_synced)


PLANTED = [
    Planted(give_ids_as_any_cluster, {link.IDS} | CONFUSED),
    Planted(leave_transactions_open, {HANGS}, (link.FAIL_OVER, link.PROMOTE)),
    Planted(take_writes, {link.READ_ONLY, link.SAME_BYTES}),
    Planted(commit_what_the_source_has, LOST | {link.SAME_BYTES}),
    Planted(tell_the_end_at_once, {link.ALL_IS_HERE}, (link.PROMOTE_AT_REST,)),
    Planted(forget_what_is_synced, {RESTS}, (link.PROMOTE_AT_REST,), brokers=1),
]


@pytest.mark.slow
@pytest.mark.flaky(reruns=0)  # a seed tells the same every time
@pytest.mark.parametrize("planted", PLANTED, ids=[planted.plant.__name__ for planted in PLANTED])
def test_a_mistake_in_links_is_found(monkeypatch: pytest.MonkeyPatch, planted: Planted) -> None:
    planted.plant(monkeypatch)
    for seed in range(1, SEEDS_OF_MISTAKES + 1):
        runs = {**SHORT, "brokers": planted.brokers, "way": planted.ways[seed % len(planted.ways)]}
        violation = LinkSimulation(seed, **runs).run().violation
        if violation is not None:
            assert violation.invariant in planted.invariants, f"seed {seed}: {violation}"
            return
    pytest.fail(f"{SEEDS_OF_MISTAKES} seeds did not find it")
