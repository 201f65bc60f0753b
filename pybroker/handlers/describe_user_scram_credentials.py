"""DescribeUserScramCredentials (key 50), version 0 (KIP-554).

Behaviour: mechanisms and iterations of the users that are named, or of all; never a salt or a key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pybroker.cluster.image.cluster_image import ClusterImage
from pybroker.handlers.context import RequestContext, Steps
from pybroker.security.acl_bindings import CLUSTER_NAME, AclOperation, Resource
from pybroker.security.scram import BY_TYPE
from pybroker_protocol.errors import ErrorCode, readable
from pybroker_protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


def handle(ctx: RequestContext, request: DescribeUserScramCredentialsRequest) -> Steps:
    """Describe the credentials."""
    if not ctx.authorize(AclOperation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME):
        error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        # As Kafka does: the error stands with a user without a name, too.
        nobody = DescribeUserScramCredentialsResult(user="", error_code=error, error_message=None, credential_infos=[])
        return _response(error, None, [nobody])
    image = ctx.services.metadata.image
    if request.users:
        asked = Counter(user.name for user in request.users)
    else:
        asked = Counter({user: 1 for _, user in image.scram_credentials})
    results = []
    for user, times in asked.items():
        results.append(_twice(user) if times > 1 else _described(image, user))
        yield
    return _response(ErrorCode.NONE, "", results)


def _described(image: ClusterImage, user: str) -> DescribeUserScramCredentialsResult:
    infos = list(_infos(image, user))
    if not infos:
        message = f"Attempt to describe a user credential that does not exist: {readable(user)}"
        return DescribeUserScramCredentialsResult(
            user=user, error_code=ErrorCode.RESOURCE_NOT_FOUND, error_message=message, credential_infos=[]
        )
    return DescribeUserScramCredentialsResult(user=user, error_code=0, error_message="", credential_infos=infos)


def _infos(image: ClusterImage, user: str) -> Iterator[CredentialInfo]:
    for mechanism in BY_TYPE:
        credential = image.scram_credentials.get((mechanism, user))
        if credential is not None:
            yield CredentialInfo(mechanism=mechanism, iterations=credential.iterations)


def _twice(user: str) -> DescribeUserScramCredentialsResult:
    message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {readable(user)}"
    return DescribeUserScramCredentialsResult(
        user=user, error_code=ErrorCode.DUPLICATE_RESOURCE, error_message=message, credential_infos=[]
    )


def _response(
    error: ErrorCode, message: str | None, results: list[DescribeUserScramCredentialsResult]
) -> DescribeUserScramCredentialsResponse:
    return DescribeUserScramCredentialsResponse(
        throttle_time_ms=0, error_code=error, error_message=message, results=results
    )
