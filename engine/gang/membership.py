"""To which gang a pod belongs.

Sources: scheduler-plugins, pkg/util/podgroup.go; Koordinator,
pkg/scheduler/plugins/coscheduling/util/gang_helper.go, GetGangNameByPod.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from engine.model.gang import (
    GANG_ANNOTATIONS,
    GANG_LABELS,
    KOORDINATOR_POD_GROUP_LABEL,
    LIGHTWEIGHT_MIN_LABEL,
    LIGHTWEIGHT_NAME_LABEL,
    MIN_AVAILABLE_ANNOTATION,
    NAME_ANNOTATION,
    POD_GROUP_LABEL,
    WAITING_TIME_ANNOTATION,
    Gang,
    GangKey,
    MatchPolicy,
    gang_from,
    integer_in,
    waiting_seconds,
)
from engine.model.pod import Pod
from engine.model.pod_group import POD_GROUP_GROUPS, PodGroup, pod_group_key
from engine.view import ClusterView

_LONGEST_NAME: Final = 253
_LONGEST: Final = 1024
_NAME_LABELS: Final = (POD_GROUP_LABEL, KOORDINATOR_POD_GROUP_LABEL, LIGHTWEIGHT_NAME_LABEL)


def gang_key_of(pod: Pod) -> GangKey | None:
    """Return the gang that a pod names, which need not exist; None if it names none.

    One of a group of the scheduler itself names none: the scheduler starts those together.
    """
    return None if pod.has_scheduling_group else named_gang_of(pod)


def named_gang_of(pod: Pod) -> GangKey | None:
    """Return the gang that labels or annotations name, though the pod may be of another group."""
    labels = pod.labels
    name = next((labels[label] for label in _NAME_LABELS if labels.get(label)), "")
    name = name or pod.annotations.get(NAME_ANNOTATION, "")
    if not name or len(name) > _LONGEST_NAME or "/" in name:
        return None
    return GangKey(pod.namespace, name)


def pod_group_of_gang(key: GangKey, view: ClusterView) -> PodGroup | None:
    """Return the PodGroup that describes a gang, None where there is none."""
    found = (view.lookup(PodGroup, pod_group_key(group, key)) for group in POD_GROUP_GROUPS)
    return next((pod_group for pod_group in found if pod_group is not None), None)


def gang_of(pod: Pod, view: ClusterView) -> Gang | None:
    """Return the gang of a pod, None if it is a pod of its own.

    A pod whose PodGroup does not exist is one, as upstream passes it, unless the pod itself says
    how many are to run together. Pods of one gang without a PodGroup may say different things: the
    oldest decides, see `GangMembers`.
    """
    key = gang_key_of(pod)
    if key is None:
        return None
    pod_group = pod_group_of_gang(key, view)
    return pod_group.gang if pod_group is not None else gang_described_by(pod)


def names_missing_pod_group(pod: Pod, view: ClusterView) -> GangKey | None:
    """Return the gang that a pod names although nothing says what it is, else None."""
    return None if gang_of(pod, view) is not None else gang_key_of(pod)


def gang_described_by(pod: Pod) -> Gang | None:
    """Return the gang that a pod describes as Koordinator reads it, None if it describes none."""
    key = gang_key_of(pod)
    if key is None:
        return None
    text = pod.labels.get(LIGHTWEIGHT_MIN_LABEL) or pod.annotations.get(MIN_AVAILABLE_ANNOTATION)
    min_member = integer_in(text)
    if min_member is None or min_member < 1:
        return None
    return gang_from(
        key,
        pod.annotations,
        min_member=min_member,
        timeout_seconds=waiting_seconds(pod.annotations.get(WAITING_TIME_ANNOTATION)),
        match_policy=MatchPolicy.ONCE_SATISFIED,
        created=pod.created,
    )


def gang_metadata_of(pod: Pod) -> tuple[dict[str, str], dict[str, str]]:
    """Return the labels and annotations of a pod that say what gang it belongs to.

    What is longer than any that means something is left out.
    """
    return _short(pod.labels, GANG_LABELS), _short(pod.annotations, GANG_ANNOTATIONS)


def _short(texts: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    return {name: texts[name] for name in names if name in texts and len(texts[name]) <= _LONGEST}
