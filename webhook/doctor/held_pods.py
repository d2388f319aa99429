"""Held pods: whether they are released in time, what quotas let through, and what gangs need."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from engine.errors import QuantityError, counted
from engine.gang import gang_key_of, gang_of, names_missing_pod_group
from engine.model import api
from engine.model.elastic_quota import (
    HARD_RECLAIM,
    QUEUED_ANNOTATION,
    RECLAIM_ANNOTATION,
    UPSTREAM_GROUP,
    ElasticQuota,
    release_interval,
)
from engine.model.gang import POD_GROUP_LABEL
from engine.model.namespace import QUOTA_MODE_ANNOTATION
from engine.model.pod import Pod, pod_of
from engine.model.quantity import CPU, PODS, amount_text, base_units
from engine.model.resources import Amounts
from engine.model.time import SECOND, Micros, micros
from engine.report import QueueReport, StatusReport, expected_wait, queue_report
from engine.view import ClusterState, ClusterView
from webhook.cluster.client.connection import ApiError
from webhook.cluster.client.lists import list_kind
from webhook.doctor.findings import Finding, note, ok, problem, some, warning
from webhook.doctor.held_queue import NOT_THERE, HeldQueue, read_held_queue
from webhook.doctor.installation import ADMISSION, MOST_WORKLOADS, Installation
from webhook.doctor.objects import AnyObject, Node, ObjectList, ResourceQuota, StatefulSet
from webhook.doctor.objects import Pod as ListedPod
from webhook.placement.held_pods import DEFAULT_HOLD_SECONDS

_MOST_NAMED: Final = 3
_MOST_NAMESPACES: Final = 20  # whose ResourceQuotas are read
_STALE_SECONDS: Final = 15.0
_DEFAULT_DEADLINE_SECONDS: Final = 600  # of a Deployment
_DEFAULT_MODE: Final = "Enforce"
_LONG_WAIT_SECONDS: Final = 600  # for somebody else's gate
_NOT_HOLDING: Final = {
    "no_leader": "nobody renews the Lease",
    "not_releasing": "the leader has not released pods that are due",
    "overdue": "a pod is held for too long",
    "full": "as many pods are held as may be",
}


def held_pods(installation: Installation) -> Iterator[Finding]:
    """Check the queue of held pods, and what replicas say of them."""
    lease = f"{installation.namespace}/{installation.lease}"
    now = micros(installation.now())
    queue = installation.wait_for(read_held_queue(installation.connection, lease, now))
    report = queue_report(
        queue.entries, now, queue_sort=queue.order.sort, releaser=queue.releaser, most=0
    )
    running = installation.statuses
    if not installation.holds:
        yield from _switched_off(report, running)
        return
    yield from _queue(report)
    yield from _gates_of_others(queue, now)
    for name, status in running:
        if status.held is not None and status.held.not_holding:
            why = _NOT_HOLDING.get(status.held.not_holding, status.held.not_holding)
            yield warning(f"{name} holds no pods: {why}", "see StowplanNotHolding in the runbook")


def _switched_off(
    report: QueueReport, running: Sequence[tuple[str, StatusReport]]
) -> Iterator[Finding]:
    """Yield what waits for holds while none are made."""
    if report.held:
        message = f"{_pods(report.held)} held, and `hold.enabled` is off: nobody releases them"
        yield problem(message, "`stowplan release --all` releases them")
    names = [name for _, status in running[:1] for name in status.policies.holding]
    if names:
        yield warning(
            f"policies have pods held, and `hold.enabled` is off: {some(names)}",
            "no pod waits for its turn, or has others evicted; set `hold.enabled`, or drop"
            " `releaseInOrder` and `preemption`",
        )


def _queue(report: QueueReport) -> Iterator[Finding]:
    """Yield whether somebody releases pods, and whether any is overdue."""
    releaser = report.releaser
    if releaser is None:
        advice = "the Lease is in the namespace of the release; you may lack the right to read it"
        yield warning("it is unknown who releases pods", advice)
    elif not releaser.holder:
        yield problem("no replica leads, so no pod is held", "see the replicas above")
    elif releaser.renewed_seconds_ago is None or releaser.renewed_seconds_ago >= _STALE_SECONDS:
        seconds = releaser.renewed_seconds_ago
        age = "never" if seconds is None else f"{seconds:.0f} s ago"
        message = f"{releaser.holder} renewed the Lease {age}, so no pod is held"
        yield problem(message, "see its log, and the replicas above")
    elif not releaser.releasing:
        yield warning(
            f"{releaser.holder} leads and releases no pods, so none is held",
            "its log has the reason; right after its start it is normal",
        )
    if report.overdue:
        yield problem(
            f"{report.overdue} of {_pods(report.held)} held for longer than they may be",
            "`stowplan queue` shows why; `stowplan release --overdue` releases them",
        )
    elif report.held:
        yield ok(f"{_pods(report.held)} held, none of them overdue")
    else:
        yield ok("no pod is held now")


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
        yield note(
            f"{counted(len(waiting), 'held pod has', 'held pods have')} waited for gates of others"
            f" for more than {_LONG_WAIT_SECONDS // 60} minutes: {some(waiting)}",
            "`stowplan queue` names the gates; we release such a pod when ours is the last",
        )


def _pods(count: int) -> str:
    return counted(count, "pod is", "pods are")


def hold_limits(installation: Installation) -> Iterator[Finding]:
    """Find what pods run into that wait, and yet exist."""
    findings = [*_used_up(installation), *_hold_deadlines(installation)]
    yield from findings
    if not findings:
        yield ok("no ResourceQuota and no deadline of a Deployment is in the way")


def _used_up(installation: Installation) -> Iterator[Finding]:
    """Yield ResourceQuotas that are used up in part by pods that are only held."""
    counts = Counter(each.pod.namespace for each in installation.held_pods)
    for namespace, held in counts.most_common(_MOST_NAMESPACES):
        for quota in installation.resource_quotas(namespace):
            full = sorted(name for name in quota.status.hard if _is_full(quota, name))
            if full:
                yield warning(
                    f"ResourceQuota {namespace}/{quota.metadata.name} is used up"
                    f" ({', '.join(full)}) while pods are held there: {held}",
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


def _hold_deadlines(installation: Installation) -> Iterator[Finding]:
    """Yield Deployments that give up before a pod must be released."""
    setting = installation.setting("HOLD_SECONDS")
    bound = int(setting) if setting.isdecimal() else DEFAULT_HOLD_SECONDS
    short = [
        each.metadata.key
        for each in installation.readable_deployments
        if (each.spec.progress_deadline_seconds or bound) < bound
    ]
    if short:
        yield warning(
            f"{len(short)} Deployments count as failed (`progressDeadlineSeconds`) before the"
            f" {bound} s are over for which a pod may be held: {', '.join(short[:_MOST_NAMED])}",
            "raise it there, or lower `hold.seconds`",
        )


def gangs(installation: Installation) -> Iterator[Finding]:
    """Find what gangs cannot work with."""
    pod_groups = installation.wait_for(
        list_kind(installation.connection, "PodGroup", absent=NOT_THERE)
    )
    if pod_groups is None:
        yield from _without_pod_groups(installation)
    state = ClusterState()
    for pod_group in pod_groups or ():
        state.set_extra(pod_group)
    view = state.view()
    held = [each.pod for each in installation.held_pods]
    findings = [*_missing(held, view), *_ordered(installation, view)]
    yield from findings
    if pod_groups is not None and not findings:
        of_gangs = sum(gang_of(pod, view) is not None for pod in held)
        groups, pods = counted(len(pod_groups), "PodGroup"), counted(of_gangs, "held pod")
        yield ok(f"{groups}, {pods} of gangs")


def _without_pod_groups(installation: Installation) -> Iterator[Finding]:
    """Yield whether any pod names a PodGroup although there are none."""
    labelled = installation.read(
        "/api/v1/pods", ObjectList[ListedPod], labelSelector=POD_GROUP_LABEL, limit="1"
    )
    for pod in labelled.items[:1]:
        yield warning(
            f"pods such as {pod.metadata.key} name PodGroups, and none can be listed: they start"
            " one by one",
            "install the CustomResourceDefinition of scheduler-plugins, or grant the right",
        )


def _missing(held: Sequence[Pod], view: ClusterView) -> Iterator[Finding]:
    """Yield PodGroups that held pods name and that do not exist."""
    named = Counter(str(key) for pod in held if (key := names_missing_pod_group(pod, view)))
    if named:
        naming = counted(
            named.total(),
            "held pod names a PodGroup that does not exist",
            "held pods name PodGroups that do not exist",
        )
        names = ", ".join(name for name, _ in named.most_common(_MOST_NAMED))
        yield warning(
            f"{naming}: released one by one: {names}",
            "create a PodGroup before its pods, in their namespace",
        )


def _ordered(installation: Installation, view: ClusterView) -> Iterator[Finding]:
    """Yield StatefulSets that never create as many pods as their gang waits for."""
    path = "/apis/apps/v1/statefulsets"
    try:
        listed = installation.read(path, ObjectList[StatefulSet], limit=str(MOST_WORKLOADS))
    except ApiError:
        return  # they are read for this alone, and by few accounts
    for each in listed.items:
        meta = each.spec.template.metadata
        template = api.ObjectMeta(
            namespace=each.metadata.namespace, labels=meta.labels, annotations=meta.annotations
        )
        pod = pod_of(api.Pod(metadata=template))
        gang = gang_of(pod, view)
        is_parallel = each.spec.pod_management_policy == "Parallel"
        if gang is not None and gang.min_member > 1 and not is_parallel:
            yield problem(
                f"StatefulSet {each.metadata.key} creates a pod when the one before it is ready,"
                f" and its gang {gang_key_of(pod)} waits until {gang.min_member} exist: none ever"
                " starts",
                "`podManagementPolicy: Parallel`, in a StatefulSet that replaces it",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Queues:
    """What queues."""

    namespaces: frozenset[str]  # in mode Queue
    annotated: frozenset[str]  # those of them whose annotation says so
    quotas: Mapping[str, Sequence[ElasticQuota]]  # all that could be read, by namespace

    @property
    def members(self) -> list[ElasticQuota]:
        """The quotas of namespaces in mode Queue, in the order of their names."""
        names = sorted(self.namespaces & self.quotas.keys())
        return [quota for name in names for quota in self.quotas[name]]


def quota_queues(installation: Installation) -> Iterator[Finding]:
    """Check what pods run into that wait for quota."""
    queues = _queues(installation)
    if not queues.members and not queues.annotated:
        return
    findings = [
        *_releases(installation, queues),
        *_hard_reclaim(installation, queues.members),
        *_guaranteed(installation, queues.members),
        *_resource_quotas(installation, queues.members),
        *_queue_deadlines(installation, queues.members),
        *_gate_guard(installation),
    ]
    yield from findings
    if all(finding.is_well for finding in findings):
        namespaces = counted(len({quota.namespace for quota in queues.members}), "namespace")
        yield ok(f"pods of {namespaces} queue for quota, nothing is in the way")


def _queues(installation: Installation) -> _Queues:
    default = installation.setting("QUOTA_MODE") or _DEFAULT_MODE
    modes = {
        each.metadata.name: each.metadata.annotations.get(QUOTA_MODE_ANNOTATION)
        for each in installation.read("/api/v1/namespaces", ObjectList[AnyObject]).items
    }
    quotas: dict[str, list[ElasticQuota]] = {}
    for quota in installation.wait_for(list_kind(installation.connection, "ElasticQuota")) or ():
        if quota.group == UPSTREAM_GROUP or quota.name == quota.namespace:
            quotas.setdefault(quota.namespace, []).append(quota)
    return _Queues(
        namespaces=frozenset(name for name, mode in modes.items() if (mode or default) == "Queue"),
        annotated=frozenset(name for name, mode in modes.items() if mode == "Queue"),
        quotas=quotas,
    )


def _releases(installation: Installation, queues: _Queues) -> Iterator[Finding]:
    """Yield that nobody releases pods, and namespaces with nothing to queue for."""
    if not installation.holds:
        yield problem(
            f"quota mode is Queue in {some(sorted(queues.namespaces))}, and `hold.enabled` is off:"
            " pods are denied, as with Enforce",
            "set `hold.enabled`, or quota mode Enforce",
        )
    names = sorted(queues.annotated - queues.quotas.keys())
    if names:
        yield warning(
            f"quota mode is Queue and there is no ElasticQuota in {some(names)}",
            "their pods are limited by nothing: create one, or remove the annotation"
            f" `{QUOTA_MODE_ANNOTATION}`",
        )


def _hard_reclaim(installation: Installation, members: Sequence[ElasticQuota]) -> Iterator[Finding]:
    """Yield the quotas that ask for more than their namespaces may have."""
    allowed = installation.setting("HARD_RECLAIM_NAMESPACES").split(",")
    names = [
        f"{quota.namespace}/{quota.name}"
        for quota in members
        if quota.asks_for_hard_reclaim and quota.namespace not in allowed
    ]
    if names:
        yield warning(
            f"`{RECLAIM_ANNOTATION}: {HARD_RECLAIM}` of {some(names)} counts as On",
            "add their namespaces to `quota.hardReclaimNamespaces`, or annotate them with On",
        )


def _guaranteed(installation: Installation, members: Sequence[ElasticQuota]) -> Iterator[Finding]:
    """Yield the resources of which all quotas are guaranteed more than the cohort has."""
    if installation.setting("QUOTA_COHORT") == "SumOfMin":
        return
    selector = installation.setting("QUOTA_COHORT_NODES")
    query = {"labelSelector": selector} if selector else {}
    total, capacity = Counter[str](), Counter[str]()
    for quota in members:
        total.update(quota.min or {})
    for node in installation.read("/api/v1/nodes", ObjectList[Node], **query).items:
        capacity.update(_readable(node.status.allocatable))
    over = [
        f"{amount_text(name, total[name])} of `{name}`, of which nodes have"
        f" {amount_text(name, capacity[name])}"
        for name in sorted(total)
        if name != PODS and total[name] > capacity[name]
    ]
    if over:
        yield warning(
            f"ElasticQuotas are guaranteed {'; '.join(over)}",
            "nobody can have all of a `min` then: lower some, or add nodes",
        )


def _resource_quotas(
    installation: Installation, members: Sequence[ElasticQuota]
) -> Iterator[Finding]:
    """Yield ResourceQuotas that deny pods before they can wait: they count queued pods, too."""
    for quota in members[:_MOST_NAMESPACES]:
        for found in installation.resource_quotas(quota.namespace):
            yield from _crowded(quota, found)
            hard = _readable(found.status.hard)
            small = sorted(name for name in hard if _is_small(name, hard[name], quota))
            if small:
                yield warning(
                    f"ResourceQuota {quota.namespace}/{found.metadata.name} allows no more"
                    f" ({', '.join(small)}) than ElasticQuota {quota.name}: no pod can wait",
                    "it counts queued pods from their creation: raise it above max and what"
                    " waits, or remove it",
                )


def _crowded(quota: ElasticQuota, found: ResourceQuota) -> Iterator[Finding]:
    """Yield that few more pods may exist, where pods wait: those beyond are denied."""
    queued = quota.figures.get(QUEUED_ANNOTATION, "")
    hard, used = _readable(found.status.hard), _readable(found.status.used)
    for name in (PODS, "count/pods"):
        left = hard.get(name, 0) - used.get(name, 0)
        if queued.isdecimal() and int(queued) and name in hard and left < int(queued):
            yield warning(
                f"ResourceQuota {quota.namespace}/{found.metadata.name} lets {max(left, 0)} more"
                f" pods exist (`{name}`), and {queued} wait for ElasticQuota {quota.name}: the next"
                " ones are soon denied rather than queued",
                f"raise `{name}` above what runs and what waits at most",
            )


def _is_small(name: str, hard: int, quota: ElasticQuota) -> bool:
    """Return whether a limit of a ResourceQuota leaves nothing beyond the `max` of a quota."""
    return hard <= (quota.max or {}).get(PODS if name == "count/pods" else name, -1)


def _queue_deadlines(
    installation: Installation, members: Sequence[ElasticQuota]
) -> Iterator[Finding]:
    """Yield Deployments that give up sooner than the last pod of their queue is released."""
    waits: dict[str, int] = {}
    for quota in members:
        interval, queued = release_interval(quota.figures), quota.figures.get(QUEUED_ANNOTATION, "")
        if interval is not None and queued.isdecimal():
            waits[quota.namespace] = expected_wait(int(queued), interval) // SECOND
    short = sorted(
        each.metadata.key
        for each in (installation.readable_deployments if waits else ())
        if (each.spec.progress_deadline_seconds or _DEFAULT_DEADLINE_SECONDS)
        < waits.get(each.metadata.namespace, 0)
    )
    if short:
        yield warning(
            f"{len(short)} Deployments count as failed (`progressDeadlineSeconds`) before the last"
            f" pod that queues now is released: {some(short)}",
            "raise it there, or the quota",
        )


def _gate_guard(installation: Installation) -> Iterator[Finding]:
    """Yield that tenants may leave the queue, where no policy forbids it."""
    if not installation.holds:
        return
    path = f"{ADMISSION}/validatingadmissionpolicybindings/{installation.release}-hold-gate"
    try:
        guard = installation.find(path, AnyObject)
    except ApiError:
        return  # it may not be read
    if guard is None:
        yield note(
            "`hold.gateGuard.enabled` is off: whoever may patch a pod may let it overtake others,"
            " up to max",
            "set it where tenants do not trust each other",
        )


def _readable(quantities: Mapping[str, str | int | float]) -> Amounts:
    """Return amounts in base units; `requests.cpu` is cpu. What cannot be read is left out."""
    readable: dict[str, int] = {}
    for written, value in quantities.items():
        name = written.removeprefix("requests.")
        try:
            readable[name] = base_units(name, value)
        except QuantityError:
            continue
    return readable
