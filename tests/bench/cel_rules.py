"""The expressions that are timed, and the request that they are evaluated for."""

from __future__ import annotations

from typing import Final

import msgspec

from engine.documents.places import read_documents
from engine.errors import InvalidFileError
from engine.model import api
from engine.model.decision import PlacementRequest
from engine.model.pod import pod_of
from engine.policy import CompiledPolicy
from engine.policy.compile import compile_policy

_ZONE = "node.labels['topology.kubernetes.io/zone']"
_TYPE = "node.labels['node.kubernetes.io/instance-type']"
_HOST = "node.labels['kubernetes.io/hostname']"

FILTERS: Final = {
    "label equals": f"{_ZONE} == 'eu-west-1a'",
    "label in list": f"{_TYPE} in ['m6i.4xlarge', 'c6i.8xlarge', 'r6i.2xlarge']",
    "label of the pod": f"{_ZONE} == pod.labels.zone",
    "label, if any": "!(has(node.labels.gpu) && node.labels.gpu == 'a100')",
    "label of every node": f"node.name.startsWith('ip-10-0-1') || {_HOST}.matches('[05][.]')",
    "free cpu and memory": (
        "node.allocatable.cpu - node.requested.cpu >= pod.requests.cpu"
        " && node.allocatable.memory - node.requested.memory >= pod.requests.memory"
    ),
    "taints": (
        "node.taints.all(t, t.effect == 'PreferNoSchedule'"
        " || pod.tolerations.exists(x, x.key == t.key))"
    ),
    "usage": "!has(node.usage) || node.usage.cpu / node.allocatable.cpu < 0.65",
    "quantity": (
        "quantity(node.annotations['node.alpha.kubernetes.io/ttl'])"
        ".isGreaterThan(quantity(pod.annotations.least))"
    ),
    "extended resource": "!('nvidia.com/gpu' in node.allocatable) || node.ready",
}
SCORES: Final = {
    "least usage": "100.0 * (1.0 - node.usage.memory / node.allocatable.memory)",
    "tiers": f"node.unschedulable ? 0.0 : {_TYPE}.startsWith('m6i') ? 10.0 : 5.0",
    "pods": "-double(node.podCount)",
    "balance": (
        "math.least((node.requested.cpu + pod.requests.cpu) / node.allocatable.cpu,"
        " (node.requested.memory + pod.requests.memory) / node.allocatable.memory)"
    ),
}
SLOW: Final = {
    "node selector": "pod.nodeSelector.all(k, node.labels[?k].orValue('') == pod.nodeSelector[k])",
    "own host": f"{_HOST} != pod.labels.host",
}
ON_PODS: Final = {
    "namespace and name": "pod.namespace in ['n', 'shop'] && pod.name.startsWith('p')",
    "every container": (
        "object.spec.containers.all(c, has(c.resources.requests) && 'cpu' in c.resources.requests)"
    ),
}
ELSEWHERE: Final = {
    "quantity": (
        "quantity(node.annotations['node.alpha.kubernetes.io/ttl'])"
        " > quantity(pod.annotations.least)"
    ),
    "balance": (
        "(node.requested.cpu + pod.requests.cpu) / node.allocatable.cpu"
        " < (node.requested.memory + pod.requests.memory) / node.allocatable.memory"
        " ? (node.requested.cpu + pod.requests.cpu) / node.allocatable.cpu"
        " : (node.requested.memory + pod.requests.memory) / node.allocatable.memory"
    ),
}
"""The same for engines that lack a function; `quantity` gives them an integer."""


def _request() -> PlacementRequest:
    pod = {
        "metadata": {
            "name": "p",
            "namespace": "n",
            "labels": {"zone": "eu-west-1a", "host": "x"},
            "annotations": {"least": "250"},
        },
        "spec": {
            "containers": [{"resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}],
            "tolerations": [{"key": "dedicated"}, {"key": "spot", "operator": "Exists"}],
            "nodeSelector": {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"},
        },
    }
    raw = msgspec.json.encode(pod)
    return PlacementRequest(
        pod=pod_of(msgspec.json.decode(raw, type=api.Pod)), raw=raw, namespace_labels={}, request={}
    )


REQUEST: Final = _request()


def policy_of_all() -> CompiledPolicy:
    """Return one with all filters and scores."""
    filters = [{"name": f"f{i}", "expression": text} for i, text in enumerate(FILTERS.values())]
    scores = [{"name": f"s{i}", "expression": text} for i, text in enumerate(SCORES.values())]
    document = {
        "apiVersion": "stowplan.dev/v1alpha1",
        "kind": "PlacementPolicy",
        "metadata": {"name": "bench"},
        "spec": {"filters": filters, "scores": scores},
    }
    (read,) = read_documents(msgspec.json.encode(document), "bench.json")
    policy, problems = compile_policy(read)
    if policy is None:
        raise InvalidFileError(problems)
    return policy
