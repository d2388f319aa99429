"""Koordinator's rules for the pods of an ElasticQuota, without its tree of quotas.

A model for the stage next door; the product does not enforce them yet. Messages and names of
feature gates are those of Koordinator's own webhook.

Source: koordinator, pkg/webhook/{elasticquota/pod_check,quotaevaluate/evaluator}.go.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from engine.errors import QuantityError
from engine.model import api
from engine.model.elastic_quota import (
    ADMISSION_ANNOTATION,
    CHILD_REQUEST_ANNOTATION,
    DEFAULT_QUOTA,
    NAME_LABEL,
    PREEMPTIBLE_LABEL,
    ROOT_QUOTA,
    SYSTEM_QUOTA,
    AnnotationError,
    ElasticQuota,
    resource_list_in,
)
from engine.model.pod import Pod
from engine.model.quantity import CPU, EPHEMERAL_STORAGE, MEMORY
from engine.model.resources import Amounts, amounts
from engine.quota.verdict import exceeded_clause

_BUILT_IN = frozenset({"", ROOT_QUOTA, SYSTEM_QUOTA, DEFAULT_QUOTA})
_KOORDINATOR_GPU = "koordinator.sh/gpu"
_POD_RESOURCES = frozenset(
    {
        *(f"{side}{name}" for side in ("", "requests.") for name in (CPU, MEMORY)),
        *(EPHEMERAL_STORAGE, f"requests.{EPHEMERAL_STORAGE}"),
        *(f"kubernetes.io/{tier}-{name}" for tier in ("batch", "mid") for name in (CPU, MEMORY)),
        *("nvidia.com/gpu", _KOORDINATOR_GPU),
        *(f"{_KOORDINATOR_GPU}{part}" for part in (".shared", "-memory-ratio")),
    }
)
"""A quota that names none of them enforces nothing at admission."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The result of comparing a pod with its quota.

    Attributes:
        reason: of the denial, empty if the pod fits.
        child_request: of all pods of the quota afterwards; None where nothing changes.
    """

    reason: str = ""
    child_request: Amounts | None = None


def quota_name(
    pod: Pod, quotas: Iterable[ElasticQuota], gates: Collection[str] = frozenset()
) -> str:
    """Return the name of the quota that the label of a pod names, or its namespace implies."""
    labelled = pod.labels.get(NAME_LABEL, "")
    if labelled or "DisableDefaultQuota" in gates:
        return labelled
    quotas = tuple(quotas)
    if any((quota.name, quota.namespace) == (pod.namespace, pod.namespace) for quota in quotas):
        return pod.namespace
    listing = (quota.name for quota in quotas if pod.namespace in quota.tree.namespaces)
    return next(listing, DEFAULT_QUOTA)


def known_quota_name(
    pod: Pod, quotas: Sequence[ElasticQuota], gates: Collection[str] = frozenset()
) -> str:
    """Return `quota_name`, or the name of the default quota where there is no such quota."""
    name = quota_name(pod, quotas, gates)
    return name if any(quota.name == name for quota in quotas) else DEFAULT_QUOTA


def check_pod(
    pod: Pod,
    old: Pod | None,
    quotas: Sequence[ElasticQuota],
    gates: Collection[str] = frozenset(),
) -> str:
    """Return why a pod may not belong to its quota, "" if it may.

    Args:
        pod: as it will be.
        old: as it is stored, None for a new one.
        quotas: all that exist.
        gates: those that are on.
    """
    if old is not None and pod.labels.get(PREEMPTIBLE_LABEL) != old.labels.get(PREEMPTIBLE_LABEL):
        return "Preemptible label is forbidden modify now."
    name = known_quota_name(pod, quotas, gates)
    is_parent = any(quota.tree.is_parent for quota in quotas if quota.name == name)
    if name == DEFAULT_QUOTA or not is_parent or "SupportParentQuotaSubmitPod" in gates:
        return ""
    return f"pod can not be linked to a parentQuotaGroup,quota:{name}, pod:{pod.name}"


def evaluate(
    pod: Pod,
    old: Pod | None,
    quotas: Sequence[ElasticQuota],
    wires: Mapping[str, Sequence[api.ElasticQuota]],
    gates: Collection[str] = frozenset(),
) -> Evaluation:
    """Compare a pod with the quota it belongs to, by the requests in its annotations.

    Args:
        pod: as it will be.
        old: as it is stored, None for a new one.
        quotas: all that exist.
        wires: the same as they are written, by name.
        gates: those that are on.
    """
    name = quota_name(pod, quotas, gates)
    moved = old is None or (
        "EnableQuotaAdmissionOnUpdate" in gates and quota_name(old, quotas, gates) != name
    )
    if "EnableQuotaAdmission" not in gates or not moved or name in _BUILT_IN:
        return Evaluation()
    found = wires.get(name, ())
    if len(found) != 1:
        problem = "more than one elastic quota {} found" if found else "elastic quota {} not found"
        return Evaluation(problem.format(name))
    try:
        return _evaluated(pod, found[0])
    except (QuantityError, AnnotationError) as error:
        return Evaluation(f"quota {name} cannot be read: {error}")


def _evaluated(pod: Pod, quota: api.ElasticQuota) -> Evaluation:
    greatest = amounts(quota.spec.max)
    used = amounts(resource_list_in(quota.metadata, CHILD_REQUEST_ANNOTATION))
    limits = amounts(resource_list_in(quota.metadata, ADMISSION_ANNOTATION)) or greatest
    requests = {
        key: amount for key, amount in pod.shape.requests.items() if amount and key in greatest
    }
    if pod.is_terminal or not requests or not greatest.keys() & _POD_RESOURCES:
        return Evaluation(child_request=used)
    over = sorted(
        key
        for key, amount in requests.items()
        if key in limits and used.get(key, 0) + amount > limits[key]
    )
    if over:
        name = f"{quota.metadata.namespace}/{quota.metadata.name}"
        return Evaluation(exceeded_clause(name, over, requests, used, limits))
    total = {key: used.get(key, 0) + requests.get(key, 0) for key in used.keys() | requests.keys()}
    return Evaluation(child_request=total)
