"""Held pods of rollouts that may go above `max` of their quota, each to replace another.

Whether one really may is judged when it is released, exactly, by whichever replica gets that. Here
is only found whom it is worth to try.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from engine.model.deployment_pod import DeploymentPod, deployment_pod_of
from engine.model.pod import Pod
from engine.quota import decode_reservations, quotas_of
from engine.view import ClusterState, ClusterView
from webhook.placement.held_pods import HeldPod


class SurgingPods:
    """Finds the held pods that may surge: one of each Deployment.

    Args:
        state: the cluster.
        replaced_by: the pods of a namespace that one of a Deployment may replace, by name.
    """

    def __init__(
        self, state: ClusterState, replaced_by: Callable[[str, DeploymentPod], Iterable[str]]
    ) -> None:
        self._state = state
        self._replaced_by = replaced_by

    def among(
        self, waiting: Iterable[HeldPod], under_way: Iterable[HeldPod], view: ClusterView
    ) -> Iterator[HeldPod]:
        """Yield the pods that may surge, in their order.

        Args:
            waiting: the pods that wait for quota.
            under_way: those that are being released.
            view: the cluster.
        """
        surging: set[tuple[str, str]] | None = None
        for held in waiting:
            pod = held.pod
            of = _deployment_of(pod) if self._state.allows_surge(pod.namespace) else None
            if of is None:
                continue
            if surging is None:
                surging = {*_deployments(under_way)}
            key = pod.namespace, of.deployment
            if key in surging or self._is_listed(view, *key) or not self._replaces(pod, of):
                continue
            surging.add(key)
            yield held

    def _replaces(self, pod: Pod, of: DeploymentPod) -> bool:
        names = self._replaced_by(pod.namespace, of)
        return any(self._state.requests(f"{pod.namespace}/{name}") for name in names)

    def _is_listed(self, view: ClusterView, namespace: str, deployment: str) -> bool:
        """Return whether a pod of a Deployment surges, and the one that it replaces still runs."""
        for quota in quotas_of(view, namespace):
            reservations = decode_reservations(quota.reservations, quota.uid)
            for each in () if reservations is None else reservations.by_key.values():
                if each.surge == deployment and self._state.requests(
                    f"{namespace}/{each.replaces}"
                ):
                    return True
        return False


def _deployments(pods: Iterable[HeldPod]) -> Iterator[tuple[str, str]]:
    for held in pods:
        of = _deployment_of(held.pod)
        if of is not None:
            yield held.pod.namespace, of.deployment


def _deployment_of(pod: Pod) -> DeploymentPod | None:
    return deployment_pod_of(pod.generate_name, pod.labels, pod.owner_kinds)
