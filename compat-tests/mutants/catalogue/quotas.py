"""Quotas of clients."""

from __future__ import annotations

from mutants.mutant import Edit, Mutant

MUTANTS = (
    Mutant(
        "client-over-its-quota-goes-on",
        "Who is over a quota is told a throttle time, and served on meanwhile.",
        (
            Edit("Meter.throttled", "self.mute(throttle_ms)", "pass"),
            Edit("Meter.serve", "self.mute(max(share.produce_throttle_ms(), share.request_throttle_ms()))", "pass"),
        ),
        ("test_client_quotas.py::test_who_is_over_a_quota_is_told_at_once_and_served_again_after_that_time",),
    ),
    Mutant(
        "quota-of-any-users-client-passed-over",
        "A quota of any user with that client id gives way to those that name less.",
        (Edit("precedence.quota_of", "((*named, *of_any_user), both)", "(named, of_client)"),),
        ("test_client_quotas.py::test_more_specific_quota_holds",),
    ),
)
