"""``scripts/new-api NAME``: what an API of Kafka needs that is not served yet, each part in its place, as a stub.

Owns: the stubs of an API, made from its declaration.  The stub is closed to all but brokers, and answers
UNSUPPORTED_VERSION, as Kafka does of an API that is not enabled: where each element of a request has an error of its
own, each has that one.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from stubs import OneLineParser, Refused, Stubs, Table, nearest, run

from pybroker.apis import BY_KEY, INTER_BROKER_APIS
from pybroker_protocol.api_keys import NAMES
from pybroker_protocol.messages import request_class, response_class
from pybroker_protocol.schema import (
    Array,
    Field,
    FieldSpec,
    Fixed,
    Nested,
    Request,
    Response,
    Struct,
    Variable,
    WireType,
    schema_of,
)

PROGRAM: Final = "new-api"
ROUTES: Final = ("any", "leader", "group", "transaction", "controller")  # the short names of ``Route`` in apis.py
TEXT: Final = "kept"  # the name of what the comparator's table of permissions is about
ERROR_CODE, ERROR_MESSAGE = "error_code", "error_message"


def _key_of_row(row: ast.AST) -> int:
    assert isinstance(row, ast.Call)
    key: int = ast.literal_eval(row.args[0])
    return key


APIS: Final = Table("pybroker/apis.py", "APIS", _key_of_row)
PERMISSIONS: Final = Table("compat-tests/comparator/scenarios/acls.py", "table")


class Step(NamedTuple):
    """An array of a response that has an element for each of an array of the request."""

    answered: Field
    asked: Field


class Api(NamedTuple):
    """What is known of an API before it is served."""

    key: int
    name: str
    module: str
    request: type[Request]
    response: type[Response]
    versions: tuple[int, int]
    steps: tuple[Step, ...]  # from the response to the error

    @property
    def words(self) -> str:
        """Its versions, as a docstring says them."""
        low, high = self.versions
        return f"version {low}" if low == high else f"versions {low} to {high}"


def api_of(name: str) -> Api:
    """The API of that name; raises ``Refused``."""
    keys = {each: key for key, each in NAMES.items()}
    if name not in keys:
        raise Refused(f"{name!r} is no API of Kafka 4.4{nearest(name, list(keys))}")
    key = keys[name]
    if key in BY_KEY or any(api.key == key for api in INTER_BROKER_APIS):
        raise Refused(f"{name} is served already")
    request, response = request_class(key), response_class(key)
    asked, answered = request.__declaration__.versions, response.__declaration__.versions
    assert asked is not None
    assert answered is not None
    versions = max(asked.lowest, answered.lowest), min(asked.highest, answered.highest)
    module = request.__module__.rpartition(".")[2]
    return Api(key, name, module, request, response, versions, _steps(response, request))


# --- from the declaration to code ------------------------------------------------------------------------------------


def _struct_of(wire_type: WireType) -> type[Struct] | None:
    """The struct of an array's elements."""
    return wire_type.element.struct if isinstance(wire_type, Array) and isinstance(wire_type.element, Nested) else None


def _steps(answered: type[Struct], asked: type[Struct] | None) -> tuple[Step, ...]:
    """How one comes to the error; raises ``Refused`` where the request does not say what there is an error for."""
    fields = schema_of(answered).fields
    if any(each.name == ERROR_CODE for each in fields):
        return ()
    arrays = [each for each in schema_of(asked).fields if isinstance(each.type, Array)] if asked is not None else []
    for each in fields:
        struct = _struct_of(each.type)
        matching = [array for array in arrays if array.name == each.name] or arrays
        if struct is not None and len(matching) == 1:
            return (Step(each, matching[0]), *_steps(struct, _struct_of(matching[0].type)))
    raise Refused(f"{answered.__name__} has no place for an error that a script finds: write the handler by hand")


