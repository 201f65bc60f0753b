"""What this broker asks of its own controller: served by the handlers that serve it to other brokers.

Owns: the surroundings of such a request, which has no connection, and taking its handler's steps to the end.  Owns no
way to another broker's controller (``cluster/membership/controller_channel``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from pybroker.apis import APIS, INTER_BROKER_APIS
from pybroker.handlers.context import Parked, RequestContext, Steps
from pybroker.handlers.forwarding import done_here

if TYPE_CHECKING:
    from pybroker.handlers.services import Services
    from pybroker_protocol.schema import Request

log = logging.getLogger(__name__)

_HANDLERS: Final[dict[int | None, str]] = {api.key: api.handler for api in (*APIS, *INTER_BROKER_APIS)}


class OwnContext(RequestContext):
    """The surroundings of what the broker asks by itself: it may do everything, and has no quota."""

    __slots__ = ()

    def authorize(self, operation: int, resource_type: int, name: str, *, log_if_denied: bool = True) -> bool:
        return True

    @property
    def is_brokers(self) -> bool:
        return True


def serve_own(services: Services, request: Request, version: int, done: Callable[[Any], None]) -> None:
    """Have the request's handler answer it: ``done(response)`` on the loop, ``done(None)`` where it fails."""
    ctx = OwnContext()
    ctx.services, ctx.api_version, ctx.listener = services, version, services.inter_broker_listener or ""
    _go_on(_answer(ctx, request), done, None)


def _answer(ctx: OwnContext, request: Request) -> Steps:
    """The handler's response, or None, later than the call: a part of the broker that hears nothing waits for ever."""
    try:
        handler: Any = import_module(f"pybroker.handlers.{_HANDLERS[type(request).__declaration__.key]}")
        return (yield from done_here(handler, ctx, request))
    except Exception:
        log.exception("this broker's own %s failed", type(request).__name__)
    failed = Parked()
    ctx.services.env.timers.call_soon(failed.complete, None)
    return (yield failed)


def _go_on(steps: Steps, done: Callable[[Any], None], value: Any) -> None:
    try:
        while (waits_for := steps.send(value)) is None:
            value = None
    except StopIteration as end:
        done(end.value)
    else:
        waits_for.subscribe(partial(_go_on, steps, done))
