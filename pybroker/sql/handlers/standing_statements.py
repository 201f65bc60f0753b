"""Handlers of the statements about standing queries: they are planned here, and run by a supervisor.

Owns the order of the steps, so that what fails half way leaves no declaration without a query.  The plan is
``spark_plans``', the requests are ``hosted_queries``'.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from sqlglot import exp

from pybroker.sql.declared.declarations import made_topic
from pybroker.sql.declared.registered_schemas import registered
from pybroker.sql.handlers.answers import columns_told, declares
from pybroker.sql.handlers.declared_statements import check_free, forget, keep
from pybroker.sql.handlers.session_context import BEGIN, Context
from pybroker.sql.parsing.ksql_columns import expand_star, name_columns
from pybroker.sql.parsing.queries import table_references
from pybroker.sql.parsing.standing_selects import StandingSelect
from pybroker.sql.parsing.statements import Control, CreateAs, Drop, ExplainStanding, InsertSelect, ShowQueries, Verb
from pybroker.sql.relations import event_times
from pybroker.sql.relations.catalog import KEY, Column, Relation, topic_named
from pybroker.sql.relations.format_options import FULL_NAME, REGISTRY, SCHEMA_ID, by_own_names, check_written
from pybroker.sql.sql_errors import Interrupted, SqlError, nearest
from pybroker.sql.standing.former_rows import delete_rows, ends_of, has_records
from pybroker.sql.standing.hosted_queries import HostedQueries, HostedQuery
from pybroker.sql.standing.query_types import QueryTypes
from pybroker.sql.standing.replaced_queries import NotStarted, Replacement
from pybroker.sql.standing.spark_plans import check_functions, spark_plan
from pybroker.sql.standing.standing_plans import SparkPlan, declaration
from pybroker.sql.standing.written_values import WRITTEN, check_fits, format_of, written_relation, written_value

_OPTIONS: Final = (
    *("topic", "format", "schema", "message", "key_format", "partitions", "replicas", "retention_ms"),
    *(FULL_NAME, REGISTRY, SCHEMA_ID),
    *event_times.OPTIONS,
)


@dataclass(frozen=True, slots=True)
class _Planned:
    """A query that may run: its plan, and what it writes."""

    plan: SparkPlan
    columns: tuple[Column, ...]
    reads: tuple[str, ...]


def create_as(context: Context, wanted: CreateAs) -> None:
    """Make a topic of a query, and have the query run."""
    queries = _queries(context)
    there = context.declared(wanted.name)
    if there is not None and wanted.if_not_exists:
        context.remark(f"{there.kind.lower()} {there.name} is there")
        return
    options = _with_registry(context, _options(wanted))
    planned = _planned(context, wanted.name, wanted.kind, wanted.select)
    relation = _written(context, wanted, options, planned)
    former = there if there is not None and there.query is not None and wanted.replaces else None
    if former is None:
        check_free(there, replaces=wanted.replaces)
    relation = _with_topic(context, registered(relation, {}), options, planned, is_new=former is None)
    hosted, is_same = None, False
    if former is not None:
        hosted = next((each for each in queries.all() if each.name == former.query), None)
        is_same = former.topic == relation.topic and former.kind == relation.kind == "TABLE"
        if is_same:
            _check_alone(queries, str(former.query), relation.topic)
    config = _config(context, replace(planned.plan, value=written_value(relation)), relation.topic, wanted.text)
    replacement = Replacement(queries, wanted.name, hosted, (there or relation).kind)
    ends: dict[int, int] = {}
    replacement.start(config, lambda: ends.update(ends_of(context.cluster, relation.topic)))
    found = _kept_and_settled(context, relation, replacement, replaces_one=hosted is not None)
    if is_same and ends:
        _delete_former_rows(context, queries, wanted.name, relation.topic, ends)
    context.remark(f"{wanted.kind.lower()} {wanted.name} is made by the query {found.name}, which is {found.state}")


def _with_topic(
    context: Context, relation: Relation, options: dict[str, str], planned: _Planned, *, is_new: bool
) -> Relation:
    """What a query makes, with its topic as the cluster has it, which is made where it is missing; ``SqlError``."""
    has_rows = relation.kind == "TABLE" and has_records(context.cluster, relation.topic)
    context.kept.make(context.cluster, context.wanted_changes(), context.remark)
    topic = _make_topic(context, relation.topic, relation.kind, options, planned.reads)
    _check_loop(topic, planned)
    if has_rows and is_new:
        told = f"the topic {topic} has records already, and the rows among them stay in the table {relation.name}"
        context.remark(told)
    return replace(relation, topic=topic)


def _kept_and_settled(
    context: Context, relation: Relation, replacement: Replacement, *, replaces_one: bool
) -> HostedQuery:
    """The query that makes a relation, which is kept; where the query does not run, what stood there before is again.

    Raises ``NotStarted``, and ``Interrupted``: a query that takes long, and replaces none, is as it is then.
    """
    own, kept = context.catalog.own(relation.name), context.catalog.kept(relation.name)
    keep(context, relation)
    try:
        return replacement.settled()
    except (NotStarted, Interrupted) as error:
        if replaces_one or isinstance(error, NotStarted):
            if kept is None:
                forget(context, relation.name)
            else:
                keep(context, kept)
            if own is not None:
                context.catalog.declare(own)
        raise


def _check_alone(queries: HostedQueries, former: str, topic: str) -> None:
    """``SqlError`` where another query writes the topic whose rows are to be deleted."""
    for each in queries.all():
        if each.name != former and each.writes == topic:
            raise SqlError(f"the query {each.name} writes {topic}, too: TERMINATE {each.name} first")


def _delete_former_rows(context: Context, queries: HostedQueries, name: str, topic: str, ends: dict[int, int]) -> None:
    """Delete the rows before ``ends``, while the query that has replaced theirs is at rest."""
    queries.pause(name)
    try:
        count = delete_rows(context.cluster, context.wanted_changes(), topic, ends, context.is_interrupted)
    finally:
        queries.resume(name)
    if count:
        context.remark(f"{count:,} row{'' if count == 1 else 's'} of the former query are deleted from {topic}")


def insert_select(context: Context, wanted: InsertSelect) -> None:
    """Have a query run that writes into what is there."""
    queries = _queries(context)
    relation = context.relation(wanted.name, wanted.select.text, wanted.start)
    if relation.format not in WRITTEN and relation.is_declared:
        raise SqlError(f"INSERT INTO … SELECT writes {', '.join(WRITTEN)}, and {relation.name} is {relation.format}")
    taken = {each.name.lower() for each in queries.all()}
    name = next(each for n in range(1, len(taken) + 2) if (each := f"insert_{relation.name}_{n}").lower() not in taken)
    planned = _planned(context, name, relation.kind, wanted.select)
    _check_loop(relation.topic, planned)
    for column in planned.columns if relation.is_declared else ():
        if relation.column(column.name) is None:
            known = [each.name for each in relation.columns]
            raise SqlError(f"{relation.name} has no column {column.name}{nearest(column.name, known)}")
    plan = _into(relation, planned)
    starting = Replacement(queries, name, None, relation.kind)
    starting.start(_config(context, plan, relation.topic, wanted.text))
    found = starting.settled()
    context.remark(f"the query {name}, which is {found.state}, writes into {relation.topic}")


def control(context: Context, wanted: Control) -> None:
    """Pause, resume or end queries."""
    queries = _queries(context)
    found = queries.all() if wanted.name is None else [queries.named(wanted.name)]
    act, done = {
        Verb.PAUSE: (queries.pause, "rests"),
        Verb.RESUME: (queries.resume, "runs"),
        Verb.TERMINATE: (queries.end, "is ended"),
    }[wanted.verb]
    for each in found:
        act(each.name)
        context.remark(f"the query {each.name} {done}")


def show_queries(context: Context, wanted: ShowQueries) -> None:
    """The queries, and how far behind they are."""
    queries = _queries(context)
    rows = [
        (each.name, each.state, ", ".join(each.reads), each.writes, _lag(context, queries, each), each.reason)
        for each in queries.all()
    ]
    context.print(("QUERY", "STATE", "READS", "WRITES", "LAG", "REASON"), rows)


def explain_standing(context: Context, wanted: ExplainStanding) -> None:
    """Which engine runs a standing query, and what of its topics it reads."""
    statement = wanted.statement
    if isinstance(statement, str):
        found = _queries(context).named(statement)
        context.print(("QUERY", "ENGINE", "STATE", "STATEMENT"), [(found.name, "spark", found.state, found.statement)])
        return
    if isinstance(statement, CreateAs):
        planned = _planned(context, statement.name, statement.kind, statement.select)
        options = _with_registry(context, _options(statement))
        relation = _written(context, statement, options, planned)
        plan = replace(planned.plan, value=written_value(relation))
    else:
        relation = context.relation(statement.name, statement.select.text, statement.start)
        planned = _planned(context, statement.name, relation.kind, statement.select)
        plan = _into(relation, planned)
    begins = context.settings.get(BEGIN, "earliest")
    heading = ("ENGINE", "TOPIC", "FORMAT", "COLUMNS", "BEGINS", "WAITS MS", "ROWS", "KEY", "SQL")
    rows = [
        (
            "spark",
            each.topic,
            str(each.format),
            ", ".join(column.name for column in each.columns),
            "earliest" if plan.table is not None or (plan.joins and each is not plan.sources[0]) else begins,
            each.grace_ms,
            "once" if plan.mode == "append" and plan.table is None else "at each change",
            ", ".join(plan.key) or ("_key" if plan.table is not None else None),
            plan.sql,
        )
        for each in plan.sources
    ]
    context.print(heading, rows)


def drop(context: Context, wanted: Drop) -> None:
    """Forget a declaration, with the query that made it; ``SqlError`` while another query needs the topic."""
    relation = context.declared(wanted.name)
    if relation is None:
        if not wanted.if_exists:
            raise SqlError(f"{wanted.name} is not declared{nearest(wanted.name, context.catalog.names())}")
        return
    if relation.kind != wanted.kind:
        raise SqlError(f"{relation.name} is a {relation.kind.lower()}: DROP {relation.kind} {relation.name}")
    if relation.query is not None or (wanted.deletes_topic and context.supervisor is not None):
        queries = _queries(context)
        hosted = queries.all()
        others = [each for each in hosted if each.name != relation.query]
        for each in others:
            if relation.topic in (*each.reads, each.writes):
                does = "reads" if relation.topic in each.reads else "writes"
                raise SqlError(f"the query {each.name} {does} {relation.topic}: TERMINATE {each.name} first")
        if any(each.name == relation.query for each in hosted):
            queries.end(str(relation.query))
    forget(context, relation.name)
    if wanted.deletes_topic:
        context.wanted_changes().delete_topic(relation.topic)


def _queries(context: Context) -> HostedQueries:
    if context.supervisor is None:
        raise SqlError("standing queries are run by a supervisor, and this session has none")
    return HostedQueries(context.supervisor, context.is_interrupted)


def _config(context: Context, plan: SparkPlan, topic: str, statement: str) -> dict[str, str]:
    begins = context.settings.get(BEGIN, "earliest")
    return declaration(plan, topic, " ".join(statement.split()), begins)


def _planned(context: Context, name: str, kind: str, select: StandingSelect) -> _Planned:
    with columns_told(context, select.text, table_references(select.tree)):
        return context.with_new_columns(lambda: _planned_now(context, name, kind, select))


def _planned_now(context: Context, name: str, kind: str, select: StandingSelect) -> _Planned:
    select = _with_own_names(context, select)
    references = table_references(select.tree)
    relations = {each.name: context.relation(each.name, select.text, each.start) for each in references}
    expand_star(select.tree, {each.alias: relations[each.name] for each in references})
    types = QueryTypes(context.engine, select, relations)
    plan = spark_plan(name, kind, types.translated(), lambda each: relations[each.name])
    stops = context.settings["misfits"] == "stop"
    plan = replace(plan, sources=tuple(replace(each, stops=stops) for each in plan.sources))
    columns = types.columns()
    check_functions(plan)
    return _Planned(plan, columns, tuple(dict.fromkeys(each.topic for each in relations.values())))


def _with_own_names(context: Context, select: StandingSelect) -> StandingSelect:
    """The query, where the columns that ksqlDB has of every record have their names here."""
    tree, keys = select.tree.copy(), exp.Tuple(expressions=[each.copy() for each in select.partition_by])
    is_column = declares(context, tree, select.text)
    for part in (tree, keys):
        name_columns(part, is_column)
    return replace(select, tree=tree, partition_by=tuple(keys.expressions))


def _check_loop(topic: str, planned: _Planned) -> None:
    if topic in planned.reads:
        raise SqlError(f"the query reads {topic}, and would write it: it would read its own rows for ever")


def _options(wanted: CreateAs) -> dict[str, str]:
    options = by_own_names(wanted.options)
    for name in options:
        if name not in _OPTIONS:
            raise SqlError(f"there is no option {name} of CREATE {wanted.kind} AS{nearest(name, _OPTIONS)}")
    return options


def _with_registry(context: Context, options: dict[str, str]) -> dict[str, str]:
    """The options, with the session's schema registry where values have a schema that no file gives."""
    url = context.settings.get(REGISTRY)
    is_wanted = options.get("format", "json").lower() != "json" and "schema" not in options
    return {REGISTRY: url, **options} if url is not None and is_wanted else options


