from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from textwrap import dedent
from typing import IO, Any

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.documents.places import read_documents
from engine.errors import InvalidFileError
from engine.model import api
from engine.model.policy_resource import PolicyKind, PolicyResource, policy_resource_of
from engine.pipeline import Scope, decide
from engine.policy import PolicySet, compile_resource, load_policies
from engine.policy.compile import compile_policy
from engine.policy_tests.cases import read_cases
from tests.config_map import MountedConfigMap

_POLICY = """\
apiVersion: stowplan.dev/v1alpha1
kind: PlacementPolicy
metadata:
  name: {name}
spec:
  filters:
    - plugin: LimitAware
"""


def _write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text), encoding="utf-8")
    return folder


def _names(policies: PolicySet) -> list[str]:
    return [policy.name for policy in policies]


def _report(folder: Path, *paths: Path) -> str:
    with pytest.raises(InvalidFileError) as caught:
        load_policies(paths or [folder])
    return str(caught.value).replace(f"{folder}/", "")


def test_ten_mistakes_in_two_files_make_one_report(tmp_path: Path) -> None:
    _write(
        tmp_path,
        a_yaml="""\
        apiVersion: stowplan.dev/v1
        kind: PlacementPolicy
        metadata:
          name: a
        spec:
          prioriti: 5
          match:
            matchConditions:
              - name: batch
                expression: node.labels.pool == 'batch'
          variables:
            - name: wantsGpu
              expression: pod.requests['nvidia.com/gpu'] > 0
          filters:
            - plugin: LimitAwere
            - plugin: LoadAware
              args:
                usageThresholds: {cpu: 165}
          scores:
            - name: free
              expression: >-
                node.allocatable.cpu
                - node.requested.cpuu
        """,
        b_yaml="""\
        apiVersion: stowplan.dev/v1alpha1
        kind: PlacementPolicy
        metadata: {name: a}
        spec:
          filters:
            - name: cool
              expression: |
                has(node.usage) &&
                node.usage.cpu / node.alocatable.cpu < 0.65
              onError: Reject
          scores:
            - name: letters
              weight: 101
              expression: node.name
        """,
    )
    assert _report(tmp_path) == dedent(
        """\
        a.yaml:1:13: `stowplan.dev/v1` is not `stowplan.dev/v1alpha1`
         | apiVersion: stowplan.dev/v1
         | ............^
        hint: did you mean `stowplan.dev/v1alpha1`?
        a.yaml:6:3: unknown key `prioriti`
         |   prioriti: 5
         | ..^
        hint: did you mean `priority`?
        a.yaml:10:21: unknown name `node`
         |         expression: node.labels.pool == 'batch'
         | ....................^
        hint: `node` is known in filters and scores alone
        a.yaml:15:15: unknown plugin `LimitAwere`
         |     - plugin: LimitAwere
         | ..............^
        hint: did you mean `LimitAware`?
        a.yaml:18:32: must be at most 100
         |         usageThresholds: {cpu: 165}
         | ...............................^
        a.yaml:23:26: `node.requested` cannot have a resource `cpuu`
         |         - node.requested.cpuu
         | .........................^
        hint: did you mean `cpu`?
        b.yaml:3:18: there is a policy `a` in a.yaml:4 already
         | metadata: {name: a}
         | .................^
        b.yaml:9:31: `node` has no field `alocatable`
         |         node.usage.cpu / node.alocatable.cpu < 0.65
         | ..............................^
        hint: did you mean `allocatable`?
        b.yaml:10:16: `Reject` is not `RejectNode` or `IgnoreRule`
         |       onError: Reject
         | ...............^
        hint: did you mean `RejectNode`?
        b.yaml:13:15: must be at most 100
         |       weight: 101
         | ..............^
        b.yaml:14:19: a score must be a number, not `string`
         |       expression: node.name
         | ..................^
        hint: convert it, with `double(..)`, or write `x == 'a' ? 1 : 0`"""
    )


