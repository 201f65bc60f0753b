"""The table of a claim, walked: what a task does for each claim that it may find, by a topic of marks in memory."""

import itertools
import threading
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum, auto
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from pybroker.pipeline.topics import claims
from pybroker.pipeline.topics.claims import NO_EPOCH, Claim, Mark, NameTaken
from pybroker.pipeline.topics.former_marks import NO_GROUPS
from pybroker.pipeline.topics.marks_topic import CLAIM_AT, slot_at
from pybroker.pipeline.topics.task_commits import QueryRun

CLIENT: Mapping[str, str] = {}
NAME = "name"
MARK = Mark(0, 1, 0, "first", "query")


class Found(StrEnum):
    """The claim that a task finds."""

    NONE = auto()
    EXPIRED = auto()  # the marks of the first run are there, its claim is not
    ANNOUNCED = auto()  # by a task of the first run, which has died
    READY = auto()  # for the first run
    UNREADABLE = auto()  # the same, until another one takes its transactional id


class Who(StrEnum):
    """The task that finds it."""

    OF_THE_RUN = auto()  # the first one
    BEYOND = auto()  # of the first run, with a number for which its claim has no slot
    OF_THE_NEXT_RUN = auto()
    OF_ANOTHER_QUERY = auto()
    BEHIND = auto()  # of the next run, with an epoch before the last one that is committed


class Step(StrEnum):
    TAKEN = auto()  # the claim's transactional id
    ANNOUNCED = auto()
    FENCED = auto()  # every slot of the first run
    READY = auto()


F, W = Found, Who
T, A, X, R = Step
NOTHING: list[Step] = []
TAKEN, MADE, RENEWED, TAKEN_OVER = [T], [T, A, R], [T, R], [T, A, X, R]

ASKS: dict[Who, tuple[QueryRun, int, int]] = {
    W.OF_THE_RUN: (QueryRun(NAME, "query", "first"), 1, 1),
    W.BEYOND: (QueryRun(NAME, "query", "first"), 4, 1),
    W.OF_THE_NEXT_RUN: (QueryRun(NAME, "query", "next"), 1, 1),
    W.OF_ANOTHER_QUERY: (QueryRun(NAME, "other", "third"), 1, 1),
    W.BEHIND: (QueryRun(NAME, "query", "next"), 1, -1),
}

# What each task does until it may register; who is REFUSED has fenced no task.
REFUSED = [W.OF_ANOTHER_QUERY, W.BEHIND]
STEPS: dict[Found, dict[Who, list[Step]]] = {
    F.NONE: dict.fromkeys(Who, MADE),
    F.EXPIRED: {
        W.OF_THE_RUN: RENEWED,
        W.BEYOND: RENEWED,
        W.OF_THE_NEXT_RUN: TAKEN_OVER,
        **dict.fromkeys(REFUSED, NOTHING),
    },
    F.ANNOUNCED: {**dict.fromkeys(Who, TAKEN_OVER), **dict.fromkeys(REFUSED, NOTHING)},
    F.READY: {W.OF_THE_RUN: [], W.BEYOND: RENEWED, W.OF_THE_NEXT_RUN: TAKEN_OVER, **dict.fromkeys(REFUSED, NOTHING)},
    F.UNREADABLE: {
        W.OF_THE_RUN: TAKEN,
        W.BEYOND: [T, *RENEWED],
        W.OF_THE_NEXT_RUN: [T, *TAKEN_OVER],
        **dict.fromkeys(REFUSED, TAKEN),
    },
}


