"""Node labels that change in a node's life: what is required of them is no lasting promise."""

from __future__ import annotations

from typing import Final

_BY_KEY: Final = {
    "karpenter.sh/initialized": "Karpenter sets it once a node is ready",
    "karpenter.sh/registered": "Karpenter sets it once a node has joined",
    "kubevirt.io/schedulable": "KubeVirt sets it to false whenever its handler on the node is away",
    "node.kubernetes.io/exclude-from-external-load-balancers": "it is set while a node is drained",
    "node.kubernetes.io/windows-build": "an upgrade of Windows changes it",
    "nvidia.com/gpu-driver-upgrade-state": "the GPU operator changes it with each driver upgrade",
    "nvidia.com/mig.config.state": "the GPU operator changes it while it partitions GPUs",
}
_BY_PREFIX: Final = {
    "feature.node.kubernetes.io/": "node-feature-discovery writes and removes it again and again",
    "nvidia.com/gpu.deploy.": "the GPU operator changes it with each driver upgrade",
}


def why_it_changes(key: str) -> str:
    """Return why a label changes while pods run on its node, "" of one that is not known to."""
    by_prefix = (why for prefix, why in _BY_PREFIX.items() if key.startswith(prefix))
    return _BY_KEY.get(key) or next(by_prefix, "")
