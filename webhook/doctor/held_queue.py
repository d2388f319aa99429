"""The held pods of a cluster in order, read without a replica of ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Final, TypeVar

import msgspec

from engine.errors import QuantityError
from engine.model import api
from engine.model.elastic_quota import KOORDINATOR_GROUP, UPSTREAM_GROUP, ElasticQuota, quota_of
from engine.model.gang import PodGroup, pod_group_of
from engine.model.hold import RELEASING_ANNOTATION
from engine.model.network import app_group_of
from engine.model.time import SECOND, Micros, micros
from engine.quota.queueing import NamespaceQueues, QueueRules
from engine.release import QUEUE_SORTS, QueueOrder
from engine.report import QueueEntry, ReleaserReport
from engine.view import ClusterState
from webhook.cluster.client.connection import ApiError, Connection
from webhook.cluster.held_pod_list import ListedPod, list_held_pods
from webhook.doctor.objects import Deployment, Lease, ObjectList
from webhook.placement.held_pods import DEFAULT_HOLD_SECONDS

_NOT_THERE: Final = (HTTPStatus.NOT_FOUND, HTTPStatus.FORBIDDEN)
_APP_GROUPS: Final = "/apis/appgroup.diktyo.x-k8s.io/v1alpha1/appgroups"
_POD_GROUPS: Final[Mapping[str, type[api.PodGroup]]] = {
    UPSTREAM_GROUP: api.PodGroup,
    KOORDINATOR_GROUP: api.KoordinatorPodGroup,
}
_Object = TypeVar("_Object")
_items: Final = msgspec.json.Decoder(ObjectList[msgspec.Raw]).decode
_quota: Final = msgspec.json.Decoder(api.ElasticQuota).decode


async def list_quotas(connection: Connection, namespace: str = "") -> list[ElasticQuota]:
    """Return the quotas of both API groups; of a group that the cluster does not have none.

    A quota that cannot be read is left out: replicas count it among what they skip.
    """
    quotas = []
    within = f"namespaces/{namespace}/" if namespace else ""
    for group in (UPSTREAM_GROUP, KOORDINATOR_GROUP):
        try:
            listed = await connection.get(f"/apis/{group}/v1alpha1/{within}elasticquotas")
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            continue
        for raw in _items(listed).items:
            try:
                quotas.append(quota_of(_quota(raw)))
            except (QuantityError, msgspec.DecodeError):
                continue
    return quotas


async def list_pod_groups(connection: Connection) -> list[PodGroup] | None:
    """Return the PodGroups of both API groups, in any order; None if neither can be listed.

    A PodGroup that cannot be read is left out: replicas count it among what they skip.
    """
    pod_groups, is_listed = [], False
    for group, kind in _POD_GROUPS.items():
        path = f"/apis/{group}/v1alpha1/podgroups"
        listed = await _read(connection, path, ObjectList[msgspec.Raw])
        if listed is None:
            continue
        is_listed = True
        for raw in listed.items:
            try:
                pod_groups.append(pod_group_of(msgspec.json.decode(raw, type=kind)))
            except (QuantityError, msgspec.DecodeError):
                continue
    return pod_groups if is_listed else None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldQueue:
    """The held pods in order, and who releases them.

    Attributes:
        entries: in order.
        order: in which they are.
        releaser: by the Lease; None if it cannot be read.
        notes: what could not be read, and what was taken instead.
    """

    entries: tuple[QueueEntry, ...]
    order: QueueOrder
    releaser: ReleaserReport | None
    notes: tuple[str, ...] = ()


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
            for quota in await list_quotas(connection, namespace):
                state.set_quota(quota)
        except ApiError as error:
            if error.status not in _NOT_THERE:
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
    pod_groups = await list_pod_groups(connection)
    for pod_group in pod_groups or ():
        state.set_extra(pod_group)
    return pod_groups is not None


async def _read(connection: Connection, path: str, kind: type[_Object]) -> _Object | None:
    """Return an object, None if it is not there or may not be read."""
    try:
        return msgspec.json.decode(await connection.get(path), type=kind)
    except ApiError as error:
        if error.status in _NOT_THERE:
            return None
        raise
