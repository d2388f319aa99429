"""Columns over all nodes, filled before reviews need them: of new policies, and of new nodes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, Protocol

import msgspec

from engine.model import api
from engine.model.pod import pod_of
from engine.model.request import PlacementRequest
from engine.model.time import Micros
from engine.policy import CompiledPolicy, NodeExpression, PolicySet
from engine.view import ClusterView

_REQUESTS: Final[tuple[dict[str, str], ...]] = ({"cpu": "100m", "memory": "128Mi"}, {})
"""Of one pod each: by them alone Koordinator counts the first as production, the other as batch."""

_MOST_RULES: Final = 64
"""Expressions whose columns are filled, those of the policies that come first.

A view remembers 256 columns of nodes; more rules would forget those of others.
"""

_log = logging.getLogger(__name__)


class KnownCluster(Protocol):
    """A cluster as it is known; see `webhook.cluster.Cluster`."""

    def now(self) -> Micros: ...  # noqa: D102 (see the class)
    def view(self) -> ClusterView: ...  # noqa: D102


class WarmUp:
    """Fills the columns that decisions share, in steps that hold no view between them.

    The first decision by a set of policies, and the first one after a node came, would fill them.

    Args:
        cluster: as it is known; its views keep the sums that the policies need.
        decide: decides for a pod and writes its patch, and leaves no trace of it.
    """

    def __init__(
        self, cluster: KnownCluster, decide: Callable[[PlacementRequest, PolicySet], object]
    ) -> None:
        self._cluster = cluster
        self._decide = decide
        self._requests = [_request(resources) for resources in _REQUESTS]

    def steps(self, policies: PolicySet) -> Iterator[None]:
        """Fill the columns for policies, in force or not yet; one rule or decision each step.

        The rules come first, also those that apply to few pods. Decisions for plain pods fill what
        plugins and patches remember.
        """
        rules = (
            (policy, rule.evaluator)
            for policy in policies
            for rule in policy.rules
            if isinstance(rule.evaluator, NodeExpression)
        )
        for policy, expression in islice(rules, _MOST_RULES):
            self._try(lambda: self._refresh(policy, expression))  # noqa: B023 - called at once
            yield
        for request in self._requests:
            self._try(lambda: self._decide(request, policies))  # noqa: B023 - called at once
            yield

    def _refresh(self, policy: CompiledPolicy, expression: NodeExpression) -> None:
        cluster = self._cluster
        expression.refresh(policy.context(self._requests[0], cluster.view(), cluster.now()))

    def _try(self, act: Callable[[], object]) -> None:
        try:
            act()
        except Exception:  # noqa: BLE001 - policies must not fail to load for a trial
            _log.exception("a trial evaluation failed")


def _request(resources: dict[str, str]) -> PlacementRequest:
    container = {"name": "plain", "resources": {"requests": resources}}
    pod = {"metadata": {"name": "plain"}, "spec": {"containers": [container]}}
    raw = msgspec.json.encode(pod)
    pod_read = pod_of(msgspec.json.decode(raw, type=api.Pod), namespace="default")
    return PlacementRequest(pod=pod_read, raw=raw)
