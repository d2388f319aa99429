"""Workloads, and the pods that their controllers make of the templates in them.

As far as that can be told without a cluster: random letters of names and hashes of templates are
not known. What admission adds is added by `engine.builtin_admission`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from engine.model.pod import Pod
from engine.model.selectors import LabelSelector, Operator, Requirement

_SELECTING: Final = frozenset({"ReplicaSet", "ReplicationController", "StatefulSet"})
_OWN_LABELS: Final = frozenset(
    {
        "apps.kubernetes.io/pod-index",
        "controller-revision-hash",
        "statefulset.kubernetes.io/pod-name",
    }
)
"""Labels of pods of a StatefulSet that are not in its selector."""

_SELECTORS: Final = 1024


def controller_selector(pod: Pod) -> LabelSelector | None:
    """Return the selector of the controller of a pod, None where it has none.

    The scheduler reads it from the ReplicaSet, ReplicationController or StatefulSet, and adds those
    of Services. Neither is known here: it is taken to be all labels of the pod, but those that each
    pod of a StatefulSet has of its own; and a pod that only a Service selects has none.

    Source: pkg/scheduler/framework/plugins/helper/spread.go, DefaultSelector.
    """
    if not pod.labels or _SELECTING.isdisjoint(pod.owner_kinds):
        return None
    selector = _selector_of(frozenset(pod.labels.items()))
    return selector if selector.requirements else None


@lru_cache(maxsize=_SELECTORS)
def _selector_of(labels: frozenset[tuple[str, str]]) -> LabelSelector:
    return LabelSelector(
        tuple(
            Requirement(key, Operator.IN, frozenset((value,)))
            for key, value in sorted(labels)
            if key not in _OWN_LABELS
        )
    )


POD: Final = "Pod"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A kind whose controller makes pods."""

    group: str  # API group; the version is v1
    kind: str  # `kind` of its objects
    plural: str  # its resource in paths
    short: str  # kubectl's short name for it, "" for none
    template: tuple[str, ...] = ("spec", "template")  # path of the template of pods
    # path of the number of pods, 1 where it is not given; () where nodes decide it
    count: tuple[str, ...] = ("spec", "replicas")
    owner: str  # `kind` of what owns the pods
    group_of_owner: str  # its API group


def _of_apps(
    kind: str, short: str, *, owner: str = "", count: tuple[str, ...] = ("spec", "replicas")
) -> Workload:
    return Workload(
        group="apps",
        kind=kind,
        plural=f"{kind.lower()}s",
        short=short,
        count=count,
        owner=owner or kind,
        group_of_owner="apps",
    )


WORKLOADS: Final = (
    Workload(
        group="batch",
        kind="CronJob",
        plural="cronjobs",
        short="cj",
        template=("spec", "jobTemplate", "spec", "template"),
        count=("spec", "jobTemplate", "spec", "parallelism"),
        owner="Job",
        group_of_owner="batch",
    ),
    _of_apps("DaemonSet", "ds", count=()),
    _of_apps("Deployment", "deploy", owner="ReplicaSet"),
    Workload(
        group="batch",
        kind="Job",
        plural="jobs",
        short="",
        count=("spec", "parallelism"),
        owner="Job",
        group_of_owner="batch",
    ),
    _of_apps("ReplicaSet", "rs"),
    _of_apps("StatefulSet", "sts"),
)
"""Every kind that can stand for one of its pods."""

_DAEMON_SET: Final = "DaemonSet"
_STATEFUL_SET: Final = "StatefulSet"
_DAEMON_TOLERATIONS: Final = tuple(
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": effect}
    for key, effect in (
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    )
)
"""What the DaemonSet controller adds to its pods.

Source: Kubernetes, pkg/controller/daemon/util/daemonset_util.go, AddOrUpdateDaemonPodTolerations.
"""

_BY_KIND: Final = {workload.kind: workload for workload in WORKLOADS}


def workload_of(api_version: object, kind: object) -> Workload | None:
    """Return the workload of an object, None for an object of any other kind."""
    workload = _BY_KIND.get(kind) if isinstance(kind, str) else None
    if workload is None or api_version is None:
        return workload
    return workload if api_version == f"{workload.group}/v1" else None


def pod_of_workload(
    manifest: Mapping[str, Any], workload: Workload, number: int = 0
) -> dict[str, Any]:
    """Return the manifest of a pod that the controller of a workload would send.

    It has a name of its own only where the controller gives it one: those of a StatefulSet. The
    others get theirs after admission.
    """
    template = value_at(manifest, workload.template)
    template = template if isinstance(template, Mapping) else {}
    of_template, own = _mapping(template, "metadata"), _mapping(manifest, "metadata")
    name = own.get("name") or workload.kind.lower()
    metadata = {
        **of_template,
        **_names(workload, name, number),
        "labels": {
            **_mapping(of_template, "labels"),
            **_added_labels(workload, name, number),
        },
        "ownerReferences": [
            {
                "apiVersion": f"{workload.group_of_owner}/v1",
                "kind": workload.owner,
                "name": name,
                "uid": name,
                "controller": True,
            }
        ],
    }
    if own.get("namespace"):
        metadata["namespace"] = own["namespace"]
    spec = template.get("spec")
    if workload.kind == _DAEMON_SET and isinstance(spec, Mapping):
        tolerations = spec.get("tolerations")
        written = tolerations if isinstance(tolerations, list) else []
        spec = {**spec, "tolerations": [*written, *_DAEMON_TOLERATIONS]}
    return {"apiVersion": "v1", "kind": POD, "metadata": metadata, "spec": spec}


def pinned_to(pod: Mapping[str, Any], node: str) -> dict[str, Any]:
    """Return the manifest of a pod of a DaemonSet for a node: its affinity requires that node.

    Source: Kubernetes, pkg/controller/daemon/util/daemonset_util.go,
    ReplaceDaemonSetPodNodeNameNodeAffinity.
    """
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    affinity, spec = _mapping(_mapping(pod, "spec"), "affinity"), _mapping(pod, "spec")
    of_nodes = {
        **_mapping(affinity, "nodeAffinity"),
        "requiredDuringSchedulingIgnoredDuringExecution": terms,
    }
    return {**pod, "spec": {**spec, "affinity": {**affinity, "nodeAffinity": of_nodes}}}


def value_at(document: Mapping[str, Any], path: tuple[str, ...]) -> Any:  # noqa: ANN401 - JSON
    """Return the value at a path, None without one."""
    value: Any = document
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _names(workload: Workload, name: str, number: int) -> dict[str, str]:
    generated = {"generateName": f"{name}-"}
    return (
        {**generated, "name": f"{name}-{number}"} if workload.kind == _STATEFUL_SET else generated
    )


def _added_labels(workload: Workload, name: str, number: int) -> dict[str, str]:
    """Return the labels that a controller adds to those of the template."""
    if workload.kind == _STATEFUL_SET:
        return {
            "apps.kubernetes.io/pod-index": str(number),
            "statefulset.kubernetes.io/pod-name": f"{name}-{number}",
        }
    if workload.kind == "Job":
        return {"batch.kubernetes.io/job-name": name, "job-name": name}
    return {}


def _mapping(document: object, key: str) -> Mapping[str, Any]:
    """Return a mapping below a key, an empty one where there is something else."""
    value = document.get(key) if isinstance(document, Mapping) else None
    return value if isinstance(value, Mapping) else {}
