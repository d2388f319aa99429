from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from engine.errors import InvalidFileError
from engine.model.decision import Verdict
from engine.policy_tests.cases import Case, read_cases

_NODES = "{nodes: [{metadata: {name: a}, status: {allocatable: {cpu: 4}}}]}"


def _read(folder: Path, text: str) -> tuple[Case, ...]:
    file = folder / "cases.yaml"
    file.write_text(dedent(text), encoding="utf-8")
    cases, problems = read_cases(file)
    if problems:
        raise InvalidFileError(problems)
    return cases


def _report(folder: Path, text: str) -> str:
    with pytest.raises(InvalidFileError) as caught:
        _read(folder, text)
    return str(caught.value).replace(f"{folder}/", "")


def _one(
    cluster: str = "{}", pod: str = "{}", expect: str = "{verdict: Place}", more: str = ""
) -> str:
    return (
        "- name: n\n"
        "  now: 2026-01-01T00:00:10Z\n"
        f"  cluster: {cluster}\n"
        f"  pod: {pod}\n"
        f"  expect: {expect}\n{more}"
    )


def test_a_cluster_is_made_of_lists_of_objects(tmp_path: Path) -> None:
    (case,) = _read(
        tmp_path,
        """
        - name: everything
          now: 2026-01-01T00:00:10Z
          cluster:
            nodes: [{metadata: {name: a}, status: {allocatable: {cpu: 4}}}]
            pods: [{metadata: {name: p, namespace: shop}, spec: {nodeName: a}}]
            nodeMetrics:
            - metadata: {name: a}
              status:
                updateTime: 2026-01-01T00:00:00Z
                nodeMetric: {nodeUsage: {resources: {cpu: 1}}}
            namespaces: [{metadata: {name: shop, labels: {team: x}}}]
            elasticQuotas:
            - {apiVersion: scheduling.x-k8s.io/v1alpha1, metadata: {name: q, namespace: shop}}
          pod: {metadata: {namespace: shop}}
          request: {userInfo: {username: me}}
          expect: {verdict: Place, best: a}
        """,
    )
    view = case.state.view()
    row = view.rows["a"]
    assert view.valid[row]
    assert [*case.state.pods_containing("")] == [("shop/p", "a")]
    assert view.usages[row] is not None
    assert list(view.namespaces.quotas) == ["shop"]
    assert case.now - view.metric_time[row] == 10_000_000  # microseconds
    assert case.request.namespace_labels == {"team": "x"}
    assert case.request.request == {
        "operation": "CREATE",
        "namespace": "shop",
        "userInfo": {"username": "me"},
    }
    assert (case.expect.verdict, case.expect.best) == (Verdict.PLACE, ("a",))


def test_a_cluster_may_be_what_kubectl_prints_in_a_file_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(
        "{kind: List, items: [{kind: Node, metadata: {name: a}}, {kind: Secret, data: {}}]}"
    )
    (case,) = _read(tmp_path, _one(cluster="cluster.yaml"))
    assert list(case.state.view().rows) == ["a"]


def test_a_pod_without_a_namespace_is_in_the_default_one(tmp_path: Path) -> None:
    (case,) = _read(tmp_path, _one())
    assert case.request.pod.namespace == "default"


def test_the_pod_may_be_one_of_a_workload(tmp_path: Path) -> None:
    template = (
        "{metadata: {labels: {app: web}}, spec: {containers: [{resources: {limits: {cpu: 2}}}]}}"
    )
    workload = "{{kind: {}, metadata: {{name: web, namespace: shop}}, spec: {}}}"
    deployment = workload.format("Deployment", f"{{template: {template}}}")
    cron_job = workload.format("CronJob", f"{{jobTemplate: {{spec: {{template: {template}}}}}}}")
    for text, owner in ((deployment, "ReplicaSet"), (cron_job, "Job")):
        (case,) = _read(tmp_path, _one(pod=text))
        pod = case.request.pod
        assert (pod.key, pod.labels["app"], pod.owner_kinds) == ("shop/", "web", (owner,))
        assert pod.shape.requests["cpu"] == 2000  # what it is limited to
        assert case.request.object["metadata"]["generateName"] == "web-"


