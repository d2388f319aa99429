"""How mistakes in objects are told: the file, the place, and words for people."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from webhook.cluster import Recording, load_recorded

Json = dict[str, Any]

GOOD: Json = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "good"}}


WINDOW = "status.nodeMetric.aggregatedNodeUsages[0]"


def pod(container: Json, **metadata: Any) -> Json:  # noqa: ANN401 (any part of the metadata)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "shop", **metadata},
        "spec": {"containers": [{"name": "web", **container}]},
    }


def limited(**limits: object) -> Json:
    return pod({"resources": {"limits": limits}})


def measured(percentiles: Json) -> Json:
    windows = [{"duration": "5m0s", "usage": percentiles}]
    return {
        "apiVersion": "slo.koordinator.sh/v1alpha1",
        "kind": "NodeMetric",
        "metadata": {"name": "n"},
        "status": {"nodeMetric": {"aggregatedNodeUsages": windows}},
    }


def load(path: Path, content: bytes | str) -> Recording:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    recording = load_recorded([path])
    assert "good" in recording.state.view().rows  # whatever is wrong with another
    return recording


def json_list(*items: Json) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": [*items, GOOD]})


MISTAKES = {
    "a list where an amount belongs": (
        limited(cpu=["4"]),
        "spec.containers[0].resources.limits.cpu: expected a number or a text, got a list",
    ),
    "an amount that is none": (
        limited(cpu="1", memory="4 GB"),
        "spec.containers[0].resources.limits.memory: `4 GB` is not a quantity",
    ),
    "an amount of a resource with a domain": (
        limited(**{"nvidia.com/gpu": "one"}),
        'spec.containers[0].resources.limits["nvidia.com/gpu"]: `one` is not a quantity',
    ),
    "a number where a text belongs": (
        pod({}, labels={"app": "web", "version": 2}),
        "metadata.labels.version: expected a text, got a whole number",
    ),
    "a text that is no time": (
        pod({}, creationTimestamp="yesterday"),
        "metadata.creationTimestamp: invalid RFC3339 encoded datetime",
    ),
    "an object where a list belongs": (
        {**pod({}), "spec": {"containers": {}}},
        "spec.containers: expected a list, got an object",
    ),
    "a fraction where a whole number belongs": (
        {**pod({}), "spec": {"priority": 0.5}},
        "spec.priority: expected a whole number, got a number",
    ),
    "a list where a percentile's amount belongs": (
        measured({"avg": {"resources": {"cpu": 1}}, "p95": {"resources": {"memory": []}}}),
        f"{WINDOW}.usage.p95.resources.memory: expected a number or a text, got a list",
    ),
    "a percentile's amount that is none": (
        measured({"avg": {"resources": {"cpu": 1}}, "p95": {"resources": {"cpu": "4 cores"}}}),
        f"{WINDOW}.usage.p95.resources.cpu: `4 cores` is not a quantity",
    ),
    "no name": (pod({}, name=""), "metadata: it has no `name`"),
    "a name with a slash": (pod({}, name="a/b"), "metadata: no name or namespace contains `/`"),
    "a quota of nobody": (
        {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "ElasticQuota",
         "metadata": {"name": "q"}},
        "metadata: it has no `namespace`",
    ),
    "a window that is no duration": (
        {"apiVersion": "metrics.k8s.io/v1beta1", "kind": "NodeMetrics",
         "metadata": {"name": "n"}, "window": "soon"},
        "`soon` is not a duration such as `5m` or `1h30m`",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("wrong", "told"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_told_with_its_path_and_the_rest_is_loaded(
    tmp_path: Path, wrong: Json, told: str
) -> None:
    path = tmp_path / "cluster.json"
    (problem,) = load(path, json_list(GOOD, wrong)).problems
    separator = ": " if told.startswith("`") else "."
    assert problem.file == str(path)
    assert problem.message == f"items[1]{separator}{told}"


@pytest.mark.parametrize(("wrong", "told"), MISTAKES.values(), ids=MISTAKES)
def test_yaml_and_json_say_the_same(tmp_path: Path, wrong: Json, told: str) -> None:
    (in_json,) = load(tmp_path / "cluster.json", json_list(wrong)).problems
    (in_yaml,) = load(
        tmp_path / "cluster.yaml", yaml.safe_dump(json.loads(json_list(wrong)))
    ).problems
    assert in_yaml.message == in_json.message
    assert in_yaml.hint == in_json.hint
    assert told in in_yaml.message
    assert in_yaml.line > 1


def test_a_mistake_in_yaml_is_shown_in_its_line(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    content = """\
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Node
  metadata: {name: good}
- apiVersion: v1
  kind: Pod
  metadata:
    name: web
    namespace: shop
  spec:
    containers:
    - resources:
        requests:
          cpu: 2 cores
"""
    (problem,) = load(path, content).problems
    assert str(problem) == (
        f"{path}:16:16: items[1].spec.containers[0].resources.requests.cpu:"
        " `2 cores` is not a quantity\n"
        " |           cpu: 2 cores\n"
        " | ...............^\n"
        "hint: Pod `shop/web` is left out"
    )


def test_all_amounts_of_an_object_that_are_none_are_told(tmp_path: Path) -> None:
    problems = load(tmp_path / "cluster.json", json_list(limited(cpu="x", memory="y"))).problems
    assert [problem.message for problem in problems] == [
        "items[0].spec.containers[0].resources.limits.cpu: `x` is not a quantity",
        "items[0].spec.containers[0].resources.limits.memory: `y` is not a quantity",
    ]


def test_items_that_are_no_objects_are_told(tmp_path: Path) -> None:
    content = {"kind": "List", "items": [5, {}, {"kind": 7}, GOOD]}
    problems = load(tmp_path / "cluster.json", json.dumps(content)).problems
    assert [problem.message for problem in problems] == [
        f"items[{index}]: not an object of Kubernetes: it has no `kind`" for index in range(3)
    ]


def test_bytes_that_are_no_text_spoil_only_their_object(tmp_path: Path) -> None:
    content = json_list(pod({}, name="spoilt")).encode().replace(b"spoilt", b"\xff")
    (problem,) = load(tmp_path / "cluster.json", content).problems
    assert problem.message == "items[0]: not valid UTF-8"
    assert problem.hint == "the Pod is left out"


def test_a_path_ends_where_it_cannot_be_followed(tmp_path: Path) -> None:
    content = json_list(limited(cpu="HUGE")).replace('"HUGE"', "1e400")
    (problem,) = load(tmp_path / "cluster.json", content).problems
    # The decoder does not say under which key the number stands, and no decoder reads it.
    assert problem.message == "items[0].spec.containers[0].resources.limits: number out of range"