def _make_topic(context: Context, topic: str, kind: str, options: dict[str, str], reads: Sequence[str]) -> str:
    """The topic that a query writes; a new one has as many partitions as those that the query reads."""
    if "partitions" not in options and context.cluster.partitions(topic) is None:
        most = max(len(context.cluster.partitions(each) or ()) for each in reads)
        options = {**options, "partitions": str(most)}
    settings = {"cleanup.policy": "compact"} if kind == "TABLE" else {}
    return made_topic(context.cluster, context.wanted_changes(), topic, options, settings)


def _written(context: Context, wanted: CreateAs, options: dict[str, str], planned: _Planned) -> Relation:
    """What a query makes: its columns, and the schema by which they are written, which may not be registered yet.

    The subject of a schema has the name that the cluster has of the topic.
    """
    topic, kind = options.get("topic", wanted.name), format_of(options)
    topic = topic_named(topic, context.cluster.topics()) or topic
    made = Relation(wanted.name, topic, kind, planned.columns, True, wanted.kind, {}, wanted.name)
    found = written_relation(made, options, planned.plan.key)
    own: dict[str, str] = {name: options[name] for name in event_times.OPTIONS if name in options}
    if wanted.kind == "TABLE" and len(planned.plan.key) == 1:
        (own[KEY],) = planned.plan.key
    found = replace(found, options={**found.options, **own})
    event_times.check_time(found)
    return found


