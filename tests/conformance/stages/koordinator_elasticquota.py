"""Koordinator's ElasticQuota: admission of quotas and of their pods."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from engine.model import api
from engine.model.elastic_quota import (
    BUILT_IN_QUOTAS,
    NAME_LABEL,
    ElasticQuota,
    namespaces_in,
    quota_of,
)
from engine.model.pod import Pod
from engine.model.resources import amounts
from engine.quota.tree.topology import (
    KnownQuotas,
    QuotaDefaults,
    TopologyRules,
    check_guarantee,
    check_keys,
    check_min_sums,
    check_tree_id,
    quota_defaults,
)
from engine.quota.validation import (
    check_creation,
    check_itself,
    check_update,
    koordinator_deletion_problem,
)
from tests.builders import pod_from
from tests.conformance.outcome import Json, mismatch
from tests.conformance.stages.koordinator_pods import check_pod, evaluate, known_quota_name
from tests.conformance.stages.koordinator_tree import TREE_STAGES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.conformance.outcome import Stage


def _quota(written: Json) -> api.ElasticQuota:
    return msgspec.convert(written, api.ElasticQuota)


def _quotas(case: Json) -> list[ElasticQuota]:
    return [quota_of(_quota(written)) for written in case.get("quotas", ())]


def _pod(written: Json) -> Pod:
    return pod_from(written)


def _old_pod(case: Json) -> Pod | None:
    return _pod(case["old_pod"]) if case["operation"] == "UPDATE" else None


def _gates(case: Json) -> set[str]:
    return {name for name, is_on in (case.get("feature_gates") or {}).items() if is_on}


def _of_reason(case: Json, reason: str) -> str | None:
    """Compare a refusal, and its words where the case has any."""
    got: Json = {"allowed": not reason}
    if "reason" in case["expect"]:
        got["reason"] = reason
    return mismatch({name: case["expect"][name] for name in got}, got)


def _quota_self(case: Json, _: Json) -> str | None:
    return _of_reason(case, check_itself(_quota(case["quota"])))


def _quota_admission(case: Json, _: Json) -> str | None:
    quota, quotas = _quota(case["quota"]), _quotas(case)
    name = quota.metadata.name
    others = [other for other in quotas if other.name != name]
    if case["operation"] == "CREATE":
        return _of_reason(case, _creation(case, quota, quotas))
    if len(others) == len(quotas) and name not in BUILT_IN_QUOTAS:
        # The API server itself knows which quotas exist; upstream has a map of its own.
        unknown = {
            "UPDATE": "UpdateQuota quota not exist in quotaInfoMap:",
            "DELETE": "not found quota:",
        }
        return _of_reason(case, f"{unknown[case['operation']]}{name}")
    if case["operation"] == "UPDATE":
        old, rules = _quota(case["old_quota"]), _topology_rules(case)
        has_pods = any(_is_bound_to(pod, old) for pod in case.get("pods", ()))
        return _of_reason(case, check_update(quota, old, others, has_pods=has_pods, rules=rules))
    pods = [
        pod["metadata"]["name"] for pod in case.get("pods", ()) if _label(pod, NAME_LABEL) == name
    ]
    return _of_reason(case, koordinator_deletion_problem(name, others, pods))


def _creation(case: Json, quota: api.ElasticQuota, quotas: list[ElasticQuota]) -> str:
    """Return why a quota is refused when it is filled in, or checked as it is then."""
    if case.get("mutate", True):
        defaults = quota_defaults(quota, KnownQuotas(quotas))
        if defaults.problem:
            return defaults.problem
        quota = _filled(case["quota"], defaults)
    return check_creation(quota, quotas, _topology_rules(case))


def _filled(written: Json, defaults: QuotaDefaults) -> api.ElasticQuota:
    meta = written["metadata"]
    labels = {**(meta.get("labels") or {}), **defaults.labels}
    annotations = {**(meta.get("annotations") or {}), **defaults.annotations}
    return _quota(written | {"metadata": meta | {"labels": labels, "annotations": annotations}})


def _is_bound_to(pod: Json, quota: api.ElasticQuota) -> bool:
    name, namespace = quota.metadata.name, pod["metadata"].get("namespace")
    return _label(pod, NAME_LABEL) == name or namespace in {name, *namespaces_in(quota.metadata)}


def _topology_rules(case: Json) -> TopologyRules:
    gates = _gates(case)
    return TopologyRules(
        allows_fewer_keys="ElasticQuotaEnableUpdateResourceKey" in gates,
        guarantees_usage="ElasticQuotaGuaranteeUsage" in gates,
    )


def _quota_check(case: Json, _: Json) -> str | None:
    quota = quota_of(_quota(case["quota"]))
    others = KnownQuotas(other for other in _quotas(case) if other.name != quota.name)
    checks = {
        "keys": lambda: check_keys(quota, others, _topology_rules(case)),
        "tree": lambda: check_tree_id(quota, None, others),
        "minsum": lambda: check_min_sums(quota, others),
        "guarantee": lambda: check_guarantee(quota, others),
    }
    return _of_reason(case, checks[case["check"]]())


def _quota_mutate(case: Json, _: Json) -> str | None:
    defaults = quota_defaults(_quota(case["quota"]), KnownQuotas(_quotas(case)))
    meta = msgspec.to_builtins(_filled(case["quota"], defaults).metadata)
    got = {"allowed": not defaults.problem, "labels": meta["labels"]}
    got["annotations"] = meta["annotations"]
    return mismatch(
        {key: case["expect"][key] for key in got if key in case["expect"]},
        {key: got[key] for key in got if key in case["expect"]},
    )


def _label(written: Json, name: str) -> str:
    return str((written["metadata"].get("labels") or {}).get(name, ""))


def _pod_admission(case: Json, _: Json) -> str | None:
    pod, old = _pod(case["pod"]), _old_pod(case)
    return _of_reason(case, check_pod(pod, old, _quotas(case), _gates(case)))


def _pod_quota_name(case: Json, _: Json) -> str | None:
    name = known_quota_name(_pod(case["pod"]), _quotas(case), _gates(case))
    return mismatch(case["expect"]["quota_name"], name)


def _quota_evaluate(case: Json, _: Json) -> str | None:
    if case["operation"] == "DELETE":
        return _of_reason(case, "")  # no webhook is asked
    wires: dict[str, list[api.ElasticQuota]] = {}
    for written in case["quotas"]:
        wires.setdefault(written["metadata"]["name"], []).append(_quota(written))
    answer = evaluate(_pod(case["pod"]), _old_pod(case), _quotas(case), wires, _gates(case))
    expected = case["expect"].get("child_request")
    if expected is None:
        return _of_reason(case, answer.reason)
    child = {name: n for name, n in (answer.child_request or {}).items() if n}
    wrong = mismatch({name: n for name, n in amounts(expected).items() if n}, child)
    return _of_reason(case, answer.reason) or wrong


STAGES: Mapping[str, Stage] = {
    "pod-admission": _pod_admission,
    "pod-quota-name": _pod_quota_name,
    "quota-admission": _quota_admission,
    "quota-check": _quota_check,
    "quota-evaluate": _quota_evaluate,
    "quota-mutate": _quota_mutate,
    "quota-self": _quota_self,
    **TREE_STAGES,
}
