"""Held pods: whether they are released in time."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from http import HTTPStatus
from itertools import chain
from typing import Final, TypeAlias, TypeVar

import msgspec

from engine.errors import QuantityError, counted
from engine.model import api
from engine.model.hold import RELEASING_ANNOTATION
from engine.model.network import app_group_of
from engine.model.pod import Pod, pod_of
from engine.model.quantity import CPU, base_units
from engine.model.time import SECOND, Micros, micros
from engine.quota.queueing import NamespaceQueues, QueueRules
from engine.release import QUEUE_SORTS, QueueOrder
from engine.report import (
    HeldStatus,
    QueueEntry,
    QueueReport,
    ReleaserReport,
    StatusReport,
    queue_report,
)
from engine.view import ClusterState
from webhook.cluster.client.connection import ApiError, Connection, Query
from webhook.cluster.client.lists import list_kind
from webhook.cluster.objects import UNREADABLE
from webhook.doctor.installation import Finding, Installation, Level, statuses
from webhook.doctor.objects import Deployment, Lease, ObjectList, PodSpec, ResourceQuota
from webhook.placement.held_pods import DEFAULT_HOLD_SECONDS

_MOST_NAMED: Final = 3
_MOST_NAMESPACES: Final = 20  # whose ResourceQuotas are read
_DEADLINES_READ: Final = 500

_PENDING: Final[Query] = (("fieldSelector", "status.phase=Pending,spec.nodeName="),)
_pod_of: Final = msgspec.json.Decoder(api.Pod).decode


@dataclass(frozen=True, slots=True)
class ListedPod:
    """A held pod."""

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


async def hold_limits(installation: Installation) -> AsyncIterator[Finding]:
    """Find what pods run into that wait, and yet exist."""
    deployment = await installation.deployment()
    if deployment is None:
        return
    spec = deployment.spec.template.spec
    if spec.setting("STOWPLAN_HOLD") != "true":
        return
    findings = [finding async for finding in _resource_quotas(installation)]
    findings += await _deadlines(installation, spec)
    for finding in findings:
        yield finding
    if not findings:
        yield Finding(Level.OK, "no ResourceQuota and no deadline of a Deployment is in the way")


async def _resource_quotas(installation: Installation) -> AsyncIterator[Finding]:
    """Yield ResourceQuotas that are used up in part by pods that are only held."""
    listed = await list_held_pods(installation.connection)
    counts = Counter(each.pod.namespace for each in listed)
    for namespace, held in counts.most_common(_MOST_NAMESPACES):
        path = f"/api/v1/namespaces/{namespace}/resourcequotas"
        for quota in (await installation.read(path, ObjectList[ResourceQuota])).items:
            full = sorted(name for name in quota.status.hard if _is_full(quota, name))
            name = f"{namespace}/{quota.metadata.name}"
            if full:
                yield Finding(
                    Level.WARNING,
                    f"ResourceQuota {name} is used up ({', '.join(full)}) while pods are held"
                    f" there: {held}",
                    "held pods count from their creation: raise it above what runs and waits",
                )


def _is_full(quota: ResourceQuota, name: str) -> bool:
    """Return whether nothing is left of a resource; in thousandths, as of cpu, whatever it is."""
    try:
        hard = base_units(CPU, quota.status.hard[name])
        used = base_units(CPU, quota.status.used.get(name, 0))
    except QuantityError:
        return False
    return 0 < hard <= used


async def _deadlines(installation: Installation, spec: PodSpec) -> list[Finding]:
    """Return a finding on Deployments that give up before a pod must be released."""
    setting = spec.setting("STOWPLAN_HOLD_SECONDS")
    bound = int(setting) if setting.isdecimal() else DEFAULT_HOLD_SECONDS
    try:
        deployments = await installation.read(
            "/apis/apps/v1/deployments", ObjectList[Deployment], limit=str(_DEADLINES_READ)
        )
    except ApiError:
        return []  # they are read for this alone, and by few accounts
    short = [
        f"{each.metadata.namespace}/{each.metadata.name}"
        for each in deployments.items
        if (each.spec.progress_deadline_seconds or bound) < bound
    ]
    if not short:
        return []
    return [
        Finding(
            Level.WARNING,
            f"{len(short)} Deployments count as failed (`progressDeadlineSeconds`) before the"
            f" {bound} s are over for which a pod may be held: {', '.join(short[:_MOST_NAMED])}",
            "raise it there, or lower `hold.seconds`",
        )
    ]


_NOT_THERE: Final = (HTTPStatus.NOT_FOUND, HTTPStatus.FORBIDDEN)
_APP_GROUPS: Final = "/apis/appgroup.diktyo.x-k8s.io/v1alpha1/appgroups"
_Object = TypeVar("_Object")


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
            for quota in await list_kind(connection, "ElasticQuota", namespace) or ():
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
    pod = listed.pod
    if pod.is_queued or pod.is_held_for_gang:  # for as long as it takes
        queue = queues.of(pod) if pod.is_queued else None
        quota = None if queue is None else queue.quota
        return QueueEntry(pod=pod, release_by=None, raw=listed.raw, quota=quota)
    release_by = None if pod.created is None else micros(pod.created) + hold_seconds * SECOND
    return QueueEntry(
        pod=pod, release_by=None if release_by is None else Micros(release_by), raw=listed.raw
    )


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
        renewed_seconds_ago=_seconds_since(renewed, now),
        releasing=found.metadata.annotations.get(RELEASING_ANNOTATION) == "true",
    )


def _seconds_since(moment: datetime | None, now: Micros) -> float | None:
    """Return the seconds since a moment by another clock than ours: never less than 0."""
    return None if moment is None else max(0, now - micros(moment)) / SECOND


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
    pod_groups = await list_kind(connection, "PodGroup", absent=_NOT_THERE)
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


_Running: TypeAlias = Sequence[tuple[str, StatusReport]]

_STALE_SECONDS: Final = 15.0
_LONG_WAIT_SECONDS: Final = 600  # for somebody else's gate
_NOT_HOLDING: Final = {
    "no_leader": "nobody renews the Lease",
    "not_releasing": "the leader has not released pods that are due",
    "overdue": "a pod is held for too long",
    "full": "as many pods are held as may be",
}


async def held_pods(installation: Installation) -> AsyncIterator[Finding]:
    """Check the queue of held pods, and what replicas say of them."""
    deployment = await installation.deployment()
    if deployment is None:
        return
    spec = deployment.spec.template.spec
    lease = spec.setting("STOWPLAN_LEASE") or installation.release
    now = micros(installation.now())
    queue = await read_held_queue(installation.connection, f"{installation.namespace}/{lease}", now)
    report = queue_report(
        queue.entries, now, queue_sort=queue.order.sort, releaser=queue.releaser, most=0
    )
    running = statuses(await installation.replicas())
    if spec.setting("STOWPLAN_HOLD") == "true":
        found: Iterator[Finding] = chain(
            _queue(report),
            _gates_of_others(queue, now),
            *(_replica(name, status.held) for name, status in running if status.held is not None),
        )
    else:
        found = _switched_off(report, running)
    for finding in found:
        yield finding


def _switched_off(report: QueueReport, running: _Running) -> Iterator[Finding]:
    """Yield what waits for holds while none are made."""
    if report.held:
        message = f"{_pods(report.held)} held, and `hold.enabled` is off: nobody releases them"
        yield Finding(Level.PROBLEM, message, "`stowplan release --all` releases them")
    names = [name for _, status in running[:1] for name in status.policies.holding]
    if names:
        yield Finding(
            Level.WARNING,
            f"policies have pods held, and `hold.enabled` is off: {_some(names)}",
            "no pod waits for its turn, or has others evicted; set `hold.enabled`, or drop"
            " `releaseInOrder` and `preemption`",
        )


def _queue(report: QueueReport) -> Iterator[Finding]:
    """Yield whether somebody releases pods, and whether any is overdue."""
    releaser = report.releaser
    if releaser is None:
        advice = "the Lease is in the namespace of the release; you may lack the right to read it"
        yield Finding(Level.WARNING, "it is unknown who releases pods", advice)
    elif not releaser.holder:
        advice = "see the replicas above"
        yield Finding(Level.PROBLEM, "no replica leads, so no pod is held", advice)
    elif releaser.renewed_seconds_ago is None or releaser.renewed_seconds_ago >= _STALE_SECONDS:
        seconds = releaser.renewed_seconds_ago
        age = "never" if seconds is None else f"{seconds:.0f} s ago"
        message = f"{releaser.holder} renewed the Lease {age}, so no pod is held"
        yield Finding(Level.PROBLEM, message, "see its log, and the replicas above")
    elif not releaser.releasing:
        yield Finding(
            Level.WARNING,
            f"{releaser.holder} leads and releases no pods, so none is held",
            "its log has the reason; right after its start it is normal",
        )
    if report.overdue:
        yield Finding(
            Level.PROBLEM,
            f"{report.overdue} of {_pods(report.held)} held for longer than they may be",
            "`stowplan queue` shows why; `stowplan release --overdue` releases them",
        )
    elif report.held:
        yield Finding(Level.OK, f"{_pods(report.held)} held, none of them overdue")
    else:
        yield Finding(Level.OK, "no pod is held now")


def _gates_of_others(queue: HeldQueue, now: Micros) -> Iterator[Finding]:
    """Yield pods that have had a gate of somebody else for long."""
    long_ago = now - _LONG_WAIT_SECONDS * SECOND
    waiting = [
        entry.pod.key
        for entry in queue.entries
        if not entry.pod.is_held_by_us_alone
        and entry.pod.created is not None
        and micros(entry.pod.created) < long_ago
    ]
    if waiting:
        yield Finding(
            Level.NOTE,
            f"{counted(len(waiting), 'held pod has', 'held pods have')} waited for gates of others"
            f" for more than {_LONG_WAIT_SECONDS // 60} minutes: {_some(waiting)}",
            "`stowplan queue` names the gates; we release such a pod when ours is the last",
        )


def _replica(name: str, held: HeldStatus) -> Iterator[Finding]:
    """Yield why a replica holds no pods."""
    if held.not_holding:
        why = _NOT_HOLDING.get(held.not_holding, held.not_holding)
        yield Finding(
            Level.WARNING,
            f"{name} holds no pods: {why}",
            "see StowplanNotHolding in the runbook",
        )


def _pods(count: int) -> str:
    return counted(count, "pod is", "pods are")


def _some(names: Sequence[str]) -> str:
    """Return the first few names, and how many more there are."""
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
