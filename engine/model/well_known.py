"""Labels that Kubernetes itself sets, under the names of its "Well-Known Labels" page."""

from __future__ import annotations

from typing import Final

HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
"""Set by the kubelet; it may differ from the name of the node, be missing, or be shared by mistake.

No autoscaler can foresee it, so a requirement on it never leads to a new node.
"""

REGION_LABEL: Final = "topology.kubernetes.io/region"
ZONE_LABEL: Final = "topology.kubernetes.io/zone"

NAMESPACE_NAME_LABEL: Final = "kubernetes.io/metadata.name"
"""Set on every namespace by the API server, and so known even where the namespace is not."""
