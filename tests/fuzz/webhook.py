"""A webhook in this process, and what must hold of its answer to any body whatsoever."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Final

import msgspec

from engine.errors import QuotaUndecidedError
from engine.model import api
from engine.model.elastic_quota import quota_of
from engine.model.time import Micros
from engine.pipeline import Scope
from engine.policy import load_policies
from tests.webhook.conftest import DENYING, small_cluster
from tests.webhook.contract import checked_answer, holds, patched
from webhook.admission import wire
from webhook.admission.handler import Outcome, ReviewResult
from webhook.admission.placement import PlacementReviews
from webhook.admission.quota import QuotaReviews
from webhook.admission.quota_objects import QuotaObjectReviews
from webhook.admission.wire import AdmissionError, AdmissionRequest
from webhook.cluster import Cluster
from webhook.placement.explanations import Explanations
from webhook.placement.live_policies import PolicyCounts
from webhook.placement.placer import Placer
from webhook.quota import MemoryStore, ObservedCluster, QuotaConfig, QuotaLedger

SHIPPED: Final = Path(__file__).parents[2] / "policies"
"""The policies of the repository."""

FEW: Final = tuple(SHIPPED / name for name in ("limit-aware", "load-aware-production"))
"""Those for speed."""

READS_THE_POD: Final = """
apiVersion: stowplan.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: reads-the-pod}
spec:
  variables:
    - {name: team, expression: "has(object.metadata.labels) ? object.metadata.labels.team : ''"}
  filters:
    - name: zone
      expression: >-
        !has(pod.annotations.zone) ||
        node.labels['topology.kubernetes.io/zone'] == pod.annotations.zone
      message: another zone is asked for
  scores:
    - name: team
      expression: "variables.team == node.name ? 100 : int(pod.requests.cpu)"
    - name: containers
      expression: >-
        object.spec.containers.exists(c, has(c.image) && c.image.matches('^reg'))
        ? 50.0 : node.allocatable.cpu
"""
"""A policy whose expressions read everything that a user writes."""

_TICK_SECONDS: Final = 0.005  # so that decisions seem to take long, and are shared


class FuzzedWebhook:
    """Both paths over a small cluster that is taken for a live one; the same for every run.

    Args:
        folder: an empty one, for policies.
        shipped: more policies; all apply at once.
    """

    def __init__(self, folder: Path, shipped: Sequence[Path] = (SHIPPED,)) -> None:
        (folder / "denying.yaml").write_text(DENYING)
        (folder / "reading.yaml").write_text(READS_THE_POD)
        policies = load_policies([*shipped, folder])
        state = small_cluster()
        state.track_sums(policies.sum_profiles)
        state.set_quota(quota_of(_quota("default", {"pods": "50", "cpu": "20"})))
        ticks = count()
        clock: Callable[[], float] = lambda: next(ticks) * _TICK_SECONDS  # noqa: E731 - typed
        self.cluster = Cluster(
            state=state, now=lambda: Micros(int(clock() * 1_000_000)), is_live=True
        )
        placer = Placer(
            view=self.cluster.view,
            now=self.cluster.now,
            scope=Scope(),
            clock=clock,
            explanations=Explanations(256, clock=clock),
            assumed=self.cluster,
        )
        self._placement = PlacementReviews(placer, lambda: policies, clock, PolicyCounts())
        ledger = QuotaLedger(ObservedCluster(view=self.cluster.view), MemoryStore(), QuotaConfig())
        pods = QuotaReviews(
            ledger=ledger,
            view=self.cluster.view,
            mode="Enforce",
            excluded_namespaces=(),
            withdraw=self.cluster.withdraw,
        )
        quotas = QuotaObjectReviews(view=self.cluster.view)
        self._pods, self._quotas = pods, quotas
        self._runner = asyncio.Runner()

    def close(self) -> None:
        self._runner.close()

    def check(self, body: bytes) -> None:
        """Send a body to both paths.

        Raises:
            AssertionError: an answer breaks a promise.
        """
        request = _decoded(body)
        if request is None:
            return
        review: dict[str, Any] = json.loads(body)
        self._check_advice(request, review)
        self._check_quota(request, review)

    async def answer(self, body: bytes) -> bool:
        """Answer a body on both paths; return whether it was a review at all."""
        request = _decoded(body)
        if request is None:
            return False
        assert self._placement.review(request).outcome is not Outcome.ERROR, "an internal error"
        await self._judged(request)
        return True

    def _check_advice(self, request: AdmissionRequest, review: dict[str, Any]) -> None:
        result = self._placement.review(request)
        assert result.outcome is not Outcome.ERROR, "an internal error"
        response = _checked(result, review)
        if "patch" not in response:
            return
        again = patched(review, response)
        assert holds(again["request"]["object"], review["request"]["object"]), "it weakens the pod"
        second = self._placement.review(wire.decode(json.dumps(again).encode()))
        assert "patch" not in _checked(second, again), "it is patched twice"

    def _check_quota(self, request: AdmissionRequest, review: dict[str, Any]) -> None:
        result = self._runner.run(self._judged(request))
        assert result is None or "patch" not in _checked(result, review)

    async def _judged(self, request: AdmissionRequest) -> ReviewResult | None:
        """Return the result of the path of quotas, None where it is an error of a known kind."""
        try:
            result = (self._quotas if request.is_of_quota else self._pods).review(request)
            return await result
        except AdmissionError as error:
            _check_text(error)
        except QuotaUndecidedError:
            pass
        return None


def _decoded(body: bytes) -> AdmissionRequest | None:
    """Return the request in a body, None if it is refused."""
    try:
        return wire.decode(body)
    except AdmissionError as error:
        _check_text(error)
        return None


def _check_text(error: AdmissionError) -> None:
    assert len(str(error)) < 400, "an error repeats what was sent"


def _checked(result: ReviewResult, review: dict[str, Any]) -> dict[str, Any]:
    return checked_answer(review, json.loads(wire.encode(result.response)))


def _quota(namespace: str, most: Mapping[str, str]) -> api.ElasticQuota:
    return msgspec.convert(
        {
            "apiVersion": "scheduling.x-k8s.io/v1alpha1",
            "metadata": {"namespace": namespace, "name": "all"},
            "spec": {"max": dict(most)},
        },
        api.ElasticQuota,
    )
