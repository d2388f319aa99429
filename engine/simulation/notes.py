"""What a reader of a report must know to trust its figures, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engine.report import ArmPlacement, ArrivalSource
from engine.simulation.arrivals import Arrivals

_ARRIVALS = {
    ArrivalSource.RECORDING: (
        "The recorded pods arrive in order of their creation on nodes that were emptied of them;"
        " pods of DaemonSets and static pods stay. Nobody is evicted, and no quota is judged."
    ),
    ArrivalSource.MANIFESTS: (
        "The pods of the manifests arrive at once, in order, on the cluster as it is."
    ),
    ArrivalSource.GENERATED: (
        "All recorded pods are there at the beginning, and as many like them come over the day, at"
        " a rate that rises to 1.75 times its mean at 14:00 and falls to a quarter of it at 2:00; a"
        " pod lives for a day on average, exponentially distributed. Figures are of the moment when"
        " most pods run."
    ),
    ArrivalSource.CHANGES: (
        "Pods that wait, that have to move and that are new arrive at once, in this order, on the"
        " cluster as it is. Disruption budgets keep no pod on a drained node."
    ),
}

_PLACEMENTS = {
    ArmPlacement.STOCK: (
        "stock: a model of kube-scheduler 1.36 with its default plugins, weights and sampling."
    ),
    ArmPlacement.ADVICE: (
        "advice: policies write preferred and required affinity on a pod, and the model of the"
        " scheduler binds it."
    ),
    ArmPlacement.BINDING: (
        "binding: the model of the scheduler takes a node, and policies keep it, replace it or deny"
        " the binding, on what all pods before left; a denied pod is tried again once nodes are"
        " measured anew. Bindings on their way, and room that is kept for them, are not modelled."
    ),
    ArmPlacement.RECORDED: "recorded: each pod is on the node that it was recorded on.",
}

_LOAD = (
    "The load of a recorded pod is what its node's report measured of it; where nodes alone are"
    " measured, its part of the usage of its node by requests. It is the same on every node and in"
    " every arm. Pods of manifests, and those on nodes without a report, have the estimate of"
    " LoadAware: 85 % of cpu and 70 % of memory that they request or are limited to."
)

_AUTOSCALING = (
    "Nodes go and come once a minute, never more than are recorded: those with the label"
    " `karpenter.sh/nodepool` as Karpenter consolidates, without a replacement, the others as"
    " Cluster Autoscaler scales down by default. A node goes when its pods can all run on others,"
    " one in a minute and ten that are empty; for a pod that waits the smallest node that can take"
    " it comes, at once. Of a node that is gone nothing counts. Budgets allow what they allowed"
    " when they were recorded."
)

_REPORTS = "Policies see the usage of nodes as it was measured at most 60 s before."


def notes_of(
    arrivals: Arrivals, placements: Sequence[ArmPlacement], *, autoscale: bool = False
) -> tuple[str, ...]:
    """Return the notes on a simulation; `autoscale`: whether nodes come and go."""
    autoscaling = (_AUTOSCALING,) if autoscale else ()
    return (*_notes(arrivals, placements), *autoscaling)


def _notes(arrivals: Arrivals, placements: Sequence[ArmPlacement]) -> Iterator[str]:
    yield _ARRIVALS[arrivals.source]
    yield from (_PLACEMENTS[placement] for placement in dict.fromkeys(placements))
    yield _LOAD
    yield _REPORTS
    if arrivals.are_created:
        yield (
            "New pods are made as the API server makes them, by LimitRanges, PriorityClasses and"
            " RuntimeClasses of the recording, and judged by ResourceQuotas and ElasticQuotas;"
            " these in the mode Enforce where a namespace names no other. Pods that wait have been"
            " let in. Not modelled: bounds of LimitRanges, ResourceQuotas with other scopes than"
            " BestEffort, NotBestEffort and PriorityClass, and other webhooks."
        )
        yield (
            "Where no node takes a pod, others are evicted for it by the rules of quotas that"
            " reclaim, else by priority; gangs are placed pod by pod."
        )
    yield "Volumes and devices are not known: a pod that needs them may have fewer nodes."
