"""Koordinator's ElasticQuota where no tree is involved: quotas by themselves, and their pods."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from engine.model import api
from engine.model.elastic_quota import ElasticQuota, quota_of
from engine.model.koordinator_quota import (
    IS_PARENT_LABEL,
    NAME_LABEL,
    PARENT_LABEL,
    ROOT_QUOTA,
    TREE_ID_LABEL,
)
from engine.model.pod import Pod, pod_of
from engine.model.resources import amounts
from engine.quota.koordinator_quotas import (
    check_creation,
    check_deletion,
    check_itself,
    check_update,
)
from tests.conformance.outcome import Json, UnsupportedError, mismatch, unsupported
from tests.conformance.stages.koordinator_pods import check_pod, evaluate, known_quota_name
from tests.conformance.stages.koordinator_tree import TREE_STAGES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.conformance.outcome import Stage

_TREE = "quotas of a tree are checked with the tree"


def _quota(written: Json) -> api.ElasticQuota:
    return msgspec.convert(written, api.ElasticQuota)


def _quotas(case: Json) -> list[ElasticQuota]:
    return [quota_of(_quota(written)) for written in case.get("quotas", ())]


def _pod(written: Json) -> Pod:
    return pod_of(msgspec.convert(written, api.Pod))


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
    written = [*case.get("quotas", ()), case["quota"], *filter(None, [case.get("old_quota")])]
    if any(map(_is_in_a_tree, written)):
        raise UnsupportedError(_TREE)
    quota, quotas = _quota(case["quota"]), _quotas(case)
    name = quota.metadata.name
    others = [other for other in quotas if other.name != name]
    if case["operation"] == "CREATE":
        return _of_reason(case, check_creation(quota, quotas))
    if case["operation"] == "UPDATE":
        return _of_reason(case, check_update(quota, _quota(case["old_quota"]), others))
    if any(_label(pod, NAME_LABEL) == name for pod in case.get("pods", ())):
        raise UnsupportedError("pods are not found by the quota that a label names")
    refused = check_deletion(name)
    if not refused and len(others) == len(quotas):
        raise UnsupportedError("the API server itself knows which quotas exist")
    return _of_reason(case, refused)


def _is_in_a_tree(written: Json) -> bool:
    """Whether a quota has a parent of its own, may have children, or names its tree."""
    return (
        _label(written, PARENT_LABEL) not in {"", ROOT_QUOTA}
        or _label(written, IS_PARENT_LABEL) == "true"
        or _label(written, TREE_ID_LABEL) != ""
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
    "quota-check": unsupported(_TREE),
    "quota-evaluate": _quota_evaluate,
    "quota-mutate": unsupported("quotas are validated, never filled in"),
    "quota-self": _quota_self,
    **TREE_STAGES,
}
