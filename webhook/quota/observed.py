"""The cluster as one replica observes it: its view, and the pods that its watch has delivered."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from msgspec import Raw

from engine.model.pod import Pod
from engine.model.quantity import INT64_MAX
from engine.model.resources import Amounts
from engine.view import ClusterState, ClusterView
from webhook.cluster.watch.source_status import SourceStatus
from webhook.quota.deployment_pods import DeploymentPods

_MOST_PODS = 32_768  # some 8 MiB; one that is evicted counts twice until the API server is asked


class ObservedPods:
    """Versions of the pods observed last where they may have reservations, deleted ones included.

    Args:
        most: pods remembered.

    Attributes:
        is_tracked: whether pods of a namespace may have reservations; called for each event.
    """

    def __init__(self, *, most: int = _MOST_PODS) -> None:
        self.is_tracked: Callable[[str], bool] = lambda _: True
        self._most = most
        self._versions: OrderedDict[str, int] = OrderedDict()  # by uid, oldest first

    def pod_changed(self, pod: Pod, version: int, raw: bytes | Raw) -> None:  # noqa: ARG002 - of the protocol
        """Record a pod of a watch event."""
        self.observe(pod.namespace, pod.uid, version)

    def pod_deleted(self, namespace: str, name: str) -> None:
        """Keep the version of a deleted pod: its reservation may outlive it."""

    def observe(self, namespace: str, uid: str, version: int) -> None:
        """Record a pod at a resourceVersion."""
        if not self.is_tracked(namespace):
            return
        self._versions[uid] = max(version, self._versions.get(uid, 0))
        self._versions.move_to_end(uid)
        if len(self._versions) > self._most:
            self._versions.popitem(last=False)

    def version(self, uid: str) -> int:
        """Return the newest version at which a pod was observed, 0 if it was not."""
        return self._versions.get(uid, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedCluster:
    """The cluster as a replica observes it; no part of it may lag behind `observed_version`.

    Attributes:
        view: pods and quotas.
        pods: versions of the pods delivered by watch.
        observed_version: the resourceVersion up to which all pods have been observed, 0 before the
            first list.
        requests: what a pod, by `namespace/name`, adds to the view's requests of its namespace, or
            to those of scheduled pods alone; nothing if it is unknown.
        deployments: the pods that others may replace.
        quotas_synced: whether a namespace without a quota in the view has none.
    """

    view: Callable[[], ClusterView]
    pods: ObservedPods = field(default_factory=ObservedPods)
    deployments: DeploymentPods = field(default_factory=DeploymentPods)
    observed_version: Callable[[], int] = lambda: INT64_MAX
    quotas_synced: Callable[[], bool] = lambda: True
    requests: Callable[[str, bool], Amounts] = lambda _key, _scheduled: {}


def observe_cluster(
    state: ClusterState,
    sources: Mapping[str, SourceStatus],
    pods: ObservedPods,
    deployments: DeploymentPods,
) -> ObservedCluster:
    """Return a live cluster.

    Args:
        state: kept by the sources.
        sources: of pods and of ElasticQuotas among others, by name.
        pods: an observer of the pods of the same cluster.
        deployments: another one.
    """
    pod_source = sources["pods"]
    quota_sources = [
        source for name, source in sources.items() if name.startswith("elasticquotas.")
    ]

    def quotas_synced() -> bool:
        return all_synced(quota_sources)

    # Until the quotas are synced, any pod may have a reservation; a label may name any quota.
    pods.is_tracked = lambda namespace: (
        state.has_quota(namespace) or state.has_quota_tree or not quotas_synced()
    )
    deployments.is_tracked = state.allows_surge
    return ObservedCluster(
        view=state.view,
        pods=pods,
        deployments=deployments,
        observed_version=lambda: pod_source.version,
        quotas_synced=quotas_synced,
        requests=lambda key, scheduled: state.requests(key, scheduled=scheduled),
    )


def all_synced(sources: Iterable[SourceStatus]) -> bool:
    """Whether each source was listed in full, or is known not to exist."""
    return all(
        source.synced or (source.last_contact is not None and not source.present)
        for source in sources
    )
