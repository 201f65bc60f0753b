"""The driver of the boundary scenarios: an ordinary request of every version, then that request changed in one place.

Owns: the sequence that is the same for all APIs.  A scenario says what an ordinary request of its API is, and which
changes it leaves out, each with its reason.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterator, Mapping
from fnmatch import fnmatchcase
from itertools import count

from comparator.broker import Broker, Narrow, Step
from comparator.encoding import Tree, encode_request
from comparator.variations import changes
from comparator.wire import API_KEYS
from pybroker_protocol.messages import request_class

# A version and a name that nothing has yet -> the fields of a request that is answered without an error.
Ordinary = Callable[[int, str], Tree]
UNKNOWN_TAG = b"\x01\x63\x02ab"  # one tagged field, number 99, of two bytes


def vary(
    broker: Broker,
    api: str,
    ordinary: Ordinary,
    *,
    label: str = "",
    leave_out: Mapping[str, str] | None = None,
    in_vain: Collection[str] = (),
    narrow: Narrow | None = None,
) -> None:
    """Ask in every version.

    ``label`` tells apart several kinds of requests of one API; ``leave_out`` has patterns of changes
    (``*timeout_ms: min``) and why they are not tried; the changes ``in_vain`` are those that one of the brokers never
    answers.
    """
    for version in broker.versions(api):
        of = label or api.lower()
        names = (f"{of}-v{version}-{number}" for number in count())
        note = f"{label}: " if label else ""
        broker.ask(Step(api, version, f"{note}ordinary", ordinary(version, next(names)), None), narrow)
        for change in changes(request_class(API_KEYS[api]), version, ordinary(version, next(names)), of):
            if not any(fnmatchcase(change.note, pattern.replace("[", "[[]")) for pattern in leave_out or ()):
                fields = change.made_to(ordinary(version, next(names)))
                step = Step(api, version, note + change.note, fields, None, at_the_end=True)
                ask = broker.ask_in_vain if change.note in in_vain else broker.ask
                ask(step, narrow)
        vary_bytes(broker, api, version, note, ordinary, names, narrow)


def vary_bytes(
    broker: Broker,
    api: str,
    version: int,
    note: str,
    ordinary: Ordinary,
    names: Iterator[str],
    narrow: Narrow | None = None,
) -> None:
    """The same request with bytes that end too early or too late, or that say more than anybody knows."""
    cls = request_class(API_KEYS[api])
    flexible = version in cls.__declaration__.flexible

    def body() -> bytes:
        return encode_request(cls, version, ordinary(version, next(names)))

    def send(what: str, changed: bytes) -> None:
        broker.call_bytes(api, version, f"{note}{what}", changed, flexible, narrow)

    if body():
        send("cut short", body()[:-1])
    send("bytes behind the last field", body() + b"behind")
    if flexible:
        send("an unknown tagged field", body()[:-1] + UNKNOWN_TAG)
    header = struct.pack(">hhih", API_KEYS[api], version, 1, 0x7FFF)
    broker.call_frame(f"{note}a client id longer than the frame", header + body(), narrow)
