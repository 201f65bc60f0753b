"""Kafka Connect's REST interface over the operations of a supervisor.

Owns paths, codes and bodies, which are Connect's: an error is ``{"error_code": …, "message": …}``.  A supervisor that
waits answers 503, with ``Retry-After`` where it may work in a moment.  Where it listens beyond loopback it asks for a
login, by Basic; a page of another site in a browser of this machine is not served.  A body is bounded.

Counterparts in Kafka: ``ConnectorsResource``, ``ConnectorPluginsResource``, ``RootResource``,
``LoggingResource``, ``ConnectExceptionMapper``.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import ipaddress
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote

from aiohttp import web

from pybroker.config.loggers import LEVELS
from pybroker.connectors.declared.json_constants import refuse_constant
from pybroker.connectors.rest.worker_loggers import WorkerLoggers
from pybroker.connectors.state.state_records import Target
from pybroker.connectors.state.state_topics import Replaced
from pybroker.connectors.supervision.connect_operations import BAD_REQUEST, NOT_FOUND, Operations, RequestRefused
from pybroker.connectors.supervision.membership import GroupRefused, Idle, Waits

BODY_BYTES_MAX: Final = 1024 * 1024
AGAIN_AFTER_S: Final = 1
_DEPTH_MAX: Final = 64
_JSON_OR_WIDER: Final = frozenset({"application/json", "application/*", "*/*"})
# What Java's String.trim takes off.
_BLANK: Final = "".join(map(chr, range(33)))
_UNAVAILABLE, _UNAUTHORIZED, _FORBIDDEN, _FAILED = 503, 401, 403, 500

_log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

# The operations while the supervisor works, else why it does not.
Works = Callable[[], Operations | Idle]


class _NotYet(RequestRefused):
    """A request that may be done in a moment."""


class ListenRefused(ValueError):
    """An address at which the supervisor must not listen."""


def check_listen(host: str, logins: Mapping[str, str]) -> None:
    """ListenRefused for an address beyond loopback without a login."""
    if not _is_loopback(host) and not logins:
        raise ListenRefused(
            f"{host} is beyond loopback, and who reaches it may read and write with all rights of this process: "
            "--login names a file of users and passwords"
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def make_app(works: Works, logins: Mapping[str, str], root: Mapping[str, Any]) -> web.Application:
    """The application; ``root`` is what ``/`` tells."""
    app = web.Application(client_max_size=BODY_BYTES_MAX, middlewares=[_errors, _guard(logins), _json_alone])
    _Resources(works, root).add_to(app)
    return app


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every error as Connect's document."""
    try:
        return await handler(request)
    except _NotYet as refused:
        return _error(refused.code, refused.message, {"Retry-After": str(AGAIN_AFTER_S)})
    except RequestRefused as refused:
        return _error(refused.code, refused.message)
    except web.HTTPRequestEntityTooLarge:
        return _error(413, f"a body may have {BODY_BYTES_MAX} bytes")
    except web.HTTPException as error:
        allow = {name: text for name, text in error.headers.items() if name == "Allow"}
        if request.method == "OPTIONS" and allow:
            methods = f"{allow['Allow']},OPTIONS"
            return web.Response(text=methods, headers={"Allow": methods})
        return _error(error.status, f"HTTP {error.status} {error.reason}", allow)
    except Replaced:
        return _error(_UNAVAILABLE, "another supervisor of this name works now")
    except asyncio.CancelledError:
        raise
    except Exception as error:
        _log.exception("%s %s", request.method, request.path)
        return _error(_FAILED, f"{type(error).__name__}: {error}")


