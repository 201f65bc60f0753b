"""A use that is run over given records, and its answer by plain Python: for sessions here and on a cluster."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from pybroker.testing import Broker

if TYPE_CHECKING:
    from examples.uses.running import Use
    from pybroker.pipeline.records import Record

HOUR_MS = 3_600_000
HALF_AN_HOUR_MS = 1_800_000

LOG = """\
2025-06-24 14:36:25 startup archives unpack
2025-06-24 14:36:25 install curl:amd64 <none> 7.88.1-10
2025-06-24 14:36:26 status half-installed curl:amd64 7.88.1-10
2025-06-24 14:36:27 status installed curl:amd64 7.88.1-10
this line was cut
2025-06-24 14:36:28 status installed tzdata:all 2025b-0
2025-06-25 09:00:00 upgrade curl:amd64 7.88.1-10 7.88.1-12
2025-06-25 09:00:01 status installed curl:amd64 7.88.1-12
2025-06-25 09:00:02 status not-installed tzdata:all <none>
"""

# Keys and values by topic.
Written: TypeAlias = Mapping[str, list[tuple[str, str]]]


def written_by(
    use: "Use", spark: Any, work_dir: Path, records: Iterable["Record"], end: "Record | None" = None
) -> Written:
    """What a use writes of these records, on a broker of its own: a use has the same topics every time."""
    from examples.uses.running import feed, process, written

    with Broker() as broker:
        feed(use, broker.bootstrap, records, end)
        process(use, spark, broker.bootstrap, work_dir)
        return written(use, spark, broker.bootstrap)


def storms(records: Iterable["Record"]) -> list[tuple[str, str, float]]:
    """Station, end of window and fall, window by window."""
    from examples.uses.sensors import FALL_HPA, READINGS_MIN

    pressures: dict[str, dict[int, float]] = defaultdict(dict)
    counts: Counter[tuple[str, int]] = Counter()
    for record in records:
        value = json.loads(record.value or b"null")
        if value["pressure_hpa"] is not None:
            pressures[value["station"]][record.timestamp_ms] = value["pressure_hpa"]
            counts[value["station"], record.timestamp_ms] += 1
    found = set()
    for station, readings in pressures.items():
        for begin in {at - back * HOUR_MS for at in readings for back in range(6)}:
            inside = [begin + i * HOUR_MS for i in range(6) if begin + i * HOUR_MS in readings]
            fall = readings[inside[0]] - readings[inside[-1]]
            if sum(counts[station, at] for at in inside) >= READINGS_MIN and fall >= FALL_HPA:
                end = datetime.fromtimestamp((begin + 6 * HOUR_MS) / 1000, UTC)
                found.add((station, end.strftime("%Y-%m-%dT%H:%M:%S.000Z"), round(fall, 1)))
    return sorted(found)


def told_storms(written: Written) -> list[tuple[str, str, float]]:
    """The warnings, in the form of `storms`."""
    from examples.uses.sensors import WARNINGS

    values = ((station, json.loads(text)) for station, text in written[WARNINGS])
    return sorted((station, value["until"], value["fall_hpa"]) for station, value in values)


def sessions_of(records: Iterable["Record"]) -> Counter[tuple[str, int, int, int]]:
    """Visitor, first and last click, and number of clicks."""
    clicks: dict[str, list[int]] = defaultdict(list)
    for record in records:
        clicks[record.key.decode()].append(record.timestamp_ms)
    found: Counter[tuple[str, int, int, int]] = Counter()
    for visitor, times in clicks.items():
        run: list[int] = []
        for at in [*sorted(times), float("inf")]:
            if run and at - run[-1] >= HALF_AN_HOUR_MS:
                found[visitor, run[0], run[-1], len(run)] += 1
                run = []
            run.append(int(at) if at != float("inf") else 0)
    return found


def told_sessions(written: Written) -> Counter[tuple[str, int, int, int]]:
    """The sessions, in the form of `sessions_of`."""
    from examples.uses.clicks import SESSIONS

    found: Counter[tuple[str, int, int, int]] = Counter()
    for visitor, text in written[SESSIONS]:
        value = json.loads(text)
        began, ended = (int(datetime.fromisoformat(value[name]).timestamp() * 1000) for name in ("began", "ended"))
        found[visitor, began, ended, value["clicks"]] += 1
    return found


class Digest(NamedTuple):
    """What becomes of a log: packages and their versions, lines that are none, and how often each action was taken."""

    installed: Mapping[str, str]
    dead_letters: list[str]
    actions: Mapping[str, int]


DIGEST_OF_LOG = Digest(
    {"curl:amd64": "7.88.1-12"}, ["this line was cut"], {"startup": 1, "install": 1, "status": 5, "upgrade": 1}
)


def told_digest(written: Written) -> Digest:
    """The digest; each action of a day is told once."""
    from examples.uses.logs import BY_DAY, DEAD_LETTERS, INSTALLED

    by_day = written[BY_DAY]
    assert len(dict(by_day)) == len(by_day), by_day
    actions: Counter[str] = Counter()
    for key, count in by_day:
        actions[key.split()[1]] += int(count)
    return Digest(dict(written[INSTALLED]), [value for _, value in written[DEAD_LETTERS]], actions)
