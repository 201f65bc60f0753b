"""Permissions that nobody is asked for: each question of each handler, taken away.

Owns: which test notices.  The questions are read from the handlers' sources (``mutants.questions``), so that a handler
that asks has its mutants at once; what is imported before a mutant is put in cannot be mutated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from mutants.mutant import Edit, Mutant
from mutants.operators import instead
from mutants.questions import INTER_BROKER_APIS, Question, questions_of_handlers

_TABLE: Final = "test_permissions.py::test_who_lacks_a_permission_is_refused"
_AMONG_BROKERS: Final = "tests/broker/test_inter_broker_requests.py::test_who_may_not_act_for_the_cluster_is_refused"
_TOKENS: Final = "tests/broker/test_delegation_tokens.py"
# What several handlers share, and the API of which the table notices that it asks no longer.
_SHARED: Final = {
    "acl_filters": "CreateAcls",
    "authorized_operations": "DescribeCluster",
    "config_checks": "DescribeConfigs",
    "fetch_request": "Fetch",
}
# The place, or the module, of a question that the table cannot notice: it has not the client, or not enough requests.
_NOTICES: Final = {
    "produce._refusal_of_topic": "test_permissions.py::test_who_may_not_write_produces_nothing",
    "consumer_group_heartbeat.handle.may_describe": (
        "tests/broker/test_acls.py::test_a_regular_expression_names_no_topic_that_its_member_may_not_know_of"
    ),
    "fetch.refusal_of_follower": (
        "tests/replication/test_follower_fetch.py::test_a_broker_that_may_not_act_for_the_cluster_moves_nothing"
    ),
    "create_delegation_token": f"{_TOKENS}::test_another_users_token_takes_permission",
    "describe_delegation_token": f"{_TOKENS}::test_tokens_are_seen_by_whom_they_concern_and_whom_that_is_allowed",
}
_WORDS: Final = re.compile(r"\b(?:AclOperation\.|Resource\.|_)([A-Z_]+)")


def _test_that_notices(question: Question, api: str) -> str:
    told = _NOTICES.get(question.edit.place) or _NOTICES.get(question.module)
    if told is not None:
        return told
    return f"{_AMONG_BROKERS if api in INTER_BROKER_APIS else _TABLE}[{api}]"


def _mutants() -> Iterator[Mutant]:
    for question in questions_of_handlers():
        api = question.api or _SHARED[question.module]
        words = [word.lower() for word in _WORDS.findall(question.text)]
        name = re.sub("[^a-z]+", "-", " ".join((question.edit.place, "asks-nobody", *words)))
        trap = f"{api}: whoever lacks a permission is taken for permitted."
        yield Mutant(name, trap, (question.edit,), (_test_that_notices(question, api),))


_STRANGERS: Final = "tests/net/test_broker_login.py"

MUTANTS: Final = (
    *_mutants(),
    # Kafka asks for no permission there: a token's owner and its renewers change it, nobody else.
    *(
        Mutant(
            f"{change}-token-of-anybody",
            f"Whoever knows a delegation token's HMAC may {change} it, whosever it is.",
            (Edit(f"token_changes.{change}_token", instead("may_be_renewed_by", "True")),),
            (f"{_TOKENS}::test_renewers_renew_and_end_a_token",),
        )
        for change in ("renew", "expire")
    ),
    Mutant(
        "what-brokers-ask-served-to-strangers",
        "Whoever comes by the listener of brokers is served what brokers ask, without the proof of being one.",
        (Edit("Processor._serves_brokers", instead("is_broker", "True")),),
        (f"{_STRANGERS}::test_a_stranger_that_asks_what_brokers_ask_loses_its_connection",),
    ),
    Mutant(
        "every-login-is-of-a-broker",
        "Whoever has logged in by the listener of brokers is taken for one, by whatever mechanism.",
        (Edit("Login._complete", instead("is_of_brokers", "True")),),
        (f"{_STRANGERS}::test_a_user_who_has_logged_in_by_the_listener_of_brokers_is_none",),
    ),
    Mutant(
        "follower-without-proof",
        "Whoever fetches as a replica is believed, without the proof of being a broker.",
        (Edit("fetch.refusal_of_follower", instead("is_broker", "True")),),
        (f"{_STRANGERS}::test_a_stranger_that_fetches_as_a_replica_moves_nothing",),
    ),
    Mutant(
        "datagrams-of-strangers-believed",
        "Who does not know the cluster's secret has brokers fenced, or keeps dead ones.",
        (Edit("liveness.decode", instead("compare_digest", "True")),),
        ("tests/cluster/test_liveness.py::test_a_datagram_is_believed_with_the_clusters_secret_alone",),
    ),
)
