"""What `bench_outcome` has placed, drawn from a seed: nodes, the load they have, and pods for them.

"even" is nodes of one size, a tenth of them hot, and pods of one ReplicaSet in three sizes.
"uneven" is nodes of three sizes, 15 % of them hot, which no request shows: what the others run has
requests, what the hot ones run has none, so that they look empty. Its pods are of some 50
Deployments, from 20 millicores to 6 cores, a few of them large in number; two Deployments of twelve
small replicas are there to see whether pods get what they ask for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

import numpy as np

Workload: TypeAlias = Literal["uneven", "even"]

WORKLOADS: tuple[Workload, ...] = ("uneven", "even")
SMALL, ZONED = "small", "zoned"
"""The Deployments of twelve replicas; those of the second prefer a zone."""

EXPECTED_PERCENT = 85
"""Of what a pod asks for: LoadAware's default for cpu."""

_ZONES = 3
_TWELVE, _SMALL_MILLICORES = 12, 50
_APPS = 48  # beside the two
_EVEN_CORES, _EVEN_APP = 16, "app"
_EVEN_MILLICORES = (500, 1_000, 2_000)
_CORES, _SHARES = (8, 16, 48), (0.5, 0.35, 0.15)
_LEAST_MILLICORES, _MOST_MILLICORES = 20, 6_000
_MEBIBYTES_PER_CORE = (512, 3_072)  # of pods, where a node has 4,096
_TAINTED_PERCENT = 5
_HOT_PERCENT: Final = {"uneven": 15, "even": 10}
_HOT_USED, _OTHERS_USED = (0.75, 0.90), (0.10, 0.60)
_OTHERS_REQUESTED: Final = {"uneven": (0.2, 0.5), "even": (0.0, 0.0)}


@dataclass(frozen=True, slots=True)
class Machine:
    """A node as it always is.

    Attributes:
        name: of the node.
        cores: that pods may have.
        zone: where it is.
        tainted: whether pods shall rather not go there (PreferNoSchedule).
    """

    name: str
    cores: int
    zone: str
    tainted: bool = False

    @property
    def millicores(self) -> int:
        """What its cores are in the unit of requests."""
        return self.cores * 1_000


@dataclass(frozen=True, slots=True)
class Load:
    """What a node runs before any pod of ours, in millicores.

    Attributes:
        used: as it is measured.
        requested: by the pods that are there.
        hot: whether it is one of those to keep off.
    """

    used: int
    requested: int
    hot: bool


@dataclass(frozen=True, slots=True)
class Ask:
    """A pod to be placed.

    Attributes:
        app: the Deployment that it belongs to.
        millicores: that it asks for, and may use at most.
        mebibytes: the same of memory.
        zone: that it prefers, "" for none.
    """

    app: str
    millicores: int
    mebibytes: int = 64
    zone: str = ""


def machines_of(workload: Workload, count: int) -> list[Machine]:
    """Return nodes; they are the same for every seed of their loads."""
    if workload == "even":
        return [Machine(_name(at), _EVEN_CORES, _zone(at)) for at in range(count)]
    rng = np.random.default_rng(0)
    bounds = np.cumsum(_SHARES) * count
    sizes = [_CORES[np.searchsorted(bounds, at, "right")] for at in range(count)]
    tainted = set(rng.permutation(count)[: count * _TAINTED_PERCENT // 100].tolist())
    order = rng.permutation(count).tolist()
    return [
        Machine(_name(at), sizes[order[at]], _zone(at), tainted=at in tainted)
        for at in range(count)
    ]


def loads_of(workload: Workload, machines: Sequence[Machine], seed: int) -> dict[str, Load]:
    """Return the load of each node; those with a soft taint are never hot."""
    rng = np.random.default_rng(seed)
    open_to_all = [one.name for one in machines if not one.tainted]
    number = len(machines) * _HOT_PERCENT[workload] // 100
    hot = set(rng.permutation(open_to_all)[:number].tolist())
    loads = {}
    for one in machines:
        used = rng.uniform(*(_HOT_USED if one.name in hot else _OTHERS_USED))
        requested = rng.uniform(*_OTHERS_REQUESTED[workload]) * (one.name not in hot)
        loads[one.name] = Load(
            used=round(used * one.millicores),
            requested=round(requested * one.millicores),
            hot=one.name in hot,
        )
    return loads


def apps_of(workload: Workload) -> list[str]:
    """Return the names of all Deployments."""
    if workload == "even":
        return [_EVEN_APP]
    return [SMALL, ZONED, *(f"app-{number:02}" for number in range(_APPS))]


def asks_of(workload: Workload, count: int, seed: int, size_percent: int = 100) -> list[Ask]:
    """Return pods in the order of their creation, those of all Deployments mixed.

    Args:
        workload: which.
        count: of the pods.
        seed: what they are drawn from.
        size_percent: what they ask for, of the usual.
    """
    return [
        replace(
            ask,
            millicores=ask.millicores * size_percent // 100,
            mebibytes=ask.mebibytes * size_percent // 100,
        )
        for ask in _usual_asks(workload, count, seed)
    ]


def _usual_asks(workload: Workload, count: int, seed: int) -> list[Ask]:
    """Return pods of the usual size.

    Sizes of Deployments are spread evenly over their logarithms, so that seeds differ in who has
    which size, and not in how much there is. The numbers of replicas fall off as the root of the
    rank: of 400 pods the largest Deployment has some 30.
    """
    rng = np.random.default_rng(seed)
    if workload == "even":
        return [Ask(_EVEN_APP, size) for size in rng.choice(_EVEN_MILLICORES, count).tolist()]
    asks = [Ask(SMALL, _SMALL_MILLICORES)] * _TWELVE
    asks += [Ask(ZONED, _SMALL_MILLICORES, zone=_zone(0))] * _TWELVE
    left = max(count - len(asks), 0)
    apps = apps_of(workload)[2:][:left]
    weights = 1 / np.sqrt(np.arange(1, len(apps) + 1))
    replicas = 1 + rng.multinomial(left - len(apps), weights / weights.sum()) if apps else ()
    sizes = rng.permutation(np.geomspace(_LEAST_MILLICORES, _MOST_MILLICORES, len(apps)))
    ratios = rng.uniform(*_MEBIBYTES_PER_CORE, len(apps))
    for app, number, size, ratio in zip(apps, replicas, sizes, ratios, strict=True):
        asks += [Ask(app, round(size), max(round(size * ratio / 1_000), 16))] * int(number)
    return [asks[at] for at in rng.permutation(len(asks)).tolist()][:count]


def _name(number: int) -> str:
    return f"node-{number:04}"


def _zone(number: int) -> str:
    return f"zone-{number % _ZONES}"
