"""Settings of cluster links: ``pybroker.links.<link>.<setting>``, in a broker's file or for all brokers together.

Owns: their table, their words, and the form of their names.  A link exists as long as its ``bootstrap.servers`` are
set.  Owns not what one link is set to (``link_config``).

They are dynamic settings of all brokers together, so that every tool that alters those declares a link.  A broker's
file may have them, too: then the file of the broker counts that decides and connects, and all should have the same.

Counterpart in Kafka: the settings of MirrorMaker's ``MirrorClientConfig``, and of clients.
"""

from __future__ import annotations

import re
from typing import Any, Final

from pybroker.config.broker_settings import BROKER_SETTINGS
from pybroker.config.own_settings import LINKS_PREFIX
from pybroker.config.schema import (
    CLUSTER,
    HIGH,
    INT,
    LIST,
    LONG,
    LOW,
    MEDIUM,
    PASSWORD,
    STRING,
    USED,
    ListMatching,
    Matching,
    NonEmpty,
    OneOf,
    Range,
    Setting,
    Validator,
)

# The name of a link, and of its setting.
OF_LINKS: Final = re.compile(rf"{re.escape(LINKS_PREFIX)}([a-zA-Z0-9_-]{{1,100}})\.([a-z][a-z.]*)")

# In a set of topics ``*`` stands for any characters; with three of them in a name no comparison takes long.
_TOPICS_FORM: Final = "names of topics, with up to three *"
TOPICS: Final = ListMatching(r"(?=.{1,249}$)(?:[\w.-]*\*){0,3}[\w.-]*", _TOPICS_FORM, f"must be {_TOPICS_FORM}")
_GROUPS_FORM: Final = "names, with up to three *"
GROUPS: Final = ListMatching(r"(?=.{1,249}$)(?:[^*]*\*){0,3}[^*]*", _GROUPS_FORM, f"must be {_GROUPS_FORM}")
_ADDRESSES: Final = ListMatching(r"(?:\[[0-9a-fA-F:.]+\]|[^:\s]+):[0-9]{1,5}", "host:port,...", "must be host:port,...")
_PREFIX: Final = Matching(r"[a-zA-Z0-9._-]{0,200}", "the beginning of a topic's name", "must begin a topic's name")
_PROTOCOLS: Final = OneOf("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
NO_BOUND: Final = -1  # ``throttled.rate``: as much as there is
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
# What a client's file may say of its login besides, and what comes to what a link does anyway.
_OAUTHBEARER: Final = "org.apache.kafka.common.security.oauthbearer"
_HANDLER: Final = f"{_OAUTHBEARER}.OAuthBearerLoginCallbackHandler"
_RETRIEVER: Final = f"{_OAUTHBEARER}.DefaultJwtRetriever"
_HANDLERS: Final = OneOf(_HANDLER, f"{_OAUTHBEARER}.secured.OAuthBearerLoginCallbackHandler")
_RETRIEVERS: Final = OneOf(_RETRIEVER, f"{_OAUTHBEARER}.ClientCredentialsJwtRetriever")
_ENDPOINT: Final = Matching(r"https?://.+", "a URL of https or http", "must be a URL of https or http")

# name, type, default, valid, importance
# fmt: off
_ROWS: Final[tuple[tuple[str, int, Any, Validator, str], ...]] = (
    ("bootstrap.servers",   LIST,     (),          _ADDRESSES, HIGH),
    ("topics",              LIST,     (),          TOPICS,     HIGH),
    ("topics.exclude",      LIST,     (),          TOPICS,     MEDIUM),
    ("prefix",              STRING,   "",          _PREFIX,    MEDIUM),
    ("pause",               LIST,     (),          TOPICS,     MEDIUM),
    ("promote",             LIST,     (),          TOPICS,     MEDIUM),
    ("failover",            LIST,     (),          TOPICS,     MEDIUM),
    ("adopt",               LIST,     (),          TOPICS,     LOW),
    ("discard",             LIST,     (),          TOPICS,     LOW),
    ("groups",              LIST,     (),          GROUPS,     MEDIUM),
    ("acls",                LIST,     (),          GROUPS,     LOW),
    ("quotas",              LIST,     (),          GROUPS,     LOW),
    ("users",               LIST,     (),          GROUPS,     LOW),
    ("throttled.rate",      LONG,     NO_BOUND,    Range(-1),  MEDIUM),
    ("replication.factor",  INT,      -1,          Range(-1),  LOW),
    ("refresh.interval.ms", INT,      5_000,       Range(100), LOW),
    ("security.protocol",   STRING,   "PLAINTEXT", _PROTOCOLS, MEDIUM),
    ("sasl.mechanism",      STRING,   "PLAIN",     OneOf(*MECHANISMS), MEDIUM),
    ("sasl.jaas.config",    PASSWORD, None,        NonEmpty(), MEDIUM),
    ("sasl.oauthbearer.token.endpoint.url",               STRING,   None, _ENDPOINT,  MEDIUM),
    ("sasl.oauthbearer.client.credentials.client.id",     STRING,   None, NonEmpty(), MEDIUM),
    ("sasl.oauthbearer.client.credentials.client.secret", PASSWORD, None, NonEmpty(), MEDIUM),
    ("sasl.oauthbearer.scope",                            STRING,   None, NonEmpty(), LOW),
    ("sasl.oauthbearer.jwt.retriever.class",              STRING,   _RETRIEVER, _RETRIEVERS, LOW),
    ("sasl.login.callback.handler.class",                 STRING,   _HANDLER, _HANDLERS, LOW),
    ("sasl.login.connect.timeout.ms",                     INT,      10_000, Range(1), LOW),
    ("sasl.login.read.timeout.ms",                        INT,      10_000, Range(1), LOW),
)
# fmt: on
LINK_SETTINGS: Final = {row[0]: Setting(*row, CLUSTER, USED) for row in _ROWS}

# Of TLS a link has what a client has.
_OF_TLS: Final = (
    "ssl.keystore.",
    "ssl.truststore.",
    "ssl.key.password",
    "ssl.enabled.protocols",
    "ssl.protocol",
    "ssl.cipher.suites",
    "ssl.endpoint.identification.algorithm",
)

LINK_DOCUMENTATION: Final[dict[str, str]] = {
    "bootstrap.servers": "Brokers of the source cluster, one of which is asked first. A link exists while it is set.",
    "topics": "The source's topics to mirror; in a name * stands for any characters.",
    "topics.exclude": "Topics that are not mirrored though `topics` has them.",
    "prefix": "What a mirrored topic's name here has before its name at the source.",
    "pause": "Topics, by their names at the source, that are not mirrored for the time being and stay read-only.",
    "promote": "Topics, by their names at the source, that take writes once they have all that the source has.",
    "failover": "Topics, by their names at the source, that take writes at once, with what is here.",
    "adopt": "Topics, by their names at the source, that are mirrored though they are here already: for the way back.",
    "discard": "Topics that `adopt` names, of which what the source lacks is cut off here.",
    "groups": "Groups of the source whose committed offsets are taken over while they have no members here.",
    "acls": "Principals, as User:*, whose ACLs on topics, groups and transactional ids are taken over.",
    "quotas": "Users, clients and addresses whose quotas are taken over; <default> is that of all others.",
    "users": "Users of SCRAM whom the link's description names while they are missing here: passwords do not come.",
    "throttled.rate": "Bytes per second that each broker fetches for the link at most; -1 is no bound.",
    "replication.factor": "Replicas of mirrored topics; -1 is this cluster's default.",
    "refresh.interval.ms": "How often the source's topics are looked at; settings of known ones each twelfth time.",
    "security.protocol": "Protocol towards the source's brokers.",
    "sasl.mechanism": "By which the link logs in at the source.",
    "sasl.jaas.config": "User and password at the source, as a client has them.",
    "sasl.oauthbearer.token.endpoint.url": "Where tokens for the source are issued.",
    "sasl.oauthbearer.client.credentials.client.id": "As whom the link asks for tokens.",
    "sasl.oauthbearer.client.credentials.client.secret": "By which it proves that at the token endpoint.",
    "sasl.oauthbearer.scope": "What the tokens are asked for.",
    "sasl.oauthbearer.jwt.retriever.class": "As a client has it; a link asks for client credentials.",
    "sasl.login.callback.handler.class": "As a client has it.",
    "sasl.login.connect.timeout.ms": "How long a connection to the token endpoint may take.",
    "sasl.login.read.timeout.ms": "How long its answer may take.",
}


def link_setting(name: str) -> Setting | None:
    """The row of ``pybroker.links.<link>.<setting>``, under that whole name; None for what is no setting of links."""
    match = OF_LINKS.fullmatch(name)
    if match is None:
        return None
    row = row_of(match[2])
    return None if row is None else row._replace(name=name)


def link_documentation(name: str) -> str | None:
    """What a setting of a link is for; None for what is none."""
    match = OF_LINKS.fullmatch(name)
    return None if match is None else LINK_DOCUMENTATION.get(match[2])


def row_of(setting: str) -> Setting | None:
    """The row of a link's setting by its name behind the link's; None for what is none."""
    row = LINK_SETTINGS.get(setting)
    if row is None and setting.startswith(_OF_TLS) and setting in BROKER_SETTINGS:
        return BROKER_SETTINGS[setting]._replace(mode=CLUSTER, flags=USED)
    return row
