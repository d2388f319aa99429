"""Judges bindings on the cluster as it is observed, while the leader has time for it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from engine.model import api
from engine.model.pod import Pod, pod_of
from engine.model.request import PlacementRequest
from engine.outcome import BoundPod, Judge, PolicyLanding
from engine.placement import as_submitted
from engine.policy import PolicySet
from engine.view import ClusterState, PodEntry
from webhook.cluster import Cluster
from webhook.cluster.decode_errors import UNREADABLE
from webhook.controllers.outcome.bindings import Binding
from webhook.placement.advice_limits import MOST_BYTES
from webhook.placement.held_pods import creation_of
from webhook.placement.placer import Placer

IDLE_SHARE: Final = 0.02
"""Of the leader's time that it has nothing else to do in, for judgements in the long run."""

BUSY_SHARE: Final = 0.005
"""Of the other time: reviews go first, and what policies do to a crowd still shows."""

_BURST_SECONDS: Final = 1.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeParts:
    """What the judge works with.

    Attributes:
        cluster: the cluster.
        placer: completes requests as those of reviews.
        judge: judges.
        policies: those in force.
    """

    cluster: Cluster
    placer: Placer
    judge: Judge
    policies: Callable[[], PolicySet]


class LandingJudge:
    """Judges bindings while there is time for it.

    Args:
        parts: what it works with.
        clock: seconds that only go forward.
        processor: seconds of the processor that this thread has taken.

    Attributes:
        seconds: of the processor that judgements have taken; only grows.
    """

    def __init__(
        self,
        parts: JudgeParts,
        *,
        clock: Callable[[], float] = time.monotonic,
        processor: Callable[[], float] = time.thread_time,
    ) -> None:
        self.seconds = 0.0
        self._parts = parts
        self._clock = clock
        self._processor = processor
        self._left = _BURST_SECONDS
        self._refilled_at, self._used = clock(), processor()

    def concerns(self, pod: Pod) -> bool:
        """Return whether policies may apply to a bound pod."""
        policies = self._parts.policies()
        return len(policies) > 0 and self._parts.placer.is_in_scope(_unbound(pod))

    def judge(self, binding: Binding, later: Sequence[Binding]) -> list[PolicyLanding] | None:
        """Return where a pod landed as each policy sees it; None where it cannot be judged.

        Args:
            binding: the pod.
            later: the pods that were bound after it, and count already.
        """
        now, began = self._clock(), self._processor()
        busy = began - self._used
        idle = max(0.0, now - self._refilled_at - busy)
        self._left = min(_BURST_SECONDS, self._left + IDLE_SHARE * idle + BUSY_SHARE * busy)
        self._refilled_at, self._used = now, began
        if self._left <= 0 or not 0 < len(binding.raw) <= MOST_BYTES:
            return None
        try:
            return self._judged(binding, later)
        except Exception:  # noqa: BLE001 - no bug in a rule ends the count of others
            _log.exception("the landing of pod `%s` could not be judged", binding.pod.key)
            return None
        finally:
            took = self._processor() - began
            self._left -= took
            self.seconds += took

    def _judged(self, binding: Binding, later: Sequence[Binding]) -> list[PolicyLanding] | None:
        request = _request_of(binding)
        if request is None:
            return None
        cluster = self._parts.cluster
        view, state = cluster.view(), cluster.state
        bound = BoundPod(
            request=self._parts.placer.completed(request, view),
            node_name=binding.pod.node_name,
            entries=[
                (each.pod.key, entry)
                for each in (binding, *later)
                if (entry := _entry(state, each.pod)) is not None
            ],
        )
        return self._parts.judge.judge(
            bound, self._parts.policies(), view, cluster.now(), cluster.freshness()
        )


def _request_of(binding: Binding) -> PlacementRequest | None:
    """Return the request that once created a bound pod, None if it cannot be read."""
    try:
        raw = as_submitted(binding.raw)
        pod = pod_of(msgspec.json.decode(raw, type=api.Pod))
    except UNREADABLE:
        return None
    return PlacementRequest(pod=pod, raw=raw, request=creation_of(pod))


def _entry(state: ClusterState, pod: Pod) -> PodEntry | None:
    """Return how a bound pod counts on its node, None if it does not any more."""
    placement = state.placement(pod.key)
    return state.entry(pod.key) if placement is not None and placement[0] == pod.node_name else None


def _unbound(pod: Pod) -> Pod:
    return msgspec.structs.replace(pod, node_name="")
