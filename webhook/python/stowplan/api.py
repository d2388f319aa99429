"""What `stowplan` exports: a few functions over plain manifests and files."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from engine.errors import InvalidFileError, StowplanError
from engine.model.decision import Verdict
from engine.pipeline import Scope
from engine.policy import PolicySet
from engine.report import DecisionReport, decision_report
from webhook.cli.cluster_loading import moment_of
from webhook.cli.pods import placement_request, read_manifest
from webhook.cli.policy_loading import load_policy_set
from webhook.cluster import Recording, load_recorded
from webhook.identity import VERSION
from webhook.placement.placer import Placer

__all__ = [
    "DecisionReport",
    "InvalidFileError",
    "PolicySet",
    "Recording",
    "StowplanError",
    "Verdict",
    "__version__",
    "decide",
    "load_cluster",
    "load_policies",
    "read_pod",
]

__version__: Final = VERSION


def load_policies(*paths: str | Path) -> PolicySet:
    """Return the policies of files and folders, or policies to start from by their names.

    Raises:
        InvalidFileError: there is none, or they have mistakes; carries all of them.
    """
    return load_policy_set([Path(path) for path in paths])


def load_cluster(*paths: str | Path) -> Recording:
    """Return a cluster recorded by `stowplan snapshot` or `kubectl get -o json`.

    Objects with mistakes are left out, and listed in its `problems`.

    Raises:
        InvalidFileError: a file cannot be read, or has no object of a cluster.
    """
    return load_recorded([Path(path) for path in paths])


def read_pod(path: str | Path) -> dict[str, Any]:
    """Return the one pod of a YAML or JSON file, of a workload a pod of its template.

    Raises:
        InvalidFileError: the file cannot be read, or does not hold one pod or workload.
    """
    return read_manifest(Path(path))


def decide(
    pod: Mapping[str, Any],
    *,
    cluster: Recording,
    policies: PolicySet,
    namespace: str = "default",
    now: datetime | None = None,
) -> DecisionReport:
    """Return the decision for a pod that is created now, as `stowplan explain` shows it.

    The cluster stays as it is: the pod is not added to it.

    Args:
        pod: the manifest, in plain JSON values.
        cluster: a recording.
        policies: those in force.
        namespace: of a pod that names none.
        now: the moment at which ages of measurements count; if not given, that of the recording.

    Raises:
        StowplanError: the manifest is not that of a pod.
    """
    cluster.state.track_sums(policies.sum_profiles)
    moment, _ = moment_of(cluster, now)
    view = cluster.state.view()
    placer = Placer(view=lambda: view, now=lambda: moment, scope=Scope())
    request = placement_request(pod, namespace=namespace, view=view)
    decision, _ = placer.decide(request, policies)
    return decision_report(decision, most_inputs=None)
