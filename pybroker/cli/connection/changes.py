"""Requests that change a cluster, and what a repeat of one means whose first answer was lost.

Owns: which requests these are, and the error that a repeat is answered with where the first was done.  Sending, and the
memory of what got no answer, is ``AdminClient``'s.

Invariants: a request that is in no table only asks.  The repeat of one without an error in the table does no harm: it
sets what is set already.  CreateDelegationToken would make another token, and is not repeated at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from pybroker.cli.terminal.failure import describe_error_code
from pybroker.cli.terminal.output import remark
from pybroker_protocol.errors import ErrorCode
from pybroker_protocol.schema import Request


class Asking(Protocol):
    """A client that remembers which of its changes got no answer."""

    def got_no_answer(self, request: Request) -> bool:
        """Whether the same change was sent before, and its answer was lost."""


# By the request's name, which tells it without its module.
_REFUSED_WHERE_DONE: Final[Mapping[str, ErrorCode]] = {
    "AlterPartitionReassignments": ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    "AlterUserScramCredentials": ErrorCode.RESOURCE_NOT_FOUND,
    "CreatePartitions": ErrorCode.INVALID_PARTITIONS,
    "CreateTopics": ErrorCode.TOPIC_ALREADY_EXISTS,
    "DeleteGroups": ErrorCode.GROUP_ID_NOT_FOUND,
    "DeleteTopics": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    "ExpireDelegationToken": ErrorCode.DELEGATION_TOKEN_NOT_FOUND,
    "LeaveGroup": ErrorCode.UNKNOWN_MEMBER_ID,
    "UnregisterBroker": ErrorCode.BROKER_ID_NOT_REGISTERED,
}
# InitProducerId fences once more what the user wants fenced.  A marker is written where its transaction is still open.
_HARMLESS: Final = frozenset(
    {
        "AlterClientQuotas",
        "CreateAcls",
        "DeleteAcls",
        "DeleteRecords",
        "ElectLeaders",
        "IncrementalAlterConfigs",
        "InitProducerId",
        "OffsetCommit",
        "OffsetDelete",
        "RenewDelegationToken",
        "UpdateFeatures",
        "WriteTxnMarkers",
    }
)
_NOT_REPEATED: Final = frozenset({"CreateDelegationToken"})
_CHANGES: Final = frozenset(_REFUSED_WHERE_DONE) | _HARMLESS | _NOT_REPEATED


def name_of(request: Request) -> str:
    """As the protocol's guide has it: ``CreateTopics``."""
    return type(request).__name__.removesuffix("Request")


def is_change(request: Request) -> bool:
    """Whether it changes a cluster; what is only to be validated does not."""
    return name_of(request) in _CHANGES and not getattr(request, "validate_only", False)


def may_be_done(client: Asking, request: Request, code: int) -> bool:
    """Whether a part of a change is refused as it is where the same request, whose answer was lost, has done it."""
    return code != 0 and code == _REFUSED_WHERE_DONE.get(name_of(request)) and client.got_no_answer(request)


def settled(client: Asking, request: Request, code: int, what: str) -> int:
    """The error code of a part of a change: 0, with a remark, where it may be done, and all is as it is to be.

    What is to be gone is gone, whatever has removed it.  Of what is to be there the caller looks first how it is.
    """
    if not may_be_done(client, request, code):
        return code
    remark(
        f"{what}: {describe_error_code(code)}, which is as wanted: "
        "an earlier request of this command got no answer, and may have done it"
    )
    return 0


def remark_on_repeat(client: Asking, request: Request, done: str) -> None:
    """Say that an answer may lack what was done by a request whose answer was lost."""
    if client.got_no_answer(request):
        remark(f"more may be {done} than is shown: an earlier request of this command got no answer")
