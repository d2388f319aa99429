"""Gangs: what keeps one from ever starting, or lets its pods start one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from http import HTTPStatus
from typing import Final

from engine.errors import counted
from engine.gang import gang_key_of, gang_of, names_missing_pod_group
from engine.model import api
from engine.model.gang import POD_GROUP_LABEL, PodGroup
from engine.model.pod import Pod, pod_of
from engine.view import ClusterState, ClusterView
from webhook.cluster.client.connection import ApiError
from webhook.cluster.client.lists import list_kind
from webhook.doctor.held_pods import list_held_pods
from webhook.doctor.installation import Finding, Installation, Level
from webhook.doctor.objects import ObjectList, StatefulSet
from webhook.doctor.objects import Pod as ListedPod

_NOT_THERE: Final = (HTTPStatus.NOT_FOUND, HTTPStatus.FORBIDDEN)


_MOST_NAMED: Final = 3
_STATEFUL_SETS_READ: Final = 500


async def gangs(installation: Installation) -> AsyncIterator[Finding]:
    """Find what gangs cannot work with."""
    deployment = await installation.deployment()
    if deployment is None or deployment.spec.template.spec.setting("STOWPLAN_HOLD") != "true":
        return
    pod_groups = await list_kind(installation.connection, "PodGroup", absent=_NOT_THERE)
    if pod_groups is None:
        async for finding in _without_pod_groups(installation):
            yield finding
    view = _view_of(pod_groups or ())
    held = [each.pod for each in await list_held_pods(installation.connection)]
    findings = [*_missing(held, view), *await _ordered(installation, view)]
    for finding in findings:
        yield finding
    if pod_groups is not None and not findings:
        of_gangs = sum(gang_of(pod, view) is not None for pod in held)
        groups, pods = counted(len(pod_groups), "PodGroup"), counted(of_gangs, "held pod")
        yield Finding(Level.OK, f"{groups}, {pods} of gangs")


def _view_of(pod_groups: Sequence[PodGroup]) -> ClusterView:
    state = ClusterState()
    for pod_group in pod_groups:
        state.set_extra(pod_group)
    return state.view()


async def _without_pod_groups(installation: Installation) -> AsyncIterator[Finding]:
    """Yield whether any pod names a PodGroup although there are none."""
    path = "/api/v1/pods"
    labelled = await installation.read(
        path, ObjectList[ListedPod], labelSelector=POD_GROUP_LABEL, limit="1"
    )
    if labelled.items:
        pod = labelled.items[0].metadata
        yield Finding(
            Level.WARNING,
            f"pods such as {pod.namespace}/{pod.name} name PodGroups, and none can be listed: they"
            " start one by one",
            "install the CustomResourceDefinition of scheduler-plugins, or grant the right",
        )


def _missing(held: Sequence[Pod], view: ClusterView) -> Iterator[Finding]:
    """Yield PodGroups that held pods name and that do not exist."""
    named = Counter(str(key) for pod in held if (key := names_missing_pod_group(pod, view)))
    if named:
        some = ", ".join(name for name, _ in named.most_common(_MOST_NAMED))
        naming = counted(
            named.total(),
            "held pod names a PodGroup that does not exist",
            "held pods name PodGroups that do not exist",
        )
        yield Finding(
            Level.WARNING,
            f"{naming}: released one by one: {some}",
            "create a PodGroup before its pods, in their namespace",
        )


async def _ordered(installation: Installation, view: ClusterView) -> list[Finding]:
    """Return StatefulSets that never create as many pods as their gang waits for."""
    try:
        stateful_sets = await installation.read(
            "/apis/apps/v1/statefulsets", ObjectList[StatefulSet], limit=str(_STATEFUL_SETS_READ)
        )
    except ApiError:
        return []  # they are read for this alone, and by few accounts
    findings = []
    for each in stateful_sets.items:
        template = _template_of(each)
        gang = gang_of(template, view)
        is_parallel = each.spec.pod_management_policy == "Parallel"
        if gang is not None and gang.min_member > 1 and not is_parallel:
            findings.append(
                Finding(
                    Level.PROBLEM,
                    f"StatefulSet {each.metadata.namespace}/{each.metadata.name} creates a pod when"
                    f" the one before it is ready, and its gang {gang_key_of(template)} waits until"
                    f" {gang.min_member} exist: none ever starts",
                    "`podManagementPolicy: Parallel`, in a StatefulSet that replaces it",
                )
            )
    return findings


def _template_of(stateful_set: StatefulSet) -> Pod:
    meta = stateful_set.spec.template.metadata
    metadata = api.ObjectMeta(
        namespace=stateful_set.metadata.namespace, labels=meta.labels, annotations=meta.annotations
    )
    return pod_of(api.Pod(metadata=metadata))
