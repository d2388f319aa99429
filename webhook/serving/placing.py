"""The parts that place pods: the placer, and the policies in force."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from engine.model.time import Micros, date
from engine.placement import encode
from webhook.cluster import Cluster
from webhook.placement.explanations import Explanations
from webhook.placement.live_policies import LivePolicies
from webhook.placement.placer import Placer
from webhook.placement.warm_up import WarmUp
from webhook.serving.services import Services
from webhook.settings import Settings


def placer_of(settings: Settings, cluster: Cluster, explanations: Explanations) -> Placer:
    """Return the placer on a cluster; it counts pods in flight where they will be observed."""
    return Placer(
        view=cluster.view,
        now=cluster.now,
        scope=settings.scope(),
        encode=partial(encode, percentage_of_nodes_to_score=settings.percentage_of_nodes_to_score),
        decides_bindings=settings.binding,
        clock=time.monotonic,
        freshness=cluster.freshness,
        explanations=explanations,
        assumed=cluster if cluster.is_live else None,
    )


def live_policies(
    settings: Settings, services: Services, placer: Placer, now: Callable[[], Micros]
) -> LivePolicies:
    """Return the policies in force, whose columns are filled by trial decisions of the placer."""
    cluster = services.cluster
    return LivePolicies(
        () if settings.placement_mode == "Off" else settings.policies,
        resources=services.policy_resources,
        track=cluster.state.track_sums,
        prepare=cluster.state.prepare_sums,
        warm_up=WarmUp(cluster, placer.decide).steps,
        now=lambda: date(now()),
        only_audit=settings.placement_mode == "Audit",
        # On a cluster somebody may repair the files while it waits; at a terminal they start anew.
        may_start_empty=cluster.is_live and settings.reload_seconds > 0,
    )
