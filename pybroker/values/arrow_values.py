"""Values read one by one, in Python, as an array of Arrow.

Owns that an error becomes the value's, with its reason, and fails no batch. That is the function's own, and that of
Arrow for a value that its type cannot hold. That a schema registry is away is no value's, and fails the batch.
"""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from pybroker.values.schema_registry import RegistryAway

_REASON_MAX = 300


def read_values(read: Callable[[bytes], Any], column: pa.Array, kind: pa.DataType) -> tuple[pa.Array, pa.Array]:
    """What ``read`` makes of each cell as an array of ``kind``, and why it could not, null where it could."""
    values: list[Any] = []
    errors: list[str | None] = []
    for cell in column.to_pylist():
        value, error = None, None
        if cell is not None:
            try:
                value = read(cell)
            except RegistryAway:
                raise
            except Exception as problem:
                error = _reason(problem)
        values.append(value)
        errors.append(error)
    return _array(values, errors, kind), pa.array(errors, pa.string())


def _array(values: list[Any], errors: list[str | None], kind: pa.DataType) -> pa.Array:
    """The values; of one that Arrow refuses its reason is put among ``errors``."""
    try:
        return pa.array(values, kind)
    except Exception:
        # One is enough to fail all: which it is, only one by one tells.
        for i, value in enumerate(values):
            try:
                pa.array([value], kind)
            except Exception as problem:
                values[i], errors[i] = None, _reason(problem)
        return pa.array(values, kind)


def _reason(problem: Exception) -> str:
    said = f"{type(problem).__name__}: {problem}"[:_REASON_MAX]
    # What could not be read may be in it, and may be no text.
    return said.encode(errors="replace").decode()
