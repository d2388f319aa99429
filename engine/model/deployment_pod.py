"""Whether a pod is of a Deployment, and of which revision of its template.

Read off what the Deployment controller writes: a ReplicaSet is named after its Deployment and the
hash of the template, and its pods after the ReplicaSet. Whoever may write pods may write the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

HASH_LABEL: Final = "pod-template-hash"
"""The label of pods of a Deployment, and of its ReplicaSets: the revision of the template."""

_REPLICA_SET: Final = "ReplicaSet"


class DeploymentPod(NamedTuple):
    """A pod of a Deployment.

    Attributes:
        deployment: its name.
        revision: the hash of the template that the pod was made from.
    """

    deployment: str
    revision: str


def deployment_pod_of(
    generate_name: str, labels: Mapping[str, str], owner_kinds: Collection[str]
) -> DeploymentPod | None:
    """Return of which Deployment a pod is, None if it is of none.

    Args:
        generate_name: the prefix of its name.
        labels: of the pod.
        owner_kinds: the kinds of its owners.
    """
    revision = labels.get(HASH_LABEL)
    ending = f"-{revision}-"
    if not revision or _REPLICA_SET not in owner_kinds or not generate_name.endswith(ending):
        return None
    deployment = generate_name.removesuffix(ending)
    return DeploymentPod(deployment, revision) if deployment else None
