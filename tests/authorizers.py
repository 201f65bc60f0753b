"""What authorizers of tests have in common."""

from __future__ import annotations

from typing import Any


class AnyOfType:
    """Who may do something with a resource of any name may do it with any resource of the type."""

    keeps_acls = True

    def allows(
        self, ctx: Any, operation: int, resource_type: int, name: str, *, log_if_denied: bool = True
    ) -> bool:  # pragma: no cover
        raise NotImplementedError

    def allows_by_resource_type(self, ctx: Any, operation: int, resource_type: int) -> bool:
        """See ``Authorizer``."""
        return self.allows(ctx, operation, resource_type, "any", log_if_denied=False)
