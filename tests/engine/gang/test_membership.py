from __future__ import annotations

import msgspec
import pytest

from engine.gang import (
    Gang,
    GangKey,
    MatchPolicy,
    gang_key_of,
    gang_metadata_of,
    gang_of,
    names_missing_pod_group,
)
from engine.model import api
from engine.model.pod import Pod
from engine.model.pod_group import pod_group_of
from engine.view import ClusterState, ClusterView
from tests.builders import pod_from

_LABEL = "scheduling.x-k8s.io/pod-group"
_KOORDINATORS = "pod-group.scheduling.sigs.k8s.io"
_GANG = "gang.scheduling.koordinator.sh"


def _pod(
    *,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    **spec: object,
) -> Pod:
    meta = {"name": "a", "namespace": "shop", "labels": labels, "annotations": annotations}
    return pod_from({"metadata": meta, "spec": spec})


def _view(*kinds: type[api.PodGroup], name: str = "train") -> ClusterView:
    state = ClusterState()
    for minimum, kind in enumerate(kinds, start=2):
        wire = {"metadata": {"name": name, "namespace": "shop"}, "spec": {"minMember": minimum}}
        state.set_extra(pod_group_of(msgspec.convert(wire, kind)))
    return state.view()


def _gang(pod: Pod, view: ClusterView) -> Gang:
    gang = gang_of(pod, view)
    assert gang is not None
    return gang


@pytest.mark.parametrize("label", [_LABEL, _KOORDINATORS, f"{_KOORDINATORS}/name"])
def test_a_label_names_the_gang_in_the_namespace_of_the_pod(label: str) -> None:
    assert gang_key_of(_pod(labels={label: "train"})) == GangKey("shop", "train")


def test_an_annotation_names_one_where_no_label_does() -> None:
    annotations = {f"{_GANG}/name": "serve"}
    assert gang_key_of(_pod(annotations=annotations)) == GangKey("shop", "serve")
    labelled = _pod(labels={_LABEL: "train"}, annotations=annotations)
    assert gang_key_of(labelled) == GangKey("shop", "train")


def test_the_label_of_scheduler_plugins_is_no_annotation() -> None:
    assert gang_key_of(_pod(annotations={_LABEL: "train"})) is None


@pytest.mark.parametrize("name", ["", "x" * 254, "a/b"])
def test_what_is_no_name_names_no_gang(name: str) -> None:
    assert gang_key_of(_pod(annotations={f"{_GANG}/name": name})) is None


def test_a_pod_in_a_group_of_the_scheduler_itself_is_left_to_it() -> None:
    pod = _pod(labels={_LABEL: "train"}, schedulingGroup={"podGroupName": "train"})
    assert gang_key_of(pod) is None


def test_the_pod_group_says_what_the_gang_is() -> None:
    view = _view(api.PodGroup)
    assert _gang(_pod(labels={_LABEL: "train"}), view).min_member == 2


def test_of_two_pod_groups_of_a_name_scheduler_plugins_counts() -> None:
    view = _view(api.KoordinatorPodGroup, api.PodGroup)
    assert _gang(_pod(labels={_KOORDINATORS: "train"}), view).min_member == 3


def test_a_pod_whose_pod_group_is_missing_is_a_pod_of_its_own() -> None:
    pod = _pod(labels={_LABEL: "other"})
    view = _view(api.PodGroup)
    assert gang_of(pod, view) is None
    assert names_missing_pod_group(pod, view) == GangKey("shop", "other")
    assert names_missing_pod_group(_pod(), view) is None
    assert names_missing_pod_group(_pod(labels={_LABEL: "train"}), view) is None


def test_a_pod_may_say_itself_how_many_run_together() -> None:
    pod = _pod(
        annotations={
            f"{_GANG}/name": "train",
            f"{_GANG}/min-available": "4",
            f"{_GANG}/waiting-time": "30s",
        }
    )
    gang = _gang(pod, _view())
    assert (gang.min_member, gang.schedule_timeout_seconds) == (4, 30)
    assert gang.match_policy is MatchPolicy.ONCE_SATISFIED
    assert not gang.has_pod_group


def test_deprecated_labels_say_it_too() -> None:
    pod = _pod(labels={f"{_KOORDINATORS}/name": "train", f"{_KOORDINATORS}/min-available": "4"})
    assert _gang(pod, _view()).min_member == 4


@pytest.mark.parametrize("text", ["", "0", "-1", "four", "4.0", "9" * 40])
def test_a_pod_that_says_no_number_is_a_pod_of_its_own(text: str) -> None:
    pod = _pod(annotations={f"{_GANG}/name": "train", f"{_GANG}/min-available": text})
    assert gang_of(pod, _view()) is None


def test_of_a_large_pod_its_gang_is_kept_and_nothing_large() -> None:
    pod = _pod(
        labels={_LABEL: "train", "app": "x"},
        annotations={f"{_GANG}/groups": "x" * 100_000, f"{_GANG}/mode": "Strict", "big": "x"},
    )
    assert gang_metadata_of(pod) == ({_LABEL: "train"}, {f"{_GANG}/mode": "Strict"})
