"""Logins step by step: what each step is answered with, the texts of refusals too, and when the connection ends."""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from comparator import users
from comparator.broker import NEVER_S, Broker, Step
from comparator.encoding import Tree
from comparator.registry import scenario
from comparator.scenarios.tokens import creation, end_all, seen
from comparator.wire import CLOSED, SILENT, Connection
from pybroker.security.scram import SHA_256, ScramClient

PLAIN, SCRAM = "PLAIN", SHA_256.name
ALICE, BOB = b"\0alice\0alice", b"\0bob\0bob"
ANNA, BERT = "anna", "bert"  # users of SCRAM
METADATA: dict[str, Any] = {"topics": [], "allow_auto_topic_creation": False}
SOFTWARE = {"client_software_name": "comparator", "client_software_version": "1"}


@contextmanager
def door(broker: Broker) -> Iterator[Broker]:
    """The second listener, whose connections have not logged in."""
    with Broker(users.address_of(broker), broker.steps).opened() as opened:
        yield opened


def with_texts(reply: Tree) -> Tree:
    """A reply whose text is compared."""
    return {"text" if name == "error_message" else name: value for name, value in reply.items()}


def ordinary_reply(connection: Connection) -> Tree:
    """To a request that only somebody is answered who has logged in."""
    try:
        sent = connection.send("Metadata", 9, METADATA)
    except ConnectionError:
        return CLOSED
    return connection.receive("Metadata", 9, sent)


class Stranger:
    """A new connection, of which every step is recorded under one note."""

    def __init__(self, opened: Broker, note: str) -> None:
        self._opened = opened
        self._note = note
        self.connection: Connection = opened.connect()

    def ask(self, api: str, version: int, note: str = "", **fields: Any) -> Tree:
        about = f"{self._note}: {note}" if note else self._note
        try:
            pending = self._opened.begin(api, version, about, self.connection, **fields)
        except ConnectionError:  # it has ended before
            self._opened.steps.append(Step(api, version, about, fields, CLOSED))
            return CLOSED
        return pending.reply(with_texts)

    def shake_hands(self, mechanism: str = PLAIN, version: int = 1, note: str = "") -> Tree:
        return self.ask("SaslHandshake", version, note, mechanism=mechanism)

    def authenticate(self, token: bytes, version: int = 2, note: str = "") -> Tree:
        return self.ask("SaslAuthenticate", version, note, auth_bytes=token)

    def is_served(self, note: str = "") -> None:
        """Record whether an ordinary request is."""
        reply = ordinary_reply(self.connection)
        seen = reply["connection"] if reply in (CLOSED, SILENT) else "served"
        self._opened.note(f"{self._note}: an ordinary request{note and ', '}{note}", seen)

    def ends(self) -> None:
        """Record whether the broker ends the connection, without having been asked anything more."""
        try:
            with self.connection.patience(NEVER_S):
                seen = "ended" if self.connection.receive_payload() is None else "told more"
        except TimeoutError:
            seen = "open"
        self._opened.note(f"{self._note}: the connection", seen)


@scenario
def mechanisms_of_a_handshake(broker: Broker) -> None:
    with door(broker) as opened:
        for version in opened.versions("SaslHandshake"):
            for note, mechanism in {
                "unknown": "ROT-13",
                "not enabled": "SCRAM-SHA-512",
                "none": "",
                "lower case": "plain",
            }.items():
                stranger = Stranger(opened, f"a mechanism, {note}, version {version}")
                stranger.shake_hands(mechanism, version)
                stranger.ends()


