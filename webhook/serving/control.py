"""Composition of control: what the leader does once for all processes, feature by feature."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Final, NamedTuple

from engine.eviction import NodeFit
from engine.model.elastic_quota import ElasticQuota, EvictionMode, QuotaKey
from engine.model.kinds import DISRUPTION_BUDGETS, WATCHED_FOR_EVICTION
from engine.model.time import SECOND, Micros, date
from engine.outcome import WorseRules
from engine.pipeline import policies_for
from engine.quota import mode_of, quota_figures, quota_usages, reach_of
from engine.quota.queueing import QueueRules
from engine.quota.tree import QuotaPaths
from engine.release import HeldPod
from engine.view import ClusterView
from webhook.admission.handler import ReviewHandler
from webhook.background import in_background
from webhook.binding import BindingCollector, BindingDecider, DeciderParts, nothing_reserved
from webhook.cluster.client.connection import connected
from webhook.cluster.client.watched_objects import ConfigMapStore
from webhook.controllers.certificate_rotation import Rotation
from webhook.controllers.creation_reviews import CreationReviewController
from webhook.controllers.eviction import (
    EvictionContext,
    EvictionController,
    EvictionMetrics,
    EvictionWriter,
    Guards,
    PlanInputs,
    RunningPods,
    build,
    quotas_without,
)
from webhook.controllers.gang import GangCollector, GangContext, GangController, GangMetrics
from webhook.controllers.leader_election import Duty
from webhook.controllers.leader_endpoint import LeaderEndpoint
from webhook.controllers.pod_group_status import PodGroupStatuses
from webhook.controllers.policy_outcome import (
    OutcomeCollector,
    OutcomeController,
)
from webhook.controllers.policy_status import PolicyObservations, PolicyStatuses
from webhook.controllers.quota_rollout import (
    QuotaRolloutController,
    RolloutConfiguration,
    stored_reach,
)
from webhook.controllers.quota_status import (
    QuotaAudit,
    QuotaFigures,
    QuotaStatuses,
    ReservationPruner,
)
from webhook.controllers.reconciler import Reconciler
from webhook.controllers.release import (
    GangDecider,
    QuotaPace,
    ReleaseCollector,
    ReleaseContext,
    ReleaseController,
    ReleaseMetrics,
    ReleaseRules,
    Releases,
    SurgingPods,
)
from webhook.serving.app import binding_path
from webhook.serving.services import Context, quota_config

_SETTLED: Final = "stowplan.dev/bindings-settled"
"""On the Lease: the last leader ended with no binding on its way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """What a process does that may lead; nothing in one that never does."""

    duties: Sequence[Duty] = ()  # of the leader, in the order in which they are started
    handlers: Sequence[ReviewHandler] = ()  # of reviews that the leader alone decides
    bindings: BindingDecider | None = None  # decides them; None where nobody does
    # the duty that counts where pods are bound; None where nobody does
    outcome: OutcomeController | None = None


class _Held(NamedTuple):
    """What releases held pods."""

    release: ReleaseContext
    releases: Releases
    gangs: GangController


async def build_control(context: Context) -> Control:
    """Build what the leader does; nothing of it runs before the election."""
    held = await _held(context) if context.settings.hold else None
    outcome, bindings = _outcome(context), _bindings(context, held)
    return Control(
        duties=(
            *([] if bindings is None else [bindings.lead]),
            *_leader_endpoint(context),
            *_certificates(context),
            *_creation_reviews(context),
            *_pod_groups(context),
            *_quotas(context, None if held is None else held.release),
            *([] if outcome is None else [outcome.run]),
            *_policy_status(context, outcome),
            *([] if held is None else _evictions_and_releases(context, held)),
        ),
        handlers=()
        if bindings is None
        else (binding_path(context.settings, bindings, context.metrics),),
        bindings=bindings,
        outcome=outcome,
    )


def _bindings(context: Context, held: _Held | None) -> BindingDecider | None:
    """Decide pods that are about to be bound; bindings are followed while others lead, too."""
    binding, settings = context.controlled.binding, context.settings
    if binding is None:
        return None
    cluster, policies, elector = context.cluster, context.policies, context.live.elector
    pods = cluster.sources["pods"]
    decider = BindingDecider(
        DeciderParts(
            placer=context.placer,
            ledger=binding.ledger,
            seen=binding.seen,
            policies=lambda: policies.current,
            counts=context.counts,
            reserved_room=nothing_reserved if held is None else held.gangs.reserved_room,
            records=binding.records if settings.outcome else None,
            hot_percent=settings.outcome_hot_percent,
            lead_seconds_left=lambda: elector.seconds_left,
            succeeds=lambda: elector.succeeds and _SETTLED not in elector.inherited,
            hand_over=lambda: elector.leave(_SETTLED, "true"),
            is_ready=context.is_ready,
            seen_until=lambda: binding.seen_until(pods),
            now=binding.now,
        )
    )
    in_background(context.stack, decider.run())
    in_background(context.stack, binding.events.run())
    context.metrics.registry.register(BindingCollector(decider))
    return decider


