"""Pods to take back from a quota that uses more than its runtime.

Source: koordinator, quota_overuse_revoke.go: the least important first until the rest fits, then
back, the most important first, whoever need not go. When it has used too much for how long is for
the caller to say (upstream: 120 s).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from engine.model.resources import Amounts
from engine.model.time import Micros
from engine.quota.bounds import sum_of


@dataclass(frozen=True, slots=True)
class RevocablePod:
    """A pod that counts as used.

    Attributes:
        key: `namespace/name`.
        priority: of the pod.
        started: when it began to run; of two pods with one priority the later is less important.
        requests: what its quota counts, base units.
    """

    key: str
    priority: int
    started: Micros
    requests: Amounts


def overused(used: Amounts, runtime: Amounts) -> bool:
    """Return whether a quota uses more than its runtime, of a resource that this names."""
    return any(used.get(name, 0) > bound for name, bound in runtime.items())


def pods_to_revoke(
    pods: Iterable[RevocablePod], used: Amounts, runtime: Amounts
) -> Sequence[RevocablePod]:
    """Return the pods to evict so that a quota uses no more than its runtime.

    Upstream evicts all of them where even that is not enough; so it is here.

    Args:
        pods: of the quota, which may be evicted.
        used: by all pods of the quota, those below it included.
        runtime: of the quota.

    Returns:
        Most important first.
    """
    taken: list[RevocablePod] = []
    left = dict(used)
    for pod in sorted(pods, key=_importance):
        if not overused(left, runtime):
            break
        left = _without(left, pod.requests)
        taken.append(pod)
    if overused(left, runtime):
        return taken[::-1]
    revoked = []
    for pod in reversed(taken):
        with_it = sum_of((left, pod.requests))
        if overused(with_it, runtime):
            revoked.append(pod)
        else:
            left = with_it
    return revoked


def _importance(pod: RevocablePod) -> tuple[int, int, str]:
    """Order pods, the least important first."""
    return pod.priority, -pod.started, pod.key


def _without(amounts: Amounts, taken: Amounts) -> dict[str, int]:
    return {name: amount - taken.get(name, 0) for name, amount in amounts.items()}
