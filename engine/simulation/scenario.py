"""The arrivals of a what-if: pods that wait, those that have to move, and new ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from engine.report import ArrivalSource
from engine.simulation.arrivals import Arrivals, arrivals_at_once
from engine.simulation.changes import Change, Changed
from engine.simulation.recorded_cluster import RecordedCluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A cluster after changes, and who arrives.

    Attributes:
        cluster: after the changes.
        arrivals: the pods that are to be placed.
        changes: each in a line.
    """

    cluster: RecordedCluster
    arrivals: Arrivals
    changes: tuple[str, ...] = ()


def what_if(
    cluster: RecordedCluster, changes: Sequence[Change], arrivals: Arrivals | None = None
) -> Scenario:
    """Return a cluster after changes, made in order.

    Args:
        cluster: as it was recorded.
        changes: to be made.
        arrivals: the pods that are to be placed; None for those that wait in the recording, that
            have to move or that are new by the changes. Other arrivals come after those.

    Raises:
        ChangeError: one cannot be made.
    """
    changed, lines = Changed(cluster=cluster), []
    for change in changes:
        lines.append(change.describe(changed.cluster))
        changed = change.apply(changed)
    return Scenario(
        cluster=changed.cluster,
        arrivals=_arrivals(changed, arrivals),
        changes=tuple(lines),
    )


def _arrivals(changed: Changed, given: Arrivals | None) -> Arrivals:
    cluster = changed.cluster
    if given is not None and given.source is not ArrivalSource.MANIFESTS:
        ended = [each for each in given.pods if each.pod.key not in changed.ends]
        return replace(given, pods=[*ended, *changed.new], moves=given.moves | changed.ends)
    waiting = cluster.waiting() if given is None else ()
    moving = [each for each in cluster.pods if each.pod.key in changed.moves]
    more = (*changed.new, *(() if given is None else given.pods))
    source = ArrivalSource.CHANGES if given is None else given.source
    arrivals = arrivals_at_once(source, (*waiting, *moving), more)
    return replace(arrivals, moves=arrivals.moves | changed.ends)
