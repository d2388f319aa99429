"""Who arrives when: the pods of a recording, those of manifests, or a generated day of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec
import numpy as np

from engine.model.pod import Pod
from engine.model.time import SECOND, Micros, micros
from engine.placement import ANNOTATIONS
from engine.report import ArrivalSource

DAY_SECONDS: Final = 86_400
_BUSIEST: Final = 14 / 24  # of the day
_SWING: Final = 0.75  # of the mean rate: the quietest moment has a quarter of it
_OURS: Final = frozenset(ANNOTATIONS)


class RecordedPod(msgspec.Struct, frozen=True, gc=False):
    """A pod as it was recorded, or as a manifest has it.

    Attributes:
        pod: its model.
        raw: the object as JSON.
    """

    pod: Pod
    raw: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A pod that is to be placed.

    Attributes:
        pod: as it would be created: on no node, without gates and without notes of ours; with the
            name that it has afterwards.
        raw: the same as JSON, as webhooks get it: without a name that is generated.
        at: microseconds since the first arrival.
        ends_at: when it is gone, in the same; None for never.
        recorded_on: the node that it was recorded on, "" for none.
        like: `namespace/name` of the recorded pod whose load it has, "" for none.
        exists: whether it was created before, and waits for a node: quotas have let it in.
    """

    pod: Pod
    raw: bytes
    at: int = 0
    ends_at: int | None = None
    recorded_on: str = ""
    like: str = ""
    exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """Pods that are to be placed.

    Attributes:
        source: where they come from.
        pods: in order of arrival.
        moves: `namespace/name` of recorded pods that do not stay where they are.
        request: the fields of the admission request that expressions may read.
    """

    source: ArrivalSource
    pods: Sequence[Arrival]
    moves: frozenset[str] = frozenset()
    request: Mapping[str, Any] = field(default_factory=lambda: {"operation": "CREATE"})

    @property
    def are_created(self) -> bool:
        """Whether pods are created now, so that quotas judge them; else they were long ago."""
        return self.source in {ArrivalSource.MANIFESTS, ArrivalSource.CHANGES}

    @property
    def figures_at(self) -> int:
        """The moment of all figures, in microseconds since the first arrival.

        The end; where pods end, the first moment at which most run if all fit.
        """
        if all(arrival.ends_at is None for arrival in self.pods):
            return max((arrival.at for arrival in self.pods), default=0)
        changes = [(arrival.at, 1) for arrival in self.pods]
        changes += [(each.ends_at, -1) for each in self.pods if each.ends_at is not None]
        changes.sort()
        running = np.cumsum([change for _, change in changes])
        return changes[int(running.argmax())][0]


def is_movable(pod: Pod) -> bool:
    """Return whether a pod may be placed elsewhere: it is of no DaemonSet, and no mirror pod."""
    return not (pod.is_daemon_set or pod.is_mirror or pod.is_terminal)


def recorded_arrivals(pods: Iterable[RecordedPod]) -> Arrivals:
    """Return the pods of a recording in order of their creation; all nodes are emptied of them.

    Args:
        pods: all pods of the recording. Those that are pinned to their node stay there.
    """
    return _arrivals(ArrivalSource.RECORDING, [each for each in pods if is_movable(each.pod)])


def manifest_arrivals(pods: Iterable[RecordedPod]) -> Arrivals:
    """Return new pods in their order, which arrive at once on the cluster as it is."""
    arrivals = [replace(new_arrival(each), recorded_on="", like="", exists=False) for each in pods]
    return Arrivals(source=ArrivalSource.MANIFESTS, pods=arrivals)


def arrivals_at_once(
    source: ArrivalSource, pods: Iterable[RecordedPod], more: Iterable[Arrival] = ()
) -> Arrivals:
    """Return recorded pods that are to be placed at once, in order of creation, then others."""
    arrivals = _arrivals(source, list(pods))
    at_once = [replace(arrival, at=0) for arrival in (*arrivals.pods, *more)]
    return replace(arrivals, pods=at_once)


def new_arrival(recorded: RecordedPod) -> Arrival:
    """Return a pod as it arrives at once."""
    return _arrival(recorded, at=0)


