"""AdmissionReviews of new pods, as an API server sends them for the ReplicaSet controller."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import msgspec

from tests.bench.arrivals import Arrivals
from tests.bench.texts import Workload

_Json: TypeAlias = dict[str, Any]

_UID = "00000000-0000-4000-8000-000000000000"
_POD_KIND = {"group": "", "version": "v1", "kind": "Pod"}
_POD_RESOURCE = {"group": "", "version": "v1", "resource": "pods"}
_CONTROLLER = {
    "username": "system:serviceaccount:kube-system:replicaset-controller",
    "uid": _UID.replace("-4", "-5"),
    "groups": [
        "system:serviceaccounts",
        "system:serviceaccounts:kube-system",
        "system:authenticated",
    ],
    "extra": {"authentication.kubernetes.io/credential-id": [f"JTI={_UID.replace('-4', '-6')}"]},
}
_OF_A_STORED_POD = ("name", "uid", "creationTimestamp")


class Reviews:
    """Bodies of reviews: pods of a mix of rollouts, over and over, under ever new uids.

    Pods of one rollout differ in nothing before they have a name, so they share their text.

    Args:
        workloads: of the cluster.
        different: so many pods are drawn; then the same come again.
        dry_run: nothing will come of any of them.
    """

    def __init__(
        self, workloads: Sequence[Workload], different: int, *, dry_run: bool = False
    ) -> None:
        texts: dict[str, tuple[bytes, bytes]] = {}
        drawn = []
        for request in itertools.islice(Arrivals(workloads).as_rollouts(), different):
            owner = request.pod.labels["app.kubernetes.io/name"]
            if owner not in texts:
                before, _, after = _review(request.raw, dry_run=dry_run).partition(_UID.encode())
                texts[owner] = before, after
            drawn.append(texts[owner])
        self._texts = itertools.cycle(drawn)
        self._serial = itertools.count(1)

    def __iter__(self) -> Iterator[bytes]:
        """Yield bodies for ever."""
        for (before, after), number in zip(self._texts, self._serial, strict=True):
            yield b"%bf00d0000-0000-4000-8000-%012x%b" % (before, number, after)


def _review(raw: bytes, *, dry_run: bool) -> bytes:
    pod: _Json = msgspec.json.decode(raw)
    metadata = pod["metadata"]
    for name in _OF_A_STORED_POD:
        del metadata[name]
    del pod["spec"]["nodeName"]
    pod["status"] = {}
    metadata["managedFields"] = [_managed_fields(pod)]
    request = {
        "uid": _UID,
        "kind": _POD_KIND,
        "resource": _POD_RESOURCE,
        "requestKind": _POD_KIND,
        "requestResource": _POD_RESOURCE,
        "namespace": metadata["namespace"],
        "operation": "CREATE",
        "userInfo": _CONTROLLER,
        "object": pod,
        "oldObject": None,
        "dryRun": dry_run,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    return msgspec.json.encode(
        {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}
    )


def _managed_fields(pod: _Json) -> _Json:
    """Return the entry of whoever creates a pod: it names each field that is set."""
    containers = {
        f'k:{{"name":"{one["name"]}"}}': {".": {}, **_named(one)}
        for one in pod["spec"]["containers"]
    }
    return {
        "manager": "kube-controller-manager",
        "operation": "Update",
        "apiVersion": "v1",
        "time": "2026-01-01T00:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {
            "f:metadata": _named(pod["metadata"]),
            "f:spec": {**_named(pod["spec"]), "f:containers": containers},
        },
    }


def _named(fields: _Json) -> _Json:
    return {
        f"f:{name}": _named(value) if isinstance(value, dict) else {}
        for name, value in fields.items()
    }