@scenario
def requests_before_a_login(broker: Broker) -> None:
    with door(broker) as opened:
        for version in opened.versions("SaslAuthenticate"):
            stranger = Stranger(opened, f"no handshake, version {version}")
            stranger.authenticate(ALICE, version)
            stranger.ends()
        for api, version, fields in others():
            stranger = Stranger(opened, "before a login")
            stranger.ask(api, version, **fields)
            stranger.ends()
        for version in opened.versions("ApiVersions"):
            stranger = Stranger(opened, f"what is served, version {version}")
            stranger.ask("ApiVersions", version, **SOFTWARE)
            log_in(stranger)
            stranger.ask("ApiVersions", version, "again, having logged in", **SOFTWARE)
        stranger = Stranger(opened, "what is served, twice")
        stranger.ask("ApiVersions", 3, "once", **SOFTWARE)
        stranger.ask("ApiVersions", 3, "twice", **SOFTWARE)
        stranger.ends()
        stranger = Stranger(opened, "what is served, and then something else")
        stranger.ask("ApiVersions", 3, **SOFTWARE)
        stranger.ask("Metadata", 9, **METADATA)
        stranger.ends()
        stranger = Stranger(opened, "a client without a name")
        stranger.ask("ApiVersions", 3, "no name", client_software_name="", client_software_version="")
        stranger.ask("ApiVersions", 3, "a name", **SOFTWARE)
        log_in(stranger)
        for note, frame in {
            "an unknown key": b"\x03\xe7\0\0\0\0\0\x01\0\0",
            "a version of the future": b"\0\x11\0\x63\0\0\0\x01\0\0",
            "no header": b"\0\x11",
            "nothing": b"",
            "a handshake that is cut": b"\0\x11\0\x01\0\0\0\x01\0\0\0\x05PL",
        }.items():
            opened.forget()
            opened.call_frame(f"before a login: {note}", frame)
        opened.forget()
        opened.call_raw("before a login: more than may come", (1 << 20).to_bytes(4, "big"))


def others() -> list[tuple[str, int, dict[str, Any]]]:
    """Ordinary requests of those who have logged in."""
    return [
        ("Metadata", 9, METADATA),
        ("ListGroups", 4, {}),
        ("CreateTopics", 5, {"topics": [], "timeout_ms": 1_000}),
        ("Produce", 9, {"acks": -1, "timeout_ms": 1_000, "topic_data": []}),
    ]


def log_in(stranger: Stranger, token: bytes = ALICE) -> None:
    stranger.shake_hands()
    stranger.authenticate(token)
    stranger.is_served()


@scenario
def requests_in_the_middle_of_a_login(broker: Broker) -> None:
    with door(broker) as opened:
        for mechanism in (PLAIN, SCRAM):
            for version in opened.versions("SaslHandshake"):
                stranger = Stranger(opened, f"two handshakes, {mechanism}, version {version}")
                stranger.shake_hands(mechanism)
                stranger.shake_hands(mechanism, version, "again")
                stranger.ends()
        for version in opened.versions("ApiVersions"):
            stranger = Stranger(opened, f"what is served, version {version}")
            stranger.shake_hands()
            stranger.ask("ApiVersions", version, "in the middle", **SOFTWARE)
            stranger.ends()
        for api, version, fields in others():
            stranger = Stranger(opened, "in the middle")
            stranger.shake_hands()
            stranger.ask(api, version, "something else", **fields)
            stranger.ends()
        stranger = Stranger(opened, "all at once")
        sent = [
            stranger.connection.send("SaslHandshake", 1, {"mechanism": PLAIN}),
            stranger.connection.send("SaslAuthenticate", 2, {"auth_bytes": ALICE}),
        ]
        for api, version, number in zip(("SaslHandshake", "SaslAuthenticate"), (1, 2), sent, strict=True):
            opened.note(f"all at once: {api}", stranger.connection.receive(api, version, number)["error_code"])
        stranger.is_served()


