"""Quotas whose pods queue: whether anybody releases them, and what else may be in their way."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
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
from webhook.doctor.installation import ADMISSION, Finding, Installation, Level
from webhook.doctor.objects import Deployment, Named, Node, ObjectList, PodSpec, ResourceQuota

_MOST_NAMED: Final = 3
_MOST_NAMESPACES: Final = 20  # whose ResourceQuotas are read
_DEADLINES_READ: Final = 500
_DEFAULT_DEADLINE_SECONDS: Final = 600  # of a Deployment
_DEFAULT_MODE: Final = "Enforce"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Queues:
    """What queues."""

    spec: PodSpec  # of the Deployment, with its settings
    namespaces: frozenset[str]  # in mode Queue
    annotated: frozenset[str]  # those of them whose annotation says so
    quotas: Mapping[str, Sequence[ElasticQuota]]  # all that could be read, by namespace

    @property
    def members(self) -> list[ElasticQuota]:
        """The quotas of namespaces in mode Queue, in the order of their names."""
        names = sorted(self.namespaces & self.quotas.keys())
        return [quota for name in names for quota in self.quotas[name]]


async def quota_queues(installation: Installation) -> AsyncIterator[Finding]:
    """Check what pods run into that wait for quota."""
    deployment = await installation.deployment()
    if deployment is None:
        return
    queues = await _queues(installation, deployment.spec.template.spec)
    if not queues.members and not queues.annotated:
        return
    findings = [
        *_releases(queues),
        *_without_quota(queues),
        *await _guaranteed(installation, queues),
        *await _resource_quotas(installation, queues),
        *await _deadlines(installation, queues),
        *await _gate_guard(installation, queues),
    ]
    for finding in findings:
        yield finding
    if all(finding.is_well for finding in findings):
        count = len({quota.namespace for quota in queues.members})
        namespaces = counted(count, "namespace")
        yield Finding(Level.OK, f"pods of {namespaces} queue for quota, nothing is in the way")


async def _queues(installation: Installation, spec: PodSpec) -> _Queues:
    default = spec.setting("STOWPLAN_QUOTA_MODE") or _DEFAULT_MODE
    found = (await installation.read("/api/v1/namespaces", ObjectList[Named])).items
    modes = {
        each.metadata.name: each.metadata.annotations.get(QUOTA_MODE_ANNOTATION) for each in found
    }
    quotas: dict[str, list[ElasticQuota]] = {}
    for quota in await list_kind(installation.connection, "ElasticQuota") or ():
        if quota.group == UPSTREAM_GROUP or quota.name == quota.namespace:
            quotas.setdefault(quota.namespace, []).append(quota)
    return _Queues(
        spec=spec,
        namespaces=frozenset(name for name, mode in modes.items() if (mode or default) == "Queue"),
        annotated=frozenset(name for name, mode in modes.items() if mode == "Queue"),
        quotas=quotas,
    )


def _releases(queues: _Queues) -> Iterator[Finding]:
    """Yield that pods are denied, where nobody holds them."""
    if queues.spec.setting("STOWPLAN_HOLD") != "true":
        yield Finding(
            Level.PROBLEM,
            f"quota mode is Queue in {_some(sorted(queues.namespaces))}, and `hold.enabled` is off:"
            " pods are denied, as with Enforce",
            "set `hold.enabled`, or quota mode Enforce",
        )


def _without_quota(queues: _Queues) -> Iterator[Finding]:
    """Yield namespaces that ask for a queue and have nothing to queue for."""
    names = sorted(queues.annotated - queues.quotas.keys())
    if names:
        yield Finding(
            Level.WARNING,
            f"quota mode is Queue and there is no ElasticQuota in {_some(names)}",
            "their pods are limited by nothing: create one, or remove the annotation"
            f" `{QUOTA_MODE_ANNOTATION}`",
        )


async def _guaranteed(installation: Installation, queues: _Queues) -> list[Finding]:
    """Return the resources of which all quotas are guaranteed more than the cohort has."""
    if queues.spec.setting("STOWPLAN_QUOTA_COHORT") == "SumOfMin":
        return []
    selector = queues.spec.setting("STOWPLAN_QUOTA_COHORT_NODES")
    query = {"labelSelector": selector} if selector else {}
    nodes = (await installation.read("/api/v1/nodes", ObjectList[Node], **query)).items
    total: Counter[str] = Counter()
    for quota in queues.members:
        total.update(quota.min or {})
    capacity: Counter[str] = Counter()
    for node in nodes:
        capacity.update(_readable(node.status.allocatable))
    over = [
        f"{amount_text(name, total[name])} of `{name}`, of which nodes have"
        f" {amount_text(name, capacity[name])}"
        for name in sorted(total)
        if name != PODS and total[name] > capacity[name]
    ]
    if not over:
        return []
    return [
        Finding(
            Level.WARNING,
            f"ElasticQuotas are guaranteed {'; '.join(over)}",
            "nobody can have all of a `min` then: lower some, or add nodes",
        )
    ]


async def _resource_quotas(installation: Installation, queues: _Queues) -> list[Finding]:
    """Return ResourceQuotas that deny pods before they can wait: they count queued pods, too."""
    findings: list[Finding] = []
    for quota in queues.members[:_MOST_NAMESPACES]:
        path = f"/api/v1/namespaces/{quota.namespace}/resourcequotas"
        for found in (await installation.read(path, ObjectList[ResourceQuota])).items:
            hard = _readable(found.status.hard)
            findings += _crowded(quota, found)
            small = sorted(name for name in hard if _is_small(name, hard[name], quota))
            if small:
                findings.append(
                    Finding(
                        Level.WARNING,
                        f"ResourceQuota {quota.namespace}/{found.metadata.name} allows no more"
                        f" ({', '.join(small)}) than ElasticQuota {quota.name}: no pod can wait",
                        "it counts queued pods from their creation: raise it above max and what"
                        " waits, or remove it",
                    )
                )
    return findings


def _crowded(quota: ElasticQuota, found: ResourceQuota) -> Iterator[Finding]:
    """Yield that few more pods may exist, where pods wait: those beyond are denied."""
    queued = quota.figures.get(QUEUED_ANNOTATION, "")
    hard, used = _readable(found.status.hard), _readable(found.status.used)
    for name in (PODS, "count/pods"):
        left = hard.get(name, 0) - used.get(name, 0)
        if queued.isdecimal() and int(queued) and name in hard and left < int(queued):
            yield Finding(
                Level.WARNING,
                f"ResourceQuota {quota.namespace}/{found.metadata.name} lets {max(left, 0)} more"
                f" pods exist (`{name}`), and {queued} wait for ElasticQuota {quota.name}: the next"
                " ones are soon denied rather than queued",
                f"raise `{name}` above what runs and what waits at most",
            )


def _is_small(name: str, hard: int, quota: ElasticQuota) -> bool:
    """Return whether a limit of a ResourceQuota leaves nothing beyond the `max` of a quota."""
    return hard <= (quota.max or {}).get(PODS if name == "count/pods" else name, -1)


async def _deadlines(installation: Installation, queues: _Queues) -> list[Finding]:
    """Return Deployments that give up sooner than their pods usually are released."""
    waits = _usual_waits(queues)
    if not waits:
        return []
    try:
        deployments = await installation.read(
            "/apis/apps/v1/deployments", ObjectList[Deployment], limit=str(_DEADLINES_READ)
        )
    except ApiError:
        return []  # they are read for this alone, and by few accounts
    short = sorted(
        f"{each.metadata.namespace}/{each.metadata.name}"
        for each in deployments.items
        if (each.spec.progress_deadline_seconds or _DEFAULT_DEADLINE_SECONDS)
        < waits.get(each.metadata.namespace, 0)
    )
    if not short:
        return []
    return [
        Finding(
            Level.WARNING,
            f"{len(short)} Deployments count as failed (`progressDeadlineSeconds`) before the last"
            f" pod that queues now is released: {_some(short)}",
            "raise it there, or the quota",
        )
    ]


def _usual_waits(queues: _Queues) -> dict[str, int]:
    """Return the seconds that the last pod of each queue waits, where it is known."""
    waits: dict[str, int] = {}
    for quota in queues.members:
        interval, queued = release_interval(quota.figures), quota.figures.get(QUEUED_ANNOTATION, "")
        if interval is not None and queued.isdecimal():
            waits[quota.namespace] = expected_wait(int(queued), interval) // SECOND
    return waits


async def _gate_guard(installation: Installation, queues: _Queues) -> list[Finding]:
    """Return that tenants may leave the queue, where no policy forbids it."""
    if queues.spec.setting("STOWPLAN_HOLD") != "true":
        return []
    path = f"{ADMISSION}/validatingadmissionpolicybindings/{installation.release}-hold-gate"
    try:
        await installation.read(path, Named)
    except ApiError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            return []  # it may not be read
        return [
            Finding(
                Level.NOTE,
                "`hold.gateGuard.enabled` is off: whoever may patch a pod may let it overtake"
                " others, up to max",
                "set it where tenants do not trust each other",
            )
        ]
    return []


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


def _some(names: Sequence[str]) -> str:
    """Return the first few names, and how many more there are."""
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
