"""The arrows of DESIGN.md: who may import whom, and what the pure parts must not touch."""

from __future__ import annotations

from pathlib import Path

import networkx
import pytest

from tests.source_tree import BROKER, ROOT, WIRE, Import, imports, python_files, relative

# Which part may import which others of the project, besides itself and what everybody may import.
EVERYBODY_MAY_IMPORT = {
    "pybroker_protocol",
    "env",
    "config",
    "extras",
    "rate_limited_log",
    "operating_system",
    "bounded_http",
    "limits",
    "cluster_limits",
    "storage_limits",
}
SERVICES = {"coordinators", "replication", "cluster", "telemetry", "quotas"}
BELOW_THE_SERVER = {"net", "apis", "handlers", "storage", "security", *SERVICES}
ARROWS: dict[str, set[str]] = {
    "__main__": {"cli"},
    "cli": {"public", "security", "sql", "connectors"},
    "public": {"server", "net", "cluster", "storage"},
    "testing": {"server", *BELOW_THE_SERVER},
    "server": {"cluster_wiring", "lazy_services", *BELOW_THE_SERVER},
    "cluster_wiring": {"net", "handlers", "storage", *SERVICES},
    "lazy_services": {"handlers", *SERVICES},
    # The fast paths append to a partition, and commit offsets, that a handler has found before.
    "net": {"apis", "handlers", "coordinators", "replication", "quotas", "cluster", "storage", "security"},
    "handlers": {"apis", "storage", "security", *SERVICES},
    **{service: {"storage", "cluster", "security"} for service in SERVICES},
    "storage": set(),
    "security": set(),
    "apis": set(),
    "connectors": {"pipeline", "sql"},
    "pipeline": {"values"},
    "sql": {"pipeline", "values"},
    "values": set(),
    "env": set(),
    "extras": set(),
    "config": set(),
    "rate_limited_log": set(),
    "operating_system": set(),
    "bounded_http": set(),
    "limits": set(),
    "cluster_limits": set(),
    "storage_limits": set(),
}

# Beside the broker, and clients of it: each imports its public face, and of the others what stands here.
HOUSES: dict[str, set[str]] = {
    "cli": {"connectors", "sql"},
    "connectors": {"pipeline", "sql"},
    "pipeline": {"values"},
    "sql": {"pipeline", "values"},
    "values": set(),
}
PUBLIC_FACE = {
    "pybroker_protocol",
    "public",
    "config",
    "security",
    "extras",
    "operating_system",
    "bounded_http",
    "__version__",
}
OF_ALL_GROUPS = {"consumer_protocol", "group", "group_coordinator_settings", "group_records"}
# The rooms of a folder, and which others, or modules beside them, each may import.
ROOMS: dict[str, dict[str, set[str]]] = {
    "cli": {
        "commands": {"serve", "requests", "connection", "records", "terminal", "command_names"},
        "serve": {"terminal"},
        "requests": {"connection", "terminal"},
        "connection": {"records", "terminal"},
        "records": {"terminal"},
        "terminal": set(),
    },
    "cluster": {
        "links": {"controller", "decisions", "image", "membership"},
        "membership": {"controller", "decisions", "failure_detection", "image", "kraft", "store"},
        "controller": {"decisions", "failure_detection", "image", "store"},
        "failure_detection": {"image", "store"},
        "decisions": {"image", "store"},
        "kraft": {"image", "store"},
        "store": {"image"},
        "image": set(),
    },
    "coordinators/group": {
        "consumer": {"assignors", "classic", *OF_ALL_GROUPS, "failures", "group_topics"},
        "offsets": {"classic", *OF_ALL_GROUPS},
        "classic": OF_ALL_GROUPS,
        "assignors": set(),
    },
    "connectors": {
        "rest": {"declared", "state", "supervision"},
        "supervision": {"declared", "state"},
        "kinds": {"declared", "state"},
        "state": {"declared"},
        "declared": set(),
    },
    "cluster/store": {
        "sqlite": {"metadata_store", "store_followers"},
        "zookeeper": {"metadata_store", "store_followers"},
    },
}
NAMED_BY_WHAT_THEY_SERVE = {BROKER / "handlers", BROKER / "cli" / "commands"}
# A folder with so many rooms and modules at its top is seen at a glance.
CLUSTER_ROOMS_MAX = 9

