"""Loading of recorded clusters, with progress, the first mistakes, and what is missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from msgspec import structs
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

from engine.errors import counted
from engine.model.decision import PlacementRequest
from engine.model.time import Micros, date, micros
from engine.policy import PolicySet
from engine.policy_lint import KnownCluster
from engine.release import creation_of
from engine.simulation import recorded_arrivals
from webhook.cli import console
from webhook.cli.pods import PodCollector
from webhook.cluster import Recording, load_recorded
from webhook.cluster.watch.event_applier import PodObserver

_MOST_PROBLEMS: Final = 3
_USAGE_HINT: Final = "`kubectl get nodes.metrics.k8s.io -o json > usage.json`, and `--cluster` both"
_ONCE_HINT: Final = "name the files of one recording alone"
_OBJECTS_HINT: Final = "`kubectl get nodes,pods,namespaces -A -o json` has all of them"


def load_cluster(
    paths: Sequence[Path], console: Console, *, observers: Sequence[PodObserver] = ()
) -> Recording:
    """Return a recorded cluster; objects that cannot be used are reported, the rest is loaded."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TimeElapsedColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task("loading the cluster", total=None)
        recording = load_recorded(
            paths,
            progress=lambda done, total: progress.update(task, completed=done, total=total),
            observers=observers,
        )
    for problem in recording.problems[:_MOST_PROBLEMS]:
        console.print(str(problem), markup=False, soft_wrap=True)
    if (more := len(recording.problems) - _MOST_PROBLEMS) > 0:
        console.print(f"... and {counted(more, 'more mistake')}: such objects are left out")
    for kind, names in recording.repeated.items():
        what = f"{counted(len(names), kind)} recorded again, such as `{names[0]}`"
        console.print(
            f"{what}: the last one counts\nhint: {_ONCE_HINT}", markup=False, soft_wrap=True
        )
    return recording


def tell_missing(recording: Recording, console: Console) -> None:
    for note in _missing(recording):
        console.print(note, markup=False, soft_wrap=True)


def _missing(recording: Recording) -> Iterator[str]:
    view = recording.state.view()
    nodes = int(view.valid.sum())
    measured = int((view.valid & (view.metric_time != 0)).sum())
    if not recording.loaded.get("Pod"):
        yield f"no pod is recorded: all nodes count as empty\nhint: {_OBJECTS_HINT}"
    if not view.namespaces.labels:
        yield f"no namespace is recorded: no label of any is known\nhint: {_OBJECTS_HINT}"
    if measured < nodes:
        what = f"of {nodes - measured} of {nodes} nodes no usage" if measured else "no usage"
        yield f"{what} is recorded: rules that read it, as LoadAware, abstain\nhint: {_USAGE_HINT}"


def moment_of(recording: Recording, now: datetime | None) -> tuple[Micros, str]:
    """Return the moment at which ages count, and its origin."""
    if now is not None:
        return micros(now), "as `--now` says"
    if recording.recorded_at:
        return recording.recorded_at, "the latest time in the recording"
    return micros(datetime.now(UTC)), "now: the recording names no moment"


def moment_text(moment: Micros) -> str:
    return date(moment).isoformat().replace("+00:00", "Z")


def known_cluster(paths: Sequence[Path], policies: PolicySet) -> KnownCluster:
    """Return a recorded cluster with its pods as they would be created."""
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
