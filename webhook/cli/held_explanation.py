"""What the release of a held pod would do now, decided as the release controller decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from rich.markup import escape

from engine.model.hold import HOLD_GATE
from engine.model.request import PlacementRequest
from engine.model.time import Micros
from engine.policy import PolicySet
from engine.view import ClusterState
from webhook.placement.held_pods import HeldPod
from webhook.placement.placer import Placer
from webhook.placement.policy_counts import PolicyCounts


class ReleaseReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The release of a held pod, if it came now.

    Attributes:
        waits_for: the gates of others, which have to go first.
        nominated_node: "" for none.
        reason: why there is no nomination; "" where there is one.
        patch: of the pod, beside its nomination.
    """

    waits_for: tuple[str, ...]
    nominated_node: str
    reason: str
    patch: tuple[dict[str, Any], ...]

    def __str__(self) -> str:
        """Return it in a line, in the markup of a terminal."""
        node, reason = escape(self.nominated_node), escape(self.reason)
        what = f"nominated to {node}" if node else f"released without a nomination: {reason}"
        if self.waits_for:
            gates = escape(", ".join(self.waits_for))
            return f"held, and waits for others to remove {gates}; decided now, it would be {what}"
        return f"held; decided now, it would be {what}"


def release_report(
    request: PlacementRequest,
    placer: Placer,
    policies: PolicySet,
    state: ClusterState,
    now: Micros,
) -> ReleaseReport:
    """Return what the release of a held pod would do; afterwards it counts on its node.

    Args:
        request: the pod.
        placer: decides on `state`.
        policies: that apply.
        state: the cluster.
        now: the moment of the decision.
    """
    # With them comes a client of the Kubernetes API, which most explanations do not need.
    from webhook.controllers.release.decider import HeldPodDecider  # noqa: PLC0415
    from webhook.controllers.release.release_patch import release_patch  # noqa: PLC0415

    pod, raw = request.pod, bytes(request.raw)
    decider = HeldPodDecider(
        placer, lambda: policies, state, nominates=lambda _: True, counts=PolicyCounts()
    )
    held = HeldPod(pod=pod, version=0, raw=raw, release_by=now, seen_at=now)
    (decision,) = decider.decide([held])
    patch: Sequence[Any] = release_patch(
        raw, pod.uid, decision.patch.operations, decision.patch.annotations
    )
    return ReleaseReport(
        waits_for=tuple(gate for gate in pod.scheduling_gates if gate != HOLD_GATE),
        nominated_node=decision.node_name,
        reason=decision.reason,
        patch=tuple(dict(operation) for operation in patch),
    )
