"""What the pods of the chart's hooks and jobs do, done on this machine by their accounts."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.e2e.chart import Release
from tests.e2e.cluster import Cluster, Json, eventually
from tests.e2e.control_plane import ControlPlane

_STOWPLAN = Path(sys.executable).with_name("stowplan")


async def started_pod(cluster: Cluster, namespace: str, job: str) -> Json:
    """Return the pod of a Job as soon as it runs, by the name of the Job."""

    async def running() -> Json | None:
        pods = await cluster.list_all("pods", namespace, labelSelector=f"job-name={job}")
        return next((pod for pod in pods if pod["status"]["phase"] == "Running"), None)

    pod = await eventually(running, f"Job {job} runs")
    assert pod is not None
    return pod


async def run_container(
    cluster: Cluster,
    control_plane: ControlPlane,
    release: Release,
    account: str,
    container: Json,
    folder: Path,
) -> tuple[int | None, str]:
    """Do what a container does, as its account; return its exit status and what it says.

    Args:
        cluster: as its admin.
        control_plane: that of the cluster.
        release: whose pod it is in.
        account: name of its service account.
        container: runs a script, or `stowplan`, as the image does without a command.
        folder: for its token.
    """
    path = f"/api/v1/namespaces/{release.namespace}/serviceaccounts/{account}/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = (await cluster.call("POST", path, request))["status"]["token"]
    (folder / "token").write_text(token, encoding="utf-8")
    (folder / "ca.crt").write_bytes(control_plane.authority.pem)
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(json.dumps(_kubeconfig(control_plane, token)), encoding="utf-8")
    given = {one["name"]: one["value"] for one in container.get("env", ())}
    program: list[str | Path] = [_STOWPLAN]
    if "command" in container:
        assert container["command"] == ["python", "-c"]
        program = [sys.executable, "-c"]
    process = await asyncio.create_subprocess_exec(
        *(*program, *container["args"]),
        env={
            **os.environ,
            **given,
            "ACCOUNT": str(folder),
            "SERVER": control_plane.url,
            "KUBECONFIG": str(kubeconfig),
        },
        stdin=asyncio.subprocess.DEVNULL,
        stdout=PIPE,
        stderr=STDOUT,
    )
    said, _ = await process.communicate()
    return process.returncode, said.decode()


async def linted(cluster: Cluster, pod: Json) -> tuple[int | None, str]:
    """Do what the lint hook does, with the files that its pod mounts; the same is returned."""
    (container,) = pod["spec"]["containers"]
    (volume,) = (one for one in pod["spec"]["volumes"] if one["name"] == "policies")
    namespace = pod["metadata"]["namespace"]
    files = await cluster.get("configmaps", volume["configMap"]["name"], namespace)
    command, path = container["args"]
    assert path == container["volumeMounts"][0]["mountPath"]
    with TemporaryDirectory() as folder:
        for name, text in files["data"].items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        process = await asyncio.create_subprocess_exec(
            *(_STOWPLAN, command, folder), stdout=PIPE, stderr=STDOUT
        )
        said, _ = await process.communicate()
    return process.returncode, said.decode()


def _kubeconfig(control_plane: ControlPlane, token: str) -> Json:
    cluster = {
        "server": control_plane.url,
        "certificate-authority": str(control_plane.authority.certificate),
    }
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "e2e", "cluster": cluster}],
        "users": [{"name": "account", "user": {"token": token}}],
        "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": "account"}}],
        "current-context": "e2e",
    }
