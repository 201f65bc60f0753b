"""Who belongs to a cluster, and who is taken for dead."""

from __future__ import annotations

from typing import Final

from mutants.mutant import Edit, Mutant

_LIVENESS: Final = "tests/cluster/test_liveness.py"
_STRANGERS: Final = "tests/scenarios/test_strangers.py"

MUTANTS = (
    Mutant(
        "datagrams-of-strangers-believed",
        "Who does not know the cluster's secret has brokers fenced, or keeps dead ones.",
        (Edit("liveness.decode", "not hmac.compare_digest(_tag(body, secret), data[-TAG_BYTES:])", "not body"),),
        (
            f"{_LIVENESS}::test_a_datagram_is_believed_with_the_clusters_secret_alone",
            f"{_STRANGERS}::test_datagrams_of_strangers_neither_fence_the_living_nor_keep_the_dead",
        ),
    ),
    Mutant(
        "lone-witness-believed",
        "A broker whose own link fails has others taken for dead whom all but it hear.",
        (Edit("Liveness.is_silent", "2 * witnesses", "100 * witnesses"),),
        (
            f"{_LIVENESS}::test_where_there_are_three_a_lone_witness_is_not_believed",
            f"{_LIVENESS}::test_a_lone_witness_of_a_refusal_is_not_believed_where_there_are_three",
            f"{_LIVENESS}::test_a_minority_that_hears_nobody_takes_nobody_for_dead",
        ),
    ),
    Mutant(
        "start-without-an-end",
        "A broker that no controller registers waits for ever, and never says why.",
        (
            Edit(
                "BrokerLifecycle.start",
                "self._env.timers.call_later(timeout_ms, self._give_up, timeout_ms)",
                "None",
            ),
        ),
        (
            "tests/cluster/test_cluster_members.py"
            "::test_a_broker_that_no_controller_registers_gives_up_with_the_reason_and_tells_of_it_before",
        ),
    ),
)
