"""Small workloads for tests to start from; the tests change what they are about."""

from __future__ import annotations

from collections.abc import Mapping

from tests.e2e.cluster import Cluster, Json


async def is_running(cluster: Cluster, namespace: str, name: str) -> bool:
    """Return whether a pod runs on its node."""
    status = (await cluster.get("pods", name, namespace))["status"]
    return bool(status["phase"] == "Running")


def pod(namespace: str, name: str, *, requests: Mapping[str, str] | None = None) -> Json:
    """Return a pod of one container."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": namespace, "name": name},
        "spec": _pod_spec(requests),
    }


def deployment(
    namespace: str, name: str, *, replicas: int, requests: Mapping[str, str] | None = None
) -> Json:
    """Return a Deployment."""
    spec = {"replicas": replicas, **_selecting(name, requests)}
    return _workload("apps/v1", "Deployment", namespace, name, spec)


def stateful_set(
    namespace: str, name: str, *, replicas: int, requests: Mapping[str, str] | None = None
) -> Json:
    """Return a StatefulSet; its pods start one after the other."""
    spec = {"replicas": replicas, "serviceName": name, **_selecting(name, requests)}
    return _workload("apps/v1", "StatefulSet", namespace, name, spec)


def daemon_set(namespace: str, name: str, *, requests: Mapping[str, str] | None = None) -> Json:
    """Return a DaemonSet for all nodes."""
    return _workload("apps/v1", "DaemonSet", namespace, name, _selecting(name, requests))


def job(
    namespace: str, name: str, *, pods: int = 1, requests: Mapping[str, str] | None = None
) -> Json:
    """Return a Job of pods that run at the same time; `nodes.finish` ends them."""
    spec = {
        "completions": pods,
        "parallelism": pods,
        "template": {"spec": {**_pod_spec(requests), "restartPolicy": "Never"}},
    }
    return _workload("batch/v1", "Job", namespace, name, spec)


def controlled(obj: Json) -> str:
    """Return the kind of an object's controller; empty where it has none."""
    owners = obj["metadata"].get("ownerReferences", ())
    return next((owner["kind"] for owner in owners if owner.get("controller")), "")


def _workload(api_version: str, kind: str, namespace: str, name: str, spec: Json) -> Json:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"namespace": namespace, "name": name},
        "spec": spec,
    }


def _selecting(name: str, requests: Mapping[str, str] | None) -> Json:
    labels = {"app": name}
    return {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": _pod_spec(requests)},
    }


def _pod_spec(requests: Mapping[str, str] | None) -> Json:
    container: Json = {"name": "main", "image": "registry.example/main:1"}
    if requests:
        container["resources"] = {"requests": dict(requests)}
    return {"containers": [container]}