def _leader_endpoint(context: Context) -> Iterator[Duty]:
    """Say where the leader is: first, as callers wait for it."""
    settings = context.settings
    if settings.leader_service is not None:
        yield LeaderEndpoint(
            context.live.connection,
            namespace=settings.namespace,
            service=settings.leader_service,
            addresses=settings.pod_ips,
            port=settings.port,
            may_write=context.may_write,
        ).run


def _certificates(context: Context) -> Iterator[Duty]:
    """Make the serving certificate, and renew it in time."""
    stored = context.live.certificate
    if stored is not None:
        yield Rotation(
            stored.store,
            stored.bundles,
            names=context.settings.certificate_names,
            is_leader=context.may_write,
            now=lambda: date(context.now()),
        ).run


def _creation_reviews(context: Context) -> Iterator[Duty]:
    """Have new pods reviewed as long as there may be something to say of them."""
    settings, policies = context.settings, context.policies
    if not (settings.reviews_new_pods and settings.webhook_configurations):
        return

    def is_needed() -> bool | None:
        """Return whether pods may be held or advised, or get promises of policies."""
        if settings.hold or not settings.binding:
            return True
        return policies.current.speaks_at_creation if policies.is_loaded else None

    yield CreationReviewController(
        context.live.watched,
        settings.webhook_configurations[0],
        is_needed=is_needed,
        may_write=context.may_write,
        now=time.monotonic,
    ).run


def _pod_groups(context: Context) -> Iterator[Duty]:
    """Write how far the pods of gangs are."""
    if context.settings.hold:
        connection, view = context.live.connection, context.cluster.state.view
        statuses = PodGroupStatuses(connection, view, context.controlled.gang_members.of)
        yield Reconciler(connection, statuses, may_write=context.may_write).run


def _quotas(context: Context, releases: ReleaseContext | None) -> Iterator[Duty]:
    """Write status and figures of quotas, audit them, and narrow where they are asked about."""
    settings, metrics, may_write = context.settings, context.metrics, context.may_write
    connection, view = context.live.connection, context.cluster.state.view
    if settings.quota_mode == "Off":
        return

    def quotas() -> Iterator[ElasticQuota]:
        return chain.from_iterable(view().namespaces.quotas.values())

    # 1. The status, reservations that have ended, and Events over `max`.
    yield Reconciler(
        connection,
        QuotaStatuses(view, settings.quota_status_counts),
        may_write=may_write,
        show_drift=partial(metrics.quotas_drifted, "status"),
    ).run
    yield ReservationPruner(
        view,
        context.services.ledger.prune_reservations,
        quota_config(settings),
        partial(metrics.quotas_drifted, "reservations"),
    ).run
    yield QuotaAudit(
        connection,
        usages=lambda: quota_usages(view(), settings.quota_rules()),
        identity=context.live.elector.identity,
        show=metrics.quotas_over_max,
        may_write=may_write,
    ).run

    # 2. The namespaces that API servers ask about.
    coverage = context.services.quota_coverage
    if coverage is not None:
        yield QuotaRolloutController(
            RolloutConfiguration(context.live.watched, settings.webhook_configurations[0]),
            coverage,
            known=lambda: reach_of(quota.key for quota in quotas()),
            stored=partial(stored_reach, connection),
            settle_seconds=settings.quota_reservation_seconds,
            may_write=may_write,
            show=metrics.quota_namespaces,
        ).run

    # 3. Figures of quotas that pods queue on.
    if releases is not None:
        figures = partial(_figures, settings.queue_rules(), view, releases.pace)
        yield Reconciler(connection, QuotaFigures(quotas, figures), may_write=may_write).run


def _figures(
    rules: QueueRules, view: Callable[[], ClusterView], pace: QuotaPace
) -> dict[QuotaKey, dict[str, str]]:
    seen, firsts = view(), pace.first_waits()
    found = quota_figures(seen, rules.rules, rules.mode, capacity=rules.capacity(seen))
    return {
        key: each.annotations(firsts.get(key), pace.interval(key))
        for each in found
        for key in (each.usage.quota.key,)
    }


def _outcome(context: Context) -> OutcomeController | None:
    """Count where pods are bound."""
    live, policies = context.live, context.policies
    record, bound, settings = live.outcome_record, context.controlled.bound, context.settings
    if record is None or bound is None or context.audited is None:
        return None
    controller = OutcomeController(
        connection=live.connection,
        identity=live.elector.identity,
        bound=bound,
        record=record,
        audited=context.audited,
        annotate=live.elector.annotate,
        policies=lambda: policies.current,
        is_ready=context.is_ready,
        now=context.now,
        worse_rules=WorseRules(
            least_pods=settings.outcome_least_pods, margin=settings.outcome_margin
        ),
        when_worse=settings.outcome_when_worse,
    )
    context.metrics.registry.register(OutcomeCollector(controller))
    return controller