@scenario
def passwords_of_plain(broker: Broker) -> None:
    with door(broker) as opened:
        for version in opened.versions("SaslAuthenticate"):
            for note, token in {"right": ALICE, "wrong": b"\0alice\0bob"}.items():
                stranger = Stranger(opened, f"{note}, version {version}")
                stranger.shake_hands()
                stranger.authenticate(token, version)
                stranger.is_served()
        for note, token in {
            "an unknown user": b"\0mallory\0mallory",
            "another one's password": b"\0alice\0carol",
            "a longer password": ALICE + b"e",
            "a shorter password": ALICE[:-1],
            "an upper case name": b"\0Alice\0alice",
            "no name": b"\0\0alice",
            "no password": b"\0alice\0",
            "nothing": b"",
            "two zeros": b"\0\0",
            "a name alone": b"alice",
            "no authorization id": b"alice\0alice",
            "more behind": ALICE + b"\0",
            "much more behind": ALICE + b"\0alice\0alice",
            "not UTF-8": b"\0\xff\xfe\0alice",
            "bytes of TLS": b"\x16\x03\x01\x02\x00",
            "spaces around": b"\0 alice \0alice",
            "one's own authorization id": b"alice" + ALICE,
            "another one's authorization id": b"bob" + ALICE,
            "another one's authorization id, and a wrong password": b"bob\0alice\0wrong",
        }.items():
            stranger = Stranger(opened, note)
            stranger.shake_hands()
            if stranger.authenticate(token).get("error_code"):
                stranger.ends()
            else:
                stranger.is_served()


@scenario
def tokens_without_requests(broker: Broker) -> None:
    """Behind a handshake of version 0 a token is a frame of its own, and so is the answer."""
    with door(broker) as opened:
        for note, token in {
            "right": ALICE,
            "wrong": b"\0alice\0wrong",
            "malformed": b"alice",
            "nothing": b"",
            "a handshake": b"\0\x11\0\0\0\0\0\x01\0\0\0\x05PLAIN",
        }.items():
            stranger = Stranger(opened, f"a bare token, {note}")
            stranger.shake_hands(version=0)
            stranger.connection.send_frame(token)
            opened.note(f"a bare token, {note}", stranger.connection.receive_payload())
            if note == "right":
                stranger.is_served()
        with users.made(broker, ANNA):
            stranger = Stranger(opened, "bare tokens of SCRAM")
            stranger.shake_hands(SCRAM, version=0)
            client = users.scram_client(ANNA)
            answers = []
            token = client.first()
            for _ in range(2):
                stranger.connection.send_frame(token)
                answers.append(stranger.connection.receive_payload() or b"")
                token = b"" if len(answers) > 1 else client.final(answers[0])
            client.finish(answers[1])
            stranger.is_served()
            stranger = Stranger(opened, "bare tokens of SCRAM, a wrong password")
            stranger.shake_hands(SCRAM, version=0)
            client = users.scram_client(ANNA, "wrong")
            stranger.connection.send_frame(client.first())
            stranger.connection.send_frame(client.final(stranger.connection.receive_payload() or b""))
            stranger.ends()


class Exchange(NamedTuple):
    """A login by SCRAM whose messages are changed on their way."""

    user: str = ANNA
    password: str | None = None
    first: Callable[[bytes], bytes] = bytes
    final: Callable[[bytes], bytes] = bytes


def nonce_of(client: ScramClient) -> bytes:
    return client.first().rpartition(b"r=")[2]


def without_extension(final: bytes) -> bytes:
    """The last message with as much of the nonce as the client itself has made."""
    before, _, rest = final.partition(b",r=")
    return before + b",r=" + rest[: len(b64encode(bytes(18)))] + final[final.rindex(b",p=") :]


def with_binding(text: bytes) -> Callable[[bytes], bytes]:
    return lambda final: b"c=" + b64encode(text) + final[final.index(b",r=") :]


def with_proof(text: bytes) -> Callable[[bytes], bytes]:
    return lambda final: final[: final.rindex(b",p=")] + text


