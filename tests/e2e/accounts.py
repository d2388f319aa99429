"""Service accounts of people in tests: their tokens, and the roles they have for a while."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from tests.e2e.cluster import Cluster


async def token_of(cluster: Cluster, namespace: str, name: str) -> str:
    """Return a token of a new service account, as `kubectl create token` makes it."""
    account = {"metadata": {"name": name, "namespace": namespace}}
    await cluster.create({"apiVersion": "v1", "kind": "ServiceAccount", **account})
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
    return str((await cluster.call("POST", path, request))["status"]["token"])


async def may(cluster: Cluster, account: str, attributes: Mapping[str, str]) -> bool:
    """Return whether a service account has a right by now.

    Args:
        cluster: as its admin.
        account: the user that it is, `system:serviceaccount:<namespace>:<name>`.
        attributes: those of a SubjectAccessReview: verb, group, resource and so on.
    """
    _, _, namespace, _ = account.split(":")
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": account,
            "groups": [*groups, "system:authenticated"],
            "resourceAttributes": dict(attributes),
        },
    }
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    return bool((await cluster.call("POST", path, review))["status"]["allowed"])


@asynccontextmanager
async def bound(
    cluster: Cluster, role: str, accounts: str, account: str, *, namespace: str = ""
) -> AsyncIterator[None]:
    """Bind a ClusterRole until the block is left.

    Args:
        cluster: as its admin.
        role: the ClusterRole.
        accounts: the namespace of the service account.
        account: its name.
        namespace: where it counts; "" for everywhere.
    """
    kind, resource = "ClusterRoleBinding", "clusterrolebindings"
    metadata = {"name": f"{role}-{account}"}
    if namespace:
        kind, resource = "RoleBinding", "rolebindings"
        metadata["namespace"] = namespace
    group = "rbac.authorization.k8s.io"
    await cluster.create(
        {
            "apiVersion": f"{group}/v1",
            "kind": kind,
            "metadata": metadata,
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": accounts}],
        }
    )
    try:
        yield
    finally:
        await cluster.delete(resource, metadata["name"], namespace or None)
