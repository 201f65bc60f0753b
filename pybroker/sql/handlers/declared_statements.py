"""Handlers of the statements about names: CREATE and DROP of declarations, SHOW, DESCRIBE, INSERT … VALUES, SET.

Owns what they print, and where a declaration is kept: in the cluster, or for the session alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from pybroker.sql.declared import declarations
from pybroker.sql.declared.kept_declarations import as_kept, record_of
from pybroker.sql.declared.registered_schemas import registered
from pybroker.sql.handlers.session_context import OPTIONS, Context
from pybroker.sql.parsing.statements import Create, Describe, InsertValues, Set, Show
from pybroker.sql.questions.inserts import records_of
from pybroker.sql.relations.catalog import PSEUDO_COLUMNS, Relation
from pybroker.sql.relations.cluster_port import Written
from pybroker.sql.relations.format_options import REGISTRY, by_own_names, registry_of
from pybroker.sql.sql_errors import SqlError, nearest

# Before settings of ksqlDB's own, and of the Kafka Streams inside of it.
_OF_KSQLDB: Final = "ksql."
_OTHER_NAMES: Final = {f"{_OF_KSQLDB}{REGISTRY}": REGISTRY}


def create(context: Context, wanted: Create) -> None:
    """Declare what a topic has; the same declaration twice is no mistake."""
    kind = wanted.kind.lower()
    there = context.declared(wanted.name)
    if there is not None and wanted.if_not_exists:
        context.remark(f"{kind} {there.name} is there")
        return
    topic = by_own_names(wanted.options).get("topic", wanted.name)
    # Before a topic is made: a declaration of another topic is not the same.
    check_free(there, replaces=wanted.replaces or (there is not None and there.topic.lower() == topic.lower()))
    relation = declarations.relation_of(context.cluster, context.changes, wanted, context.settings.get(REGISTRY))
    is_same = there is not None and any(map(there.says_as, (relation, as_kept(relation))))
    check_free(there, replaces=wanted.replaces or is_same)
    relation = registered(relation, by_own_names(wanted.options))
    if wanted.is_temporary or context.changes is None:
        context.catalog.declare(relation)
        context.remark(f"{kind} {wanted.name} is declared, for this session")
        return
    keep(context, relation)
    context.remark(f"{kind} {wanted.name} is declared")


def check_free(there: Relation | None, *, replaces: bool) -> None:
    """``SqlError`` where a name is taken, and not to be replaced."""
    if there is None:
        return
    if there.query is not None:
        raise SqlError(f"{there.name} is made by the query {there.query}: DROP {there.kind} {there.name} ends it")
    if not replaces:
        raise SqlError(f"{there.name} is declared already; CREATE OR REPLACE {there.kind} changes it")


def keep(context: Context, relation: Relation) -> None:
    """Have the cluster keep a declaration, for all sessions."""
    changes = context.wanted_changes()
    context.kept.make(context.cluster, changes, context.remark)
    changes.write(context.kept.topic, [record_of(relation)])
    context.catalog.forget(relation.name)
    context.catalog.keep(relation.name, relation)


def forget(context: Context, name: str) -> None:
    """Drop a declaration, of the session's own or of the cluster's."""
    if context.catalog.forget(name):
        return
    context.wanted_changes().write(context.kept.topic, [Written(name.lower().encode(), None)])
    context.catalog.keep(name, None)


def show(context: Context, wanted: Show) -> None:
    """The topics, or what is declared."""
    if wanted.what == "topics":
        topics = [each for each in context.cluster.topics() if not each.startswith("__")]
        rows = [(each, len(context.cluster.partitions(each) or ())) for each in topics]
        context.print(("TOPIC", "PARTITIONS"), rows)
        return
    kind = wanted.what.removesuffix("s").upper()
    context.refresh()
    found = [each for each in context.catalog.relations() if each.kind == kind]
    context.print(
        (kind, "TOPIC", "FORMAT", "QUERY"), [(each.name, each.topic, str(each.format), each.query) for each in found]
    )


def describe(context: Context, wanted: Describe) -> None:
    """The columns of what a name means, as they are now."""
    context.catalog.forget_inferred()
    relation = context.relation(wanted.name, wanted.text, wanted.start)
    origin = "declared" if relation.is_declared else f"inferred, as {relation.format}"
    rows = [(column.name, column.type, "key" if column.is_key else origin) for column in relation.columns]
    context.print(("COLUMN", "TYPE", "FROM"), [*rows, *((*each, "the record") for each in PSEUDO_COLUMNS.items())])


def insert_values(context: Context, wanted: InsertValues) -> None:
    """Write rows as records."""
    changes = context.wanted_changes()
    relation = context.relation(wanted.name, wanted.text, wanted.start)
    records = records_of(context.engine, relation, wanted)
    changes.write(relation.topic, records)
    context.remark(f"{len(records):,} record{'' if len(records) == 1 else 's'} written to {relation.topic}")


def set_option(context: Context, wanted: Set) -> None:
    """An option of the session."""
    wanted = replace(wanted, name=_OTHER_NAMES.get(wanted.name, wanted.name))
    if wanted.name.startswith(_OF_KSQLDB):
        context.remark(f"{wanted.name} has no effect here")
        return
    if wanted.name not in OPTIONS:
        raise SqlError(f"there is no option {wanted.name}{nearest(wanted.name, OPTIONS)}")
    if wanted.value is None:
        context.set_back(wanted.name)
        return
    if wanted.name == REGISTRY:
        registry_of({REGISTRY: wanted.value})
        context.settings[wanted.name] = wanted.value
        return
    value = wanted.value.lower()
    if value not in OPTIONS[wanted.name]:
        raise SqlError(f"{wanted.name} is {' or '.join(OPTIONS[wanted.name])}, not {wanted.value}")
    context.settings[wanted.name] = value
