"""Composition of the outcome loop."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry

from engine.model.time import Micros
from engine.outcome import Judge, WorseRules
from engine.simulation import SchedulerModel
from webhook.binding import BindingRecords
from webhook.cluster import Cluster
from webhook.controllers.outcome import (
    AuditedPolicies,
    Bindings,
    JudgeParts,
    LandingJudge,
    OutcomeCollector,
    OutcomeController,
    OutcomeParts,
    OutcomeRecord,
    OutcomeRules,
)
from webhook.placement.live_policies import LivePolicies
from webhook.placement.placer import Placer
from webhook.serving.services import LiveServices
from webhook.settings import Settings

_SEED = 0


def outcome_controller(  # noqa: PLR0913 - named parts, joined in one place
    live: LiveServices,
    record: OutcomeRecord,
    bindings: Bindings,
    audited: AuditedPolicies,
    decided: BindingRecords,
    cluster: Cluster,
    *,
    placer: Placer,
    policies: LivePolicies,
    settings: Settings,
    registry: CollectorRegistry,
    now: Callable[[], Micros],
) -> OutcomeController:
    """Return the controller, a task of the leader.

    Args:
        live: the connection, and the elector.
        record: of the figures.
        bindings: the pods that are bound.
        audited: keeps policies in Audit mode.
        decided: what was decided at bindings.
        cluster: the cluster.
        placer: completes requests.
        policies: those in force.
        settings: the settings.
        registry: of metrics.
        now: the time of day.
    """
    stock = SchedulerModel(
        _SEED, percentage_of_nodes_to_score=settings.percentage_of_nodes_to_score
    )
    judge = LandingJudge(
        JudgeParts(
            cluster=cluster,
            placer=placer,
            judge=Judge(settings.scope(), stock.place, hot_percent=settings.outcome_hot_percent),
            policies=lambda: policies.current,
        )
    )

    controller = OutcomeController(
        OutcomeParts(
            connection=live.connection,
            identity=live.elector.identity,
            bindings=bindings,
            judge=judge,
            decided=decided,
            record=record,
            audited=audited,
            annotate=live.elector.annotate,
            policies=lambda: policies.current,
            is_ready=lambda: cluster.is_synced and policies.is_loaded,
            now=now,
        ),
        OutcomeRules(
            window_seconds=settings.outcome_window_seconds,
            worse=WorseRules(
                least_pods=settings.outcome_least_pods, margin=settings.outcome_margin
            ),
            when_worse=settings.outcome_when_worse,
        ),
    )
    registry.register(OutcomeCollector(controller, lambda: judge.seconds))
    return controller