@pytest.mark.parametrize(
    ("text", "report"),
    [
        ("", "cases.yaml: expected one list of cases"),
        ("[]", "cases.yaml:1:1: expected one list of cases"),
        ("cases: [{name: a}]", "cases.yaml:1:1: expected one list of cases"),
        ("cases: [{name: a}]", "hint: the file is a list; a case begins with `- name: ..`"),
        ("- name: a\n---\n- name: b", "cases.yaml:3:1: expected one list of cases"),
        ("- [", "cases.yaml:1:3: not YAML"),
        (_one(expect="{bests: a}"), "cases.yaml:5:12: unknown key `bests`"),
        (_one(expect="{verdict: place}"), "hint: did you mean `Place`?"),
        (_one(expect="{}"), "cases.yaml:5:11: the case expects nothing"),
        (_one(expect="{errors: [], rejected: {}}"), "hint: expect a `verdict`, such as `Place`"),
        (_one(cluster="{node: []}"), "cases.yaml:3:13: unknown key `node`"),
        (_one(cluster="[]"), "cases.yaml:3:12: expected lists of Kubernetes objects"),
        (_one(cluster="{nodes: {}}"), "cases.yaml:3:20: expected a list"),
        (_one(cluster="nowhere.yaml"), "nowhere.yaml: cannot be read: no such file or directory"),
        (_one(pod="{metadata: {name: 5}}"), "cases.yaml:4:26: expected a text"),
        (
            _one(cluster="{nodes: [{spec: {taints: [{key: 1}]}}]}"),
            "cases.yaml:3:44: expected a text",
        ),
        (
            _one(cluster="{nodes: [{status: {allocatable: {cpu: lots}}}]}"),
            "cases.yaml:3:21: `lots` is not a quantity",
        ),
        (_one() + "- {}", "cases.yaml:6:3: missing key `name`"),
        (_one(pod="{kind: Deployment}"), "cases.yaml:4:8: a Deployment needs `spec.template`"),
        (_one(pod="{kind: Service}"), "cases.yaml:4:15: `Service` is not `Pod`"),
        (_one(pod="{kind: Service}"), "hint: write a Pod, or a CronJob, DaemonSet, Deployment, "),
        (
            _one(pod="{kind: Job, spec: {template: {spec: {nodeName: 5}}}}"),
            "cases.yaml:4:55: expected a text",
        ),
        (_one(pod="{spec: {template: {}}}"), "cases.yaml:4:26: this is not a Pod"),
        (_one(pod="{spec: {template: {}}}"), "hint: say of which kind, as `kind: Deployment`"),
        (_one(cluster="{nodes: [{kind: Pod}]}"), "cases.yaml:3:28: `Pod` is not `Node`"),
        (_one().replace("Z", ""), "cases.yaml:2:8: input should have timezone info"),
    ],
)
def test_a_mistake_is_shown_where_it_stands(tmp_path: Path, text: str, report: str) -> None:
    assert report in _report(tmp_path, text)


def test_the_mistakes_of_all_cases_are_reported_together(tmp_path: Path) -> None:
    report = _report(tmp_path, _one(pod="{spec: 1}") + _one(expect="[]"))
    assert report.count("cases.yaml:") == 2


_MEASURED = """{nodes: [{metadata: {name: a}}], nodeMetrics: [{metadata: {name: a}, status:
    {updateTime: 2026-01-01T00:00:00Z, nodeMetric: {nodeUsage: {resources: {cpu: 1}}}}}]}"""


def _without_now(text: str) -> str:
    return text.replace("  now: 2026-01-01T00:00:10Z\n", "")


def test_a_case_needs_a_moment_only_where_ages_count(tmp_path: Path) -> None:
    file = tmp_path / "cases.yaml"
    file.write_text(_without_now(_one()), encoding="utf-8")
    assert read_cases(file)[1] == []
    (problem,) = read_cases(file, now_is_read=True)[1]
    assert (problem.line, problem.message) == (1, "missing key `now`")
    file.write_text(_without_now(_one(cluster=_MEASURED)), encoding="utf-8")
    cases, (problem,) = read_cases(file)
    assert (cases, problem.message) == ((), "missing key `now`")
    assert problem.hint == "reports are as old as it makes them"


def test_a_case_that_is_right_is_read_beside_one_that_is_not(tmp_path: Path) -> None:
    file = tmp_path / "cases.yaml"
    file.write_text(_one() + _one(expect="[]"), encoding="utf-8")
    cases, problems = read_cases(file)
    assert (len(cases), len(problems)) == (1, 1)
