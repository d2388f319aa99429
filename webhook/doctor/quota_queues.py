"""Quotas whose pods queue: whether anybody releases them, and what else may be in their way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from engine.errors import QuantityError, counted
from engine.model.elastic_quota import (
    QUEUED_ANNOTATION,
    UPSTREAM_GROUP,
    ElasticQuota,
    release_interval,
)
from engine.model.namespace import QUOTA_MODE_ANNOTATION
from engine.model.quantity import PODS, amount_text, base_units
from engine.model.resources import Amounts
from engine.model.time import SECOND
from engine.report import expected_wait
from webhook.cluster.client.connection import ApiError
from webhook.cluster.client.lists import list_kind
from webhook.doctor.findings import Finding, note, ok, problem, some, warning
from webhook.doctor.installation import ADMISSION, Installation
from webhook.doctor.objects import AnyObject, Node, ObjectList, ResourceQuota

_MOST_NAMESPACES: Final = 20  # whose ResourceQuotas are read
_DEFAULT_DEADLINE_SECONDS: Final = 600  # of a Deployment
_DEFAULT_MODE: Final = "Enforce"


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
        *_guaranteed(installation, queues.members),
        *_resource_quotas(installation, queues.members),
        *_deadlines(installation, queues.members),
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


def _deadlines(installation: Installation, members: Sequence[ElasticQuota]) -> Iterator[Finding]:
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
