"""Where a gang goes: on any nodes, or in one part of the cluster that holds all of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.batch.domain_room import DomainRoom
from engine.batch.judge import DEFAULT_SCOPE, JudgeOfAll
from engine.batch.templates import template_keys
from engine.batch.trial import Trial, trial_of
from engine.model.gang import GangTopology
from engine.model.request import PlacementRequest
from engine.model.time import Micros
from engine.pipeline import Scope
from engine.policy import PolicySet
from engine.view import FRESH, MISSING, ClusterView, Freshness, label_column

_MOST_TRIALS: Final = 16
"""Of domains: only what pods add up to beyond their requests makes a domain fail its trial."""


class GangPlacement(msgspec.Struct, frozen=True, kw_only=True):
    """What would become of the members of a gang.

    Attributes:
        trial: of them all; on the nodes of the domain where there is one.
        domain: the value of the topology's label on all of their nodes, "" if they may be anywhere.
        message: why they are not in one domain, in one line; "" where they are, or need not be.
    """

    trial: Trial
    domain: str = ""
    message: str = ""


class StartingGang(msgspec.Struct, frozen=True, kw_only=True):
    """The members of a gang that are to start together.

    Attributes:
        requests: their pods, in order, and their contexts.
        topology: the label whose values name domains; None where any nodes do.
        beside: the names of the nodes of members that run: the domain of most of them is the only
            one for the others.
    """

    requests: Sequence[PlacementRequest]
    topology: GangTopology | None = None
    beside: Collection[str] = ()


def place_gang(
    gang: StartingGang,
    policies: PolicySet,
    view: ClusterView,
    now: Micros,
    *,
    scope: Scope = DEFAULT_SCOPE,
    freshness: Freshness = FRESH,
) -> GangPlacement:
    """Find a node for every member of a gang, as `place_all` does, in one domain if it asks so.

    Of the domains that can hold all of it, the one with the least room is taken, so that large
    gangs find room in others. Where none can, a gang that only prefers one goes anywhere.

    Args:
        gang: the members, none of which counts on a node of the view.
        policies: the loaded policies.
        view: the observed cluster; must keep the sums of `policies.sum_profiles`.
        now: the moment.
        scope: the pods that policies place.
        freshness: the domains of the view that are too old; rules that read one abstain.
    """
    requests, topology = gang.requests, gang.topology
    judge = JudgeOfAll(policies=policies, now=now, scope=scope, freshness=freshness)
    keys = template_keys(requests, policies, view)

    def trial_on(rows: NDArray[np.intp] | None) -> Trial:
        return trial_of(requests, judge, view, keys, rows=rows)

    if topology is None or not requests:
        return GangPlacement(trial=trial_on(None))
    only = _domain_of(gang.beside, view, topology.key)
    room = DomainRoom(requests, keys, judge, view, topology.key)
    failed: dict[str, str] = {}
    for domain, rows in room.fitting(_MOST_TRIALS, only=only):
        trial = trial_on(rows)
        if trial.failed is None:
            return GangPlacement(trial=trial, domain=domain)
        failed[domain] = trial.message
    message = room.shortage(failed)
    if topology.required:
        return GangPlacement(trial=Trial(outcomes=(), failed=0, message=message), message=message)
    return GangPlacement(trial=trial_on(None), message=message)


def domains_of_gang(
    gang: StartingGang,
    policies: PolicySet,
    view: ClusterView,
    now: Micros,
    *,
    most: int,
    scope: Scope = DEFAULT_SCOPE,
    freshness: Freshness = FRESH,
) -> Iterator[NDArray[np.intp]]:
    """Yield the rows of each domain that may hold a gang, the one with the least room first.

    Args:
        gang: the members, none of which counts on a node of the view; with a topology.
        policies: the loaded policies.
        view: the observed cluster.
        now: the moment.
        most: domains.
        scope: the pods that policies place.
        freshness: the domains of the view that are too old; rules that read one abstain.
    """
    if gang.topology is None:
        return
    judge = JudgeOfAll(policies=policies, now=now, scope=scope, freshness=freshness)
    keys = template_keys(gang.requests, policies, view)
    room = DomainRoom(gang.requests, keys, judge, view, gang.topology.key)
    only = _domain_of(gang.beside, view, gang.topology.key)
    for _, rows in room.fitting(most, only=only):
        yield rows


def _domain_of(names: Collection[str], view: ClusterView, key: str) -> str | None:
    """Return the domain of most of some nodes, None where none of them is in any."""
    labels = label_column(view, key)
    codes = [int(labels.codes[view.rows[name]]) for name in names if name in view.rows]
    found = Counter(labels.values[code] for code in codes if code != MISSING)
    ordered = sorted((-count, domain) for domain, count in found.items() if domain is not None)
    return ordered[0][1] if ordered else None
