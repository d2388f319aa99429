"""Which pods of a Deployment are of which revision, where its quota lets it surge."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from msgspec import Raw

from engine.model.deployment_pod import DeploymentPod, deployment_pod_of
from engine.model.pod import Pod


class DeploymentPods:
    """An observer of the pods that a pod of a newer revision may replace.

    Only namespaces are kept whose quota allows surges. What was there before it did is listed once.

    Attributes:
        is_tracked: whether a quota of a namespace allows surges; called for each event.
    """

    def __init__(self) -> None:
        self.is_tracked: Callable[[str], bool] = lambda _: False
        self._pods: dict[str, dict[str, DeploymentPod]] = {}  # by namespace and name
        self._listed: set[str] = set()

    def pod_changed(self, pod: Pod, version: int, raw: bytes | Raw) -> None:  # noqa: ARG002 - of the protocol
        """Keep a pod that may be replaced; forget it once it ends."""
        namespace = pod.namespace
        if not self.is_tracked(namespace):
            self._pods.pop(namespace, None)
            self._listed.discard(namespace)
            return
        of = replaceable(pod)
        if of is not None:
            self._pods.setdefault(namespace, {})[pod.name] = of
        elif namespace in self._pods:
            self._pods[namespace].pop(pod.name, None)

    def pod_deleted(self, namespace: str, name: str) -> None:
        """Forget a pod."""
        if namespace in self._pods:
            self._pods[namespace].pop(name, None)

    def is_listed(self, namespace: str) -> bool:
        """Return whether all pods of a namespace are known that may be replaced."""
        return namespace in self._listed or not self.is_tracked(namespace)

    def add_listed(self, namespace: str, pods: Iterable[Pod]) -> None:
        """Add the pods of a namespace that were there before it was kept.

        What has been observed meanwhile is as new, and stays.
        """
        known = self._pods.setdefault(namespace, {})
        for pod in pods:
            of = replaceable(pod)
            if of is not None:
                known.setdefault(pod.name, of)
        self._listed.add(namespace)

    def replaced_by(self, namespace: str, new: DeploymentPod) -> Iterator[str]:
        """Yield the names of the pods of other revisions that a pod may replace."""
        for name, known in self._pods.get(namespace, {}).items():
            if known.deployment == new.deployment and known.revision != new.revision:
                yield name


def replaceable(pod: Pod) -> DeploymentPod | None:
    """Return of which Deployment a pod is that holds quota and is not about to end."""
    if pod.deleting or pod.is_terminal or pod.is_queued:
        return None
    return deployment_pod_of(pod.generate_name, pod.labels, pod.owner_kinds)
