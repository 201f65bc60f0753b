"""Values written as Avro by a schema, and none that it does not fit."""

import io
import json
from typing import Any

from pybroker.values.avro_fitting import Fitting


class Writer:
    """Writes records, which are dicts; raises ValueError, which names the field, for what does not fit."""

    def __init__(self, schema: str) -> None:
        """``schema`` is JSON with full names (`avro_values.parsed`)."""
        self._text = schema
        self._made: tuple[Any, Fitting] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": None}

    def __call__(self, value: Any) -> bytes:
        import fastavro

        if self._made is None:
            schema = fastavro.parse_schema(json.loads(self._text))
            self._made = (schema, Fitting(schema))
        schema, fitting = self._made
        fitting.check(value)
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, schema, value, strict_allow_default=True)
        return stream.getvalue()