def test_a_folder_is_read_with_all_below_it_but_cases_and_other_files_are_not(
    tmp_path: Path,
) -> None:
    _write(
        tmp_path,
        b_yaml=_POLICY.format(name="b"),
        sub__a_yml=_POLICY.format(name="a"),
        sub__cases_yaml="nonsense: [",
        sub__notes_txt="nonsense: [",
    )
    (tmp_path / "c.json").write_text(
        '{"apiVersion": "stowplan.dev/v1alpha1", "kind": "PlacementPolicy",'
        ' "metadata": {"name": "c"}, "spec": {}}'
    )
    assert _names(load_policies([tmp_path])) == ["a", "b", "c"]


def test_a_mounted_config_map_is_read_once(tmp_path: Path) -> None:
    """kubelet writes the files in a hidden folder and puts links to them beside it."""
    real = tmp_path / "..2026_01_01"
    _write(real, a_yaml=_POLICY.format(name="a"), sub__b_yaml=_POLICY.format(name="b"))
    (tmp_path / "..data").symlink_to("..2026_01_01")
    (tmp_path / "a.yaml").symlink_to("..data/a.yaml")
    (tmp_path / "sub").symlink_to("..data/sub")
    assert _names(load_policies([tmp_path, tmp_path / "a.yaml"])) == ["a", "b"]


def test_links_that_go_in_circles_end(tmp_path: Path) -> None:
    _write(tmp_path, sub__a_yaml=_POLICY.format(name="a"))
    (tmp_path / "sub" / "up").symlink_to(tmp_path)
    (tmp_path / "self.yaml").symlink_to("self.yaml")
    assert "self.yaml: cannot be read: too many levels of symbolic links" in _report(tmp_path)


def test_a_file_may_hold_several_policies(tmp_path: Path) -> None:
    both = f"{_POLICY.format(name='a')}---\n{_POLICY.format(name='b')}"
    assert _names(load_policies([_write(tmp_path, all_yaml=both)])) == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "report"),
    [
        ("", "a.yaml: holds no policy"),
        ("# soon\n", "a.yaml: holds no policy"),
        ("[]", "a.yaml:1:1: expected a mapping of keys to values\n | []\n | ^"),
        ("text", "a.yaml:1:1: expected a mapping of keys to values\n | text\n | ^"),
        (
            "kind: ConfigMap\ndata: {a: 1}",
            """\
a.yaml:1:7: `ConfigMap` is not `PlacementPolicy`
 | kind: ConfigMap
 | ......^
hint: a policy is a document of its own: write what is in the `data` to a file""",
        ),
    ],
)
def test_a_file_that_holds_something_else_is_refused(
    tmp_path: Path, text: str, report: str
) -> None:
    assert _report(_write(tmp_path, a_yaml=text)) == report


def test_a_file_that_is_not_there_is_a_mistake_and_an_empty_folder_is_not(tmp_path: Path) -> None:
    report = _report(tmp_path, tmp_path / "no.yaml")
    assert report == "no.yaml: cannot be read: no such file or directory"
    assert _names(load_policies([tmp_path])) == []
    assert _names(load_policies([])) == []


def test_what_is_not_a_regular_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.yaml")
    assert _report(tmp_path) == "a.yaml: not a regular file"


def test_every_file_is_looked_at_even_if_one_is_not_yaml(tmp_path: Path) -> None:
    _write(tmp_path, a_yaml="a: [", b_yaml="kind: PlacementPolicy")
    report = _report(tmp_path)
    assert "a.yaml:1:4: not YAML" in report
    assert "b.yaml:1:1: missing key `spec`" in report


