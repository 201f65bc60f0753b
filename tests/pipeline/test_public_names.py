"""What ``pybroker.pipeline`` offers by name: each name's module is there.  Imports no Spark."""

from __future__ import annotations

from importlib.util import find_spec

from pybroker import pipeline


def test_each_name_of_the_package_is_in_a_module_that_is_there() -> None:
    missing = {
        name: module for name, module in pipeline._MODULES.items() if find_spec(f"{pipeline.__name__}.{module}") is None
    }
    assert not missing
    assert sorted(pipeline._MODULES) == sorted(pipeline.__all__)