def generated_arrivals(pods: Iterable[RecordedPod], seed: int) -> Arrivals:
    """Return a day of pods like those of a recording.

    All of those are there at its beginning, in order of their creation. As many more come over the
    day, each like one of them, at a rate that rises to 1.75 times its mean at 14:00 and falls to a
    quarter at 2:00. A pod lives for an exponentially distributed time with a mean of one day.

    Args:
        pods: all pods of the recording.
        seed: the same gives the same day.
    """
    random = np.random.default_rng(seed)
    templates = recorded_arrivals(pods)
    count = len(templates.pods)
    lives = random.exponential(DAY_SECONDS * SECOND, 2 * count).astype(np.int64).tolist()
    first = [
        replace(arrival, at=0, ends_at=life)
        for arrival, life in zip(templates.pods, lives, strict=False)
    ]
    moments = _moments(random, count)
    chosen = random.integers(0, max(count, 1), count).tolist()
    later = [
        _copy(templates.pods[template], number, at, at + life)
        for number, (template, at, life) in enumerate(
            zip(chosen, moments, lives[count:], strict=True)
        )
    ]
    return replace(templates, source=ArrivalSource.GENERATED, pods=[*first, *later])


def copies(arrival: Arrival, count: int) -> list[Arrival]:
    """Return so many new pods like one that arrives, each with a name of its own."""
    return [_copy(arrival, number, arrival.at, None) for number in range(count)]


def _arrivals(source: ArrivalSource, pods: Sequence[RecordedPod]) -> Arrivals:
    ordered = sorted(pods, key=lambda each: (_created(each.pod), each.pod.key))
    start = _created(ordered[0].pod) if ordered else 0
    return Arrivals(
        source=source,
        pods=[_arrival(each, at=_created(each.pod) - start) for each in ordered],
        moves=frozenset(each.pod.key for each in ordered),
    )


def _created(pod: Pod) -> Micros:
    return Micros(0) if pod.created is None else micros(pod.created)


def _arrival(recorded: RecordedPod, *, at: int) -> Arrival:
    pod = recorded.pod
    return Arrival(
        pod=msgspec.structs.replace(
            pod,
            annotations=_without_ours(pod.annotations),
            node_name="",
            scheduling_gates=(),
            nominated_node_name="",
            phase="",
            deleting=False,
            scheduled_at=None,
            initialized_at=None,
        ),
        raw=_as_created(recorded.raw),
        at=at,
        recorded_on=pod.node_name,
        like=pod.key,
        exists=not pod.node_name,
    )


def _without_ours(annotations: Mapping[str, str]) -> Mapping[str, str]:
    if _OURS.isdisjoint(annotations):
        return annotations
    return {name: text for name, text in annotations.items() if name not in _OURS}


def _as_created(raw: bytes) -> bytes:
    """Return a pod as it was before it was scheduled and we wrote on it."""
    document = msgspec.json.decode(raw, type=dict[str, Any])
    document.pop("status", None)
    spec = {**(document.get("spec") or {})}
    for name in ("nodeName", "schedulingGates"):
        spec.pop(name, None)
    metadata = {**(document.get("metadata") or {})}
    metadata["annotations"] = _without_ours(metadata.get("annotations") or {})
    if metadata.get("generateName"):
        metadata.pop("name", None)
    return msgspec.json.encode({**document, "metadata": metadata, "spec": spec})


def _copy(template: Arrival, number: int, at: int, ends_at: int | None) -> Arrival:
    """Return another pod like one."""
    pod = template.pod
    name = f"{pod.generate_name or f'{pod.name}-'}new-{number}"
    copied = msgspec.structs.replace(pod, name=name, uid=f"{pod.uid}/{number}")
    return replace(template, pod=copied, at=at, ends_at=ends_at, recorded_on="", exists=False)


def _moments(random: np.random.Generator, count: int) -> list[int]:
    """Return moments of a day in ascending order, in microseconds, dense where it is busy.

    The rate at the fraction x of the day is 1 + SWING cos(2 pi (x - BUSIEST)) times its mean;
    moments are drawn by inverting its integral on a grid of seconds.
    """
    grid = np.arange(DAY_SECONDS + 1) / DAY_SECONDS
    turn = 2 * math.pi
    integral = grid + _SWING / turn * (np.sin(turn * (grid - _BUSIEST)) + math.sin(turn * _BUSIEST))
    drawn = np.sort(random.random(count))
    seconds = np.interp(drawn, integral, grid * DAY_SECONDS)
    moments: list[int] = (seconds * SECOND).astype(np.int64).tolist()
    return moments
