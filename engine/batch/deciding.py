"""A batch of pods is decided in order, and what their decisions share is computed once."""

from __future__ import annotations

from collections.abc import Sequence

from engine.batch.batch import Batch
from engine.batch.judge import DEFAULT_SCOPE, Judge
from engine.batch.outcome import BatchOutcome
from engine.batch.templates import template_keys
from engine.model.request import PlacementRequest
from engine.model.time import Micros
from engine.pipeline import Scope
from engine.policy import PolicySet
from engine.view import FRESH, ClusterView, Freshness


def decide_batch(
    requests: Sequence[PlacementRequest],
    policies: PolicySet,
    view: ClusterView,
    now: Micros,
    *,
    scope: Scope = DEFAULT_SCOPE,
    freshness: Freshness = FRESH,
) -> list[BatchOutcome]:
    """Decide where pods should go, in order: each sees those before it on their best nodes.

    As if each were decided by `decide` and then counted by `ClusterState.nominate`. What
    policies in Audit mode would decide is known of the first pod of a template.

    Args:
        requests: the pods, none of which counts on a node of the view, and their contexts.
        policies: the loaded policies.
        view: the observed cluster; must keep the sums of `policies.sum_profiles`.
        now: the moment of all decisions.
        scope: the pods to place.
        freshness: the domains of the view that are too old; rules that read one abstain.
    """
    judge = Judge(policies=policies, now=now, scope=scope, freshness=freshness)
    return list(Batch(requests, judge, view, template_keys(requests, policies, view)))