def exchanged(opened: Broker, note: str, exchange: Exchange) -> None:
    """Record what the last answer of an exchange was, wherever it ended, and whether the user is in."""
    stranger = Stranger(opened, note)
    client = users.scram_client(exchange.user, exchange.password)
    connection = stranger.connection

    def ask(token: bytes) -> Tree:
        sent = connection.send("SaslAuthenticate", 2, {"auth_bytes": token})
        return connection.receive("SaslAuthenticate", 2, sent)

    sent = connection.send("SaslHandshake", 1, {"mechanism": SCRAM})
    assert connection.receive("SaslHandshake", 1, sent)["error_code"] == 0
    steps = 1
    last = ask(exchange.first(client.first()))
    if last.get("error_code") == 0:
        steps = 2
        answer = bytes(last["auth_bytes"])
        assert answer.startswith(b"r=" + nonce_of(client)), answer
        last = ask(exchange.final(client.final(answer)))
    error = last.get("error_code", last.get("connection"))
    if error == 0:
        client.finish(bytes(last["auth_bytes"]))
    text = {} if last in (CLOSED, SILENT) else {"text": last["error_message"]}
    is_in = ordinary_reply(connection) not in (CLOSED, SILENT)
    opened.note(note, {"steps": steps, "error": error, **text, "is in": is_in})


@scenario
def exchanges_of_scram(broker: Broker) -> None:
    with users.made(broker, ANNA, BERT), door(broker) as opened:
        for note, exchange in {
            "right": Exchange(),
            "a wrong password": Exchange(password="wrong"),
            "an unknown user": Exchange("mallory"),
            "a user of PLAIN": Exchange("alice"),
            "a nonce that is not extended": Exchange(final=without_extension),
            "a nonce that is longer": Exchange(final=lambda final: final.replace(b",p=", b"x,p=")),
            "no nonce": Exchange(final=lambda final: final[: final.index(b"r=") + 2] + final[final.rindex(b",p=") :]),
            "no proof": Exchange(final=with_proof(b"")),
            "an empty proof": Exchange(final=with_proof(b",p=")),
            "a proof that is cut": Exchange(final=lambda final: final[:-4]),
            "a proof that is longer": Exchange(final=lambda final: final[:-4] + b"AAAAAAAA"),
            "a proof of zeros": Exchange(final=with_proof(b",p=" + b64encode(bytes(32)))),
            "a proof that is no base64": Exchange(final=with_proof(b",p=****")),
            "nothing in the place of the proof": Exchange(final=lambda _: b""),
            "the first message again": Exchange(final=lambda _: b"n,,n=anna,r=abc"),
            "another binding": Exchange(final=with_binding(b"y,,")),
            "no binding": Exchange(final=with_binding(b"")),
            "nothing at first": Exchange(first=lambda _: b""),
            "a client that could bind": Exchange(first=lambda first: b"y" + first[1:], final=with_binding(b"y,,")),
            "a client that binds": Exchange(first=lambda first: b"p=tls-unique" + first[1:]),
            "no name": Exchange(first=lambda first: first.replace(b"n=anna", b"n=")),
            "no nonce at first": Exchange(first=lambda first: first[: first.index(b"r=") + 2]),
            "an escape that is none": Exchange(first=lambda first: first.replace(b"n=anna", b"n=an=na")),
            "an extension that nobody knows": Exchange(first=lambda first: first + b",x=y"),
            "an extension that has to be known": Exchange(first=lambda first: first.replace(b"n=", b"m=x,n=", 1)),
            "another one's authorization id": Exchange(first=lambda first: b"n,a=bert" + first[2:]),
            "a token that is none": Exchange(first=lambda first: first + b",tokenauth=true"),
            "a message of PLAIN": Exchange(first=lambda _: ALICE),
        }.items():
            exchanged(opened, note, exchange)


