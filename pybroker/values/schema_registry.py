"""A schema registry: schemas by the id in front of a value, by a topic's subject, and new ones that are registered.

Owns the requests of Confluent's REST interface, as far as values need it, and that a schema is asked for once: what an
id stands for never changes.  A user and a password come from a file that the environment names
(``PYBROKER_SCHEMA_REGISTRY_LOGIN``), so that no declaration and no plan has them.  The file names the one registry that
they go to, because an address may be from another user's declaration.

A registry that is away is a ``RegistryAway``, and no fault of a value.
"""

import base64
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlsplit

from pybroker.config.properties import parse_properties
from pybroker.operating_system import system_reason

if TYPE_CHECKING:
    from pybroker.bounded_http import Reply

LOGIN_VARIABLE: Final = "PYBROKER_SCHEMA_REGISTRY_LOGIN"
_USER: Final = "basic.auth.user.info"
_URL: Final = "schema.registry.url"
_TIMEOUT_S: Final = 30.0
_WHOLE_S: Final = 60.0
_BYTES_MAX: Final = 16 << 20
_NOT_FOUND: Final = 404
_TYPE: Final = "application/vnd.schemaregistry.v1+json"
# Protobuf's schemas as descriptors, in place of a text that protoc alone reads.
_SERIALIZED: Final = "?format=serialized"


class RegistryAway(Exception):
    """No answer of the registry."""


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """``kind`` is AVRO, PROTOBUF or JSON.  ``imported`` are the texts of what it refers to, each behind its own."""

    id: int
    kind: str
    text: str
    imported: tuple[str, ...] = ()


class SchemaRegistry:
    """The registry at an address; pickled without what it has learned."""

    def __init__(self, url: str) -> None:
        """Raises ValueError for what is no address of HTTP, or has a login or parameters."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            raise ValueError(f"{parts.scheme}://{parts.hostname or ''} is no http:// or https:// address")
        if parts.query or parts.fragment:
            # It would stand in each error, and in front of each path.
            raise ValueError(f"{parts.scheme}://{parts.hostname} is an address with parameters, which none may have")
        self.url = url.rstrip("/")
        self._known: dict[int, RegisteredSchema] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"url": self.url, "_known": {}}

    def by_id(self, schema_id: int) -> RegisteredSchema:
        """The schema of an id; raises ValueError where there is none, and RegistryAway."""
        found = self._known.get(schema_id)
        if found is None:
            found = self._read(schema_id, self._ask("GET", f"/schemas/ids/{schema_id}"))
            self._known[schema_id] = found
        return found

    def latest(self, subject: str) -> RegisteredSchema | None:
        """A subject's newest schema; None where the registry has no such subject.  Raises ValueError, RegistryAway."""
        try:
            document = self._ask("GET", f"/subjects/{quote(subject, safe='')}/versions/latest")
        except _NotThere:
            return None
        return self.by_id(int(document["id"]))

    def register(self, subject: str, kind: str, text: str) -> int:
        """The id of a schema, which is the subject's newest one from now on; raises ValueError, RegistryAway."""
        body = {"schema": text} if kind == "AVRO" else {"schema": text, "schemaType": kind}
        return int(self._ask("POST", f"/subjects/{quote(subject, safe='')}/versions", body)["id"])

    def _read(self, schema_id: int, document: Mapping[str, Any]) -> RegisteredSchema:
        kind = str(document.get("schemaType") or "AVRO")
        if kind == "PROTOBUF":
            document = self._ask("GET", f"/schemas/ids/{schema_id}{_SERIALIZED}")
        imported = tuple(dict.fromkeys(self._imported(document, _SERIALIZED if kind == "PROTOBUF" else "")))
        return RegisteredSchema(schema_id, kind, str(document["schema"]), imported)

    def _imported(self, document: Mapping[str, Any], query: str) -> Iterator[str]:
        for each in document.get("references") or ():
            found = self._ask("GET", f"/subjects/{quote(each['subject'], safe='')}/versions/{each['version']}{query}")
            yield from self._imported(found, query)
            yield str(found["schema"])

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        # Here, because a question without a registry is not to wait for them.
        from http.client import HTTPException
        from urllib.request import Request

        from pybroker.bounded_http import Bounds, exchange

        data = None if body is None else json.dumps(body).encode()
        request = Request(
            self.url + path, data, {"Accept": _TYPE, "Content-Type": _TYPE, **_login(self.url)}, method=method
        )
        bounds = Bounds(_TIMEOUT_S, _TIMEOUT_S, _WHOLE_S, _BYTES_MAX)
        try:
            reply = exchange(request, bounds, reads_errors=True)
            found = None if reply.is_error else json.loads(reply.body)
        except (ValueError, RecursionError):
            raise RegistryAway(f"{self.url} does not answer as a schema registry does: no JSON") from None
        except (OSError, HTTPException) as error:
            reason = str(error) if isinstance(error, HTTPException) else system_reason(error)
            raise RegistryAway(f"the schema registry {self.url} does not answer: {reason}") from None
        if reply.is_error:
            raise self._refusal(reply)
        return found

    def _refusal(self, reply: "Reply") -> Exception:
        try:
            said = str(json.loads(reply.body)["message"])
        except (ValueError, KeyError, TypeError, RecursionError):
            said = f"the reply is {reply.status}"
        told = f"the schema registry {self.url}: {said}"
        if reply.status == _NOT_FOUND:
            return _NotThere(told)
        # One that is overloaded, or wants another login, says nothing of the schema.
        is_away = reply.status >= 500 or reply.status in (401, 403, 429)
        return RegistryAway(told) if is_away else ValueError(told)


class _NotThere(ValueError):
    """The registry has no such id or subject."""


def _login(url: str) -> dict[str, str]:
    """The header of the login that the environment names a file of, for the registry that the file names.

    Raises RegistryAway for a file that has no login, or no registry.
    """
    file = os.environ.get(LOGIN_VARIABLE)
    if not file:
        return {}
    try:
        said = parse_properties(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RegistryAway(f"{LOGIN_VARIABLE}: {file} cannot be read: {type(error).__name__}") from None
    user, owner = said.get(_USER, ""), said.get(_URL, "")
    if ":" not in user:
        raise RegistryAway(f"{LOGIN_VARIABLE}: {file} has no line {_USER}=USER:PASSWORD")
    if not owner:
        raise RegistryAway(f"{LOGIN_VARIABLE}: {file} has no line {_URL}=URL, the registry that the login is for")
    if owner.rstrip("/") != url:
        return {}
    return {"Authorization": f"Basic {base64.b64encode(user.encode()).decode()}"}
