"""What do replicas hear of: nodes, pods, quotas, and who measures the usage of nodes?"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from webhook.doctor.finding import Finding, Level
from webhook.doctor.installation import Installation, states
from webhook.doctor.objects import ReplicaState

_MEASURE = ("nodemetrics.slo.koordinator.sh", "metrics.k8s.io", "prometheus")
_QUOTAS = "elasticquotas."


async def sources(at: Installation) -> AsyncIterator[Finding]:
    """Tell what the first replica that answers knows of each source, and what is stale anywhere."""
    said = states(await at.replicas())
    if not said:
        message = "no replica says what it hears of the cluster"
        yield Finding(Level.WARNING, message, "see the replicas above")
        return
    for finding in _found(said[0][1]):
        yield finding
    for name, state in said:
        for stale in state.view.stale:
            message = f"{name}: {stale}, so rules that read them have no say"
            yield Finding(Level.WARNING, message, "see StowplanViewStale in the runbook")


def _found(state: ReplicaState) -> Iterator[Finding]:
    for source in state.sources:
        if source.present and source.synced:
            yield Finding(Level.OK, f"{source.name}: {source.objects} objects")
        elif source.required:
            message = f"{source.name} cannot be read: {source.last_error or 'not read yet'}"
            yield Finding(Level.PROBLEM, message, "see the rights below, and `rbac.create`")
    present = {source.name for source in state.sources if source.present}
    if present.isdisjoint(_MEASURE):
        yield Finding(
            Level.WARNING,
            "nothing measures the usage of nodes: rules that read it have no say",
            "install metrics-server or Koordinator, or set `settings.prometheusUrl`",
        )
    if not any(name.startswith(_QUOTAS) for name in present):
        yield Finding(
            Level.NOTE,
            "there is no ElasticQuota in this cluster, so no quota is held",
            "`crds.elasticQuota.install: IfAbsent` of the chart brings the definition",
        )
