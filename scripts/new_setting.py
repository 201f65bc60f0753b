"""``scripts/new-setting NAME``: what a setting of pybroker's own needs, each part in its place, as a stub.

Owns: the stubs of a setting.  Nothing reads it at first, and its row says so; settings of Kafka have their rows.
"""

from __future__ import annotations

import ast
import json
import math
import re
import sys
from collections.abc import Sequence
from typing import Any, Final

from stubs import OneLineParser, Refused, Stubs, Table, nearest, run

from pybroker.config import schema
from pybroker.config.broker_settings import BROKER_SETTINGS, DYNAMIC_ONLY_SETTINGS
from pybroker.config.group_settings import CLIENT_METRICS_SETTINGS, GROUP_SETTINGS
from pybroker.config.schema import ConfigError, Setting
from pybroker.config.topic_settings import TOPIC_SETTINGS

PROGRAM: Final = "new-setting"
UNREAD: Final = "Nothing reads it yet."
KNOWN: Final = (
    *BROKER_SETTINGS,
    *DYNAMIC_ONLY_SETTINGS,
    *TOPIC_SETTINGS,
    *GROUP_SETTINGS,
    *CLIENT_METRICS_SETTINGS,
)
_NAME: Final = re.compile(r"pybroker(\.[a-z][a-z0-9]*)+")
_MODES: Final = ("FIXED", "BROKER", "CLUSTER")
# For each type: the default where none is given, another text that is accepted, one that is refused, and what the
# attribute of ``LogConfig`` is.
_TYPES: Final[dict[str, tuple[str | None, str, str | None, str]]] = {
    "BOOLEAN": ("false", "true", "yes", "bool"),
    "INT": ("0", "1", "-1", "int"),
    "LONG": ("0", "1", "-1", "int"),
    "DOUBLE": ("0", "1.5", "much", "float"),
    "STRING": (None, "text", None, "str | None"),
    "LIST": ("", "a,b", None, "tuple[str, ...]"),
    "PASSWORD": (None, "text", None, "str | None"),
}


def _name_of_row(row: ast.AST) -> str:
    assert isinstance(row, ast.Call)
    name: str = ast.literal_eval(row.args[0])
    return name


def _name_of_case(key: ast.AST) -> str:
    assert isinstance(key, ast.expr)
    name: str = ast.literal_eval(key)
    return name


def _name_of_attribute(field: ast.AST) -> str:
    assert isinstance(field, ast.AnnAssign)
    return ast.unparse(field.target)


ROWS: Final = Table("pybroker/config/own_settings.py", "OWN_SETTINGS", _name_of_row)
ATTRIBUTES: Final = Table("pybroker/config/log_config.py", "LogConfig", _name_of_attribute)
CASES: Final = Table("tests/config/test_own_settings.py", "CASES", _name_of_case)


def check_name(name: str) -> None:
    """Raise ``Refused`` unless it is the name of a setting that there may be."""
    if name in KNOWN:
        raise Refused(f"{name} is a setting already")
    if not name.startswith("pybroker."):
        whose = "Kafka 4.4 has no setting of that name, and names of pybroker's own begin with pybroker."
        raise Refused(f"{name!r}: {whose}{nearest(name, KNOWN)}")
    if not _NAME.fullmatch(name):
        raise Refused(f"{name!r} is no name of a setting: words of a-z and 0-9 with dots between them")


def _literal(value: Any) -> str:
    """A value as the tables write it."""
    match value:
        case str():
            return json.dumps(value, ensure_ascii=False)
        case tuple():
            elements = "".join(f"{_literal(each)}, " for each in value)
            return f"({elements.removesuffix(' ') if len(value) == 1 else elements.removesuffix(', ')})"
        case bool() | float() | None:
            return repr(value)
    return f"{value:_}"


def _parsed(name: str, type_: str, text: str | None) -> Any:
    setting = Setting(name, getattr(schema, type_), None, None, schema.MEDIUM, schema.FIXED, schema.TUNES)
    try:
        value = None if text is None else setting.parse(text)
    except ConfigError as error:
        raise Refused(str(error)) from error
    if isinstance(value, float) and not math.isfinite(value):
        raise Refused(f"{name}: {text} is no default that can be kept to")
    return value


def _case(name: str, type_: str, default: Any, is_bounded: bool) -> str:
    """The row of the test: a value that is told from the default, and what is refused."""
    given, other, refused, _ = _TYPES[type_]
    text = other if default != _parsed(name, type_, other) else given or f"{other}-2"
    if refused == "-1" and not is_bounded:
        refused = "many"
    last = "" if refused is None else f', "{refused}"'
    return f'"{name}": Case("{text}", {_literal(_parsed(name, type_, text))}{last}),'


def make(arguments: Sequence[str]) -> tuple[Stubs, list[str]]:
    """The stubs, and what is left to do; raises ``Refused``."""
    parser = OneLineParser(prog=PROGRAM, description="Lay the stubs of a setting of pybroker's own.")
    parser.add_argument("name", metavar="NAME", help="for example pybroker.fetch.linger.ms")
    parser.add_argument("--type", choices=_TYPES, default="BOOLEAN", help="what its values are (BOOLEAN)")
    parser.add_argument("--default", metavar="TEXT", help="its default (false, 0, or unset)")
    parser.add_argument("--mode", choices=_MODES, default="FIXED", help="how it may change while a broker runs (FIXED)")
    parser.add_argument("--of-topics", action="store_true", help="each topic may have a value of its own")
    given = parser.parse_args(arguments)
    check_name(given.name)
    text = _TYPES[given.type][0] if given.default is None else given.default
    default = _parsed(given.name, given.type, text)
    is_bounded = given.type in ("INT", "LONG") and default >= 0
    fields = (
        f'"{given.name}"',
        given.type,
        _literal(default),
        "NATURAL" if is_bounded else "None",
        "MEDIUM",
        given.mode,
        "TUNES",
    )
    lines = ["OwnSetting(", f"    {', '.join(fields)},", f'    "{UNREAD}",', "),"]
    if given.of_topics:
        lines.insert(-1, "    of_topics=True,")
    stubs = Stubs()
    stubs.add_imports(ROWS.path, "pybroker.config.schema", [given.type, given.mode, "MEDIUM", "TUNES"])
    stubs.add_row(
        ROWS, "\n".join(lines), given.name, "the row: name, type, default, bounds, importance, mode, flag, words"
    )
    if given.of_topics:
        attribute = given.name.replace(".", "_")
        stubs.add_row(ATTRIBUTES, f"{attribute}: {_TYPES[given.type][3]}", attribute, "what storage reads of a topic")
    stubs.add_row(CASES, _case(given.name, given.type, default, is_bounded), given.name, "the row of its test")
    reader = f"LogConfig.{given.name.replace('.', '_')}" if given.of_topics else f'config["{given.name}"]'
    return stubs, [
        f"what reads {reader}, and a test of what it does",
        f"{ROWS.path}: USED (or CHECKED) in place of TUNES, and words in place of {UNREAD!r}; bounds and importance",
        f"{CASES.path}: what is accepted and what is refused, if the bounds have changed",
        ".venv/bin/python scripts/docs.py, for the table of docs/reference.md",
    ]


if __name__ == "__main__":
    sys.exit(run(PROGRAM, make, sys.argv[1:]))
