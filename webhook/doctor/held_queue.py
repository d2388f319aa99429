"""The held pods of a cluster in order, read without a replica of ours."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Final, TypeVar

import msgspec

from engine.model import api
from engine.model.hold import RELEASING_ANNOTATION
from engine.model.pod import Pod, pod_of
from engine.model.scheduler_plugins import app_group_of
from engine.model.time import SECOND, Micros, micros
from engine.quota.queueing import NamespaceQueues, QueueRules
from engine.release import QUEUE_SORTS, QueueOrder
from engine.report import QueueEntry, ReleaserReport
from engine.view import ClusterState
from webhook.cluster.client.connection import ApiError, Connection, Query
from webhook.cluster.client.lists import list_kind
from webhook.cluster.objects import UNREADABLE
from webhook.doctor.objects import Deployment, Lease, ObjectList
from webhook.placement.held_pods import DEFAULT_HOLD_SECONDS

NOT_THERE: Final = (HTTPStatus.NOT_FOUND, HTTPStatus.FORBIDDEN)
_APP_GROUPS: Final = "/apis/appgroup.diktyo.x-k8s.io/v1alpha1/appgroups"
_Object = TypeVar("_Object")
_PENDING: Final[Query] = (("fieldSelector", "status.phase=Pending,spec.nodeName="),)
_pod_of: Final = msgspec.json.Decoder(api.Pod).decode


@dataclass(frozen=True, slots=True)
class ListedPod:
    pod: Pod  # its model
    raw: msgspec.Raw  # the object as JSON


async def list_held_pods(connection: Connection, namespace: str = "") -> list[ListedPod]:
    """Return the pods with our scheduling gate, maybe among others, in any order.

    A pod that cannot be read is left out: whatever it says, we could not have held it.
    """
    return await list_kind(connection, "Pod", namespace, query=_PENDING, decode=_held_in) or []


def _held_in(raw: msgspec.Raw) -> ListedPod | None:
    try:
        pod = pod_of(_pod_of(raw))
    except UNREADABLE:
        return None
    return ListedPod(pod, raw) if pod.is_held and not pod.deleting else None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldQueue:
    """The held pods in order, and who releases them."""

    entries: tuple[QueueEntry, ...]  # in order
    order: QueueOrder  # in which they are
    releaser: ReleaserReport | None  # by the Lease; None if it cannot be read
    notes: tuple[str, ...] = ()  # what could not be read, and what was taken instead


@dataclass(frozen=True, slots=True)
class _Settings:
    """Settings of an installation that say how it releases pods."""

    order: QueueOrder = field(default_factory=QueueOrder)
    hold_seconds: int = DEFAULT_HOLD_SECONDS


async def read_held_queue(
    connection: Connection, lease: str, now: Micros, *, namespace: str = ""
) -> HeldQueue:
    """Read the held pods of a cluster, or of a namespace where the others may not be listed.

    Args:
        connection: to the API server.
        lease: of the installation, `namespace/name`; its Deployment has the same name.
        now: the time of day.
        namespace: the one whose pods are wanted, "" for all.

    Raises:
        ApiError: pods cannot be listed.
    """
    notes: list[str] = []
    try:
        pods = await list_held_pods(connection)
    except ApiError as error:
        if not namespace or error.status != HTTPStatus.FORBIDDEN:
            raise
        pods = await list_held_pods(connection, namespace)
        notes.append(f"pods of other namespaces may not be listed: places are among {namespace}'s")
    settings = await _settings(connection, lease)
    if settings is None:
        settings = _Settings()
        notes.append(
            f"the Deployment `{lease}` cannot be read: pods are in the order of PrioritySort"
        )
    releaser = await _releaser(connection, lease, now)
    if releaser is None:
        notes.append(f"the Lease `{lease}` cannot be read: it is unknown who releases pods")
    state = ClusterState()
    if not await _read_what_order_needs(connection, settings.order, state):
        notes.append("PodGroups cannot be listed: pods are in the order of their own creation")
    if any(listed.pod.is_queued for listed in pods):
        try:
            for quota in await list_kind(connection, "ElasticQuota", namespace) or ():
                state.set_quota(quota)
        except ApiError as error:
            if error.status not in NOT_THERE:
                raise
            notes.append("ElasticQuotas cannot be listed: it is unknown what pods wait for")
    view, queues = state.view(), NamespaceQueues(QueueRules())
    queues.update(view)
    ordered = settings.order.sorted(pods, view, pod_of=lambda listed: listed.pod)
    return HeldQueue(
        entries=tuple(_entry(listed, settings.hold_seconds, queues) for listed in ordered),
        order=settings.order,
        releaser=releaser,
        notes=tuple(notes),
    )


def _entry(listed: ListedPod, hold_seconds: int, queues: NamespaceQueues) -> QueueEntry:
    pod, release_by, queue = listed.pod, None, None
    if pod.is_queued or pod.is_held_for_gang:  # for as long as it takes
        queue = queues.of(pod) if pod.is_queued else None
    elif pod.created is not None:
        release_by = Micros(micros(pod.created) + hold_seconds * SECOND)
    quota = None if queue is None else queue.quota
    return QueueEntry(pod=pod, release_by=release_by, raw=listed.raw, quota=quota)


async def _settings(connection: Connection, lease: str) -> _Settings | None:
    namespace, _, name = lease.partition("/")
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}"
    deployment = await _read(connection, path, Deployment)
    if deployment is None:
        return None
    setting = deployment.spec.template.spec.setting
    settings, sort = _Settings(), setting("STOWPLAN_QUEUE_SORT")
    order = settings.order
    for known in QUEUE_SORTS:
        if known == sort:
            order = replace(order, sort=known)
    namespaces = setting("STOWPLAN_QUEUE_SORT_NAMESPACES")
    if namespaces:
        order = replace(order, app_group_namespaces=tuple(namespaces.split(",")))
    seconds = setting("STOWPLAN_HOLD_SECONDS")
    return _Settings(order, int(seconds) if seconds.isdecimal() else settings.hold_seconds)


async def _releaser(connection: Connection, lease: str, now: Micros) -> ReleaserReport | None:
    namespace, _, name = lease.partition("/")
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"
    found = await _read(connection, path, Lease)
    if found is None:
        return None
    renewed = found.spec.renew_time
    return ReleaserReport(
        holder=found.spec.holder_identity or "",
        # by another clock than ours: never less than 0
        renewed_seconds_ago=None if renewed is None else max(0, now - micros(renewed)) / SECOND,
        releasing=found.metadata.annotations.get(RELEASING_ANNOTATION) == "true",
    )


async def _read_what_order_needs(
    connection: Connection, order: QueueOrder, state: ClusterState
) -> bool:
    """Read the AppGroups or PodGroups that an order depends on; return whether it could be."""
    if order.sort == "TopologicalSort":
        found = await _read(connection, _APP_GROUPS, ObjectList[api.AppGroup])
        for app_group in () if found is None else found.items:
            state.set_extra(app_group_of(app_group))
    if order.sort != "Coscheduling":
        return True
    pod_groups = await list_kind(connection, "PodGroup", absent=NOT_THERE)
    for pod_group in pod_groups or ():
        state.set_extra(pod_group)
    return pod_groups is not None


async def _read(connection: Connection, path: str, kind: type[_Object]) -> _Object | None:
    try:
        return msgspec.json.decode(await connection.get(path), type=kind)
    except ApiError as error:
        if error.status in NOT_THERE:
            return None
        raise
