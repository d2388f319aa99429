from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.errors import InvalidFileError
from engine.model.time import SECOND
from engine.view import Sum
from tests.engine.view_facts import facts
from webhook.cluster import Recording, load_recorded

Json = dict[str, Any]

NODE: Json = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "node1", "labels": {"zone": "a"}},
    "spec": {},
    "status": {"allocatable": {"cpu": "4", "memory": "16Gi", "pods": "110"}},
}
POD: Json = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "web",
        "namespace": "shop",
        "creationTimestamp": "2026-01-01T08:00:00Z",
    },
    "spec": {
        "nodeName": "node1",
        "containers": [
            {"name": "web", "resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": 2}}}
        ],
    },
    "status": {
        "phase": "Running",
        "conditions": [
            {
                "type": "PodScheduled",
                "status": "True",
                "lastTransitionTime": "2026-01-01T08:00:01Z",
            }
        ],
    },
}
NAMESPACE: Json = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": "shop", "labels": {"tier": "gold"}},
}
QUOTA: Json = {
    "apiVersion": "scheduling.x-k8s.io/v1alpha1",
    "kind": "ElasticQuota",
    "metadata": {"name": "shop", "namespace": "shop"},
    "spec": {"max": {"cpu": "8"}},
}
NODE_METRIC: Json = {
    "apiVersion": "slo.koordinator.sh/v1alpha1",
    "kind": "NodeMetric",
    "metadata": {"name": "node1"},
    "status": {
        "updateTime": "2026-01-01T09:00:00Z",
        "nodeMetric": {"nodeUsage": {"resources": {"cpu": "1500m", "memory": "2Gi"}}},
        "podsMetric": [
            {
                "namespace": "shop",
                "name": "web",
                "priority": "koord-prod",
                "podUsage": {"resources": {"cpu": "300m"}},
            }
        ],
    },
}
OBJECTS = [NODE, POD, NAMESPACE, QUOTA, NODE_METRIC]


def a_list(items: list[Json], kind: str = "List", api_version: str = "v1") -> Json:
    """Return a list as kubectl prints one: what it is a list of comes after the items."""
    return {"apiVersion": api_version, "items": items, "kind": kind, "metadata": {}}


def typed_lists(objects: list[Json]) -> list[Json]:
    """Return one list per kind, as the API server sends it: its items do not say what they are."""
    lists = []
    for one in objects:
        item = {key: value for key, value in one.items() if key not in {"apiVersion", "kind"}}
        lists.append(a_list([item], f"{one['kind']}List", one["apiVersion"]))
    return lists


def as_yaml(*documents: Json) -> str:
    return yaml.safe_dump_all(documents, sort_keys=False)


def loaded(folder: Path, *contents: str | bytes, suffix: str = ".yaml") -> Recording:
    """Return the recording in files with these contents."""
    for number, content in enumerate(contents):
        data = content.encode() if isinstance(content, str) else content
        (folder / f"{number}{suffix}").write_bytes(data)
    return load_recorded([folder])


def problems(folder: Path, *contents: str | bytes) -> list[str]:
    """Return what is said of files that cannot be used, without the folder."""
    with pytest.raises(InvalidFileError) as caught:
        loaded(folder, *contents)
    return [str(one).replace(f"{folder}/", "") for one in caught.value.problems]


FORMS = {
    "a list of mixed kinds in JSON": [json.dumps(a_list(OBJECTS))],
    "an object per line, as in a snapshot": [
        '{"apiVersion":"v1","kind":"List","items":[\n'
        + ",\n".join(map(json.dumps, OBJECTS))
        + "\n]}\n"
    ],
    "a list of mixed kinds in YAML": [as_yaml(a_list(OBJECTS))],
    "a document per object": [as_yaml(*OBJECTS)],
    "a list per kind in JSON": [json.dumps(one) for one in typed_lists(OBJECTS)],
    "a list per kind in YAML": [as_yaml(*typed_lists(OBJECTS))],
    "a file per object in JSON": [json.dumps(one) for one in OBJECTS],
    "a file per object in YAML": [as_yaml(one) for one in OBJECTS],
    "objects in another order": [as_yaml(a_list(OBJECTS[::-1]))],
    "UTF-8 with a byte order mark": [json.dumps(a_list(OBJECTS)).encode("utf-8-sig")],
    "UTF-16, as PowerShell writes": [as_yaml(a_list(OBJECTS)).encode("utf-16")],
}


@pytest.mark.parametrize("contents", FORMS.values(), ids=FORMS)
def test_every_form_gives_the_same_cluster(tmp_path: Path, contents: list[str | bytes]) -> None:
    recording = loaded(tmp_path, *contents)
    assert recording.problems == ()
    assert recording.loaded == dict.fromkeys(
        ["Node", "Pod", "Namespace", "ElasticQuota", "NodeMetric"], 1
    )
    view = recording.state.view()
    row = view.rows["node1"]
    assert view.amount(view.allocatable, "cpu")[row] == 4000
    assert view.amount(view.sums[Sum.REQUESTS], "cpu")[row] == 500
    assert view.amount(view.sums[Sum.LIMITS], "cpu")[row] == 2000
    assert view.namespaces.labels == {"shop": {"tier": "gold"}}
    assert view.namespaces.quotas["shop"][0].max == {"cpu": 8000}
    usage = view.usages[row]
    assert usage is not None
    assert usage.usage == {"cpu": 1500, "memory": 2 * 2**30}
    assert usage.pods["shop/web"].amounts == {"cpu": 300}