_KEYS = st.sampled_from(
    [
        *("apiVersion", "kind", "metadata", "name", "spec", "filters", "scores", "plugin", "args"),
        *("expression", "match", "matchConditions", "variables", "placement", "weight", "onError"),
    ]
)
_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(
        [
            *("stowplan.dev/v1alpha1", "PlacementPolicy", "LimitAware", "LoadAware", "true"),
            *("node.usage.cpu < 1.0", "variables.a", "1 +", "object.x", "RejectNode", "a"),
        ]
    ),
    st.text(st.characters(exclude_categories=["C"]), max_size=12),
)
_TREES = st.recursive(
    _SCALARS,
    lambda below: st.one_of(st.lists(below, max_size=4), st.dictionaries(_KEYS, below, max_size=6)),
    max_leaves=25,
)


@settings(max_examples=150)
@given(tree=_TREES)
def test_no_document_does_more_than_be_refused(tree: object) -> None:
    for document in read_documents(json.dumps(tree, ensure_ascii=False).encode(), "f.json"):
        policy, problems = compile_policy(document)
        assert (policy is None) == bool(problems)
        assert all(problem.line and problem.message for problem in problems)


# What changes while it is read.


def _prioritised(name: str, priority: int) -> str:
    return _POLICY.format(name=name) + f"  priority: {priority}\n"


def _generation(number: int) -> dict[str, str]:
    """Return four files, one policy each, that all have the priority of their generation."""
    return {name: _prioritised(name, number) for name in "abcd"}


