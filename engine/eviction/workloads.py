"""`maxUnavailable` of the Deployments and StatefulSets whose pods may be evicted.

It is how many of their pods may be missing while they are rolled out. Pods of DaemonSets, which
have one as well, are never evicted for others.

Sources: kubernetes, pkg/controller/deployment/util/deployment_util.go, ResolveFenceposts;
pkg/controller/statefulset/stateful_set_utils.go, getStatefulSetMaxUnavailable.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

from engine.model.pod import Pod, deployment_pod_of

DEPLOYMENT: Final = "Deployment"
STATEFUL_SET: Final = "StatefulSet"

_PERCENT: Final = re.compile(r"(\d{1,4})%", re.ASCII)
_ORDINAL: Final = re.compile(r"(.+)-\d+", re.ASCII)  # of the pod of a StatefulSet, after its name


class WorkloadKey(NamedTuple):
    """A Deployment or a StatefulSet: unique in the cluster."""

    kind: str
    namespace: str
    name: str


def workload_key_of(pod: Pod) -> WorkloadKey | None:
    """Return the Deployment or StatefulSet that a pod is of, as far as its own fields say."""
    deployment = deployment_pod_of(pod.generate_name, pod.labels, pod.owner_kinds)
    if deployment is not None:
        return _shared(DEPLOYMENT, pod.namespace, deployment.deployment)
    numbered = _ORDINAL.fullmatch(pod.name) if STATEFUL_SET in pod.owner_kinds else None
    return None if numbered is None else _shared(STATEFUL_SET, pod.namespace, numbered[1])


@lru_cache(maxsize=4096)
def _shared(kind: str, namespace: str, name: str) -> WorkloadKey:
    """Return one key for the many pods of a workload."""
    return WorkloadKey(kind, namespace, name)


def most_unavailable(max_unavailable: int | str | None, replicas: int) -> int | None:
    """Return how many pods may be missing at a time, None where nothing is said of it.

    A percentage is rounded down. It is at least 1: a rollout may begin with a further pod instead,
    an eviction cannot.

    Args:
        max_unavailable: a number, or a percentage such as `25%`.
        replicas: the number of pods that are wanted.
    """
    if isinstance(max_unavailable, str):
        percent = _PERCENT.fullmatch(max_unavailable)
        return None if percent is None else max(1, replicas * int(percent[1]) // 100)
    return None if max_unavailable is None else max(1, max_unavailable)
