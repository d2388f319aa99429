"""`stowplan simulate --repack`: which running pods would have to move, and what fits then."""

from __future__ import annotations

from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from engine.errors import StowplanError
from engine.simulation import RecordedCluster, can_solve, repack
from webhook.cli import console
from webhook.cli.cluster_loading import ClusterPaths, load_cluster, tell_missing
from webhook.cli.exit_codes import Exit
from webhook.cli.pods import PodCollector
from webhook.cli.render import show, show_json
from webhook.pages import repack_blocks


def repack_cluster(
    cluster: ClusterPaths, *, seconds: float, free_nodes: int, seed: int, json: bool
) -> int:
    """Plan moves on a recorded cluster, and print them."""
    if not can_solve():
        raise StowplanError("`--repack` needs OR-Tools\nhint: pip install 'stowplan[solver]'")
    notes, collector = console.errors(), PodCollector()
    recording = load_cluster(cluster, notes, observers=[collector])
    tell_missing(recording, notes)
    pods = list(collector.pods.values())
    recorded = RecordedCluster.of(recording.state.view(), pods, recording.recorded_at)
    columns = (
        SpinnerColumn(),
        TextColumn(f"packing, at most {seconds:g} s"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=notes, transient=True, disable=not notes.is_terminal) as bar:
        bar.add_task("", total=None)
        report = repack(recorded, seconds=seconds, free_nodes=free_nodes, seed=seed)
    if json:
        show_json(report)
    else:
        show(repack_blocks(report))
    return Exit.OK
