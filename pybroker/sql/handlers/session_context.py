"""What the statements of a session share: catalog, engine, cluster, supervisor, options, and where results go.

Owns what a name means, and the options' values.  What a statement does with them is its handler's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Final, TypeVar

from pybroker.sql.declared import declarations, inference
from pybroker.sql.declared.kept_declarations import TOPIC, KeptDeclarations
from pybroker.sql.questions.engine import Engine, UnknownColumn
from pybroker.sql.questions.query_progress import ShowProgress
from pybroker.sql.questions.row_output import OutputForm, RowPrinter, Sheet
from pybroker.sql.relations.catalog import Catalog, Format, Relation, topic_named
from pybroker.sql.relations.cluster_port import Changes, Cluster, Connect, Supervisor
from pybroker.sql.relations.format_options import REGISTRY, registry_of
from pybroker.sql.sql_errors import Interrupted, SqlError, at_place, nearest

# Without the last one EMIT CHANGES begins at the end, and a standing query at the beginning.
OPTIONS: Final = {
    "misfits": ("skip", "stop"),
    "output": tuple(OutputForm),
    "auto.offset.reset": ("latest", "earliest"),
    REGISTRY: ("http://HOST:PORT",),
}
BEGIN: Final = "auto.offset.reset"

T = TypeVar("T")


class Context:
    """Of one session; not for several threads."""

    def __init__(
        self,
        cluster: Cluster,
        connect: Connect,
        engine: Engine,
        sheet: Sheet,
        remark: Callable[[str], None],
        *,
        changes: Changes | None = None,
        supervisor: Supervisor | None = None,
        declarations: str = TOPIC,
        show_progress: ShowProgress = lambda _total: nullcontext(lambda _done: None),
        output: OutputForm = OutputForm.TABLE,
        stops_at_misfit: bool = False,
        registry: str | None = None,
    ) -> None:
        """``cluster`` answers this thread, ``connect`` makes one for a thread of its own; remarks are no results.

        Without ``changes`` nothing is written, and declarations are the session's alone.
        """
        self.catalog = Catalog()
        self.cluster = cluster
        self.connect = connect
        self.engine = engine
        self.sheet = sheet
        self.remark = remark
        self.changes = changes
        self.supervisor = supervisor
        self.kept = KeptDeclarations(declarations)
        self.show_progress = show_progress
        self.is_interrupted: Callable[[], bool] = lambda: False
        self._first = {"misfits": "stop" if stops_at_misfit else "skip", "output": str(output)}
        if registry is not None:
            registry_of({REGISTRY: registry})
            self._first[REGISTRY] = registry
        self.settings = dict(self._first)
        # Whether the statement at hand knows what other sessions have declared.
        self._is_fresh = False
        self._told = ""

    def begin_statement(self) -> None:
        """What was declared meanwhile is to be known, where it is asked for."""
        self._is_fresh = False

    def refresh(self) -> None:
        """Know what other sessions have declared; where that cannot be read, it is said once."""
        if self._is_fresh or self.changes is None:
            return
        self._is_fresh = True
        try:
            self.kept.refresh(self.cluster, self.catalog)
        except Interrupted:
            raise
        except Exception as error:  # whatever the cluster says: questions need no declarations
            if (told := f"declarations in {self.kept.topic} are not read: {error}") != self._told:
                self._told = told
                self.remark(told)

    def names(self) -> list[str]:
        """What may be named: declarations and topics."""
        self.refresh()
        return [*self.catalog.names(), *self.cluster.topics()]

    def declared(self, name: str) -> Relation | None:
        """What is declared by a name, in this session or in the cluster."""
        self.refresh()
        return self.catalog.declared(name)

    def relation(self, name: str, text: str, start: int | None) -> Relation:
        """What a name means: a declaration, or a topic; ``SqlError`` at its place where it is neither."""
        declared = self.declared(name)
        if declared is not None:
            return self._with_fields(declared)
        topic = name if self.cluster.partitions(name) is not None else topic_named(name, self.cluster.topics())
        if topic is None:
            message = f"there is no topic {name}{nearest(name, self.names())}"
            raise SqlError(message if start is None else at_place(message, text, start, len(name)))
        return self._inferred(topic)

    def _with_fields(self, declared: Relation) -> Relation:
        """A declaration, whose fields of JSON are those that the topic has by now: it may have been empty before."""
        if not declared.columns:
            return replace(declared, columns=self._inferred(declared.topic).columns)
        if declared.format is not Format.JSON:
            return declared
        names = self.catalog.fields(declared.topic)
        known = {name.lower() for name in names}
        if all(column.is_key or column.name.lower() in known for column in declared.columns):
            return declarations.with_names_of(declared, names)
        try:
            sampled = inference.field_names(self.cluster, declared.topic)
        except Interrupted:
            raise
        except Exception:  # whatever the cluster says: a statement that needs records tells it
            sampled = ()
        names = tuple(dict.fromkeys((*names, *sampled)))
        self.catalog.remember_fields(declared.topic, names)
        return declarations.with_names_of(declared, names)

    def _inferred(self, topic: str) -> Relation:
        known = self.catalog.inferred(topic)
        if known is None:
            known = inference.infer(self.cluster, topic)
            # What is no JSON yet, or empty, may be another thing at the next question.
            if known.format is Format.JSON:
                self.catalog.remember(known)
        return known

    def with_new_columns(self, act: Callable[[], T]) -> T:
        """What ``act`` gives.  Where it names an unknown column it acts once more: a field may have come since.

        Until then columns are those of the samples that the session took first.
        """
        try:
            return act()
        except UnknownColumn:
            if not self.catalog.forget_inferred():
                raise
            return act()

    def set_back(self, option: str) -> None:
        """Have an option as it was when the session began."""
        self.settings.pop(option, None)
        self.settings.update({name: value for name, value in self._first.items() if name == option})

    def wanted_changes(self) -> Changes:
        """The way to write; ``SqlError`` where the session has none."""
        if self.changes is None:
            raise SqlError("this session writes nothing")
        return self.changes

    def print(self, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """A result that is there whole."""
        form = OutputForm(self.settings["output"])
        names = columns if form is OutputForm.TABLE else [name.lower().replace(" ", "_") for name in columns]
        printer = RowPrinter(self.sheet, form, names)
        printer.add(rows)
        printer.end()
