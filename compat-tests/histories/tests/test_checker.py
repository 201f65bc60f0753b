"""The checker finds nothing in what a correct Kafka does, and each anomaly, by its name, where one is planted."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from histories.anomalies import ANOMALIES
from histories.checker import check
from histories.clients import REQUEST_MS
from histories.cycles import strongly_connected_components
from histories.history import (
    BROKER,
    FAULTS,
    UNKNOWN_OFFSET,
    Event,
    HistoryError,
    Journal,
    merge_journals,
    read_events,
)
from histories.session_checks import TOLERANCE_NS
from histories.tests.model import Model
from histories.tests.plants import PLANTS

SEEDS = st.integers(0, 1_000_000)
READER, WRITER, OTHER = 1, 2, 3
FAULT_OF_A_CLUSTER: list[tuple[int, str, str, object]] = [
    (FAULTS, "invoke", "fault", {"kind": "kill", "whom": [1]}),
    (FAULTS, "ok", "fault", None),
]


def found(events: list[Event], whole: bool = False) -> set[str]:
    """The anomalies; most of the histories here are excerpts."""
    return set(check(events, whole).anomalies)


def history(*events: tuple[int, str, str, object]) -> list[Event]:
    """Events a tick apart."""
    return [Event(1_000 + tick, *event) for tick, event in enumerate(events)]  # type: ignore[arg-type]


@given(seed=SEEDS)
@settings(max_examples=30, deadline=None, database=None)
def test_what_a_correct_kafka_does_has_no_anomaly(seed: int) -> None:
    report = check(Model(seed).events)
    assert report.anomalies == {}, report.examples


@pytest.mark.parametrize("kind", sorted(ANOMALIES))
@given(seed=SEEDS)
@settings(max_examples=12, deadline=None, database=None)
def test_a_planted_anomaly_is_found_and_named(kind: str, seed: int) -> None:
    planted = PLANTS[kind](Model(seed).events, Random(seed))
    assume(planted is not None)
    assert planted is not None
    report = check(planted)
    assert set(report.anomalies) == {kind}, report.examples


@given(seed=SEEDS, cut=st.floats(0, 1))
@settings(max_examples=30, deadline=None, database=None)
def test_a_history_may_break_off_anywhere(seed: int, cut: float) -> None:
    events = Model(seed).events
    report = check(events[: int(cut * len(events))], whole=False)
    assert report.anomalies == {}, report.examples


@given(seed=SEEDS)
@settings(max_examples=30, deadline=None, database=None)
def test_an_answer_that_never_came_is_no_anomaly(seed: int) -> None:
    random = Random(seed)

    def unanswered(event: Event) -> Event:
        if event.type not in {"ok", "fail"} or event.kind not in {"send", "txn", "commit"} or random.random() < 0.5:
            return event
        if event.kind == "commit":
            return event._replace(type="info")
        sends = event.value if event.kind == "send" else event.value["sends"]
        forgotten = [[key, value, None] for key, value, _ in sends]
        return event._replace(
            type="info", value=forgotten if event.kind == "send" else {**event.value, "sends": forgotten}
        )

    report = check([unanswered(event) for event in Model(seed).events], whole=False)
    assert report.anomalies == {}, report.examples


def test_every_anomaly_can_be_planted() -> None:
    assert set(PLANTS) == set(ANOMALIES)


def test_without_a_final_reading_only_what_readers_have_passed_counts_as_lost() -> None:
    sent = [["t/0", 10, 0], ["t/0", 11, 1], ["t/0", 12, 2]]
    seen = history(
        (READER, "ok", "open", {"isolation": "read_committed"}),
        (WRITER, "invoke", "send", [[key, value, None] for key, value, _ in sent]),
        (WRITER, "ok", "send", sent),
        (READER, "ok", "poll", [["t/0", [[0, 10], [1, 11]]]]),
    )
    assert found(seen) == set()
    passed = [*seen[:3], seen[3]._replace(value=[["t/0", [[0, 10], [2, 12]]]])]
    assert found(passed) == {"lost-write"}


def test_a_transaction_of_unknown_end_is_whole_or_absent() -> None:
    sends = [["t/0", 10, None], ["t/1", 11, None]]
    transaction = {"sends": sends, "consumed": [], "group": None, "commit": None}

    def ends(*values: tuple[str, int]) -> list[Event]:
        return history(
            (READER, "ok", "open", {"isolation": "read_committed"}),
            (WRITER, "invoke", "txn", transaction),
            (READER, "ok", "poll", [[key, [[0, value]]] for key, value in values]),
            (READER, "ok", "final", {"t/0": 2, "t/1": 2}),
        )

    assert found(ends()) == set()
    assert found(ends(("t/0", 10), ("t/1", 11))) == set()
    assert found(ends(("t/1", 11))) == {"torn-transaction"}


def written_twice(producer: str, *meanwhile: tuple[int, str, str, object], lasted_ms: int = 1) -> dict[str, int]:
    """What the checker says of one write at two offsets."""
    begun = history(
        (READER, "ok", "open", {"isolation": "read_committed"}),
        (WRITER, "ok", "open", {"producer": producer}),
        (WRITER, "invoke", "send", [["t/0", 10, None]]),
        *meanwhile,
    )
    ended = history(
        (WRITER, "ok", "send", [["t/0", 10, 1]]),
        (BROKER, "ok", "kill", None),
        (READER, "ok", "poll", [["t/0", [[0, 10], [1, 10]]]]),
    )
    late = [event._replace(time_ns=event.time_ns + lasted_ms * 1_000_000) for event in ended]
    return check([*begun, *late], whole=False).counts


def test_only_a_write_without_idempotence_that_had_to_wait_may_lie_there_twice() -> None:
    killed, paused = (
        [(BROKER, "invoke", "kill", None)],
        [(BROKER, "invoke", "pause", None), (BROKER, "ok", "pause", None)],
    )
    for excused in (
        written_twice("plain", *killed),
        written_twice("plain", *paused),
        written_twice("plain", lasted_ms=REQUEST_MS + 1),
    ):
        assert excused == {"retried-write": 1}
    assert written_twice("plain") == {"duplicate": 1}
    assert written_twice("plain", lasted_ms=REQUEST_MS - 1) == {"duplicate": 1}
    assert written_twice("idempotent", *killed) == {"duplicate": 1}
    assert written_twice("idempotent", *paused) == {"duplicate": 1}


def test_in_a_cluster_a_write_without_idempotence_may_lie_there_twice_at_any_time() -> None:
    """Leaders change without a fault, too; what an idempotent producer sent lies there once all the same."""
    assert written_twice("plain", *FAULT_OF_A_CLUSTER) == {"retried-write": 1}
    assert written_twice("idempotent", *FAULT_OF_A_CLUSTER) == {"duplicate": 1}


def test_a_group_may_not_start_behind_what_it_had_committed() -> None:
    def starts_at(offset: int, outcome: str, *between: tuple[int, str, str, object]) -> list[Event]:
        return history(
            (READER, "ok", "open", {"isolation": "read_committed", "group": "g"}),
            (OTHER, "ok", "open", {"isolation": "read_committed", "group": "g"}),
            (WRITER, "invoke", "send", [["t/0", value, None] for value in range(5)]),
            (WRITER, "ok", "send", [["t/0", value, value] for value in range(5)]),
            (READER, "ok", "assigned", ["t/0"]),
            (READER, "ok", "poll", [["t/0", [[value, value] for value in range(4)]]]),
            (READER, "invoke", "commit", {"t/0": 3}),
            (READER, outcome, "commit", None),
            *between,
            (OTHER, "ok", "assigned", ["t/0"]),
            (OTHER, "ok", "poll", [["t/0", [[offset, offset]]]]),
        )

    assert found(starts_at(3, "ok")) == set()
    assert found(starts_at(2, "ok")) == {"lost-commit"}
    assert found(starts_at(0, "info")) == set()
    assert found(starts_at(0, "fail")) == set()
    # A commit that was given up may overtake a later one, until the broker that has got it is dead.
    late = [(READER, "invoke", "commit", {"t/0": 1}), (READER, "info", "commit", None)]
    later = [(READER, "invoke", "commit", {"t/0": 4}), (READER, "ok", "commit", None)]
    killed = [(BROKER, "invoke", "kill", None), (BROKER, "ok", "kill", None)]
    assert found(starts_at(1, "ok", *late, *later)) == set()
    assert found(starts_at(1, "ok", *late, *killed, *later)) == {"lost-commit"}
    # Or until the partition's next owner has committed: its generation fences what its predecessor gave up.
    third = 4
    given = [
        (third, "ok", "open", {"isolation": "read_committed", "group": "g"}),
        (third, "ok", "assigned", ["t/0"]),
    ]
    commits = [(third, "invoke", "commit", {"t/0": 4}), (third, "ok", "commit", None)]
    assert found(starts_at(4, "ok", *late, *given, *commits)) == set()
    assert found(starts_at(1, "ok", *late, *given)) == set()
    assert found(starts_at(1, "ok", *late, *given, *commits)) == {"lost-commit"}
    # What the new owner has itself given up, it may still commit.
    own = [(third, "invoke", "commit", {"t/0": 2}), (third, "info", "commit", None)]
    assert found(starts_at(2, "ok", *late, *given, *own, *commits)) == set()


# Records at 0 to 9 but for 3, where a transaction ended, and 4, which was aborted.
VISIBLE = [offset for offset in range(10) if offset not in {3, 4}]


def with_a_log(*events: tuple[int, str, str, object], isolation: str = "read_committed") -> list[Event]:
    aborted = {"sends": [["t/0", 4, 4]], "consumed": [], "group": None, "commit": None}
    return history(
        (97, "invoke", "txn", aborted),
        (WRITER, "invoke", "send", [["t/0", value, None] for value in VISIBLE]),
        (WRITER, "ok", "send", [["t/0", value, value] for value in VISIBLE]),
        (97, "fail", "txn", aborted),
        (99, "ok", "open", {"isolation": "read_committed"}),
        (99, "ok", "poll", [["t/0", [[value, value] for value in VISIBLE]]]),
        (98, "ok", "open", {"isolation": "read_uncommitted"}),
        (98, "ok", "poll", [["t/0", [[value, value] for value in sorted([*VISIBLE, 4])]]]),
        *[(member, "ok", "open", {"isolation": isolation, "group": "g"}) for member in (READER, OTHER)],
        *events,
    )


def starts_at(offset: int) -> list[tuple[int, str, str, object]]:
    return [(OTHER, "ok", "assigned", ["t/0"]), (OTHER, "ok", "poll", [["t/0", [[offset, offset]]]])]


@pytest.mark.parametrize("outcome", ["ok", "info", "fail"])
def test_a_group_may_not_start_beyond_what_anybody_asked_to_commit(outcome: str) -> None:
    def after(asked: int, offset: int, isolation: str = "read_committed") -> set[str]:
        commit = [(READER, "invoke", "commit", {"t/0": asked}), (READER, outcome, "commit", None)]
        return found(with_a_log(*commit, *starts_at(offset), isolation=isolation))

    assert after(2, 2) == set()
    assert after(2, 7) == {"skipped-start"}
    # At 3 and 4 there is nothing for readers of committed data; readers of everything are to be given 4.
    assert after(3, 5) == set()
    assert after(3, 5, "read_uncommitted") == {"skipped-start"}
    assert after(3, 6) == {"skipped-start"}


def test_a_group_without_commits_starts_at_the_beginning() -> None:
    assert found(with_a_log(*starts_at(0))) == set()
    assert found(with_a_log(*starts_at(5))) == {"skipped-start"}


def test_a_commit_under_way_may_be_where_a_group_starts() -> None:
    given, polled = starts_at(7)
    under_way = (READER, "invoke", "commit", {"t/0": 7})
    assert found(with_a_log(given, under_way, polled)) == set()
    assert found(with_a_log(given, polled, under_way)) == {"skipped-start"}


@pytest.mark.parametrize("outcome", ["ok", "info", "fail"])
def test_what_a_transaction_commits_is_where_a_group_may_start(outcome: str) -> None:
    consumed = [["t/0", [[offset, offset] for offset in (0, 1, 2, 5, 6)]]]
    value = {"sends": [], "consumed": consumed, "group": "g", "commit": 1_000}
    transaction = [(READER, "invoke", "txn", value), (READER, outcome, "txn", value)]
    assert found(with_a_log(*transaction, *starts_at(7))) == ({"skipped-start"} if outcome == "fail" else set())
    assert found(with_a_log(*transaction, *starts_at(8))) == {"skipped-start"}
    # A seek of a member is to what is committed as well.
    sought = (OTHER, "ok", "assign", ["t/0"])
    assert found(with_a_log(*transaction, sought, starts_at(8)[-1])) == {"skipped-start"}


def test_a_reader_of_no_group_starts_at_the_beginning() -> None:
    def reads(*polls: int, isolation: str = "read_committed") -> set[str]:
        opened = [(50, "ok", "open", {"isolation": isolation}), (50, "ok", "assign", ["t/0"])]
        return found(with_a_log(*opened, *[(50, "ok", "poll", [["t/0", [[offset, offset]]]]) for offset in polls]))

    assert reads(0, 1, 2, 5) == set()
    assert reads(5) == {"skipped-start"}
    assert reads(1, isolation="read_uncommitted") == {"skipped-start"}


@pytest.mark.parametrize("outcome", ["ok", "info"])
def test_a_group_stands_where_somebody_asked_it_to(outcome: str) -> None:
    def stands(offset: int) -> set[str]:
        commit = [(READER, "invoke", "commit", {"t/0": 2}), (READER, outcome, "commit", None)]
        return found(with_a_log(*commit, (99, "ok", "committed", {"group": "g", "offsets": {"t/0": offset}})))

    assert stands(2) == set()
    assert stands(0) == (set() if outcome == "info" else {"lost-commit"})
    assert stands(7) == stands(1_000) == {"unasked-commit"}


def test_a_history_without_operations_is_none() -> None:
    with pytest.raises(HistoryError):
        check([])


WRITTEN = [
    (WRITER, "ok", "open", {"library": "a", "producer": "idempotent"}),
    (WRITER, "invoke", "send", [["t/0", 10, None]]),
    (WRITER, "ok", "send", [["t/0", 10, 0]]),
]
READ_TO_THE_END = [
    event
    for process, isolation in ((98, "read_committed"), (99, "read_uncommitted"))
    for event in (
        (process, "ok", "open", {"library": "a", "isolation": isolation}),
        (process, "ok", "poll", [["t/0", [[0, 10]]]]),
        (process, "ok", "final", {"t/0": 1}),
    )
]


def test_a_history_that_nobody_has_read_to_the_end_is_stuck() -> None:
    def judged(*events: tuple[int, str, str, object]) -> set[str]:
        return found(history(*events), whole=True)

    assert judged(*WRITTEN, *READ_TO_THE_END) == set()
    assert judged(*WRITTEN) == {"stuck"}
    assert judged(*WRITTEN, *READ_TO_THE_END[:3]) == {"stuck"}
    assert judged(*WRITTEN, *READ_TO_THE_END[3:]) == {"stuck"}
    assert judged(*WRITTEN, *READ_TO_THE_END[:-1], (99, "ok", "final", {})) == {"stuck"}
    another = [(OTHER, "invoke", "send", [["t/1", 11, None]])]
    assert judged(*WRITTEN, *another, *READ_TO_THE_END) == {"stuck"}


def test_a_group_whose_offsets_nobody_has_asked_for_is_stuck() -> None:
    member = [
        (READER, "ok", "open", {"isolation": "read_committed", "group": "g"}),
        (READER, "invoke", "commit", {"t/0": 1}),
        (READER, "ok", "commit", None),
    ]
    asked = (98, "ok", "committed", {"group": "g", "offsets": {"t/0": 1}})
    assert found(history(*WRITTEN, *member, *READ_TO_THE_END, asked), whole=True) == set()
    assert found(history(*WRITTEN, *member, *READ_TO_THE_END), whole=True) == {"stuck"}


@pytest.mark.parametrize(
    ("client", "tried", "done"),
    [
        ({"producer": "plain"}, ("fail", "send", [["t/0", 11, None]]), ("ok", "send", [["t/0", 11, UNKNOWN_OFFSET]])),
        (
            {"producer": "transactional"},
            ("info", "txn", {"sends": [], "consumed": [], "group": None, "commit": None}),
            ("ok", "txn", {"sends": [], "consumed": [], "group": None, "commit": 1}),
        ),
        ({"isolation": "read_committed"}, ("ok", "poll", []), ("ok", "poll", [["t/0", [[0, 10]]]])),
        ({"isolation": "read_committed", "group": "g"}, ("fail", "commit", {"t/0": 1}), ("ok", "commit", {"t/0": 1})),
    ],
    ids=["writes", "transactions", "reads", "commits"],
)
def test_a_role_that_gets_nothing_done_is_an_anomaly(
    client: dict[str, str], tried: tuple[str, str, object], done: tuple[str, str, object]
) -> None:
    def judged(*outcomes: tuple[str, str, object]) -> set[str]:
        end: list[tuple[int, str, str, object]] = [*READ_TO_THE_END]
        if "producer" in client and done[1] == "send":  # its write is there
            end = [
                (process, kind, what, [["t/0", [[0, 10], [1, 11]]]] if what == "poll" and done in outcomes else value)
                for process, kind, what, value in READ_TO_THE_END
            ]
        if "group" in client:
            end.append((98, "ok", "committed", {"group": "g", "offsets": {"t/0": int(done in outcomes)}}))
        work = [(OTHER, *outcome) for outcome in outcomes]
        return found(history(*WRITTEN, (OTHER, "ok", "open", {"library": "b", **client}), *work, *end), whole=True)

    assert judged() == {"nothing-done"}
    assert judged(tried) == {"nothing-done"}
    assert judged(done) == set()


def test_each_gap_is_the_end_of_another_transaction() -> None:
    def read(end: int, *faults: tuple[int, str, str, object]) -> set[str]:
        transaction = {"sends": [["t/0", 10, 0]], "consumed": [], "group": None, "commit": 1_000}
        return found(
            history(
                *faults,
                (READER, "ok", "open", {"isolation": "read_uncommitted"}),
                (WRITER, "invoke", "txn", transaction),
                (WRITER, "ok", "txn", transaction),
                (READER, "ok", "poll", [["t/0", [[0, 10]]]]),
                (READER, "ok", "final", {"t/0": end}),
            )
        )

    assert read(2) == set()
    assert read(3) == {"offset-gap"}
    # A cluster's coordinator writes a marker again when it was not answered, but not without end.
    assert read(3, *FAULT_OF_A_CLUSTER) == set()
    assert read(20, *FAULT_OF_A_CLUSTER) == {"offset-gap"}


def test_interleaved_transactions_are_no_anomaly_but_counted() -> None:
    def transaction(first: int, second: int) -> dict[str, object]:
        sends = [["t/0", 10 * first, first], ["t/1", 10 * first + 1, second]]
        return {"sends": sends, "consumed": [], "group": None, "commit": 1_000}

    report = check(
        history(
            (READER, "ok", "open", {"isolation": "read_committed"}),
            (WRITER, "invoke", "txn", transaction(1, 2)),
            (OTHER, "invoke", "txn", transaction(2, 1)),
            (WRITER, "ok", "txn", transaction(1, 2)),
            (OTHER, "ok", "txn", transaction(2, 1)),
            (READER, "ok", "poll", [["t/0", [[1, 10], [2, 20]]], ["t/1", [[1, 21], [2, 11]]]]),
        ),
        whole=False,
    )
    assert report.counts == {"G0": 1}


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=40))
@settings(deadline=None, database=None)
def test_components_are_what_reaches_each_other(edges: list[tuple[int, int]]) -> None:
    graph: list[set[int]] = [set() for _ in range(13)]
    reach = [[i == j for j in range(13)] for i in range(13)]
    for tail, head in edges:
        graph[tail].add(head)
        reach[tail][head] = True
    for middle in range(13):
        for tail in range(13):
            for head in range(13):
                reach[tail][head] |= reach[tail][middle] and reach[middle][head]
    mutual = {frozenset(j for j in range(13) if reach[i][j] and reach[j][i]) for i in range(13)}
    components = strongly_connected_components(graph)
    assert {frozenset(component) for component in components} == {found for found in mutual if len(found) > 1}


def test_a_chain_of_any_length_is_no_recursion() -> None:
    length = 100_000
    circle = [{(vertex + 1) % length} for vertex in range(length)]
    assert [len(component) for component in strongly_connected_components(circle)] == [length]


def test_a_process_does_one_thing_at_a_time() -> None:
    with pytest.raises(HistoryError):
        check(history((WRITER, "invoke", "poll", None), (WRITER, "invoke", "poll", None)))


def test_a_value_is_written_once() -> None:
    with pytest.raises(HistoryError):
        check(history((WRITER, "ok", "send", [["t/0", 1, 0]]), (OTHER, "ok", "send", [["t/0", 1, 1]])))


def test_journals_of_several_processes_become_one_history(tmp_path: Path) -> None:
    paths = [tmp_path / "first", tmp_path / "second"]
    with Journal(paths[0]) as first, Journal(paths[1]) as second:
        first.record(WRITER, "invoke", "send", [["t/0", 1, None]])
        second.record(READER, "invoke", "poll")
        first.record(WRITER, "ok", "send", [["t/0", 1, 0]])
    # What a kill -9 leaves of a line is no event.
    paths[1].write_bytes(paths[1].read_bytes() + b'{"time": 99')
    merge_journals(paths, tmp_path / "merged")
    events = list(read_events(tmp_path / "merged"))
    assert [(event.process, event.type) for event in events] == [(WRITER, "invoke"), (READER, "invoke"), (WRITER, "ok")]
    assert [event.time_ns for event in events] == sorted(event.time_ns for event in events)


SESSION_MS, ASKS = 10, 1_000
END_NS = ASKS + SESSION_MS * 1_000_000


def of_a_session(*events: tuple[int, str, str, object], login: str = "once") -> list[Event]:
    """What a connection did that has logged in for ``SESSION_MS`` at ``ASKS``; the events with their own times."""
    opened = Event(ASKS - 1, OTHER, "ok", "open", {"login": login})
    return [opened, Event(ASKS, OTHER, "ok", "login", SESSION_MS)] + [
        Event(time_ns, OTHER, event_type, kind, value)  # type: ignore[arg-type]
        for time_ns, event_type, kind, value in events
    ]


def test_a_connection_is_served_until_its_session_ends_and_no_longer() -> None:
    late_ns = END_NS + TOLERANCE_NS + 1
    assert found(of_a_session((END_NS, "ok", "ask", None))) == set()
    assert found(of_a_session((late_ns, "ok", "ask", None))) == {"served-beyond-session"}
    assert found(of_a_session((late_ns, "fail", "ask", None))) == set(), "it was sent away"
    assert found(of_a_session((END_NS, "invoke", "ask", None), (late_ns, "ok", "ask", None))) == set(), "sent in time"
    assert found(of_a_session((END_NS, "ok", "login", 0), (late_ns, "ok", "ask", None))) == set(), "without an end"
    anew = (END_NS, "ok", "login", 2_000)
    assert found(of_a_session(anew, (late_ns, "ok", "ask", None))) == set()
    assert found(of_a_session((END_NS, "info", "login", None), (late_ns, "ok", "ask", None))) != set()


def test_sessions_of_which_none_was_renewed_or_none_outlived_are_nothing_to_judge() -> None:
    for events in (
        of_a_session((END_NS + 1, "fail", "ask", None)),
        of_a_session((END_NS - 1, "ok", "login", SESSION_MS), (END_NS, "ok", "ask", None)),
    ):
        with pytest.raises(HistoryError, match="sessions were renewed"):
            check(events)