# Packages in which no file imports itself by way of others, not even for types.
TOOLS = tuple(sorted(path.parent for path in (ROOT / "compat-tests").glob("*/__init__.py")))
PACKAGES_WITHOUT_CIRCLES = (BROKER, WIRE, ROOT / "bench", *TOOLS)

# Parts that are decisions alone: no I/O, no clock, no chance.
PURE_PARTS = (
    "protocol/pybroker_protocol/",
    "pybroker/coordinators/group/",
    "pybroker/coordinators/transaction/",
    "pybroker/coordinators/regular_expressions.py",
    "pybroker/cluster/decisions/",
    "pybroker/security/",
    "pybroker/storage/rules/",
    "pybroker/handlers/",
    "pybroker/connectors/declared/",
    "pybroker/apis.py",
)
# What they share stands beside them.
SIBLINGS = ("pybroker.coordinators.group", "pybroker.coordinators.transaction")
IMPURE_MODULES = {"asyncio", "socket", "mmap", "os", "time", "random", "threading"}

ASYNCIO_PARTS = {"net", "testing", "cli", "connectors"}

# What would slow the start of the broker down, or drag a client library into it.
HEAVY_MODULES = {
    *("typer", "rich", "construct", "kafka", "confluent_kafka", "pyspark", "pyarrow", "duckdb", "sqlglot"),
    *("aiohttp", "yaml"),
}
PARTS_WITH_HEAVY_MODULES = {"cli", "connectors", "testing", "pipeline", "sql", "values"}
HEAVY_FORMS = "pybroker_protocol.construct_forms"  # for dump tools and tests: counts as heavy itself


def part_of(path: Path) -> str:
    """The part of the house that a source file belongs to: a folder or a module of ``pybroker``, or the wire."""
    if path.is_relative_to(WIRE):
        return "pybroker_protocol"
    return path.relative_to(BROKER).parts[0].removesuffix(".py")


def part_imported(imported: Import) -> str | None:
    """The part that an import reaches into; ``None`` for anything that is not the project's."""
    package, *rest = imported.module.split(".")
    if package == "pybroker":
        return rest[0]
    return package if package == "pybroker_protocol" else None


def where(path: Path, imported: Import) -> str:
    return f"{relative(path)}:{imported.line} imports {imported.module}"