def _into(relation: Relation, planned: _Planned) -> SparkPlan:
    """The plan that writes into a relation.

    The declared key column is the record's key, where the query names no other.
    """
    plan, columns = planned.plan, planned.columns
    key = next((each.name for each in relation.columns if each.is_key), None)
    found = next((each.name for each in columns if key is not None and each.name.lower() == key.lower()), None)
    if not plan.key and found is not None and plan.table is None:
        plan = replace(plan, key=(found,))
    if found is not None and plan.key != (found,):
        own = ", ".join(plan.key) or "that of their table"
        raise SqlError(f"the key of {relation.name} is {key}, and the key of the query's rows is {own}")
    if not relation.is_declared:
        return plan
    check_fits(relation, columns, plan.key)
    check_written(relation.options)
    return replace(plan, value=written_value(relation))


def _lag(context: Context, queries: HostedQueries, query: HostedQuery) -> int | None:
    """How many records a query has not read yet; None where its supervisor does not say how far it is."""
    at = queries.offsets(query.name)
    if not at:
        return None
    lag = 0
    for topic in query.reads:
        partitions = context.cluster.partitions(topic)
        ends = {} if partitions is None else context.cluster.bounds(topic, partitions)
        lag += sum(max(0, bounds.end - at.get((topic, each), bounds.begin)) for each, bounds in ends.items())
    return lag