@scenario
def logins_anew(broker: Broker) -> None:
    with users.made(broker, ANNA, BERT), door(broker) as opened:
        for note, token in {
            "the same user": ALICE,
            "another user": BOB,
            "a wrong password": b"\0alice\0wrong",
            "nothing": b"",
        }.items():
            stranger = Stranger(opened, f"anew, {note}")
            log_in(stranger)
            stranger.shake_hands(note="anew")
            stranger.authenticate(token, note="anew")
            stranger.is_served("after that")
        for note, mechanism in {"another mechanism": SCRAM, "an unknown mechanism": "ROT-13"}.items():
            stranger = Stranger(opened, f"anew, {note}")
            log_in(stranger)
            stranger.shake_hands(mechanism, note="anew")
            stranger.authenticate(b"n,,n=anna,r=abc", note="anew")
            stranger.ends()
        for version in opened.versions("SaslAuthenticate"):
            stranger = Stranger(opened, f"logged in, no handshake, version {version}")
            log_in(stranger)
            stranger.authenticate(ALICE, version, "after that")
            stranger.is_served("after that")
        stranger = Stranger(opened, "anew, by an old handshake")
        log_in(stranger)
        stranger.shake_hands(version=0, note="anew")
        stranger = Stranger(opened, "anew, twice within a second")
        log_in(stranger)
        for often in ("once", "twice"):
            stranger.shake_hands(note=often)
            stranger.authenticate(ALICE, note=often)
        stranger.is_served("after that")
        for api, version, fields in (
            *others(),
            ("ApiVersions", 3, SOFTWARE),
            ("SaslHandshake", 1, {"mechanism": PLAIN}),
        ):
            stranger = Stranger(opened, f"{api} in the middle of a login anew")
            log_in(stranger)
            stranger.shake_hands(note="anew")
            stranger.ask(api, version, "in the middle", **fields)
            stranger.ends()
        stranger = Stranger(opened, "a session without an end")
        users.by_scram(ANNA)(stranger.connection)
        for version in opened.versions("SaslHandshake"):
            stranger.shake_hands(SCRAM, version, note="anew")
        stranger.is_served("after that")


LIFETIMES_MS, LONG_MS = (1_000, 2_000, 4_000, 8_000), 600_000


def token_of(alice: Broker, lifetime_ms: int) -> Tree:
    """A token by which its holders can log in."""
    token = alice.quietly("CreateDelegationToken", 3, **creation(lifetime_ms=lifetime_ms))
    alice.wait_until(lambda: bytes(token["hmac"]) in seen(alice), "the token")
    return token


def log_in_by_token(stranger: Stranger, token: Tree) -> int:
    """For how long it is good; 0 where it fails, or is over already."""
    last = users.log_in_by_token(stranger.connection, token["token_id"], bytes(token["hmac"]))
    return 0 if last.get("error_code") else int(last["session_lifetime_ms"])


def sessions_that_end(alice: Broker, opened: Broker, *notes: str) -> tuple[Tree, list[Stranger]]:
    """A token, and holders of it who have logged in; on a busy machine it is over before all of them have."""
    for lifetime_ms in LIFETIMES_MS:
        token = token_of(alice, lifetime_ms)
        strangers = [Stranger(opened, note) for note in notes]
        if all(0 < log_in_by_token(stranger, token) <= lifetime_ms for stranger in strangers):
            return token, strangers
    raise AssertionError("nobody has logged in by a token before it was over")


@scenario
def a_session_is_served_until_its_end(broker: Broker) -> None:
    """A session that a token has begun lasts as long as the token, unless another one renews it."""
    with users.logged_in(broker, users.by_password("alice")) as alice, door(broker) as opened:
        try:
            sessions_end(alice, opened)
        finally:
            end_all(alice)


def sessions_end(alice: Broker, opened: Broker) -> None:
    """One ends, and one is renewed."""
    long = token_of(alice, LONG_MS)
    token, (once, renewed) = sessions_that_end(alice, opened, "a session", "a session that is renewed")
    for stranger in (once, renewed):
        stranger.is_served("before its end")
    opened.note("renewed for longer", log_in_by_token(renewed, long) > LIFETIMES_MS[-1])

    def is_over() -> bool:
        if ordinary_reply(once.connection) not in (CLOSED, SILENT):
            return False
        opened.note("ended too early", time.time() * 1_000 < token["expiry_timestamp_ms"])
        return True

    alice.wait_until(is_over, "the end of the session")
    renewed.is_served("after the first end")
