"""What a review of a pod asks of the quotas of its namespace."""

from __future__ import annotations

from dataclasses import dataclass

from engine.model import api
from engine.model.deployment_pod import DeploymentPod, deployment_pod_of
from engine.model.hold import is_queued
from engine.model.koordinator_quota import NAME_LABEL
from engine.model.kubernetes_version import ASSUMED, KubernetesVersion
from engine.model.resource_names import PODS
from engine.model.resources import Amounts
from engine.quota import Reservation
from webhook.admission.review_result import requests_in
from webhook.admission.wire import AdmissionError, AdmissionRequest


@dataclass(frozen=True, slots=True)
class Demand:
    """What a request asks for.

    Attributes:
        reservation: to be made.
        is_queued: whether it is not to be made yet: the pod waits for quota.
        quota_name: the quota of Koordinator that the pod's label names, "" for none.
        of: the Deployment of a pod that is charged as a whole, None for none.
    """

    reservation: Reservation
    is_queued: bool = False
    quota_name: str = ""
    of: DeploymentPod | None = None


def demand_of(
    request: AdmissionRequest, *, queues: bool, kubernetes: KubernetesVersion = ASSUMED
) -> Demand | None:
    """Return what a new pod, or a change of one, asks for; None for nothing.

    Args:
        request: to create or to change a pod.
        queues: whether pods that wait for quota hold nothing until they wait no longer.
        kubernetes: the version by which pods are counted. INVARIANT: that of the view, by which
            they are counted as used.

    Raises:
        AdmissionError: an object is not a pod, or the old one is not a stored one.
    """
    new = request.pod()
    waits, label = _is_queued(new), (new.metadata.labels or {}).get(NAME_LABEL, "")
    if request.creates_pod:
        # The uid is final in the validating phase.
        amounts = {**requests_in(new, kubernetes), PODS: 1}
        whole = Reservation(new.metadata.uid or request.uid, new.metadata.name, amounts)
        return Demand(whole, waits and queues, label, _deployment_of(new))
    old = request.old_pod()
    if _is_queued(old) and not waits:
        release = _release(new, old, request.uid, kubernetes)
        return Demand(release, quota_name=label, of=_deployment_of(new))
    if waits and queues:
        return None  # all that it requests by then is judged when it waits no longer
    # The kubelet writes what it has allocated: a report, not a request.
    if request.sub_resource == "status":
        return None
    return Demand(_change(new, old, request.uid, kubernetes), quota_name=label)


def _is_queued(pod: api.Pod) -> bool:
    gates = [gate.name for gate in pod.spec.scheduling_gates or ()]
    return is_queued(gates, pod.metadata.annotations or {})


def _deployment_of(pod: api.Pod) -> DeploymentPod | None:
    meta = pod.metadata
    kinds = [owner.kind for owner in meta.owner_references or ()]
    return deployment_pod_of(meta.generate_name, meta.labels or {}, kinds)


def _release(
    new: api.Pod, old: api.Pod, request: str, kubernetes: KubernetesVersion
) -> Reservation:
    """Return the reservation of a pod that waits no longer: all that it requests.

    Where queued pods are counted as used, it is charged what that does not cover.

    Raises:
        AdmissionError: the old object is not a stored one.
    """
    amounts, version = {**requests_in(new, kubernetes), PODS: 1}, _version(old)
    return Reservation(new.metadata.uid, new.metadata.name, amounts, version, request, whole=True)


def _change(new: api.Pod, old: api.Pod, request: str, kubernetes: KubernetesVersion) -> Reservation:
    """Return the reservation of what a pod requests in addition, as ResourceQuota charges it.

    The API server stores the new object as the successor of exactly the old one, or sends another
    review. So any later version of the pod, once observed, shows the outcome of this request.

    Raises:
        AdmissionError: the old object is not a stored one.
    """
    amounts = _more(requests_in(new, kubernetes), requests_in(old, kubernetes))
    version = _version(old) if amounts else old.metadata.version
    return Reservation(new.metadata.uid, new.metadata.name, amounts, version, request)


def _version(stored: api.Pod) -> int:
    if not stored.metadata.version:
        raise AdmissionError("the old object has no resourceVersion")
    return stored.metadata.version


def _more(after: Amounts, before: Amounts) -> dict[str, int]:
    """Return what was added to some amounts."""
    more = {name: amount - before.get(name, 0) for name, amount in after.items()}
    return {name: amount for name, amount in more.items() if amount > 0}
