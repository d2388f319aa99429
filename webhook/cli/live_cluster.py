"""A live cluster, read once for one decision: an object, the policies, and a snapshot."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.parse import quote

from rich.console import Console

from engine.errors import StowplanError
from engine.model.policy_resource import PolicyKind
from engine.policy import CASES_FILE, PolicySet, load_policies
from webhook.cli.cluster_loading import load_cluster
from webhook.cli.pods import Target, manifest_of, target_of
from webhook.cli.snapshot import read_errors, record
from webhook.cluster import Recording
from webhook.cluster.client.connection import ApiError, Connection, connected, find_as
from webhook.cluster.client.lists import list_kind
from webhook.cluster.object_file import JsonObject
from webhook.cluster.objects import ApiObject
from webhook.doctor.objects import ConfigMap, Deployment
from webhook.placement.policy_files import PolicyResources

_POLICY_FILES: Final = (".yaml", ".yml", ".json")
_VOLUME: Final = "policies"


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRead:
    manifest: dict[str, Any]  # of the pod that the target is, or stands for; empty without a target
    policies: PolicySet  # those of its ConfigMap, and PlacementPolicies; none if they are not read
    recording: Recording  # the cluster as a snapshot shows it, which is kept nowhere


def read_live(
    kubeconfig: Path | None,
    context: str | None,
    installation: str,
    *,
    target: str,
    namespace: str,
    reads_policies: bool,
    notes: Console,
) -> LiveRead:
    found = target_of(target) if target else None
    with TemporaryDirectory(prefix="stowplan-") as folder:
        file = Path(folder) / "cluster.json"

        async def read() -> tuple[ApiObject | None, PolicySet]:
            with read_errors(kubeconfig, context):
                async with connected(kubeconfig, context, accept_encoding="gzip") as connection:
                    object_ = await _object(connection, found, namespace) if found else None
                    policies = PolicySet()
                    if reads_policies:
                        policies = await _policies(connection, installation, notes)
                    await record(connection, file)
                    return object_, policies

        object_, policies = asyncio.run(read())
        recording = load_cluster([file], notes)
    manifest = {} if object_ is None else manifest_of(object_)
    return LiveRead(manifest=manifest, policies=policies, recording=recording)


async def _object(connection: Connection, target: Target, namespace: str) -> ApiObject:
    group, kind = target.group_kind
    root = f"/apis/{group}/v1" if group else "/api/v1"
    name = quote(target.name, "")
    path = f"{root}/namespaces/{quote(namespace, '')}/{target.plural}/{name}"
    try:
        raw = await connection.get(path)
    except ApiError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        raise StowplanError(
            f"there is no {target} in namespace `{namespace}`\nhint: name another with --namespace"
        ) from error
    return JsonObject(f"{target.plural}/{target.name}", (), group, kind, len(raw), raw)


async def _policies(connection: Connection, installation: str, notes: Console) -> PolicySet:
    """Return the policies of a cluster; of one name that of the ConfigMap."""
    files = await _policy_files(connection, installation)
    policies = list(load_policies((), files)) if files else []
    taken = {policy.name for policy in policies}
    resources = PolicyResources()
    for kind in PolicyKind:
        for resource in await list_kind(connection, kind.value) or ():
            resources.set(resource)
    await resources.compile_changed()
    for standing in resources.standings(taken):
        if standing.policy is not None:
            policies.append(standing.policy)
        else:
            texts = standing.problems or (f"{standing.resource.path}: {standing.message}",)
            for text in texts:
                notes.print(str(text), markup=False, soft_wrap=True)
    if not policies:
        raise StowplanError(
            "the cluster has no policies: no PlacementPolicy, and no ConfigMap of the Deployment"
            f" `{installation}`\nhint: name the Deployment with --installation, or give policies"
            " with --policies"
        )
    return PolicySet(policies)


async def _policy_files(connection: Connection, installation: str) -> dict[str, bytes]:
    """Return the policies in the ConfigMap of a Deployment, by their names; none without one."""
    namespace, _, name = installation.rpartition("/")
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}"
    deployment = await find_as(connection, path, Deployment)
    if deployment is None:
        return {}
    for volume in deployment.spec.template.spec.volumes:
        if volume.name != _VOLUME or volume.config_map is None:
            continue
        path = f"/api/v1/namespaces/{namespace}/configmaps/{volume.config_map.name}"
        config_map = await find_as(connection, path, ConfigMap)
        return {
            f"configmaps/{volume.config_map.name}/{key}": text.encode()
            for key, text in ({} if config_map is None else config_map.data).items()
            if key.endswith(_POLICY_FILES) and key != CASES_FILE
        }
    return {}
