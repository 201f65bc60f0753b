"""Declarations of connectors in YAML or JSON, and the line on which something is wrong.

A file has one declaration, a list of them, or several documents of YAML.  A declaration is what Kafka Connect takes by
POST, ``name``, ``config`` and ``initial_state``; or flat, with ``name`` among the keys.  Values are text, numbers or
true and false.

Owns the forms and the lines.  A key that stands twice is refused, because the first one would be lost without a word.
JSON is read by YAML's parser, which tells lines, after JSON's own has taken it.  What is nested too deep for either is
refused, and so is a value that aliases make longer than a request may be.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml

from pybroker.connectors.declared.config_keys import KeyType, nearest
from pybroker.connectors.declared.plugin_kinds import KINDS

_OUTER = ("name", "config", "initial_state")
INITIAL_STATES: Final = ("RUNNING", "PAUSED", "STOPPED")
_LENGTH_MAX: Final = 1024 * 1024
# Whose value is a text: a topic may be called no, which YAML takes for false.
_TEXTS: Final = frozenset(key.name for kind in KINDS for key in kind.keys if key.type is not KeyType.BOOLEAN)


class DeclarationError(ValueError):
    """A declaration cannot be read; the text begins with the file and, where it is known, the line."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """A connector's name and configuration as text by key; ``lines`` has the line of each key, counted from 1.

    ``initial_state`` is what a new connector does first, as KIP-980 has it; None where that is not declared.
    """

    source: str
    name: str
    config: Mapping[str, str]
    lines: Mapping[str, int]
    line: int
    initial_state: str | None = None

    def at(self, key: str) -> str:
        """Where a key stands, or else where the declaration begins."""
        return f"{self.source}:{self.lines.get(key, self.line)}"


def declarations(text: str, source: str) -> list[Declaration]:
    """The declarations of a file; DeclarationError."""
    try:
        documents = _documents(text, source)
    except RecursionError:
        raise DeclarationError(f"{source}: is nested too deep") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = 1 if mark is None else mark.line + 1
        raise DeclarationError(f"{source}:{line}: is no YAML: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise DeclarationError(f"{source}: is no YAML: {str(error).splitlines()[0]}") from None
    found = [_declaration(node, source) for document in documents for node in _listed(document)]
    if not found:
        raise DeclarationError(f"{source}: declares no connector")
    first: dict[str, Declaration] = {}
    for each in found:
        if each.name in first:
            raise DeclarationError(f"{each.at('name')}: {each.name} is declared at line {first[each.name].line}, too")
        first[each.name] = each
    return found


def _documents(text: str, source: str) -> list[yaml.Node]:
    if source.endswith(".json"):
        try:
            json.loads(text)
        except ValueError as error:
            line = getattr(error, "lineno", 1)
            raise DeclarationError(f"{source}:{line}: is no JSON: {getattr(error, 'msg', error)}") from None
        # JSON may be indented by tabs, YAML may not; within texts of JSON there are none.
        text = text.replace("\t", " ")
    return [node for node in yaml.compose_all(text, Loader=yaml.SafeLoader) if node is not None]


def _listed(document: yaml.Node) -> Iterator[yaml.Node]:
    if isinstance(document, yaml.SequenceNode):
        yield from document.value
    else:
        yield document


def _declaration(node: yaml.Node, source: str) -> Declaration:
    fields = _fields(node, source)
    line = _line(node)
    if "config" in fields:
        for key, (at, _) in fields.items():
            if key not in _OUTER:
                near = nearest(key, _OUTER)
                hint = f"; is {near} meant?" if near else "; keys of a connector stand below config"
                raise DeclarationError(f"{source}:{at}: there is no {key} beside config{hint}")
        inner = _fields(fields["config"][1], source)
    else:
        inner = fields
    config = {key: _text(key, value, at, source) for key, (at, value) in inner.items()}
    lines = {key: at for key, (at, _) in inner.items()}
    outer = fields.get("name")
    name = config.get("name", "") if outer is None else _text("name", outer[1], outer[0], source)
    if not name.strip():
        raise DeclarationError(f"{source}:{line}: a declaration needs a name")
    if config.setdefault("name", name) != name:
        raise DeclarationError(f"{source}:{lines['name']}: config names {config['name']}, and not {name}")
    state = _initial_state(fields.get("initial_state"), source) if "config" in fields else None
    return Declaration(source, name, config, lines, line, state)


def _initial_state(found: tuple[int, yaml.Node] | None, source: str) -> str | None:
    if found is None:
        return None
    line, node = found
    state = _text("initial_state", node, line, source).upper()
    if state not in INITIAL_STATES:
        near = nearest(state, INITIAL_STATES)
        hint = f"; is {near} meant?" if near else ""
        raise DeclarationError(f"{source}:{line}: initial_state must be one of {', '.join(INITIAL_STATES)}{hint}")
    return state


def _fields(node: yaml.Node, source: str) -> dict[str, tuple[int, yaml.Node]]:
    if not isinstance(node, yaml.MappingNode):
        raise DeclarationError(f"{source}:{_line(node)}: expected keys with values")
    found: dict[str, tuple[int, yaml.Node]] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise DeclarationError(f"{source}:{_line(key)}: a key must be text")
        if key.value in found:
            raise DeclarationError(f"{source}:{_line(key)}: {key.value} stands on line {found[key.value][0]}, too")
        found[key.value] = (_line(key), value)
    return found


def _text(key: str, node: yaml.Node, line: int, source: str) -> str:
    if isinstance(node, yaml.SequenceNode) and all(isinstance(each, yaml.ScalarNode) for each in node.value):
        parts = [_text(key, each, line, source) for each in node.value]
        if sum(map(len, parts)) > _LENGTH_MAX:
            raise DeclarationError(f"{source}:{line}: {key} has more than {_LENGTH_MAX} characters")
        return ",".join(parts)  # as Kafka's settings have lists
    if not isinstance(node, yaml.ScalarNode) or node.tag == "tag:yaml.org,2002:null":
        raise DeclarationError(f"{source}:{line}: {key} must have a value of text, a number, true or false")
    if node.tag == "tag:yaml.org,2002:bool":
        word: str = node.value.lower()
        is_text = key in _TEXTS or key.startswith("transforms.")
        if word not in ("true", "false") and not is_text:
            loaded: Any = yaml.SafeLoader.bool_values[word]
            return "true" if loaded else "false"
        return str(node.value) if is_text else word
    try:
        # JSON writes a character beyond 16 bits as two, which YAML's parser leaves as they are.
        return str(node.value).encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeError:
        raise DeclarationError(f"{source}:{line}: {key} has half of a pair of surrogates, which is no text") from None


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1
