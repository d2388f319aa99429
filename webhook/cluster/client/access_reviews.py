"""Reviews by the API server: whose a bearer token is, and what that user may do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from webhook.cluster.client.connection import Connection

_TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105 - a path
_ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class User(msgspec.Struct, frozen=True):
    """An authenticated user, as the API server describes it."""

    username: str = ""
    uid: str = ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}


class PageAccess(msgspec.Struct, frozen=True):
    """The right to read a page: to `get` its path, a `nonResourceURL`."""

    path: str

    def __str__(self) -> str:
        return f"get the nonResourceURL `{self.path}`"

    @property
    def attributes(self) -> Mapping[str, object]:
        """Of the spec of a SubjectAccessReview."""
        return {"nonResourceAttributes": {"path": self.path, "verb": "get"}}


class ListAccess(msgspec.Struct, frozen=True):
    """The right to list objects of a kind, in one namespace or ("") in all of them."""

    group: str
    resource: str
    namespace: str

    def __str__(self) -> str:
        resource = f"{self.resource}.{self.group}" if self.group else self.resource
        where = f"in namespace `{self.namespace}`" if self.namespace else "in all namespaces"
        return f"list {resource} {where}"

    @property
    def attributes(self) -> Mapping[str, object]:
        """Of the spec of a SubjectAccessReview."""
        return {
            "resourceAttributes": {
                "group": self.group,
                "resource": self.resource,
                "namespace": self.namespace,
                "verb": "list",
            }
        }


Access: TypeAlias = PageAccess | ListAccess
"""A right that the API server may review."""


class _TokenStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: User = User()


class _TokenReview(msgspec.Struct, frozen=True):
    status: _TokenStatus = _TokenStatus()


class _AccessStatus(msgspec.Struct, frozen=True):
    allowed: bool = False


class _AccessReview(msgspec.Struct, frozen=True):
    status: _AccessStatus = _AccessStatus()


class AccessReviews:
    """TokenReview and SubjectAccessReview, as kube components use them; nothing is remembered."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def user(self, token: str) -> User | None:
        """Return whose a token is, None if it is not valid."""
        review = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token},
        }
        body = await self._connection.write("POST", _TOKEN_REVIEWS, msgspec.json.encode(review))
        status = msgspec.json.decode(body, type=_TokenReview).status
        return status.user if status.authenticated else None

    async def may(self, user: User, access: Access) -> bool:
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": user.username,
                "uid": user.uid,
                "groups": user.groups,
                "extra": user.extra,
                **access.attributes,
            },
        }
        body = await self._connection.write("POST", _ACCESS_REVIEWS, msgspec.json.encode(review))
        return msgspec.json.decode(body, type=_AccessReview).status.allowed