def _before_each_reading(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Let something happen just before a file is opened to be read."""
    really_open = Path.open

    def open_later(path: Path, mode: str, **more: Any) -> IO[Any]:  # noqa: ANN401 - as `open`
        if mode == "rb":
            act()
        return really_open(path, mode, **more)

    monkeypatch.setattr(Path, "open", open_later)


@pytest.mark.parametrize("by_name", [False, True])
@pytest.mark.parametrize("changes", [1, 2])
@pytest.mark.parametrize("opened_before", range(5))
def test_files_of_a_config_map_that_changes_meanwhile_are_all_old_or_all_new(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    opened_before: int,
    changes: int,
    by_name: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    mounted = MountedConfigMap.at(tmp_path / "mount", **_generation(0))
    moments = {opened_before + 3 * change: change + 1 for change in range(changes)}
    opened = count()

    def swap() -> None:
        generation = moments.get(next(opened))
        if generation is not None:
            mounted.swap(**_generation(generation))

    _before_each_reading(monkeypatch, swap)
    paths = [mounted.mount / f"{name}.yaml" for name in "abcd"] if by_name else [mounted.mount]
    loaded = load_policies(paths)
    assert _names(loaded) == ["a", "b", "c", "d"]
    assert len({policy.priority for policy in loaded}) == 1


def test_files_that_never_rest_are_not_read_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounted = MountedConfigMap.at(tmp_path / "mount", **_generation(0))
    _before_each_reading(monkeypatch, lambda: mounted.swap(**_generation(0)))
    with pytest.raises(InvalidFileError, match="changes while it is read"):
        load_policies([mounted.mount])


def test_the_digest_of_a_policy_tells_its_text_but_not_its_layout(tmp_path: Path) -> None:
    def digest(text: str) -> bytes:
        (tmp_path / "p.yaml").write_text(text)
        (policy,) = load_policies([tmp_path])
        return policy.digest

    text = _prioritised("a", 1)
    assert digest(text) == digest(f"# a remark\n{text}")
    assert digest(text) != digest(_prioritised("a", 2))


def test_what_kubectl_prints_is_loaded(tmp_path: Path) -> None:
    _write(
        tmp_path,
        list_yaml="""\
        apiVersion: v1
        items:
        - apiVersion: stowplan.dev/v1alpha1
          kind: PlacementPolicy
          metadata:
            creationTimestamp: "2026-01-01T00:00:00Z"
            generation: 2
            name: web
            resourceVersion: "12"
            uid: 7a1e
          spec:
            priority: 1
          status:
            conditions: []
        - apiVersion: stowplan.dev/v1alpha1
          kind: NamespacedPlacementPolicy
          metadata:
            name: web
            namespace: shop
          spec:
            priority: 1
        kind: List
        metadata:
          resourceVersion: ""
        """,
    )
    assert _names(load_policies([tmp_path])) == ["web", "shop/web"]


def test_a_mistake_in_a_list_is_in_its_line(tmp_path: Path) -> None:
    _write(
        tmp_path,
        list_yaml="""\
        kind: List
        items:
        - apiVersion: stowplan.dev/v1alpha1
          kind: NamespacedPlacementPolicy
          metadata: {name: web}
          spec: {priority: high}
        - kind: Pod
        """,
    )
    report = _report(tmp_path)
    assert "list.yaml:5:13: missing key `namespace`" in report
    assert "list.yaml:6:20: expected a whole number" in report
    assert "list.yaml:7:9: `Pod` is not `PlacementPolicy`" in report


def test_one_name_may_be_used_in_several_namespaces(tmp_path: Path) -> None:
    text = _POLICY.replace("Placement", "NamespacedPlacement", 1)
    (tmp_path / "a.yaml").write_text(text.format(name="web\n  namespace: a"))
    (tmp_path / "b.yaml").write_text(text.format(name="web\n  namespace: b"))
    assert _names(load_policies([tmp_path])) == ["a/web", "b/web"]
    (tmp_path / "c.yaml").write_text(text.format(name="web\n  namespace: b"))
    assert "there is a policy `b/web` in b.yaml:4 already" in _report(tmp_path)


def test_files_of_kustomize_and_helm_beside_policies_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(_POLICY.format(name="a"))
    for name in ("kustomization.yaml", "kustomization.yml", "Chart.yaml", "values.yaml"):
        (tmp_path / name).write_text("kind: Kustomization\nresources: [a.yaml]\n")
    assert _names(load_policies([tmp_path])) == ["a"]
    with pytest.raises(InvalidFileError):  # named alone it is meant
        load_policies([tmp_path / "kustomization.yaml"])


SHIPPED = sorted(Path(__file__).parents[3].glob("policies/*/policy.yaml"))


def _resource(spec: Any, namespace: str = "") -> PolicyResource:  # noqa: ANN401 - any JSON
    kind = PolicyKind.NAMESPACED if namespace else PolicyKind.CLUSTER
    return PolicyResource(kind=kind, namespace=namespace, name="web", spec=spec)


def _resource_report(resource: PolicyResource) -> str:
    compiled = compile_resource(resource)
    assert compiled.policy is None
    return "\n".join(map(str, compiled.problems))


@pytest.mark.parametrize("file", SHIPPED, ids=lambda path: path.parent.name)
def test_a_policy_is_the_same_in_a_file_and_as_a_resource(file: Path) -> None:
    (from_file,) = load_policies([file])
    written = yaml.safe_load(file.read_text(encoding="utf-8"))
    stored = {
        **written,
        "metadata": {**written["metadata"], "uid": "u1", "generation": 3, "resourceVersion": "7"},
        "status": {"conditions": []},
    }
    wire = msgspec.json.decode(msgspec.json.encode(stored), type=api.PlacementPolicy)
    resource = policy_resource_of(wire)
    assert (resource.uid, resource.generation, resource.version) == ("u1", 3, 7)
    compiled = compile_resource(resource)
    assert compiled.problems == ()
    assert compiled.policy is not None
    assert compiled.policy.digest == from_file.digest
    assert compiled.policy.name == from_file.name


@pytest.mark.parametrize("file", SHIPPED, ids=lambda path: path.parent.name)
def test_a_policy_decides_the_same_in_a_file_and_as_a_resource(file: Path) -> None:
    (from_file,) = load_policies([file])
    written = yaml.safe_load(file.read_text(encoding="utf-8"))
    stored = json.loads(json.dumps(written, sort_keys=True))  # as an API server keeps it
    compiled = compile_resource(replace(_resource(stored["spec"]), name=from_file.name)).policy
    assert compiled is not None
    cases, _ = read_cases(file.with_name("cases.yaml"), now_is_read=False)
    assert cases
    for case in cases:
        case.state.track_sums(from_file.sum_profiles)
        assert compiled.sum_profiles == from_file.sum_profiles
        of_file, of_resource = (
            decide(case.request, PolicySet([policy]), case.state.view(), case.now, scope=Scope())
            for policy in (from_file, compiled)
        )
        assert of_resource.verdict is of_file.verdict
        assert of_resource.policies == of_file.policies
        assert of_resource.ranking.order.tolist() == of_file.ranking.order.tolist()
        assert of_resource.totals.tolist() == of_file.totals.tolist()
        assert of_resource.first_rejections == of_file.first_rejections
        assert of_resource.errors == of_file.errors


def test_every_mistake_has_line_caret_field_and_hint() -> None:
    spec = {
        "mode": "audit",
        "filters": [{"name": "x", "expression": "node.labels.a == 'b' &&\nnod.name != ''"}],
    }
    assert _resource_report(_resource(spec)) == (
        "placementpolicies/web:9:7: spec.filters[0].expression: unknown name `nod`\n"
        " |       nod.name != ''\n"
        " | ......^\n"
        "hint: did you mean `node`?\n"
        "placementpolicies/web:11:9: spec.mode: `audit` is not `Enforce` or `Audit`\n"
        " |   mode: audit\n"
        " | ........^\n"
        "hint: did you mean `Audit`?"
    )


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (None, "missing key `spec`"),
        ("text", "spec: expected a mapping"),
        ({"filters": {}}, "spec.filters: expected a list"),
        ({"filters": [{"plugin": "LimitAware", "args": {"a": [[]]}}]}, "args.a: unknown key"),
    ],
)
def test_whatever_a_spec_is_its_mistake_is_told(spec: Any, problem: str) -> None:  # noqa: ANN401
    assert problem in _resource_report(_resource(spec))


def test_a_spec_that_nests_without_end_is_a_mistake() -> None:
    args: dict[str, Any] = {}
    for _ in range(2_000):
        args = {"a": args}
    spec = {"filters": [{"plugin": "LimitAware", "args": args}]}
    assert (
        _resource_report(_resource(spec)) == "placementpolicies/web: nested deeper than 64 levels"
    )


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (
            {"match": {"namespaceSelector": {}}},
            "spec.match.namespaceSelector: it applies to pods of its own namespace alone",
        ),
        (
            {"placement": {"at": "Binding", "preemption": "DryRun"}},
            "spec.placement.preemption: it may not evict pods",
        ),
    ],
)
def test_a_policy_for_a_namespace_reaches_no_other(spec: dict[str, Any], problem: str) -> None:
    assert problem in _resource_report(_resource(spec, namespace="shop"))
    assert compile_resource(_resource(spec)).policy is not None


def test_a_policy_for_a_namespace_is_known_with_it() -> None:
    compiled = compile_resource(_resource({"priority": 5}, namespace="shop"))
    assert compiled.policy is not None
    assert (compiled.policy.name, compiled.policy.namespace) == ("shop/web", "shop")


def test_a_policy_of_one_namespace_may_not_slow_down_the_pods_of_others() -> None:
    slow = "node.taints.exists(t, t.key == pod.labels['a'] + node.name)"
    spec = {"filters": [{"name": "mine", "expression": slow}]}
    assert compile_resource(_resource(spec)).policy is not None
    report = _resource_report(_resource(spec, namespace="shop"))
    place = "namespacedplacementpolicies/shop/web:8:17: spec.filters[0].expression: "
    assert report.startswith(f"{place}`{slow}` takes some ")
    assert "too long for a policy of one namespace" in report


def test_a_spec_is_bounded() -> None:
    labels = {f"label-{number}": "x" * 60 for number in range(1_000)}
    spec = {"match": {"objectSelector": {"matchLabels": labels}}}
    assert _resource_report(_resource(spec)) == (
        "placementpolicies/web: spec: the spec is larger than 65536 bytes"
    )
