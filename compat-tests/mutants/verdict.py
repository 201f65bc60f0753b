"""What a run with a mutant in it says of the mutant, and of the suite.

A mutant is *caught* when a test that its trap names failed in its body, by an assertion or because the client could not
go on.  It is *unfit* when it is no bug but a ruin: the canary (Produce and Fetch of plain records) fails, the broker
does not start, one of its functions raises, or the changed module is never imported.  Otherwise it has *survived*.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mutants.mutant import CANARY, Mutant

# A test that fails of these has not noticed a behaviour.
_NO_CATCH = frozenset({"ImportError", "SyntaxError", "NameError"})

CAUGHT, SURVIVED, UNFIT = "caught", "survived", "unfit"


@dataclass(frozen=True)
class Verdict:
    """``caught_by`` are node ids; ``reason`` says why a mutant is unfit."""

    mutant: Mutant
    outcome: str
    caught_by: tuple[str, ...] = ()
    reason: str = ""
    seconds: float = 0.0


def judge(mutant: Mutant, report: Mapping[str, Any] | None, seconds: float) -> Verdict:
    """``report`` is what the plugin wrote, ``None`` when it wrote nothing."""

    def unfit(reason: str) -> Verdict:
        return Verdict(mutant, UNFIT, reason=reason, seconds=seconds)

    if report is None:
        return unfit("the run ended before its report")
    outcomes = report["outcomes"]
    if report["never_imported"]:
        return unfit(f"never imported: {', '.join(report['never_imported'])}")
    if CANARY not in outcomes or outcomes[CANARY]["kinds"]:
        return unfit("the canary fails: records cannot be produced and fetched")
    if report["broker_errors"]:
        return unfit(f"the broker failed: {report['broker_errors'][0]}")
    caught_by = tuple(sorted(node for node, outcome in outcomes.items() if _is_catch(outcome)))
    return Verdict(mutant, CAUGHT if caught_by else SURVIVED, caught_by, seconds=seconds)


def _is_catch(outcome: Mapping[str, Any]) -> bool:
    kinds = outcome["kinds"]
    return bool(kinds) and outcome["when"] == "call" and not _NO_CATCH.intersection(kinds)
