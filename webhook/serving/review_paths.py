"""The paths of reviews: what is reviewed on each, within which bounds, and what a failure means."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final

from engine.model.kinds import WATCHED
from engine.model.pod_group import pod_group_of
from engine.quota import mode_of, queues_pods
from engine.quota.tree import QuotaPaths
from engine.view import ClusterView
from webhook.admission.concurrency_limiter import ConcurrencyLimiter
from webhook.admission.gang_hold import GangHolds
from webhook.admission.handler import Decide, ReviewHandler, ReviewLimits
from webhook.admission.hold import PodHolder
from webhook.admission.placement import PlacementReviews
from webhook.admission.policies import PolicyReviews
from webhook.admission.quota import QuotaReviews
from webhook.admission.quota_objects import QuotaObjectReviews, by_resource
from webhook.admission.quota_rollout import QuotaRolloutReviews
from webhook.admission.review_result import ignored
from webhook.binding import BindingDecider, BindingReviews
from webhook.cluster import Cluster
from webhook.metrics import Metrics
from webhook.placement.live_policies import LivePolicies
from webhook.placement.placer import Placer
from webhook.placement.policy_counts import PolicyCounts
from webhook.serving.services import Services
from webhook.settings import Settings

_MOST_POLICIES_IN_FLIGHT: Final = 8


def review_paths(
    settings: Settings,
    services: Services,
    placer: Placer,
    policies: LivePolicies,
    counts: PolicyCounts,
    metrics: Metrics,
) -> tuple[ReviewHandler, ...]:
    """Handlers of all paths: advice fails open, the others by the API server's failure policy."""
    handler = partial(
        ReviewHandler, limits=_limits(settings), metrics=metrics, clock=time.monotonic
    )
    most = settings.max_in_flight
    quota_objects = QuotaObjectReviews(
        view=services.cluster.state.view, rules=settings.quota_rules()
    )
    # 1. Placement: no advice is better than late advice.
    limiter = ConcurrencyLimiter(most, time.monotonic)
    pods = _placement(settings, services, placer, policies, counts, metrics, limiter)
    advise = ignored if pods is None else pods.review
    mutate = by_resource(pods=advise, quotas=quota_objects.fill)
    handle = partial(handler, "mutate", mutate, fails_open=True, limiter=limiter)
    if pods is not None:
        handle = partial(handle, shortcut=pods.without_waiting, undecided=pods.undecided)
    handlers = [handle()]
    # 2. Quota.
    validate = by_resource(pods=_judge_quota(settings, services), quotas=quota_objects.review)
    limiter = ConcurrencyLimiter(most, time.monotonic)
    handlers.append(handler("validate", validate, fails_open=False, limiter=limiter))
    # 3. Policies that are resources: few at a time, which wait for each other.
    policy = PolicyReviews(
        file_names=lambda: policies.file_names,
        cost_of_others=policies.cost_of_others,
        excluded_namespaces=settings.excluded_namespaces,
        clock=time.monotonic,
    )
    few = _MOST_POLICIES_IN_FLIGHT
    limiter = ConcurrencyLimiter(few, time.monotonic)
    handlers.append(handler("policies", policy.review, fails_open=False, limiter=limiter))
    # 4. New quotas, which wait for API servers: on a path of their own they keep no pod waiting.
    if services.quota_coverage is not None:
        limiter = ConcurrencyLimiter(most, time.monotonic)
        rollout = QuotaRolloutReviews(services.quota_coverage)
        handlers.append(handler("rollout", rollout.review, fails_open=False, limiter=limiter))
    return tuple(handlers)


def binding_path(settings: Settings, decider: BindingDecider, metrics: Metrics) -> ReviewHandler:
    """Handler of bindings; the time for one is short, and it waits for no other reviews."""
    reviews = BindingReviews(decider)
    return ReviewHandler(
        "bind",
        reviews.review,
        fails_open=True,
        limits=_limits(settings),
        limiter=ConcurrencyLimiter(settings.max_in_flight, time.monotonic),
        metrics=metrics,
        clock=time.monotonic,
        shortcut=reviews.arrived,
        undecided=reviews.undecided,
        answered=reviews.answered,
    )


def _limits(settings: Settings) -> ReviewLimits:
    return ReviewLimits(
        default_timeout_seconds=settings.default_timeout_seconds,
        deadline_fraction=settings.deadline_fraction,
    )


def _placement(
    settings: Settings,
    services: Services,
    placer: Placer,
    policies: LivePolicies,
    counts: PolicyCounts,
    metrics: Metrics,
    limiter: ConcurrencyLimiter,
) -> PlacementReviews | None:
    """Return what holds or advises new pods, None where they are left alone."""
    holder = None
    if services.hold_guard is not None:
        view = services.cluster.state.view
        holder = PodHolder(
            placer,
            services.hold_guard,
            queues=_queues(settings, view),
            gangs=GangHolds(view, _has_pod_groups(services.cluster)),
            now=services.cluster.now,
            seconds=settings.hold_seconds,
            counts=counts,
            count_refusal=metrics.hold_refused,
        )
    if settings.placement_mode == "Off" and holder is None:  # pods may be held for quota as well
        return None
    return PlacementReviews(
        placer,
        lambda: policies.current,
        time.monotonic,
        counts,
        holder,
        queue=limiter,
    )


def _judge_quota(settings: Settings, services: Services) -> Decide:
    """Return what is done with a pod that may exceed a quota."""
    return QuotaReviews(
        ledger=services.ledger,
        view=services.cluster.state.view,
        mode=settings.quota_mode,
        excluded_namespaces=settings.excluded_namespaces,
        rules=settings.quota_rules(),
        queues=settings.hold,
        record_denial=services.record_denial,
        withdraw=services.cluster.withdraw,
        version_of=services.pod_version,
        unseen_seconds=settings.quota_reservation_seconds,
    ).review


def _queues(
    settings: Settings, view: Callable[[], ClusterView]
) -> Callable[[str, str | None], bool]:
    """Return whether pods of a namespace and of a label wait for quota."""
    paths, mode = QuotaPaths(settings.quota_rules()), settings.quota_mode

    def queues(namespace: str, label: str | None) -> bool:
        now = view()
        if queues_pods(now, namespace, mode):
            return True
        if not paths.may_have(now) or mode_of(now, namespace, mode) != "Queue":
            return False
        return label is None or bool(paths.quotas_of(now, namespace, label))

    return queues


def _has_pod_groups(cluster: Cluster) -> Callable[[], bool]:
    """Return what tells whether the API server has PodGroups."""
    sources = [
        cluster.sources[kind.name]
        for kind in WATCHED
        if kind.decode is pod_group_of and kind.name in cluster.sources
    ]
    return lambda: any(source.present for source in sources)
