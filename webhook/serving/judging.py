"""Composition of the outcome loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry

from engine.model.time import Micros
from engine.outcome import Judge, WorseRules
from engine.simulation import SchedulerModel
from webhook.binding import BindingRecords
from webhook.cluster import Cluster
from webhook.cluster.client.config_map import ConfigMapStore
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
from webhook.serving.services import Leadership
from webhook.settings import Settings

_SEED = 0


def outcome_controller(  # noqa: PLR0913 - named parts, joined in one place
    leadership: Leadership,
    bindings: Bindings,
    decided: BindingRecords,
    cluster: Cluster,
    *,
    placer: Placer,
    policies: LivePolicies,
    settings: Settings,
    registry: CollectorRegistry,
    now: Callable[[], Micros],
) -> tuple[OutcomeController, AuditedPolicies]:
    """Return the controller, a task of the leader, and what follows it on every replica.

    Args:
        leadership: of the replicas.
        bindings: the pods that are bound.
        decided: what was decided at bindings.
        cluster: the cluster.
        placer: completes requests.
        policies: those in force.
        settings: the settings.
        registry: of metrics.
        now: the time of day.
    """
    elector = leadership.elector
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

    def lease_annotations() -> Mapping[str, str]:
        return elector.observed.annotations

    audited = AuditedPolicies(policies, lease_annotations)
    controller = OutcomeController(
        OutcomeParts(
            connection=leadership.connection,
            identity=elector.identity,
            bindings=bindings,
            judge=judge,
            decided=decided,
            record=OutcomeRecord(
                ConfigMapStore(
                    leadership.connection,
                    namespace=settings.namespace,
                    name=f"{settings.lease}-outcome",
                    may_write=lambda: elector.is_leader,
                )
            ),
            audited=audited,
            annotate=elector.annotate,
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
    elector.add_duty(controller.run)
    return controller, audited
