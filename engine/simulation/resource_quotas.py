"""ResourceQuotas and the pods that count in them, as pods come and go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from engine.model.pod import Pod
from engine.model.quantity import amount_text
from engine.model.request import PlacementRequest
from engine.model.resource_quota import ResourceQuota, resource_of


class ResourceQuotas:
    """The ResourceQuotas of a cluster, with what is used of each.

    Those with scopes that cannot be told from what is recorded of pods bound nothing.

    Source: Kubernetes, plugin/pkg/admission/resourcequota/controller.go, CheckRequest. The amounts
    in use are those of all pods that exist, also of those that wait for a node.

    Args:
        quotas: in any order.
        pods: those that exist.
    """

    def __init__(self, quotas: Iterable[ResourceQuota], pods: Iterable[Pod]) -> None:
        self._quotas: dict[str, list[ResourceQuota]] = {}
        self._used: dict[str, Counter[str]] = {}
        for quota in sorted(quotas, key=lambda each: each.key):
            if quota.is_known and quota.hard:
                self._quotas.setdefault(quota.namespace, []).append(quota)
                self._used[quota.key] = Counter()
        for pod in pods:
            self.add(pod)

    def add(self, pod: Pod) -> None:
        """Count a pod that was created."""
        for quota in self._counting(pod):
            self._used[quota.key].update(quota.charged(pod.shape))

    def remove(self, pod: Pod) -> None:
        """Count a pod no longer that is gone."""
        for quota in self._counting(pod):
            self._used[quota.key].subtract(quota.charged(pod.shape))

    def refusal(self, request: PlacementRequest) -> str:
        """Return why a new pod is refused, in the API server's words; "" where it is not."""
        pod = request.pod
        for quota in self._counting(pod):
            missing = {} if request.object["spec"].get("resources") else quota.missing(pod)
            if missing:
                each = (f"{name} for: {','.join(sorted(of))}" for name, of in missing.items())
                return f"failed quota: {quota.name}: must specify {'; '.join(each)}"
            clause = self._exceeded(quota, pod)
            if clause:
                return clause
        return ""

    def _counting(self, pod: Pod) -> list[ResourceQuota]:
        return [each for each in self._quotas.get(pod.namespace, ()) if each.counts(pod)]

    def _exceeded(self, quota: ResourceQuota, pod: Pod) -> str:
        used, more = self._used[quota.key], quota.charged(pod.shape)
        over = [
            name
            for name, amount in sorted(more.items())
            if amount and used[name] + amount > quota.hard[name]
        ]
        if not over:
            return ""
        requested, in_use, limited = (
            ",".join(f"{name}={amount_text(resource_of(name), of.get(name, 0))}" for name in over)
            for of in (more, used, quota.hard)
        )
        return (
            f"exceeded quota: {quota.name}, requested: {requested}, used: {in_use},"
            f" limited: {limited}"
        )
