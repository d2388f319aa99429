"""A recorded cluster that policies are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import structs

from engine.model.request import PlacementRequest
from engine.policy import PolicySet
from engine.policy_lint import KnownCluster
from engine.release import creation_of
from engine.simulation import recorded_arrivals
from webhook.cli import console
from webhook.cli.cluster_loading import load_cluster, moment_of
from webhook.cli.pods import PodCollector


def known_cluster(paths: Sequence[Path], policies: PolicySet) -> KnownCluster:
    """Return a recorded cluster with its pods as they would be created.

    Args:
        paths: files and folders.
        policies: those that are to be compared with it.

    Raises:
        InvalidFileError: a file cannot be read at all.
    """
    collector = PodCollector()
    recording = load_cluster(paths, console.errors(), observers=[collector])
    recording.state.track_sums(policies.sum_profiles)
    view, (now, _) = recording.state.view(), moment_of(recording, None)
    requests = []
    for arrival in recorded_arrivals(collector.pods.values()).pods:
        is_generated = bool(arrival.pod.generate_name)
        pod = structs.replace(arrival.pod, name="") if is_generated else arrival.pod
        labels = view.namespaces.labels.get(pod.namespace, {})
        requests.append(
            PlacementRequest(
                pod=pod, raw=arrival.raw, namespace_labels=labels, request=creation_of(pod)
            )
        )
    return KnownCluster(view=view, now=now, pods=requests)
