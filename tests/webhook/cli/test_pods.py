from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.errors import InvalidFileError, StowplanError
from engine.view import ClusterState
from tests.patience import PATIENCE_SECONDS
from tests.webhook.cli.running import CLUSTER, POD, POLICIES, process
from webhook.cli.pods import placement_request, read_manifest, target_of

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec: {template: {spec: {containers: [{name: web}]}}}
"""
SERVICE = """
apiVersion: v1
kind: Service
metadata: {name: web}
"""


def pod(containers: str) -> str:
    return f"apiVersion: v1\nkind: Pod\nmetadata: {{name: web}}\nspec: {{{containers}}}\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", ": the file is empty"),
        (b"\xa9\x00\xff", ": neither YAML nor JSON: not valid UTF-8"),
        (b"a: b: c", ":1:5: not YAML: mapping values are not allowed"),
        (b"foo: bar", ":1:1: not an object of Kubernetes: it has no `kind`"),
        (b'{"kind": "Pod"', ": not JSON: input data was truncated"),
        (SERVICE.encode(), ":3:7: kind: expected a Pod or a workload, not a `Service`"),
        (
            DEPLOYMENT.replace("containers:", "nodeName: 5, containers:").encode(),
            ":5:36: spec.template.spec.nodeName: expected a text, got a whole number",
        ),
        (b"kind: Deployment\napiVersion: apps/v1", ":1:1: spec.template.spec: expected an object"),
        (b"kind: Job\napiVersion: batch.volcano.sh/v1alpha1", "a workload, not a `Job`"),
        (b"apiVersion: v1\nkind: Pod\nspec:\n", ":3:6: spec: expected an object, got null"),
        (
            pod("containers: [{resources: {limits: {cpu: 2x}}}]").encode(),
            ":4:48: spec.containers[0].resources.limits.cpu: `2x` is not a quantity",
        ),
        (
            f"{pod('')}---\n{pod('')}".encode(),
            ": expected one Pod or workload, found 2",
        ),
        (b'{"apiVersion": "v1", "kind": "PodList", "items": []}', "found 0"),
    ],
)
def test_what_is_not_one_pod_is_refused_with_its_place(
    tmp_path: Path, content: bytes, message: str
) -> None:
    file = tmp_path / "pod.yaml"
    file.write_bytes(content)
    with pytest.raises(InvalidFileError) as refused:
        read_manifest(file)
    assert str(refused.value).startswith(str(file))
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "api_version", "template", "owner", "name"),
    [
        ("CronJob", "batch/v1", "spec: {jobTemplate: {spec: {template: %s}}}", "Job", ""),
        ("DaemonSet", "apps/v1", "spec: {template: %s}", "DaemonSet", ""),
        ("Deployment", "apps/v1", "spec: {template: %s}", "ReplicaSet", ""),
        ("Job", "batch/v1", "spec: {template: %s}", "Job", ""),
        ("ReplicaSet", "apps/v1", "spec: {template: %s}", "ReplicaSet", ""),
        ("StatefulSet", "apps/v1", "spec: {template: %s}", "StatefulSet", "web-0"),
    ],
)
def test_a_workload_stands_for_a_pod_of_its_template(
    tmp_path: Path, kind: str, api_version: str, template: str, owner: str, name: str
) -> None:
    pod_template = (
        "{metadata: {labels: {a: b}}, spec: {containers: [{resources: {limits: {cpu: 2}}}]}}"
    )
    file = tmp_path / "web.yaml"
    file.write_text(
        f"apiVersion: {api_version}\nkind: {kind}\nmetadata: {{name: web, namespace: shop}}\n"
        f"{template % pod_template}\n---\n{SERVICE}"  # the Service beside it is skipped
    )
    request = placement_request(
        read_manifest(file), namespace="default", view=ClusterState().view()
    )
    assert (request.pod.namespace, request.pod.name) == ("shop", name)
    assert request.pod.generate_name == "web-"
    assert request.pod.owner_kinds == (owner,)
    assert request.pod.labels["a"] == "b"
    assert request.pod.shape.requests["cpu"] == 2000


def test_another_kind_comes_with_a_hint(tmp_path: Path) -> None:
    file = tmp_path / "web.yaml"
    file.write_text(SERVICE)
    with pytest.raises(InvalidFileError, match="hint: give the manifest of a Pod, or of a CronJob"):
        read_manifest(file)


@pytest.mark.parametrize(("path", "why"), [("nowhere.yaml", "no such file"), (".", "a directory")])
def test_a_file_that_cannot_be_read(path: str, why: str) -> None:
    with pytest.raises(InvalidFileError, match=f"^{path}: cannot be read: .*{why}"):
        read_manifest(Path(path))


def test_the_one_pod_of_a_list_will_do(tmp_path: Path) -> None:
    single = read_manifest(POD)
    file = tmp_path / "list.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [single]}))
    assert read_manifest(file) == single


def test_limits_are_requested_where_nothing_else_is_as_the_api_server_has_it(
    tmp_path: Path,
) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(
        pod(
            "initContainers: [{resources: {limits: {cpu: 3}}}],"
            " containers: [{resources: {limits: {cpu: 2, memory: 1Gi}, requests: {cpu: 1}}}, {}]"
        )
    )
    view = ClusterState().view()
    spec = placement_request(read_manifest(file), namespace="default", view=view).object["spec"]
    (first, _), (init,) = spec["containers"], spec["initContainers"]
    assert first["resources"]["requests"] == {"cpu": 1, "memory": "1Gi"}
    assert init["resources"]["requests"] == {"cpu": 3}


def test_a_request_says_what_the_api_server_would(tmp_path: Path) -> None:
    state = ClusterState()
    state.set_namespace("shop", {"team": "blue"})
    file = tmp_path / "pod.yaml"
    file.write_text(pod("containers: []"))
    request = placement_request(read_manifest(file), namespace="shop", view=state.view())
    assert (request.pod.namespace, request.pod.name) == ("shop", "web")
    assert request.namespace_labels == {"team": "blue"}
    assert request.object["kind"] == "Pod"
    assert request.request["operation"] == "CREATE"
    assert request.request["resource"] == {"group": "", "version": "v1", "resource": "pods"}


def test_a_pod_can_be_piped_in_as_json() -> None:
    with process("explain", "-", *CLUSTER, *POLICIES) as running:
        out, err = running.communicate(json.dumps(read_manifest(POD)), timeout=PATIENCE_SECONDS)
    assert (running.returncode, err) == (0, "")
    assert out.startswith("Place shop/checkout")


@pytest.mark.parametrize(
    ("written", "read", "plural"),
    [
        ("po/web-0", "pod `web-0`", "pods"),
        ("deploy/web", "Deployment `web`", "deployments"),
        ("StatefulSets.apps/db", "StatefulSet `db`", "statefulsets"),
        ("cj.v1.batch/backup", "CronJob `backup`", "cronjobs"),
    ],
)
def test_types_have_the_names_that_kubectl_takes(written: str, read: str, plural: str) -> None:
    target = target_of(written)
    assert (str(target), target.plural) == (read, plural)


@pytest.mark.parametrize("written", ["web", "/web", "deploy/", "deploy/web/0"])
def test_a_type_and_a_name_are_needed(written: str) -> None:
    with pytest.raises(StowplanError, match="expected TYPE/NAME"):
        target_of(written)


def test_a_type_that_makes_no_pods_is_refused() -> None:
    with pytest.raises(StowplanError, match=r"`deploy\.batch` makes no pods\nhint: the types are"):
        target_of("deploy.batch/web")