class Code:
    """Expressions of one API's messages; ``classes`` are those that they name."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.classes: set[str] = set()

    def refusal(self) -> str:
        """The response that says ``error`` of all that ``request`` asks."""
        return self._refusal(self._api.response, "request", None, self._api.steps)

    def request(self) -> str:
        """A request with one element where there is an error for each."""
        return self._request(self._api.request, self._api.steps)

    def _refusal(
        self,
        answered: type[Struct],
        name: str,
        asked: type[Struct] | None,
        steps: Sequence[Step],
        of_text: bool = False,
    ) -> str:
        """``name`` is of what was asked: a struct, or a text (``of_text``), or a request, of which nothing is said."""
        same = {each.name: each.type for each in schema_of(asked).fields} if asked is not None else {}
        values = {}
        for each in schema_of(answered).fields:
            if steps and each.name == steps[0].answered.name:
                values[each.name] = self._for_each(name, *steps)
            elif not steps and each.name == ERROR_CODE:
                values[each.name] = "error"
            elif not steps and each.name == ERROR_MESSAGE:
                values[each.name] = "error.message"
            elif same.get(each.name) == each.type and not isinstance(each.type, Array | Nested):
                values[each.name] = f"{name}.{each.name}"
            elif of_text and isinstance(each.type, Variable) and each.type.name == "string":
                values[each.name], of_text = name, False
            elif _is_required(answered, each):
                values[each.name] = self._default(each)
        return self._call(answered, values)

    def _for_each(self, name: str, step: Step, *steps: Step) -> str:
        element, struct = step.asked.name.removesuffix("s"), _struct_of(step.asked.type)
        answered = _struct_of(step.answered.type)
        assert answered is not None
        made = self._refusal(answered, element, struct, steps, of_text=struct is None)
        nothing = " or []" if step.asked.nullable.highest >= 0 else ""
        return f"[{made} for {element} in {name}.{step.asked.name}{nothing}]"

    def _request(self, asked: type[Struct], steps: Sequence[Step]) -> str:
        values = {}
        for each in schema_of(asked).fields:
            if steps and each.name == steps[0].asked.name:
                struct = _struct_of(each.type)
                values[each.name] = f"[{_scalar(each.type) if struct is None else self._request(struct, steps[1:])}]"
            elif _is_required(asked, each):
                values[each.name] = repr(TEXT) if _is_text(each) else self._default(each)
        return self._call(asked, values)

    def _default(self, field: Field) -> str:
        match field.type:
            case Nested(struct) if field.default is not None:
                required = [each for each in schema_of(struct).fields if _is_required(struct, each)]
                return self._call(struct, {each.name: self._default(each) for each in required})
            case Fixed("uuid"):
                return "bytes(16)"
            case Variable("records") if field.nullable.highest < 0:
                return 'b""'
        return repr(field.default)

    def _call(self, cls: type[Struct], values: dict[str, str]) -> str:
        self.classes.add(cls.__name__)
        return f"{cls.__name__}({', '.join(f'{name}={value}' for name, value in values.items())})"


def _is_required(cls: type[Struct], field: Field) -> bool:
    """Whether type checkers want it: nothing stands right of it in the declaration."""
    return cls.__declaration__.fields[field.name] == FieldSpec()


def _is_text(field: Field) -> bool:
    return isinstance(field.type, Variable) and field.type.name == "string" and field.nullable.highest < 0


def _scalar(wire_type: WireType) -> str:
    """An element of an array of no structs."""
    assert isinstance(wire_type, Array)
    return repr(TEXT) if isinstance(wire_type.element, Variable) else "0"


def _tree(asked: type[Struct], steps: Sequence[Step]) -> dict[str, Any]:
    """The request of ``Code.request`` as the comparator writes it: without what has its default."""
    tree: dict[str, Any] = {each.name: TEXT for each in schema_of(asked).fields if _is_text(each)}
    if steps:
        array = steps[0].asked
        struct = _struct_of(array.type)
        tree[array.name] = [ast.literal_eval(_scalar(array.type)) if struct is None else _tree(struct, steps[1:])]
    return tree


# --- the files -------------------------------------------------------------------------------------------------------


def handler(api: Api) -> str:
    """The module of ``pybroker.handlers``."""
    code = Code(api)
    refusal = code.refusal()
    request, response = api.request.__name__, api.response.__name__
    return f'''"""{api.name} (key {api.key}), {api.words}.