def test_quotas_of_both_groups_are_read(tmp_path: Path) -> None:
    other = {**QUOTA, "apiVersion": "scheduling.sigs.k8s.io/v1alpha1"}
    view = loaded(tmp_path, as_yaml(QUOTA, other)).state.view()
    groups = [quota.group for quota in view.namespaces.quotas["shop"]]
    assert groups == ["scheduling.sigs.k8s.io", "scheduling.x-k8s.io"]


def test_files_and_folders_are_read_together(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "node.yml").write_text(as_yaml(NODE))
    (folder / "README.md").write_text("not an object")
    (tmp_path / "pod").write_text(json.dumps(POD))
    recording = load_recorded([folder, tmp_path / "pod"])
    assert recording.loaded == {"Node": 1, "Pod": 1}


def test_kinds_that_no_rule_reads_are_skipped_and_counted(tmp_path: Path) -> None:
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}}
    # Another API's kind of the same name is another kind.
    longhorn = {"apiVersion": "longhorn.io/v1beta2", "kind": "Node", "metadata": {"name": "n"}}
    recording = loaded(tmp_path, as_yaml(a_list([deployment, NODE, longhorn, deployment])))
    assert recording.loaded == {"Node": 1}
    assert recording.skipped == {"Deployment.apps": 2, "Node.longhorn.io": 1}


def test_of_two_objects_that_are_the_same_the_last_counts(tmp_path: Path) -> None:
    bigger = {**NODE, "status": {"allocatable": {"cpu": "8"}}}
    recording = loaded(tmp_path, as_yaml(NODE), as_yaml(POD), as_yaml(bigger))
    view = recording.state.view()
    assert view.amount(view.allocatable, "cpu").tolist() == [8000]
    assert recording.repeated == {"Node": [NODE["metadata"]["name"]]}


def test_pods_of_one_name_in_two_namespaces_are_two(tmp_path: Path) -> None:
    other = {**POD, "metadata": {**POD["metadata"], "namespace": "other"}}
    assert loaded(tmp_path, as_yaml(NODE), as_yaml(POD), as_yaml(other)).repeated == {}


def test_what_yaml_itself_finds_wrong_with_an_object_is_reported(tmp_path: Path) -> None:
    recording = loaded(tmp_path, f"kind: Pod\nkind: Pod\n---\n{as_yaml(NODE)}")
    assert [problem.message for problem in recording.problems] == [
        "duplicate key `kind`: the first one is on line 1"
    ]
    assert recording.loaded == {"Node": 1}


def test_pods_that_have_finished_count_for_nothing(tmp_path: Path) -> None:
    finished = {**POD, "status": {"phase": "Succeeded"}}
    recording = loaded(tmp_path, as_yaml(finished))
    assert recording.loaded == {"Pod": 1}
    assert len([*recording.state.pods_containing("")]) == 0


def test_a_recording_is_of_the_newest_moment_it_speaks_of(tmp_path: Path) -> None:
    # Created and scheduled at 8:00, measured at 9:00.
    recording = loaded(tmp_path, as_yaml(a_list(OBJECTS)))
    assert recording.recorded_at == 1_767_258_000 * SECOND


def test_without_measurements_heartbeats_and_conditions_tell_the_time(tmp_path: Path) -> None:
    assert (
        loaded(tmp_path, as_yaml(POD)).recorded_at == 1_767_254_401 * SECOND
    )  # scheduled at 8:00:01
    beat = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T08:30:00Z"}
    alive = {**NODE, "status": {**NODE["status"], "conditions": [beat]}}
    assert loaded(tmp_path, as_yaml(POD, alive)).recorded_at == 1_767_256_200 * SECOND


def test_a_recording_without_any_time_is_of_the_epoch(tmp_path: Path) -> None:
    assert loaded(tmp_path, as_yaml(NODE)).recorded_at == 0


