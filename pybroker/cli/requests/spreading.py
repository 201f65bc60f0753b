"""Which brokers get the replicas of partitions that are spread anew.

Owns: the decision alone; pure. What it promises: each partition has its replicas on as many different brokers of the
list. What lies on one of them stays, unless another broker has at least two replicas less, so that little is copied.
What it aims at: as many replicas, and as many first ones (preferred leaders), on each broker. Where brokers name their
racks, the replicas of a partition are in different ones.

Kafka counterpart: ``kafka-reassign-partitions --generate``, which places all replicas anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

P = TypeVar("P", bound=Hashable)
Racks = Mapping[int, str | None]


def spread(
    replicas: Mapping[P, Sequence[int]],
    brokers: Sequence[int],
    racks: Racks,
    replication_factor: int | None = None,
) -> dict[P, list[int]]:
    """Replicas of each partition on ``brokers``, as many as it has now or ``replication_factor``.

    Raises ``ValueError`` where there are too few brokers.
    """
    wanted = {partition: replication_factor or len(now) for partition, now in replicas.items()}
    most = max(wanted.values(), default=0)
    if most > len(brokers):
        raise ValueError(f"{most} replicas need as many brokers, and there are {len(brokers)}")
    placed = {
        partition: [broker for broker in now if broker in brokers][: wanted[partition]]
        for partition, now in replicas.items()
    }
    load = Counter(dict.fromkeys(brokers, 0))
    load.update(broker for chosen in placed.values() for broker in chosen)
    for partition, chosen in placed.items():
        while len(chosen) < wanted[partition]:
            _add(chosen, load, racks)
    while _move_one(placed, load, racks):
        pass
    return _with_leaders(placed)


def _add(chosen: list[int], load: Counter[int], racks: Racks) -> None:
    """Give a partition one more replica: in another rack if there is one, on the broker that has the fewest."""
    taken = {racks.get(broker) for broker in chosen} - {None}
    others = (broker for broker in load if broker not in chosen)
    best = min(others, key=lambda broker: (racks.get(broker) in taken, load[broker]))
    chosen.append(best)
    load[best] += 1


def _move_one(placed: Mapping[P, list[int]], load: Counter[int], racks: Racks) -> bool:
    """Move a replica from a broker to one that has at least two less; whether there was one that may move."""
    by_load = [broker for broker, _ in load.most_common()]
    for giver in by_load:
        for taker in reversed(by_load):
            if load[giver] - load[taker] < 2:
                break
            for chosen in placed.values():
                if giver in chosen and taker not in chosen and _keeps_racks(chosen, giver, taker, racks):
                    chosen[chosen.index(giver)] = taker
                    load[giver] -= 1
                    load[taker] += 1
                    return True
    return False


def _keeps_racks(chosen: Sequence[int], giver: int, taker: int, racks: Racks) -> bool:
    """Whether the replicas lie in as many racks when ``taker`` has the place of ``giver``."""
    others = {racks.get(broker) for broker in chosen if broker != giver}
    return racks.get(taker) not in others or racks.get(giver) in others


def _with_leaders(placed: Mapping[P, list[int]]) -> dict[P, list[int]]:
    """The same replicas, with other first ones where a broker has at least two less."""
    led = Counter(chosen[0] for chosen in placed.values())
    ordered = dict(placed)
    is_even = False
    while not is_even:
        is_even = True
        for partition, chosen in ordered.items():
            first = min(chosen, key=lambda broker: led[broker])
            if led[chosen[0]] - led[first] >= 2:
                led[chosen[0]] -= 1
                led[first] += 1
                ordered[partition] = [first, *(broker for broker in chosen if broker != first)]
                is_even = False
    return ordered
