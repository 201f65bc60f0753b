"""What ``links describe`` shows of a link: its source, its topics, and their partitions.

Owns: the documents, and the tables made of them.  Asks no broker (``requests/link_requests``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from pybroker.cli.requests.link_requests import Link, Mirror, Progress
from pybroker.cli.terminal.output import Output, Row, show_size

REFUSED: Final = "refused"
_PROBLEMS_MAX: Final = 3


class LinkView(NamedTuple):
    """A link with its topics and, by topic, the partitions that are fetched now."""

    link: Link
    mirrors: Sequence[Mirror]
    partitions: dict[str, list[Progress]]

    @classmethod
    def of(cls, link: Link, mirrors: Sequence[Mirror], progress: Sequence[Progress]) -> LinkView:
        """Partitions of topics that are none of the link's are left out."""
        partitions: dict[str, list[Progress]] = {each.topic: [] for each in mirrors}
        for each in progress:
            if each.topic in partitions:
                partitions[each.topic].append(each)
        return cls(link, mirrors, partitions)

    def lags(self) -> dict[str, int | None]:
        """Records that each topic is behind, in all; None where that is not known of each partition."""
        return {topic: _sum([each.lag for each in found]) for topic, found in self.partitions.items()}

    def document(self) -> dict[str, Any]:
        """All of it; a secret is null."""
        lags = self.lags()
        return {
            "link": self.link.name,
            "source_cluster": self.link.source_cluster,
            "problem": self.link.problem,
            "settings": dict(self.link.settings),
            "topics": [self._topic(each, lags[each.topic]) for each in self.mirrors],
            "refused": dict(self.link.refused),
            "refused_more": self.link.refused_more,
            "not_carried": list(self.link.not_carried),
        }

    def _topic(self, mirror: Mirror, lag: int | None) -> dict[str, Any]:
        found = self.partitions[mirror.topic]
        return {
            "topic": mirror.topic,
            "source_topic": mirror.source_topic,
            "state": mirror.state,
            "reason": "; ".join(filter(None, (mirror.reason, _problems(found)))) or None,
            "lag": lag,
            "bytes_per_second": _sum([each.rate for each in found]),
            "partitions": [
                {
                    "partition": each.partition,
                    "end": each.end,
                    "source_end": each.source_end,
                    "lag": each.lag,
                    "bytes_per_second": each.rate,
                    "problem": each.problem,
                }
                for each in found
            ],
        }


def _problems(partitions: Sequence[Progress]) -> str | None:
    """What keeps partitions from going on; some of them stand for all."""
    found = [f"partition {each.partition}: {each.problem}" for each in partitions if each.problem]
    more = f", and {len(found) - _PROBLEMS_MAX} more" if len(found) > _PROBLEMS_MAX else ""
    return ", ".join(found[:_PROBLEMS_MAX]) + more or None


def _sum(numbers: Sequence[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known and len(known) == len(numbers) else None


def show_link(output: Output, view: LinkView) -> None:
    """Its source, and a row for each topic; columns that would say nothing are left out."""
    link = view.link
    head = [(link.name, link.settings.get("bootstrap.servers"), link.source_cluster, link.problem)]
    output.table(*_without_empty(("LINK", "SOURCE", "SOURCE-CLUSTER", "PROBLEM"), head, optional=("PROBLEM",)))
    rows: list[Row] = []
    for topic in view.document()["topics"]:
        named = (topic["topic"], topic["source_topic"] if topic["source_topic"] != topic["topic"] else None)
        rows.append((*named, topic["state"], topic["lag"], show_rate(topic["bytes_per_second"]), topic["reason"]))
    rows += [
        ((link.settings.get("prefix") or "") + topic, None, REFUSED, None, None, why)
        for topic, why in link.refused.items()
    ]
    if link.refused_more:
        rows.append((f"and {link.refused_more} more", None, REFUSED, None, None, None))
    columns = ("TOPIC", "SOURCE-TOPIC", "STATE", "LAG", "RATE", "REASON")
    output.table(*_without_empty(columns, rows, optional=("SOURCE-TOPIC", "REASON")), none="(no topics are mirrored)")
    if link.not_carried:
        output.table(("NOT-CARRIED",), [(note,) for note in link.not_carried])


def show_partitions(output: Output, view: LinkView) -> None:
    """A row for each partition that is fetched now, and what keeps any of them from going on."""
    rows: list[Row] = [
        (
            topic["topic"],
            each["partition"],
            each["end"],
            each["source_end"],
            each["lag"],
            show_rate(each["bytes_per_second"]),
            each["problem"],
        )
        for topic in view.document()["topics"]
        for each in topic["partitions"]
    ]
    columns = ("TOPIC", "PARTITION", "END", "SOURCE-END", "LAG", "RATE", "PROBLEM")
    output.table(*_without_empty(columns, rows, optional=("PROBLEM",)), none="(no partitions are mirrored)")


def show_settings(output: Output, link: Link) -> None:
    """What it is set to."""
    rows = [(name, "(secret)" if text is None else text) for name, text in link.settings.items()]
    output.table(("NAME", "VALUE"), rows)


def show_rate(bytes_per_second: int | None) -> str | None:
    """Bytes per second for people."""
    size = show_size(bytes_per_second)
    return None if size is None else f"{size}/s"


def _without_empty(
    columns: Sequence[str], rows: Sequence[Row], optional: Sequence[str]
) -> tuple[Sequence[str], Sequence[Row]]:
    """Without those of the optional columns in which no row has anything."""
    kept = [at for at, column in enumerate(columns) if column not in optional or any(row[at] for row in rows)]
    return [columns[at] for at in kept], [[row[at] for at in kept] for row in rows]


def counted_topics(states: Mapping[str, int], refused: int) -> str:
    """How many of a link's topics stand how; those that the source has and the link refuses have no state."""
    counted = [*states.items(), *([("refused", refused)] if refused else [])]
    return ", ".join(f"{count} {state}" for state, count in counted)
