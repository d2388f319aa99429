"""CapacityScheduling and its controller: what an ElasticQuota allows, and what counts as used."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

import msgspec

from engine.model.elastic_quota import ElasticQuota
from engine.model.pod import Pod
from engine.model.resources import amounts
from engine.quota import CAPACITY_SCHEDULING_RULES, cohort_usage, judge, status_used
from engine.quota.bounds import effective_max, effective_min, over_max, over_min, sum_of
from engine.quota.verdict import judge_borrowing
from engine.view import ClusterState
from tests.builders import pod_from, quota_from
from tests.conformance.cluster import NOW
from tests.conformance.outcome import Json, mismatch, unsupported
from tests.conformance.stages.reclaim import created_in_order, evicted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from engine.model.resources import Amounts
    from tests.conformance.outcome import Stage

_RULES = CAPACITY_SCHEDULING_RULES
_T = TypeVar("_T")
_FREE = "unlimited"
_ELIGIBLE = "the scheduler decides which of the pods that are not held may preempt others"


def _quotas(case: Json) -> dict[str, list[ElasticQuota]]:
    """Return the quotas of a case by namespace."""
    quotas: dict[str, list[ElasticQuota]] = {}
    for written in case["quotas"]:
        quota = quota_from(written)
        quotas.setdefault(quota.namespace, []).append(quota)
    return quotas


def _pod(written: Json) -> Pod:
    return pod_from(written)


def _without_zeros(some: Amounts) -> dict[str, int]:
    return {name: amount for name, amount in some.items() if amount}


def _prefilter(case: Json, _: Json) -> str | None:
    """Compare verdicts; at admission nobody is nominated, so those who are join the request."""
    pod, quotas = _pod(case["pod"]), _quotas(case)
    used = {namespace: some[0].used for namespace, some in quotas.items()}
    own = [pod.shape.peak_requests]
    others = []
    for nominee in map(_pod, case.get("pods", ())):
        if not nominee.nominated_node_name or nominee.uid == pod.uid:
            continue
        if nominee.namespace == pod.namespace:
            if nominee.priority >= pod.priority:
                own.append(nominee.shape.peak_requests)
        elif nominee.namespace in quotas and not over_min(
            used[nominee.namespace], {}, effective_min(quotas[nominee.namespace][0])
        ):
            others.append(nominee.shape.peak_requests)
    got: Json = {"code": "Success"}
    if pod.namespace in quotas:
        held = used[pod.namespace]
        if not judge(sum_of(own), held, quotas[pod.namespace], _RULES).allowed:
            got = {"code": "Unschedulable", "reason": "max"}
        elif not judge_borrowing(sum_of([*own, *others]), cohort_usage(quotas, used)).allowed:
            got = {"code": "Unschedulable", "reason": "aggregate-min"}
    return mismatch(case["expect"], got)


def _quota_math(case: Json, _: Json) -> str | None:
    (quota,) = chain.from_iterable(_quotas(case).values())
    request, used, least = amounts(case.get("request")), quota.used, effective_min(quota)
    pods = sum_of(_pod(written).shape.requests for written in case.get("pods", ()))
    got = {
        "overMaxWith": bool(over_max(request, used, quota, _RULES)),
        "overMin": bool(over_min(used, {}, least)),
        "overMinWith": bool(over_min(request, used, least)),
        "usedAfterAdd": dict(Counter(used) + Counter(pods)),
        "usedAfterSubtract": dict(Counter(used) - Counter(pods)),
    }
    expected = {
        name: _without_zeros(amounts(value)) if isinstance(value, dict) else value
        for name, value in case["expect"].items()
    }
    return mismatch(expected, {name: got[name] for name in expected})


def _normalise(case: Json, _: Json) -> str | None:
    (quota,) = chain.from_iterable(_quotas(case).values())
    greatest, least = effective_max(quota, _RULES), effective_min(quota)
    expect = case["expect"]
    expected = {
        side: {
            name: text if text == _FREE else amounts({name: text})[name]
            for name, text in listed.items()
        }
        for side, listed in expect.items()
    }
    got = {
        "max": {name: greatest.get(name, _FREE) for name in expect.get("max", ())},
        "min": {name: least.get(name, 0) for name in expect.get("min", ())},
    }
    return mismatch(expected, {side: got[side] for side in expected})


def _pod_request(case: Json, _: Json) -> str | None:
    shape = _pod(case["pod"]).shape
    got = {"accounting": shape.peak_requests, "status": shape.bare_requests}
    expected = {side: _without_zeros(amounts(some)) for side, some in case["expect"].items()}
    return mismatch(expected, {side: _without_zeros(got[side]) for side in expected})


def _account(case: Json, _: Json) -> str | None:
    """Compare what is used after events.

    Whoever is reserved counts as one who is bound: on our side it is the reservation that counts
    until the pod is seen. Pods counted before the first event are told of by a later one.
    """
    quotas, state = _quotas(case), ClusterState()
    known = {pod.uid: pod for pod in map(_pod, _told_of(case))}
    for uid in chain.from_iterable(case.get("trackedPods", {}).values()):
        if uid in known:
            state.set_pod(known[uid], seen_at=NOW)
    start = {
        namespace: Counter(some[0].used) - Counter(_scheduled(state, namespace))
        for namespace, some in quotas.items()
    }
    tracked = {namespace: set(case["trackedPods"].get(namespace, ())) for namespace in quotas}
    moments = []
    for event in case["events"]:
        _apply(event, state, tracked)
        used = {
            namespace: _without_zeros(sum_of((rest, _scheduled(state, namespace))))
            for namespace, rest in start.items()
        }
        moments.append((used, {namespace: sorted(uids) for namespace, uids in tracked.items()}))
    return _first_mismatch(case["expect"], moments)


def _first_mismatch(
    expect: Json, moments: list[tuple[dict[str, dict[str, int]], dict[str, list[str]]]]
) -> str | None:
    """Compare the last moments, as many as the case lists."""
    wrong = []
    for wanted, (used, _) in zip(*_last(expect.get("usedAfter", []), moments), strict=True):
        for namespace, listed in wanted.items():
            wrong.append(mismatch(_without_zeros(amounts(listed)), used.get(namespace, {})))
    for wanted, (_, tracked) in zip(*_last(expect.get("trackedAfter", []), moments), strict=True):
        for namespace, uids in wanted.items():
            wrong.append(mismatch(sorted(uids), tracked.get(namespace, [])))
    return next(filter(None, wrong), None)


def _last(expected: list[Json], moments: list[_T]) -> tuple[list[Json], list[_T]]:
    return expected, moments[len(moments) - len(expected) :]


def _told_of(case: Json) -> Iterator[Json]:
    """Yield the pods of all events, the oldest version of each last."""
    for event in reversed(case["events"]):
        yield event["pod"]
        if "old" in event:
            yield event["old"]


def _scheduled(state: ClusterState, namespace: str) -> dict[str, int]:
    held = dict(state.view().namespaces.scheduled.get(namespace, {}))
    held.pop("pods", None)
    return held


def _apply(event: Json, state: ClusterState, tracked: Mapping[str, set[str]]) -> None:
    pod = _pod(event["pod"])
    if event["op"] in {"delete", "unreserve"}:
        state.delete_pod(pod.key)
    else:
        state.set_pod(pod, seen_at=NOW)
    counts = state.placement(pod.key) is not None and pod.phase in {"", "Pending", "Running"}
    if pod.namespace in tracked:
        (tracked[pod.namespace].add if counts else tracked[pod.namespace].discard)(pod.uid)


def _status(case: Json, _: Json) -> str | None:
    """Compare what the controller writes; here as in a cluster, whoever runs is bound."""
    state = ClusterState()
    for written in case["pods"]:
        pod = _pod(written)
        bound = msgspec.structs.replace(pod, node_name=pod.node_name or "node-a")
        state.set_pod(bound, seen_at=NOW)
    view, quotas = state.view(), _quotas(case)
    got = {
        f"{namespace}/{some[0].name}": _without_zeros(status_used(some[0], view, "Running"))
        for namespace, some in quotas.items()
    }
    expected = {
        name: _without_zeros(amounts(used)) for name, used in case["expect"]["used"].items()
    }
    return mismatch(expected, {name: got.get(name) for name in expected})


STAGES: Mapping[str, Stage] = {
    "account": _account,
    "e2e": created_in_order,
    "pod-request": _pod_request,
    "preempt": evicted,
    "preempt-eligible": unsupported(_ELIGIBLE),
    "prefilter": _prefilter,
    "quota-math": _quota_math,
    "quota-normalise": _normalise,
    "status": _status,
}
