"""What the webhook writes besides answers: statuses of quotas and Events on them."""

from __future__ import annotations

import msgspec
import pytest

from engine.model import api
from engine.model.elastic_quota import quota_of
from engine.model.pod import pod_of
from engine.model.time import Micros
from engine.quota import QuotaVerdict
from engine.view import ClusterState
from tests.e2e.cluster import Cluster
from tests.e2e.control_plane import ControlPlane
from tests.e2e.workloads import pod
from webhook.cluster.client.connection import connected
from webhook.cluster.timing import MonotonicClock
from webhook.controllers.quota_status import QuotaStatuses
from webhook.controllers.reconciler import Reconciler
from webhook.quota import QuotaEventRecorder

_QUOTAS = "elasticquotas.scheduling.x-k8s.io"


@pytest.mark.usefixtures("crds")
async def test_the_status_is_kept_and_denials_are_reported(
    cluster: Cluster, control_plane: ControlPlane, namespace: str
) -> None:
    state = ClusterState()
    stored = await cluster.create(
        {
            "apiVersion": "scheduling.x-k8s.io/v1alpha1",
            "kind": "ElasticQuota",
            "metadata": {"name": "team", "namespace": namespace},
            "spec": {"max": {"cpu": "4"}},
        }
    )
    state.set_quota(quota_of(msgspec.convert(stored, api.ElasticQuota)))
    running = pod(namespace, "a") | {"status": {"phase": "Running"}}
    running["spec"]["nodeName"] = "node-a"
    seen = pod_of(msgspec.convert(running, api.Pod))
    state.set_pod(seen, seen_at=Micros(0))
    async with connected(control_plane.kubeconfig(), None) as connection:
        seconds = iter((0.0, 1.0, 1.0, 1.0))  # it is written once it has been wrong for one
        clock = MonotonicClock(now=lambda: next(seconds))
        controller = Reconciler(
            connection, QuotaStatuses(state.view), may_write=lambda: True, clock=clock
        )
        await controller.round()
        await controller.round()
        used = (await cluster.get(_QUOTAS, "team", namespace))["status"]["used"]
        assert used.keys() == seen.shape.requests.keys() | {"cpu"}

        recorder = QuotaEventRecorder(connection, view=state.view, identity="replica-1")
        recorder.record(namespace, QuotaVerdict(("team",), "exceeded quota: team"))
        await recorder.flush()
    (event,) = [
        one
        for one in await cluster.list_all("events", namespace)
        if one["involvedObject"]["kind"] == "ElasticQuota"
    ]
    assert event["message"].endswith("the last one: exceeded quota: team")
    assert event["involvedObject"]["uid"] == stored["metadata"]["uid"]
