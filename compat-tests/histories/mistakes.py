"""Mistakes of replication that ``altered_broker`` plants into a broker process.

A run with one of them has to find something: so it is known that a run without one could have.
"""

from __future__ import annotations

from mutants.mutant import Edit, Mutant

MISTAKES = {
    mistake.name: mistake
    for mistake in (
        Mutant(
            "watermark-is-the-leaders-end",
            "The high watermark is the leader's own end: what no follower has is committed.",
            (
                Edit(
                    "Followers._committed_end",
                    "follower.log_end_offset < committed and (follower.broker_id in maximal"
                    " or self._is_about_to_join(follower, log.log_end_offset))",
                    "False",
                ),
            ),
            (),
        ),
        Mutant(
            "acks-all-at-once",
            "acks=all waits for nobody.",
            (
                Edit(
                    "Partition.append",
                    "required_acks == ACKS_ALL and result.last_offset >= log.high_watermark",
                    "False",
                ),
                Edit(
                    "Partition.append",
                    "required_acks == ACKS_ALL and result.last_offset >= self.log.high_watermark",
                    "False",
                ),
                Edit("Partition.await_run", "result.last_offset >= log.high_watermark", "False"),
            ),
            (),
        ),
        Mutant(
            "diverged-is-kept",
            "A follower does not say which epoch its last record has, and keeps what its leader never had.",
            (
                Edit(
                    "FollowedPartition.question",
                    "Question(log.log_end_offset, self.leader_epoch, log.leader_epochs.latest_epoch,"
                    " log.log_start_offset)",
                    "Question(log.log_end_offset, self.leader_epoch, -1, log.log_start_offset)",
                ),
            ),
            (),
        ),
        Mutant(
            "anybody-is-elected",
            "A replica that is not in sync may lead.",
            (
                Edit(
                    "in_sync_replicas.with_leader",
                    "replica in candidates and replica not in avoided and is_online(image, partition, replica)",
                    "replica not in avoided and is_online(image, partition, replica)",
                ),
            ),
            (),
        ),
    )
}
