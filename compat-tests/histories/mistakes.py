"""Mistakes of replication that ``altered_broker`` plants into a broker process.

A run with one of them has to find something: so it is known that a run without one could have.
"""

from __future__ import annotations

from mutants.mutant import EVERY, Edit, Mutant
from mutants.operators import always, instead, never

MISTAKES = {
    mistake.name: mistake
    for mistake in (
        Mutant(
            "watermark-is-the-leaders-end",
            "The high watermark is the leader's own end: what no follower has is committed.",
            (Edit("Followers._committed_end", never("log_end_offset", "committed")),),
            (),
        ),
        Mutant(
            "acks-all-at-once",
            "acks=all waits for nobody.",
            (
                Edit("Partition.append", never("ACKS_ALL"), EVERY),
                Edit("Partition.await_run", never("high_watermark")),
            ),
            (),
        ),
        Mutant(
            "diverged-is-kept",
            "A follower does not say which epoch its last record has, and keeps what its leader never had.",
            (Edit("FollowedPartition.question", instead("latest_epoch", "-1")),),
            (),
        ),
        Mutant(
            "anybody-is-elected",
            "A replica that is not in sync may lead.",
            (Edit("with_leader", always("candidates")),),
            (),
        ),
    )
}