class Marks:
    """The topic of the marks, its producers, and the clock."""

    def __init__(self, found: Found) -> None:
        self.steps: list[Step] = []
        self.fenced_slots: list[str] = []
        self.is_unreadable = found is F.UNREADABLE
        self.now_s = 0.0
        self.on_sleep: Callable[[], None] = lambda: None
        self.texts = {} if found is F.NONE else {slot_at(0): MARK.text}
        if found not in {F.NONE, F.EXPIRED}:
            self.show(is_ready=found is not F.ANNOUNCED)
        self._sent: Mapping[int, str] = {}
        self._lock = threading.Lock()

    def show(self, *, is_ready: bool) -> None:
        """The first run's claim."""
        self.texts[CLAIM_AT] = Claim(2, is_ready, "first", "query", 4, NO_EPOCH, frozenset()).text

    def read(self, _client: Any, _run: Any, at: Iterable[int], *_: Any, is_stable: bool = True) -> dict[int, str]:
        asked = [*at]
        if self.is_unreadable and is_stable:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return {each: self.texts[each] for each in asked if each in self.texts}

    def slots(self, *_: Any) -> int:
        return 4

    def ensure_slots(self, *_: Any) -> None:
        pass

    def group_metadata(self, *_: Any) -> object:
        return None

    def fenced(self, _client: Any, transactional_id: str, _topic: str) -> "Marks":
        with self._lock:
            if transactional_id == f"{NAME}-claim":
                self.steps.append(T)
                self.is_unreadable = False
            else:
                self.fenced_slots.append(transactional_id)
                if self.steps[-1] is not X:
                    self.steps.append(X)
        return self

    def begin_transaction(self) -> None:
        self._sent = {}

    def send(self, _producer: Any, _group: Any, _run: Any, texts: Mapping[int, str]) -> None:
        self._sent = texts

    def commit_transaction(self, *_: Any) -> None:
        self.texts |= self._sent
        self.steps.append(R if Claim.read(self.texts[CLAIM_AT]).is_ready else A)

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.on_sleep()


@pytest.fixture
def begin(monkeypatch: pytest.MonkeyPatch) -> Callable[[Found], Marks]:
    def patched(found: Found) -> Marks:
        marks = Marks(found)
        stands_in: dict[str, Any] = {"marks_topic": marks, "time": marks, "fenced": marks.fenced}
        stands_in["answered"] = lambda call, *arguments: call(*arguments)
        stands_in["former_groups"] = lambda *_: NO_GROUPS
        stands_in["read_former"] = lambda *_, **__: {}
        stands_in["delete_groups"] = lambda *_: None
        for name, each in stands_in.items():
            monkeypatch.setattr(claims, name, each)
        return marks

    return patched


@pytest.mark.parametrize(("found", "who"), list(itertools.product(Found, Who)))
def test_each_task_does_what_the_table_has_for_the_claim_that_it_finds(
    begin: Callable[[Found], Marks], found: Found, who: Who
) -> None:
    marks = begin(found)
    query_run, task, epoch = ASKS[who]
    if who in REFUSED and found is not F.NONE:
        with pytest.raises(NameTaken):
            claims.claimed(CLIENT, query_run, task, epoch)
    else:
        claim = claims.claimed(CLIENT, query_run, task, epoch)
        assert claim.is_of(query_run, task)
        assert claim.text == marks.texts[CLAIM_AT]
    assert marks.steps == STEPS[found][who]
    assert sorted(marks.fenced_slots) == [f"{NAME}-{slot}" for slot in range(4) if X in marks.steps]


@pytest.mark.parametrize("who", [W.OF_THE_NEXT_RUN, W.OF_THE_RUN])
def test_a_claim_says_which_rows_of_earlier_runs_are_committed(begin: Callable[[Found], Marks], who: Who) -> None:
    begin(F.ANNOUNCED)
    claim = claims.claimed(CLIENT, *ASKS[who])
    is_of_an_earlier_run = who is W.OF_THE_NEXT_RUN
    assert (claim.epoch, set(claim.tasks)) == ((0, {0}) if is_of_an_earlier_run else (NO_EPOCH, set()))


def test_a_claim_that_another_task_of_the_run_has_announced_is_left_to_that_task(
    begin: Callable[[Found], Marks],
) -> None:
    marks = begin(F.ANNOUNCED)
    marks.on_sleep = lambda: marks.show(is_ready=True)
    claims.claimed(CLIENT, *ASKS[W.OF_THE_RUN])
    assert marks.steps == []
