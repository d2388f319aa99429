"""How mistakes in objects are told: the file, the place, and words for people."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from engine.model import api
from webhook.cluster import Recording, load_recorded
from webhook.cluster.objects import MOST_LEVELS, readable_part, shallow

LEAVES = st.none() | st.booleans() | st.integers() | st.text('{}[]"\\a', max_size=5)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('{]"\\a'), inner)
)


@given(VALUES)
def test_what_is_shallow_stays_as_it_is(value: object) -> None:
    text = json.dumps(value).encode()
    assert shallow(text) == text


@given(VALUES, st.integers(1, 9_000))
def test_what_nests_more_deeply_becomes_0(value: object, deeper: int) -> None:
    levels = MOST_LEVELS + deeper
    deep = b'{"a":' * levels + json.dumps(value).encode() + b"}" * levels
    text = json.dumps([value, "deep", value]).encode().replace(b'"deep"', deep)
    before, inner, after = json.loads(shallow(text))
    for _ in range(MOST_LEVELS - 1):  # the list around it is a level, too
        inner = inner["a"]
    assert (before, inner, after) == (value, 0, value)


@pytest.mark.parametrize(
    "malformed", [b"", b"[" * 9_000, b"]" * 9_000, b'["' * 900, b'{"a\\', b"]" + b"[" * 400 + b"]"]
)
def test_what_is_malformed_stays_malformed(malformed: bytes) -> None:
    with pytest.raises(json.JSONDecodeError):
        json.loads(shallow(malformed))


def test_two_deep_parts_are_each_replaced() -> None:
    deep = b"[" * 300 + b"]" * 300
    parts: list[Any] = json.loads(shallow(b"[" + deep + b',1,"]",' + deep + b"]"))
    assert parts[1:3] == [1, "]"]
    assert parts[0] == parts[3]


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


def part_of(pod: dict[str, Any]) -> api.Pod:
    return readable_part(msgspec.json.encode(pod), api.Pod)


POD: dict[str, Any] = {
    "metadata": {"name": "a", "namespace": "shop", "labels": {"app": "web"}},
    "spec": {
        "nodeName": "node-a",
        "containers": [
            {"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}},
            {"name": "d", "resources": {"requests": {"cpu": "2"}}},
        ],
    },
    "status": {"phase": "Running"},
}


def test_of_an_object_that_can_be_read_nothing_is_missing() -> None:
    assert part_of(POD) == msgspec.convert(POD, api.Pod)


@pytest.mark.parametrize(
    "odd",
    [
        {"spec": POD["spec"] | {"priority": "high"}},
        {"spec": POD["spec"] | {"containers": [*POD["spec"]["containers"], 7]}},
        {"spec": POD["spec"] | {"overhead": {"cpu": ["1"]}}},
        {"spec": POD["spec"] | {"overhead": {"cpu": "a lot"}}},
        {"spec": POD["spec"] | {"overhead": 1}},
        {"spec": POD["spec"] | {"affinity": {"nodeAffinity": 1}}},
        {"metadata": POD["metadata"] | {"creationTimestamp": "yesterday"}},
        {"metadata": POD["metadata"] | {"annotations": {"a": 1}}},
        {"status": POD["status"] | {"conditions": 1}},
    ],
)
def test_what_cannot_be_read_is_left_out_and_no_more(odd: dict[str, Any]) -> None:
    found = part_of(POD | odd)
    assert found.metadata.name == "a"
    assert found.metadata.labels == {"app": "web"}
    assert found.spec.node_name == "node-a"
    assert found.spec.containers is not None
    assert [container.name for container in found.spec.containers] == ["c", "d"]
    assert found.status.phase == "Running"


def test_amounts_that_can_be_read_stay_beside_those_that_cannot() -> None:
    requests: dict[str, object] = {
        "cpu": "1",
        "memory": "a lot",
        "nvidia.com/gpu": {},
        "pods": None,
    }
    found = part_of({"spec": {"containers": [{"resources": {"requests": requests}}]}})
    assert found.spec.containers is not None
    (container,) = found.spec.containers
    assert container.resources is not None
    assert container.resources.requests == {"cpu": "1", "pods": None}


def test_what_is_no_object_has_no_part() -> None:
    with pytest.raises(ValueError, match="truncated"):
        readable_part(b"{", api.Pod)