@web.middleware
async def _json_alone(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse a client that does not take JSON, where there is something to be had."""
    taken = {each.partition(";")[0].strip().lower() for each in (request.headers.get("Accept") or "*/*").split(",")}
    if request.match_info.http_exception is None and not taken & _JSON_OR_WIDER:
        raise web.HTTPNotAcceptable
    return await handler(request)


def _guard(logins: Mapping[str, str]) -> Any:
    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        if logins and not _is_let_in(request.headers.get("Authorization", ""), logins):
            reply = _error(_UNAUTHORIZED, "User cannot access the resource.")
            reply.headers["WWW-Authenticate"] = 'Basic realm="connect"'
            return reply
        if not logins and "Origin" in request.headers:
            return _error(_FORBIDDEN, "a page in a browser is not served without a login")
        # A page whose name was made to lead to this machine sends no Origin to itself.
        if not logins and not _is_loopback(_host(request)):
            return _error(_FORBIDDEN, "without a login this machine is served by its own name alone: localhost")
        return await handler(request)

    return guard


def _host(request: web.Request) -> str:
    """The name by which this machine was asked; none where it is no name of a host."""
    try:
        return request.url.host or ""
    except ValueError:
        return ""


def _is_let_in(header: str, logins: Mapping[str, str]) -> bool:
    kind, _, encoded = header.partition(" ")
    if kind.lower() != "basic":
        return False
    try:
        user, _, given = base64.b64decode(encoded, validate=True).decode().partition(":")
    except ValueError:
        return False
    wanted = logins.get(user)
    # As long for a user that is not there.
    fits = hmac.compare_digest(given.encode(), (wanted or "").encode())
    return fits and wanted is not None


class _Resources:
    def __init__(self, works: Works, root: Mapping[str, Any]) -> None:
        self._works, self._root = works, root
        self._loggers = WorkerLoggers()

    def add_to(self, app: web.Application) -> None:
        app.router.add_get("/", self.show_root)
        for method, path, handler in (
            ("GET", "/health", self.show_health),
            ("GET", "/connectors", self.list_connectors),
            ("POST", "/connectors", self.create),
            ("GET", "/connector-plugins", self.plugins),
            ("GET", "/connector-plugins/{plugin}/config", self.plugin_keys),
            ("PUT", "/connector-plugins/{plugin}/config/validate", self.validate),
            ("GET", "/admin/loggers", self.list_loggers),
            ("GET", "/admin/loggers/{logger}", self.show_logger),
            ("PUT", "/admin/loggers/{logger}", self.set_level),
            *self._of_one(),
        ):
            # As JAX-RS has it, a path may end with a slash, and what has GET has HEAD.
            resource = app.router.add_resource(f"{path}{{slash:/?}}")
            resource.add_route(method, handler)
            if method == "GET":
                resource.add_route("HEAD", handler)

    def _of_one(self) -> Iterator[tuple[str, str, Handler]]:
        """What a connector has."""
        for method, path, handler in (
            ("GET", "", self._getter("info")),
            ("DELETE", "", self.delete),
            ("GET", "/config", self._getter("config")),
            ("PUT", "/config", self.put_config),
            ("PATCH", "/config", self.patch_config),
            ("GET", "/status", self._getter("status")),
            ("PUT", "/pause", self._target(Target.PAUSED, 202)),
            ("PUT", "/resume", self._target(Target.STARTED, 202)),
            ("PUT", "/stop", self._target(Target.STOPPED, 204)),
            ("POST", "/restart", self.restart),
            ("GET", "/tasks", self._getter("tasks")),
            ("GET", "/tasks/{task}/status", self.task_status),
            ("POST", "/tasks/{task}/restart", self.restart_task),
            ("GET", "/topics", self._getter("topics")),
            ("PUT", "/topics/reset", self.reset_topics),
            ("GET", "/offsets", self._getter("offsets")),
            ("PATCH", "/offsets", self.alter_offsets),
            ("DELETE", "/offsets", self.reset_offsets),
        ):
            yield method, f"/connectors/{{name}}{path}", handler

    async def show_root(self, request: web.Request) -> web.Response:
        return _json(self._root)

    async def show_health(self, request: web.Request) -> web.Response:
        found = self._works()
        if found is Waits.NONE_WORKS_YET:
            return _json({"status": "starting", "message": "Worker is still starting up."}, _UNAVAILABLE)
        if isinstance(found, GroupRefused):
            return _json({"status": "unhealthy", "message": found.value}, _UNAVAILABLE)
        if found is Waits.ANOTHER_WORKS:
            return _json({"status": "healthy", "message": "Another supervisor of this name works; this one waits."})
        return _json({"status": "healthy", "message": "Worker has completed startup and is ready to handle requests."})

    async def list_connectors(self, request: web.Request) -> web.Response:
        operations, expanded = self._operations(), request.query.getall("expand", [])
        if not expanded:
            return _json(operations.names())
        found: dict[str, dict[str, Any]] = {}
        for name in operations.names():
            try:
                calls = {"status": operations.status, "info": operations.info}
                found[name] = {each: calls[each](name) for each in expanded if each in calls}
            except RequestRefused:
                continue  # deleted meanwhile
        return _json(found)

    async def create(self, request: web.Request) -> web.Response:
        body = await _body(request)
        if not isinstance(body, dict):
            raise RequestRefused(BAD_REQUEST, "a connector is an object with name and config")
        if strange := sorted(body.keys() - {"name", "config", "initial_state"}):
            raise RequestRefused(BAD_REQUEST, f"Unrecognized field: {strange[0]}")
        config = _texts(body.get("config"))
        name = _texts({"name": body.get("name")}).get("name", "").strip(_BLANK)
        target = _initial(body.get("initial_state"))
        info = await asyncio.to_thread(self._operations().create, name, config, target)
        return _json(info, 201, _location(request, name))

    async def put_config(self, request: web.Request) -> web.Response:
        name, config = request.match_info["name"], _texts(await _body(request))
        is_new, info = await asyncio.to_thread(self._operations().put, name, config)
        if not is_new:
            return _json(info)
        return _json(info, 201, _location(request, name))

    async def patch_config(self, request: web.Request) -> web.Response:
        changes = await _body(request)
        if not isinstance(changes, dict):
            raise RequestRefused(BAD_REQUEST, "a configuration is an object of texts")
        given: dict[str, str | None] = {name: None for name, text in changes.items() if text is None}
        given.update(_texts({name: text for name, text in changes.items() if text is not None}))
        return _json(await asyncio.to_thread(self._operations().patch, request.match_info["name"], given))

    async def restart(self, request: web.Request) -> web.Response:
        with_tasks, only_failed = _flag(request, "includeTasks"), _flag(request, "onlyFailed")
        operations, name = self._operations(), request.match_info["name"]
        status = await asyncio.to_thread(operations.restart, name, with_tasks=with_tasks, only_failed=only_failed)
        return web.Response(status=204) if status is None else _json(status, 202)

    async def task_status(self, request: web.Request) -> web.Response:
        return _json(self._operations().task_status(request.match_info["name"], _task(request)))

    async def restart_task(self, request: web.Request) -> web.Response:
        self._operations().restart_task(request.match_info["name"], _task(request))
        return web.Response(status=204)

    async def reset_topics(self, request: web.Request) -> web.Response:
        await asyncio.to_thread(self._operations().reset_topics, request.match_info["name"])
        return web.Response(status=202)

    async def alter_offsets(self, request: web.Request) -> web.Response:
        body = await _body(request)
        return _json(await asyncio.to_thread(self._operations().alter_offsets, request.match_info["name"], body))

    async def reset_offsets(self, request: web.Request) -> web.Response:
        return _json(await asyncio.to_thread(self._operations().reset_offsets, request.match_info["name"]))

    async def delete(self, request: web.Request) -> web.Response:
        await asyncio.to_thread(self._operations().delete, request.match_info["name"])
        return web.Response(status=204)

    async def plugins(self, request: web.Request) -> web.Response:
        connectors_only = _flag(request, "connectorsOnly", default="true")
        return _json(self._operations().plugins(connectors_only=connectors_only))

    async def plugin_keys(self, request: web.Request) -> web.Response:
        return _json(self._operations().plugin_keys(request.match_info["plugin"]))

    async def validate(self, request: web.Request) -> web.Response:
        config = _texts(await _body(request))
        return _json(self._operations().validate(request.match_info["plugin"], config))

    async def list_loggers(self, request: web.Request) -> web.Response:
        return _json(self._loggers.levels())

    async def show_logger(self, request: web.Request) -> web.Response:
        name = request.match_info["logger"]
        if (found := self._loggers.level(name)) is None:
            raise RequestRefused(NOT_FOUND, f"Logger {name} not found.")
        return _json(found)

    async def set_level(self, request: web.Request) -> web.Response:
        name, wanted = request.match_info["logger"], _texts(await _body(request)).get("level")
        if wanted is None:
            raise RequestRefused(BAD_REQUEST, "Desired 'level' parameter was not specified in request.")
        if wanted.upper() not in LEVELS:
            raise RequestRefused(NOT_FOUND, f"invalid log level '{wanted}'.")
        changed = self._loggers.set_level(name, wanted.upper())
        if not changed:
            raise RequestRefused(NOT_FOUND, f"Logger {name} not found.")
        return web.Response(status=204) if request.query.get("scope", "").lower() == "cluster" else _json(changed)

    def _getter(self, call: str) -> Handler:
        async def get(request: web.Request) -> web.Response:
            return _json(await asyncio.to_thread(getattr(self._operations(), call), request.match_info["name"]))

        return get

    def _target(self, target: Target, code: int) -> Handler:
        async def put(request: web.Request) -> web.Response:
            await asyncio.to_thread(self._operations().set_target, request.match_info["name"], target)
            return web.Response(status=code)

        return put

    def _operations(self) -> Operations:
        found = self._works()
        if isinstance(found, Idle):
            refused = _NotYet if found is Waits.NONE_WORKS_YET else RequestRefused
            raise refused(_UNAVAILABLE, found.value)
        return found


async def _body(request: web.Request) -> Any:
    if request.content_type != "application/json":
        raise web.HTTPUnsupportedMediaType
    try:
        body = json.loads(await request.text(), object_pairs_hook=_without_doubles, parse_constant=refuse_constant)
    except (ValueError, RecursionError, LookupError) as error:  # the last one for a charset that is none
        raise RequestRefused(BAD_REQUEST, f"the body is no JSON: {error}") from None
    _check_depth(body)
    return body


def _check_depth(body: Any) -> None:
    """Refuse what is nested deeper than any request: what is kept of it has to be read again, by whatever stack."""
    level, found = 0, [body]
    while found := [each for outer in found if isinstance(outer, (dict, list)) for each in _inner(outer)]:
        level += 1
        if level > _DEPTH_MAX:
            raise RequestRefused(BAD_REQUEST, f"the body is no JSON: it is nested deeper than {_DEPTH_MAX} levels")


def _inner(outer: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return outer.values() if isinstance(outer, dict) else outer


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"{key} stands twice")
        found[key] = value
    return found


def _texts(config: Any) -> dict[str, str]:
    """A configuration, whose numbers and true and false are texts, as Connect reads them."""
    if not isinstance(config, dict):
        raise RequestRefused(BAD_REQUEST, "a configuration is an object of texts")
    found = {}
    for name, value in config.items():
        if value is None:
            continue
        if isinstance(value, (dict, list)):
            raise RequestRefused(BAD_REQUEST, f"{name} must be a text, and is not")
        found[name] = value if isinstance(value, str) else json.dumps(value)
    return found


def _initial(text: Any) -> Target:
    if text is None:
        return Target.STARTED
    targets = {"RUNNING": Target.STARTED, "PAUSED": Target.PAUSED, "STOPPED": Target.STOPPED}
    if not isinstance(text, str) or text.upper() not in targets:
        raise RequestRefused(BAD_REQUEST, f"initial_state must be one of {', '.join(targets)}")
    return targets[text.upper()]


def _location(request: web.Request, name: str) -> dict[str, str]:
    return {"Location": f"{request.url.origin()}/connectors/{quote(name, safe='')}"}


def _flag(request: web.Request, name: str, default: str = "false") -> bool:
    return request.query.get(name, default).lower() == "true"


def _task(request: web.Request) -> int:
    text = request.match_info["task"]
    if not text.isascii() or not text.isdigit():
        raise web.HTTPNotFound
    return int(text)


def _json(document: Any, code: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.json_response(document, status=code, headers=headers)


def _error(code: int, message: str, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.json_response({"error_code": code, "message": message}, status=code, headers=headers)