Behaviour: refused with UNSUPPORTED_VERSION, as Kafka refuses what is not enabled; nothing of it is served yet.
"""

from __future__ import annotations

from pybroker.handlers.context import RequestContext
from pybroker.security.acl_bindings import CLUSTER_NAME, AclOperation, Resource
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.{api.module} import {", ".join(sorted({request, *code.classes}))}


def handle(ctx: RequestContext, request: {request}) -> {response}:
    """Refuse it: nothing is served yet."""
    if not ctx.authorize(AclOperation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME):
        return refuse(ctx, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return refuse(ctx, request, ErrorCode.UNSUPPORTED_VERSION)


def refuse(ctx: RequestContext, request: {request}, error: ErrorCode) -> {response}:
    """Nothing is done, for this reason."""
    return {refusal}
'''


def broker_test(api: Api) -> str:
    """The module of ``tests/broker``."""
    code = Code(api)
    request = code.request()
    low, high = api.versions
    place = "".join(f".{step.answered.name}[0]" for step in api.steps)
    return f'''"""{api.name}: what a broker answers."""

from __future__ import annotations

import pytest

from pybroker.testing import Broker
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.messages.{api.module} import {", ".join(sorted(code.classes))}
from tests.broker.wire_client import WireClient


@pytest.mark.parametrize("version", range({low}, {high + 1}))
def test_request_is_refused_as_long_as_nothing_of_it_is_served(pybroker: Broker, version: int) -> None:
    request = {request}
    with WireClient((pybroker.host, pybroker.port)) as client:
        response = client.ask(request, version)
    assert response{place}.{ERROR_CODE} == ErrorCode.UNSUPPORTED_VERSION
'''


def comparator_scenario(api: Api) -> str:
    """The module of ``comparator.scenarios``."""
    return f'''"""{api.name} in every version: an ordinary request, then changed in one place."""

from __future__ import annotations

from comparator.boundaries import vary
from comparator.broker import Broker
from comparator.encoding import Tree
from comparator.registry import scenario


@scenario
def {api.module}(broker: Broker) -> None:
    def ordinary(_version: int, _name: str) -> Tree:
        return {_tree(api.request, api.steps)!r}

    vary(broker, "{api.name}", ordinary)
'''


def make(arguments: Sequence[str]) -> tuple[Stubs, list[str]]:
    """The stubs, and what is left to do; raises ``Refused``."""
    parser = OneLineParser(prog=PROGRAM, description="Lay the stubs of an API of Kafka that is not served yet.")
    parser.add_argument("name", metavar="NAME", help="as Kafka spells it, for example ShareGroupDescribe")
    parser.add_argument("--route", choices=ROUTES, default="any", help="which broker clients ask (any)")
    given = parser.parse_args(arguments)
    api = api_of(given.name)
    stubs = Stubs()
    row = f'Api({api.key}, "{api.name}", {api.versions}, "{api.module}", {given.route.upper()}, elements_max=ADMIN),'
    permission = f'Row("{api.name}", {_tree(api.request, api.steps)!r}, (((*C, CLUSTER_ACTION),),)),'
    files = {
        "handler": f"pybroker/handlers/{api.module}.py",
        "test": f"tests/broker/test_{api.module}.py",
        "scenario": f"compat-tests/comparator/scenarios/{api.module}.py",
    }
    stubs.add_row(APIS, row, api.key, f"the row, {api.words}")
    stubs.create(files["handler"], handler(api), "answers UNSUPPORTED_VERSION, and brokers alone may ask")
    stubs.create(files["test"], broker_test(api), "asks in each version, and expects that error")
    stubs.create(files["scenario"], comparator_scenario(api), "asks Apache Kafka and pybroker the same")
    stubs.add_row(PERMISSIONS, permission, None, "the request without the permission that it needs")
    return stubs, [
        f"{files['handler']}: ask for the permission that Kafka asks for, call one service, shape the reply; the "
        "docstring says what is served",
        f"{APIS.path}: elements_max goes where the handler takes its elements in steps; open_to_all=True, and no row "
        f"in {PERMISSIONS.path}, where Kafka asks for no permission",
        f"{PERMISSIONS.path}: each permission that the request needs",
        f"{files['scenario']}: a request that Kafka answers without an error, and what else is worth comparing",
        f"{files['test']}: the behaviour, in place of the refusal",
        f"scripts/compare {api.module}, and in the end scripts/compare --write, until which its tests fail",
    ]


if __name__ == "__main__":
    sys.exit(run(PROGRAM, make, sys.argv[1:]))
