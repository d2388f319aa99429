"""Koordinator's rules for the pods of an ElasticQuota.

What concerns the tree of quotas is not here. Whoever runs Koordinator's own webhook reads the same
sentences from it, so they stand as they are there; its
gates are called by their names.

Source: koordinator, pkg/webhook/{elasticquota/pod_check,quotaevaluate/evaluator}.go.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from engine.errors import QuantityError
from engine.model import api
from engine.model.elastic_quota import ElasticQuota
from engine.model.koordinator_quota import (
    ADMISSION_ANNOTATION,
    CHILD_REQUEST_ANNOTATION,
    DEFAULT_QUOTA,
    NAME_LABEL,
    PREEMPTIBLE_LABEL,
    ROOT_QUOTA,
    SYSTEM_QUOTA,
    AnnotationError,
    resource_list_in,
)
from engine.model.pod import Pod
from engine.model.resource_names import CPU, EPHEMERAL_STORAGE, MEMORY
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
    """Whether a pod fits; `reason` is empty if it does.

    Attributes:
        child_request: what the quota's pods then request; None where nothing changes.
    """

    reason: str = ""
    child_request: Amounts | None = None


def quota_name(
    pod: Pod, quotas: Iterable[ElasticQuota], gates: Collection[str] = frozenset()
) -> str:
    """Return the name of the quota that a pod says, or its namespace implies, it belongs to."""
    labelled = pod.labels.get(NAME_LABEL, "")
    if labelled or "DisableDefaultQuota" in gates:
        return labelled
    quotas = tuple(quotas)
    if any((one.name, one.namespace) == (pod.namespace, pod.namespace) for one in quotas):
        return pod.namespace
    listing = (one.name for one in quotas if pod.namespace in one.namespaces)
    return next(listing, DEFAULT_QUOTA)


def known_quota_name(
    pod: Pod, quotas: Sequence[ElasticQuota], gates: Collection[str] = frozenset()
) -> str:
    """Return the same, or the default quota's name where there is no such quota."""
    name = quota_name(pod, quotas, gates)
    return name if any(one.name == name for one in quotas) else DEFAULT_QUOTA


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
    is_parent = any(one.is_parent for one in quotas if one.name == name)
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
    """Compare a pod with the quota it belongs to, by what its annotations say is requested.

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
