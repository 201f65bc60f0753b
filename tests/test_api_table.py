"""The API table: one row, one handler, one test file, and versions that the wire knows."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest

from pybroker.apis import APIS, BY_KEY, INTER_BROKER_APIS, Api, Route
from pybroker.testing import Broker
from pybroker_protocol import messages
from pybroker_protocol.api_keys import NAMES
from pybroker_protocol.messages.api_versions import ApiVersionsRequest
from tests.broker.wire_client import WireClient
from tests.source_tree import imports, parsed

HANDLERS = Path(import_module("pybroker.handlers").__file__ or "").parent

# What is merely told of permissions is not a question whether the request is allowed.
NO_GATES = {"context", "services", "authorized_operations"}

each_api = pytest.mark.parametrize("api", [*APIS, *INTER_BROKER_APIS], ids=lambda api: api.name)


def test_keys_are_unique_and_in_order() -> None:
    for apis in (APIS, INTER_BROKER_APIS):
        keys = [api.key for api in apis]
        assert keys == sorted(set(keys))
    assert not set(BY_KEY) & {api.key for api in INTER_BROKER_APIS}


@each_api
def test_row_names_the_api_and_versions_that_the_wire_declares(api: Api) -> None:
    assert NAMES[api.key] == api.name
    for cls in (messages.request_class(api.key), messages.response_class(api.key)):
        declared = cls.__declaration__.versions
        assert declared is not None
        assert declared.lowest <= api.versions[0] <= api.versions[1] <= declared.highest


@each_api
def test_handler_is_one_function_that_says_what_it_serves(api: Api) -> None:
    module = import_module(f"pybroker.handlers.{api.handler}")
    assert callable(module.handle)
    assert module.__doc__ is not None
    assert re.search(rf"\(key {api.key}\)", module.__doc__), "the docstring names the key"
    assert api.handler == re.sub(r"(?<!^)(?=[A-Z])", "_", api.name).lower()


def test_advertised_versions_are_those_of_the_table(pybroker: Broker) -> None:
    with WireClient((pybroker.host, pybroker.port)) as client:
        response = client.ask(ApiVersionsRequest(client_software_name="test", client_software_version="1"), 4)
    advertised = {entry.api_key: (entry.min_version, entry.max_version) for entry in response.api_keys}
    telemetry = {71, 72}  # only where a client-metrics subscription exists
    assert set(advertised) == set(BY_KEY) - telemetry
    for key, versions in advertised.items():
        # Produce is advertised from 0, because old librdkafka chooses compression by that floor (KAFKA-18659).
        assert versions == (0 if key == 0 else BY_KEY[key].versions[0], BY_KEY[key].versions[1])


def asks(handler: str) -> bool:
    """Whether a handler, or another module of handlers that it imports, asks for permission."""
    imported = [each.module.split(".") for each in imports(HANDLERS / f"{handler}.py")]
    helpers = {parts[2] for parts in imported if parts[:2] == ["pybroker", "handlers"]} - NO_GATES
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "authorize"
        for module in {handler, *helpers}
        for node in ast.walk(parsed(HANDLERS / f"{module}.py"))
    )


@each_api
def test_handler_asks_for_permission_unless_its_row_says_that_kafka_does_not_ask(api: Api) -> None:
    assert asks(api.handler) != api.open_to_all


@pytest.mark.parametrize("api", [api for api in APIS if api.routed_to is Route.CONTROLLER], ids=lambda api: api.name)
def test_request_for_the_controller_can_be_refused_by_a_broker_that_finds_none(api: Api) -> None:
    assert callable(import_module(f"pybroker.handlers.{api.handler}").refuse)
