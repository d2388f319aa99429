"""Evictions of pods: deletions that PodDisruptionBudgets may stand against."""

from __future__ import annotations

from datetime import UTC, datetime

from tests.fake_api_server.resources import Target, resource_named
from tests.fake_api_server.statuses import ApiFault
from tests.fake_api_server.store import Object, Store
from tests.fake_api_server.writes import Writer


def evict(
    store: Store, writer: Writer, target: Target, eviction: object, *, dry_run: bool
) -> Object:
    """Delete a pod as an Eviction asks for it; return what a client is told.

    Raises:
        ApiFault: 404, 409 where a precondition does not hold, 429 where a budget allows no
            disruption, 500 where there are two.
    """
    options = eviction.get("deleteOptions") if isinstance(eviction, dict) else None
    answer = writer.delete(target, options, dry_run=True)
    pod = store.read(target.resource, target.key)
    if pod is None:
        raise target.missing()
    budget = _budget_of(store, target, pod)
    if dry_run:
        return answer
    if budget is not None:
        status = budget["status"]
        left = {**status, "disruptionsAllowed": status["disruptionsAllowed"] - 1}
        resource = resource_named("poddisruptionbudgets", store.resources)
        writer.overwrite(resource, {**budget, "status": left})
    return end_pod(store, writer, target, options)


def end_pod(
    store: Store, writer: Writer, target: Target, options: object, *, dry_run: bool = False
) -> Object:
    """Delete a pod, whatever budgets say; return what a client is told.

    One with a grace period stays, being deleted, until the test deletes it as its kubelet would.

    Raises:
        ApiFault: 404, 409 where a precondition does not hold.
    """
    answer = writer.delete(target, options, dry_run=True)
    pod = store.read(target.resource, target.key)
    if dry_run or pod is None:
        return answer
    if not pod.get("spec", {}).get("terminationGracePeriodSeconds"):
        return writer.delete(target, options)
    moment = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    metadata = {**pod["metadata"], "deletionTimestamp": moment}
    writer.overwrite(target.resource, {**pod, "metadata": metadata})
    return answer


def _budget_of(store: Store, target: Target, pod: Object) -> Object | None:
    """Return the budget that the eviction of a pod counts against, None for none."""
    labels = pod["metadata"].get("labels") or {}
    resource = resource_named("poddisruptionbudgets", store.resources)
    budgets = [
        budget
        for key in store.of(resource).objects
        if key.namespace == target.namespace
        and (budget := store.read(resource, key)) is not None
        and budget["spec"].get("selector", {}).get("matchLabels", {}).items() <= labels.items()
    ]
    if len(budgets) > 1:
        raise ApiFault(
            500,
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does"
            " not support.",
        )
    if budgets and budgets[0].get("status", {}).get("disruptionsAllowed", 0) <= 0:
        name = budgets[0]["metadata"]["name"]
        cause = {
            "reason": "DisruptionBudget",
            "message": f"The disruption budget {name} needs 1 healthy pods and has 1 currently",
        }
        raise ApiFault(
            429,
            "Cannot evict pod as it would violate the pod's disruption budget.",
            details={"causes": [cause]},
        )
    return budgets[0] if budgets else None
