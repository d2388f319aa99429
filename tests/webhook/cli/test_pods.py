from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.errors import InvalidFileError
from engine.view import ClusterState
from tests.patience import PATIENCE_SECONDS
from tests.webhook.cli.running import CLUSTER, POD, POLICIES, process
from webhook.cli.pods import placement_request, read_manifest

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec: {template: {spec: {containers: [{name: web}]}}}
"""


def pod(containers: str) -> str:
    return f"apiVersion: v1\nkind: Pod\nmetadata: {{name: web}}\nspec: {{{containers}}}\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", ": the file is empty"),
        (b"\xa9\x00\xff", ": neither YAML nor JSON: not a text in UTF-8"),
        (b"a: b: c", ":1:5: not YAML: mapping values are not allowed"),
        (b"foo: bar", ":1:1: not an object of Kubernetes: it has no `kind`"),
        (b'{"kind": "Pod"', ": not JSON: input data was truncated"),
        (DEPLOYMENT.encode(), ":3:7: kind: expected a Pod, not a `Deployment`"),
        (b"apiVersion: v1\nkind: Pod\nspec:\n", ":3:6: spec: expected an object, got null"),
        (
            pod("containers: [{resources: {limits: {cpu: 2x}}}]").encode(),
            ":4:48: spec.containers[0].resources.limits.cpu: `2x` is not a quantity",
        ),
        (
            f"{pod('')}---\n{pod('')}".encode(),
            ": expected one Pod, found 2 objects",
        ),
        (b'{"apiVersion": "v1", "kind": "PodList", "items": []}', "found 0 objects"),
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


def test_a_deployment_comes_with_a_hint(tmp_path: Path) -> None:
    file = tmp_path / "web.yaml"
    file.write_text(DEPLOYMENT)
    hint = "hint: give one of its pods: what is below `spec.template`, with `apiVersion: v1` and"
    with pytest.raises(InvalidFileError, match=hint):
        read_manifest(file)
    file.write_text('{"apiVersion": "batch/v1", "kind": "CronJob"}')
    with pytest.raises(InvalidFileError, match=r"below `spec\.jobTemplate\.spec\.template`"):
        read_manifest(file)
    file.write_text('{"apiVersion": "v1", "kind": "Service"}')
    with pytest.raises(InvalidFileError, match="hint: give the manifest of one Pod"):
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
    manifest = read_manifest(file)
    (first, _), (init,) = manifest["spec"]["containers"], manifest["spec"]["initContainers"]
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