def test_imports_follow_the_arrows() -> None:
    wrong = [
        where(path, imported)
        for path in python_files(BROKER)
        for imported in imports(path)
        if (target := part_imported(imported)) is not None
        and (own := part_of(path)) not in {target, "__init__"}
        and target not in EVERYBODY_MAY_IMPORT | ARROWS.get(own, set())
        and target not in {"__version__"}
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("house", HOUSES)
def test_houses_beside_the_broker_import_its_public_face_alone(house: str) -> None:
    wrong = [
        where(path, imported)
        for path in python_files(BROKER / house)
        for imported in imports(path)
        if (target := part_imported(imported)) is not None and target not in {house, *HOUSES[house], *PUBLIC_FACE}
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("folder", ROOMS)
def test_rooms_of_a_folder_follow_their_arrows(folder: str) -> None:
    package = f"pybroker.{folder.replace('/', '.')}."
    wrong = [
        where(path, imported)
        for room, may_import in ROOMS[folder].items()
        for path in python_files(BROKER / folder / room)
        for imported in imports(path)
        if imported.module.startswith(package)
        and imported.module.removeprefix(package).split(".")[0] not in {room, *may_import}
    ]
    assert not wrong, "\n".join(wrong)
    assert {path.parent.name for path in (BROKER / folder).glob("*/__init__.py")} == set(ROOMS[folder])


@pytest.mark.parametrize("folder", ROOMS)
def test_arrows_between_rooms_run_one_way(folder: str) -> None:
    assert networkx.is_directed_acyclic_graph(networkx.DiGraph(ROOMS[folder]))


def test_the_cluster_shows_few_rooms() -> None:
    shown = [each for each in (BROKER / "cluster").iterdir() if each.is_dir() or each.suffix == ".py"]
    assert len({each.name for each in shown} - {"__init__.py", "__pycache__"}) <= CLUSTER_ROOMS_MAX


def test_a_modules_name_says_where_one_is() -> None:
    """In a traceback, a log or a search: each name stands once, but for those that an API and a command share."""
    paths: dict[str, list[Path]] = {}
    for path in python_files(BROKER):
        paths.setdefault(path.name, []).append(path)
    twice = [
        f"{name}: {', '.join(map(relative, having))}"
        for name, having in paths.items()
        if len(having) > 1
        and not name.startswith("__")
        and {path.parent for path in having} != NAMED_BY_WHAT_THEY_SERVE
    ]
    assert not twice, "\n".join(twice)


def test_nothing_that_is_installed_imports_the_examples() -> None:
    wrong = [
        where(path, imported)
        for path in python_files(BROKER, WIRE)
        for imported in imports(path)
        if imported.module.split(".")[0] == "examples"
    ]
    assert not wrong, "\n".join(wrong)


def imports_inside(package: Path) -> networkx.DiGraph:
    """Who imports whom of one package's files, by their names as modules; imports for types count like any other."""
    graph = networkx.DiGraph()
    for path in python_files(package):
        module = ".".join(path.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__")
        graph.add_node(module, path=path)
    for module, path in graph.nodes(data="path"):
        for imported in imports(path):
            # ``from package import name`` is the module ``package.name``, or a name in ``package``.
            for target in (imported.module, imported.module.rpartition(".")[0]):
                if target in graph:
                    graph.add_edge(module, target)
                    break
    return graph


@pytest.mark.parametrize("package", PACKAGES_WITHOUT_CIRCLES, ids=relative)
def test_imports_form_no_circle(package: Path) -> None:
    graph = imports_inside(package)
    assert graph.number_of_edges() > 0, "what is looked at imports something"
    circles = [sorted(found) for found in networkx.strongly_connected_components(graph) if len(found) > 1]
    assert not circles, "\n".join(" <-> ".join(circle) for circle in circles)


def test_coordinators_do_not_import_one_another() -> None:
    wrong = [
        where(path, imported)
        for own, other in (SIBLINGS, SIBLINGS[::-1])
        for path in python_files(BROKER)
        if relative(path).startswith(own.replace(".", "/") + "/")
        for imported in imports(path)
        if f"{imported.module}.".startswith(f"{other}.")
    ]
    assert not wrong, "\n".join(wrong)


def test_every_part_of_the_broker_has_its_arrows() -> None:
    parts = {part_of(path) for path in python_files(BROKER)} - {"__init__"}
    assert parts == set(ARROWS), f"say in ARROWS what these may import: {sorted(parts ^ set(ARROWS))}"


def test_the_wire_imports_nothing_of_the_broker() -> None:
    wrong = [
        where(path, imported)
        for path in python_files(WIRE)
        for imported in imports(path)
        if part_imported(imported) not in {None, "pybroker_protocol"}
    ]
    assert not wrong, "\n".join(wrong)


def test_pure_parts_touch_no_clock_no_chance_and_no_system() -> None:
    wrong = [
        where(path, imported)
        for path in python_files(BROKER, WIRE)
        if relative(path).startswith(PURE_PARTS)
        for imported in imports(path)
        if imported.module.split(".")[0] in IMPURE_MODULES and not imported.for_types_only
    ]
    assert not wrong, "\n".join(wrong)


def test_asyncio_lives_at_the_edges() -> None:
    wrong = [
        where(path, imported)
        for path in python_files(BROKER)
        if part_of(path) not in ASYNCIO_PARTS
        for imported in imports(path)
        if imported.module.split(".")[0] in {"asyncio", "uvloop"} and not imported.for_types_only
    ]
    assert not wrong, "\n".join(wrong)


def test_the_broker_imports_nothing_heavy() -> None:
    wrong = [
        where(path, imported)
        for path in python_files(BROKER, WIRE)
        if part_of(path) not in PARTS_WITH_HEAVY_MODULES and path != WIRE / "construct_forms.py"
        for imported in imports(path)
        if (imported.module.split(".")[0] in HEAVY_MODULES or imported.module.startswith(HEAVY_FORMS))
        and not imported.for_types_only
    ]
    assert not wrong, "\n".join(wrong)


def test_bench_and_compat_tests_share_the_harness_and_form_no_circle() -> None:
    compat = ROOT / "compat-tests"
    packages = {path.name for path in compat.iterdir() if path.is_dir()}
    wrong = [
        where(path, imported)
        for path in python_files(ROOT / "bench")
        for imported in imports(path)
        if imported.module.split(".")[0] in packages - {"harness"}
    ]
    wrong += [
        where(path, imported)
        for path in python_files(compat / "harness")
        for imported in imports(path)
        if imported.module.split(".")[0] in (packages | {"bench", "tests"}) - {"harness"}
    ]
    assert not wrong, "\n".join(wrong)