def _policy_status(context: Context, outcome: OutcomeController | None) -> Iterator[Duty]:
    """Write the status of policies of the API."""
    if context.services.policy_resources is None:
        return
    policies = context.policies
    observations = PolicyObservations(
        policies, context.counts, None if outcome is None else outcome.report, time.monotonic
    )
    statuses = PolicyStatuses(
        standings=lambda: policies.standings if policies.is_loaded else (),
        facts=observations.read,
        today=lambda: f"{date(context.now()):%Y-%m-%dT%H:%M:%SZ}",
    )
    yield Reconciler(context.live.connection, statuses, may_write=context.may_write).run


async def _held(context: Context) -> _Held:
    release = await _release_context(context)
    releases = Releases(release)
    return _Held(release, releases, _gangs(context, release, releases))


async def _release_context(context: Context) -> ReleaseContext:
    """What the release works with; its writes have a connection of their own, beside the Lease.

    It is opened before the election, so that it is closed after the duties have ended.
    """
    cluster, settings, live = context.cluster, context.settings, context.live
    connection = await context.stack.enter_async_context(
        connected(settings.kubeconfig, settings.context)
    )

    def fit(held: HeldPod, view: ClusterView) -> NodeFit:
        request, policies = held.placement_request, context.policies.current
        now, freshness = cluster.now(), cluster.freshness()
        return NodeFit(request, policies, view, now, settings.scope(), freshness)

    def preemption_of(held: HeldPod) -> EvictionMode:
        """Return what the policy that decides the placement of a pod says of preemption."""
        request, policies = held.placement_request, context.policies.current
        applied = policies_for(request, policies, cluster.now(), scope=settings.scope())
        return applied[0].placement.preemption if applied else EvictionMode.OFF

    return ReleaseContext(
        connection=connection,
        identity=live.elector.identity,
        may_write=context.may_write,
        annotate=live.elector.annotate,
        state=cluster.state,
        held=live.held,
        unbound=context.controlled.unbound,
        now=context.now,
        rules=ReleaseRules(
            order=settings.queue_order(),
            queue=settings.queue_rules(),
            reclaims=settings.reclaims,
            hard_namespaces=settings.hard_reclaim_namespaces,
            preempts=settings.preempts,
        ),
        metrics=ReleaseMetrics(context.metrics.registry),
        surges=SurgingPods(cluster.state, live.deployments.replaced_by),
        fit=fit,
        preemption_of=preemption_of,
    )


def _gangs(context: Context, release: ReleaseContext, releases: Releases) -> GangController:
    """Release the gangs among held pods."""
    settings, policies = context.settings, context.policies
    registry = context.metrics.registry
    gang_metrics = GangMetrics(registry)
    gangs = GangController(
        GangContext(
            release=release,
            releases=releases,
            decider=GangDecider(
                context.placer, lambda: policies.current, release.nominations, context.counts
            ),
            members=context.controlled.gang_members,
            evictions=EvictionWriter(release.connection, may_write=context.may_write)
            if settings.recreate_gangs
            else None,
            reserve_after_seconds=settings.gang_reserve_after_seconds,
            count=gang_metrics.ended,
        )
    )
    registry.register(GangCollector(lambda: gangs.counts))
    return gangs


def _evictions_and_releases(context: Context, held: _Held) -> Iterator[Duty]:
    """Evict pods for others, and release held pods: whoever is reclaimed for is not released."""
    release, releases, gangs = held
    context.metrics.registry.register(ReleaseCollector(release))
    if context.controlled.running is not None:
        yield _evictions(context, release, context.controlled.running, gangs).run
    yield ReleaseController(release, releases, gangs, is_ready=context.is_ready).run


def _evictions(
    context: Context, release: ReleaseContext, running: RunningPods, gangs: GangController
) -> EvictionController:
    cluster, settings, policies = context.cluster, context.settings, context.policies
    config_map = ConfigMapStore(
        release.connection,
        namespace=settings.namespace,
        name=f"{settings.lease}-reclaim",
        may_write=context.may_write,
    )
    guards = Guards(config_map, context.now)
    inputs = PlanInputs(
        context.is_ready,
        [cluster.sources[kind.name] for kind in (DISRUPTION_BUDGETS, *WATCHED_FOR_EVICTION)],
        context.now,
    )

    def is_limited(view: ClusterView, namespace: str) -> bool:
        return mode_of(view, namespace, settings.quota_mode) == "Queue"

    return build(
        EvictionContext(
            connection=release.connection,
            may_write=context.may_write,
            identity=release.identity,
            metrics=EvictionMetrics(
                context.metrics.registry, lambda: context.may_write() and guards.is_paused
            ),
            state=cluster.state,
            held=release.held,
            running=running,
            pods=release.pods,
            nominations=release.nominations,
            guards=guards,
            standing=partial(quotas_without, release.quota_queue, cluster.state),
            tree=QuotaPaths(settings.quota_rules()).tree,
            is_limited=is_limited,
            policies=lambda: policies.current,
            freshness=cluster.freshness,
            scope=settings.scope(),
            in_flight_percent=settings.evictions_in_flight_percent,
            count_write=release.metrics.written,
            now=context.now,
        ),
        waiting=release.quota_queue,
        gangs=gangs,
        eviction_delay=Micros(settings.reclaim_after_seconds * SECOND),
        is_ready=inputs.are_ready,
    )