def test_progress_ends_at_the_total(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.json").write_text(json.dumps(a_list([NODE] * 600)))
    told: list[tuple[int, int]] = []
    load_recorded([tmp_path], progress=lambda done, total: told.append((done, total)))
    size = sum(file.stat().st_size for file in tmp_path.iterdir())
    assert told[-1] == (size, size)
    assert len(told) > 2
    assert told == sorted(told)


def test_files_that_cannot_be_read_are_reported_together(tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text(" \n")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InvalidFileError) as caught:
        load_recorded([tmp_path / "gone.yaml", tmp_path / "empty.yaml", tmp_path / "folder"])
    told = {str(one).replace(f"{tmp_path}/", "") for one in caught.value.problems}
    assert told == {
        "gone.yaml: cannot be read: no such file or directory",
        "empty.yaml: the file is empty",
        "folder: the folder has no file that ends in .yaml, .yml, .json",
    }


def test_what_is_neither_yaml_nor_json_is_refused(tmp_path: Path) -> None:
    assert problems(tmp_path, b"\x93\xff\x00") == ["0.yaml: neither YAML nor JSON: not valid UTF-8"]


def test_the_words_of_a_kubectl_that_failed_are_refused(tmp_path: Path) -> None:
    # They happen to be YAML: a key and a text.
    (told,) = problems(tmp_path, "error: You must be logged in to the server (Unauthorized)\n")
    assert told.startswith("0.yaml:1:1: not an object of Kubernetes: it has no `kind`")


def test_only_the_first_hundred_mistakes_are_listed(tmp_path: Path) -> None:
    nameless = {"apiVersion": "v1", "kind": "Node", "metadata": {}}
    recording = loaded(tmp_path, json.dumps(a_list([nameless] * 103 + [NODE])))
    assert len(recording.problems) == 101
    assert recording.problems[-1].message == "3 more mistakes"
    assert recording.loaded == {"Node": 1}


def test_a_file_in_which_nothing_is_of_a_cluster_is_refused(tmp_path: Path) -> None:
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}}
    (problem,) = problems(tmp_path, as_yaml(deployment, deployment))
    assert problem == (
        f"{tmp_path}: no node, pod or other object that a decision reads: it has Deployment.apps\n"
        "hint: `stowplan snapshot` records a cluster"
    )


def test_a_file_with_mistakes_and_nothing_else_is_refused(tmp_path: Path) -> None:
    nameless = {"apiVersion": "v1", "kind": "Node", "metadata": {}}
    mistake, summary = problems(tmp_path, json.dumps(a_list([nameless])))
    assert mistake.startswith("0.yaml: items[0]")
    assert summary.startswith(f"{tmp_path}: no node, pod or other object that a decision reads\n")


def test_a_file_of_something_else_is_not_read_to_its_end(tmp_path: Path) -> None:
    # It ends in what is not YAML.
    mistake, summary = problems(tmp_path, "kind: List\nitems:\n" + "- a\n" * 1_200 + "}")
    assert mistake.startswith("0.yaml:3:3: items[0]: not an object of Kubernetes")
    assert summary.startswith("0.yaml: no node, pod or other object")


def test_an_empty_cluster_is_one(tmp_path: Path) -> None:
    recording = loaded(tmp_path, json.dumps(a_list([])))
    assert (recording.loaded, recording.problems) == ({}, ())


NUMBERS = st.integers(-(2**63), 2**64) | st.floats(allow_nan=False, allow_infinity=False)
LEAVES = st.none() | st.booleans() | NUMBERS | st.text(max_size=8)
KINDS = st.sampled_from([(one["apiVersion"], one["kind"]) for one in OBJECTS])
WORDS = st.sampled_from(
    ["metadata", "name", "namespace", "spec", "status", "containers", "resources", "limits", "cpu",
     "allocatable", "conditions", "labels", "max", "nodeMetric", "nodeUsage", "podsMetric", "type"]
)  # fmt: skip
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(WORDS | st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)
WILD_OBJECTS = st.builds(
    lambda kind, fields: {"apiVersion": kind[0], "kind": kind[1], **fields},
    KINDS,
    st.dictionaries(WORDS, VALUES, max_size=4),
)


def assert_loads_or_says_why(folder: Path, data: bytes) -> None:
    try:
        loaded(folder, data)
    except InvalidFileError as error:
        assert error.problems  # noqa: PT017 (either outcome is right)


reused_folder = settings(
    max_examples=100,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@given(st.binary(max_size=60) | st.text("{}[]:,\"'&*!|>-#kind: \n", max_size=60).map(str.encode))
@reused_folder
def test_no_bytes_break_the_loader(tmp_path: Path, data: bytes) -> None:
    assert_loads_or_says_why(tmp_path, data)


@given(VALUES)
@reused_folder
def test_no_json_breaks_the_loader(tmp_path: Path, value: object) -> None:
    assert_loads_or_says_why(tmp_path, json.dumps(value).encode())


@given(st.lists(WILD_OBJECTS, max_size=4))
@reused_folder
def test_no_object_breaks_the_loader_or_spoils_the_others(
    tmp_path: Path, objects: list[Json]
) -> None:
    recording = loaded(tmp_path, json.dumps(a_list([*objects, NODE])))
    assert "node1" in recording.state.view().rows
    assert sum(recording.loaded.values()) + len(recording.problems) > len(objects)


@given(st.lists(WILD_OBJECTS, max_size=4))
@reused_folder
def test_yaml_and_json_of_the_same_objects_give_the_same_cluster(
    tmp_path: Path, objects: list[Json]
) -> None:
    whole = a_list([*objects, *OBJECTS])
    from_json = loaded(tmp_path, json.dumps(whole))
    from_yaml = loaded(tmp_path, as_yaml(whole))
    assert facts(from_yaml.state.view()) == facts(from_json.state.view())
    assert from_yaml.recorded_at == from_json.recorded_at
    assert from_yaml.loaded == from_json.loaded
    assert len(from_yaml.problems) == len(from_json.problems)
