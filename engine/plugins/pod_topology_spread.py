"""PodTopologySpread: spread the pods that a pod selects evenly over the values of a node label.

Source: pkg/scheduler/framework/plugins/podtopologyspread/{common,filtering,scoring,plugin}.go.
Constraints of a pod with `whenUnsatisfiable: DoNotSchedule` reject nodes, the others rank them.

A domain is all nodes with one value of the topology key. It counts if one of its nodes has the keys
of all constraints and is allowed by the affinity and taints that the constraint honours. Pods on
other nodes, and pods that are being deleted, do not count.

Default constraints apply to a pod without its own if a ReplicaSet, ReplicationController or
StatefulSet controls it; they only rank nodes. Nodes without the labels of the default constraints
are kept, so that clusters without zones spread too, unless `defaultConstraints` are written.

Differences from upstream:

- **Controllers**: one is taken to select the pods with the labels of the pod, except labels that
  differ for each pod of a StatefulSet. Upstream reads its selector.
- **Services**: pods that only a Service selects have no default constraints.
- **Large constraints**: more than 64 constraints and requirements, or 8 KiB of them, are a fault on
  every node.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import islice
from math import log
from typing import Annotated, Final, Literal, NamedTuple, Self

import numpy as np
import numpy.ma  # `np.unique` imports it at its first call, for 30 ms of a review
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, model_validator

from engine.documents import mistake
from engine.model import api
from engine.model.pod import Pod
from engine.model.rule_outcomes import FilterResult, RuleInput, RuleInputs, Unit
from engine.model.selectors import LabelSelector
from engine.model.workload import controller_selector
from engine.plugins.base import (
    FAULT,
    MAX_SCORE,
    PASS,
    Args,
    Cycle,
    Filter,
    LabelKey,
    Plugin,
    ReadBy,
    ScoreAmong,
    Scores,
    result_of,
)
from engine.plugins.lib.arithmetic import rounded
from engine.plugins.lib.constraints import (
    TOO_LARGE,
    SpreadConstraint,
    constraints_of,
    counting_key,
    counting_nodes,
    has_label,
    matching_pods,
    sums_of_domains,
)
from engine.view import (
    MISSING,
    BoolColumn,
    ClusterView,
    Domain,
    IntColumn,
    extremes,
    label_column,
    node_label_keys,
)

_HOSTNAME: Final = "kubernetes.io/hostname"
_SYSTEM_DEFAULTS: Final = (
    SpreadConstraint(_HOSTNAME, max_skew=3),
    SpreadConstraint("topology.kubernetes.io/zone", max_skew=5),
)
_OUT: Final = -1
"""The raw score of a node that does not compete, such as one that lacks a label: it gets no points,
and does not sway others."""

_READS: Final = (Domain.NODES, Domain.PODS)
_LONGEST_TABLE: Final = 4_096
_CACHED_TABLES: Final = 64
_SAMPLE: Final = 64  # nodes, mostly enough to see all zones
_MOST_TOLD: Final = 4  # constraints in an explanation, and mistakes in a message
_MISMATCH: Final = 1
_NO_LABEL: Final = 2
_REASONS: Final = {
    _MISMATCH: "node(s) didn't match pod topology spread constraints",
    _NO_LABEL: "node(s) didn't match pod topology spread constraints (missing required label)",
}


def _prefers(written: object) -> object:
    if written == "DoNotSchedule":
        hint = (
            "to reject nodes give pods `topologySpreadConstraints`; a score takes `ScheduleAnyway`"
        )
        raise mistake("default constraints reject no node here", hint)
    return written


class DefaultConstraint(Args):
    """A constraint of pods that have none of their own; the pods that count are their siblings.

    Attributes:
        max_skew: how many pods more than elsewhere may be in a domain at no cost.
        topology_key: the label of nodes whose values are the domains.
        when_unsatisfiable: what happens to a pod that increases the skew.
        node_affinity_policy: whether only nodes count that the affinity of the pod allows.
        node_taints_policy: whether only nodes count whose taints it tolerates.
    """

    max_skew: Annotated[int, Field(strict=True, gt=0)]
    topology_key: Annotated[LabelKey, Field(min_length=1)]
    when_unsatisfiable: Annotated[Literal["ScheduleAnyway"], BeforeValidator(_prefers)]
    node_affinity_policy: Literal["Honor", "Ignore"] = "Honor"
    node_taints_policy: Literal["Honor", "Ignore"] = "Ignore"


class PodTopologySpreadArgs(Args):
    """PodTopologySpreadArgs; default constraints that reject nodes are not supported.

    Attributes:
        default_constraints: of pods that have none of their own, with `defaultingType: List`.
        defaulting_type: whose default constraints count: the System's, by host name with a skew of
            3 and by zone with 5, or those that are listed.
    """

    default_constraints: Annotated[tuple[DefaultConstraint, ...], ReadBy.SCORE] = ()
    defaulting_type: Annotated[Literal["System", "List"], ReadBy.SCORE] = "System"

    @model_validator(mode="after")
    def _are_used(self) -> Self:
        if self.default_constraints and self.defaulting_type == "System":
            hint = "set `defaultingType: List` to use them"
            raise mistake("`defaultConstraints` are not used with the System's", hint)
        return self


class _Spread(NamedTuple):
    """How a constraint finds the pods of a cluster spread."""

    pods: IntColumn  # in the domain of each node, (n,); 0 where a node has none
    has_domain: BoolColumn  # where a node has the label, (n,)
    fewest: int  # in a domain that counts
    most: int  # that there may be in a domain, with the pod itself if it counts
    own: int  # 1 if it counts, else 0

    @property
    def is_exceeded(self) -> BoolColumn:
        """Where the pod would be too much for its domain, (n,)."""
        return self.has_domain & (self.pods > self.most - self.own)


class PodTopologySpreadFilter(Filter):
    """Rejects nodes where a pod would be one too many in its domain, or that are in none."""

    def filter(self, cycle: Cycle) -> FilterResult:
        """Return PASS, or what the first constraint that a node breaks says of it."""
        pod, view = cycle.pod, cycle.view
        if not pod.topology_spread:
            return FilterResult.passing(len(view))
        if view.parent is not None:  # domains are those of all nodes
            whole, rows = view.parent
            return result_of(self.filter(Cycle(pod, whole, cycle.now)).codes[rows])
        constraints = constraints_of(pod.topology_spread)
        if constraints is None or constraints.mistakes:
            return result_of(np.full(len(view), FAULT, np.int8))
        spreads = _spreads(constraints.each, pod, view)
        rejects = np.zeros(len(view), np.bool_)
        for spread in spreads:
            rejects |= ~spread.has_domain | spread.is_exceeded

        def codes() -> NDArray[np.int8]:
            found = np.full(len(view), PASS, np.int8)
            for spread in reversed(spreads):
                found[spread.is_exceeded] = _MISMATCH
                found[~spread.has_domain] = _NO_LABEL
            return found

        return FilterResult(rejects, codes)

    def reasons(self, code: int, cycle: Cycle) -> tuple[str, ...]:
        return (_REASONS[code],)

    def fault(self, cycle: Cycle, row: int) -> str:
        return _fault(cycle.pod.topology_spread)

    def inputs(self, cycle: Cycle, row: int) -> RuleInputs:
        view = cycle.view
        whole, name = view.whole, view.names[row]
        constraints = constraints_of(cycle.pod.topology_spread)
        if constraints is None or constraints.mistakes:
            return ()
        node, row = view.nodes[row], whole.rows[name]
        labels = node.labels if node else {}
        told = zip(constraints.each, _spreads(constraints.each, cycle.pod, whole), strict=True)
        return tuple(
            value
            for constraint, spread in islice(told, _MOST_TOLD)
            for value in _inputs(constraint, spread, labels.get(constraint.key), row)
        )


class _Soft(NamedTuple):
    """The soft constraints of a pod."""

    # those of its own, else the default ones with the selector of its controller
    constraints: tuple[SpreadConstraint, ...] = ()
    # of the pods that count for each; None for none
    selectors: tuple[LabelSelector | None, ...] = ()
    needs_labels: bool = True  # whether only nodes count that have the labels of all constraints


_NOT_SPREAD: Final = _Soft()


class PodTopologySpreadScore(ScoreAmong):
    """Counts the pods that a pod selects in the domains of a node; fewer are better."""

    def __init__(self, args: PodTopologySpreadArgs) -> None:
        self._is_system = args.defaulting_type == "System"
        self._defaults = _SYSTEM_DEFAULTS if self._is_system else _listed(args)

    def score(self, cycle: Cycle) -> Scores:
        """Return the raw scores as if all nodes of the cluster competed."""
        view = cycle.view
        whole, rows = view.parent or (view, np.arange(len(view)))
        competing = np.flatnonzero(whole.valid)
        among = self.score_among(Cycle(cycle.pod, whole, cycle.now), competing)
        values = np.zeros(len(whole), np.int64)
        values[competing] = among.values
        return Scores(values.take(rows), None if among.faults is None else view.valid)

    def score_among(self, cycle: Cycle, rows: NDArray[np.intp]) -> Scores:
        """Return for each node its pods * ln(domains + 2) + maxSkew - 1, over all constraints.

        Where the domains are those of the nodes that compete; -1 for a node that is in none.
        """
        pod, view = cycle.pod, cycle.view
        soft = self._soft(pod)
        if soft is None:
            return Scores(np.zeros(rows.size, np.int64), np.ones(rows.size, np.bool_))
        if not soft.constraints:
            return Scores(np.full(rows.size, _OUT))
        if view.parent is not None:  # domains are those of all nodes
            whole, of_whole = view.parent
            ascending, back = np.unique(of_whole.take(rows), return_inverse=True)
            return Scores(
                self.score_among(Cycle(pod, whole, cycle.now), ascending).values.take(back)
            )
        return Scores(_costs(soft, pod, view, rows))

    def normalize(self, scores: IntColumn) -> IntColumn:
        """Return 100 for the least cost, and less by its share of the greatest one for others."""
        low, most = extremes(scores) if scores.size else (_OUT, _OUT)
        if low > _OUT:
            return _points(scores, low, most)
        competes = scores != _OUT
        least = int(scores.min(where=competes, initial=2**62))
        return np.where(competes, _points(scores, least, most), 0) if most > _OUT else scores * 0

    def fault(self, cycle: Cycle, row: int) -> str:
        return _fault(cycle.pod.soft_topology_spread)

    def inputs(self, cycle: Cycle, row: int) -> RuleInputs:
        pod, view = cycle.pod, cycle.view
        soft = self._soft(pod)
        if soft is None or not soft.constraints:
            return ()
        whole, node = view.whole, view.nodes[row]
        labels, row = node.labels if node else {}, view.whole.rows[view.names[row]]
        counting = counting_nodes(soft.constraints, pod, whole, with_all_labels=soft.needs_labels)
        inputs = []
        told = zip(soft.constraints, soft.selectors, counting, strict=True)
        for constraint, selector, nodes in islice(told, _MOST_TOLD):
            domain = labels.get(constraint.key)
            if domain is None:
                inputs.append(RuleInput(f"label {constraint.key}", text="absent"))
                continue
            pods = matching_pods(selector, pod.namespace, whole)
            if constraint.key != _HOSTNAME:
                pods = sums_of_domains(label_column(whole, constraint.key), pods * nodes)
            name = f"pods in {constraint.key}={domain}"
            inputs.append(RuleInput(name, int(pods[row]), Unit.COUNT))
        return tuple(inputs)

    def _soft(self, pod: Pod) -> _Soft | None:
        """Return the soft constraints of a pod, None where some cannot be read."""
        if pod.soft_topology_spread:
            read = constraints_of(pod.soft_topology_spread)
            if read is None or read.mistakes:
                return None
            return _Soft(read.each, tuple([each.selector_for(pod) for each in read.each]))
        selector = None
        if self._defaults and not pod.topology_spread:
            selector = controller_selector(pod)
        if selector is None:
            return _NOT_SPREAD
        selectors = (selector,) * len(self._defaults)
        return _Soft(self._defaults, selectors, needs_labels=not self._is_system)


def _listed(args: PodTopologySpreadArgs) -> tuple[SpreadConstraint, ...]:
    return tuple(
        SpreadConstraint(
            each.topology_key,
            each.max_skew,
            honors_affinity=each.node_affinity_policy == "Honor",
            honors_taints=each.node_taints_policy == "Honor",
        )
        for each in args.default_constraints
    )


class _Domains(NamedTuple):
    """Which domains of some labels nodes are in; those that share all of them share a number."""

    of_nodes: NDArray[np.intp]  # the number of each node, (n,)
    # of each label the domain that each number stands for, (len(labels), n_numbers); MISSING for
    # none. Of _HOSTNAME only whether there is one
    codes: NDArray[np.intp]
    are_all: BoolColumn  # which numbers stand for a domain of each label, (n_numbers,)
    sizes: tuple[int, ...]  # how many domains of each label there are; to be in none counts as one


def _domains(keys: tuple[str, ...], view: ClusterView) -> _Domains:
    """Return the domains of nodes by some labels, remembered until a node changes."""

    def make(view: ClusterView) -> _Domains:
        known, codes = node_label_keys(view), np.zeros((len(keys), len(view)), np.intp)
        of_nodes, firsts = np.zeros(len(view), np.intp), np.zeros(1, np.intp)
        for at, key in enumerate(keys):
            if key in known:
                label = label_column(view, key)
                codes[at] = label.present if key == _HOSTNAME else label.codes
                numbers = of_nodes * (int(codes[at].max()) + 1) + codes[at]
                _, firsts, of_nodes = np.unique(numbers, return_index=True, return_inverse=True)
        of_numbers = codes[:, firsts]
        are_all = (of_numbers != MISSING).all(axis=0)
        return _Domains(of_nodes, of_numbers, are_all, _sizes(of_numbers))

    return view.node_aggregate(("domains", keys), (Domain.NODES,), make)


def _sizes(codes: NDArray[np.intp]) -> tuple[int, ...]:
    return tuple([np.unique(each).size for each in codes])


def _costs(soft: _Soft, pod: Pod, view: ClusterView, rows: NDArray[np.intp]) -> IntColumn:
    """Return what soft constraints, at least one, cost each node of ascending rows, else _OUT."""
    if not rows.size:
        return np.zeros(0, np.int64)
    domains = _domains(tuple([each.key for each in soft.constraints]), view)
    weights = _weights(soft, domains, rows)
    # They follow from the nodes that compete, which seldom have other domains than before.
    counting = counting_key(soft.constraints, pod, with_all_labels=soft.needs_labels)
    key = "spread costs", weights, soft, pod.namespace, counting
    costs = view.node_aggregate(key, _READS, lambda view: _costs_by(weights, soft, pod, view))
    return costs.take(rows)


def _weights(soft: _Soft, domains: _Domains, rows: NDArray[np.intp]) -> tuple[float, ...]:
    """Return the weight of each constraint, which is more for more domains of nodes of rows."""
    nodes, sizes = rows.size, domains.sizes
    sample = np.bincount(domains.of_nodes.take(rows[:_SAMPLE]), minlength=domains.are_all.size)
    # Mostly a few of the nodes are in all domains that there are.
    if not sample.all() or (soft.needs_labels and not domains.are_all.all()):
        counts = np.bincount(domains.of_nodes.take(rows), minlength=domains.are_all.size)
        if soft.needs_labels:
            counts *= domains.are_all
        nodes = int(counts.sum())
        sizes = _sizes(domains.codes[:, counts > 0])
    return tuple(
        [
            log((nodes if each.key == _HOSTNAME else size) + 2)
            for each, size in zip(soft.constraints, sizes, strict=True)
        ]
    )


def _costs_by(weights: Sequence[float], soft: _Soft, pod: Pod, view: ClusterView) -> IntColumn:
    """Return the costs of all nodes, (n,).

    Nodes are told apart by their domains, of which there are few, and by the pods on them, which
    few have: so each domain is summed up once, and such nodes by themselves.
    """
    domains = _domains(tuple([each.key for each in soft.constraints]), view)
    counting = counting_nodes(soft.constraints, pod, view, with_all_labels=soft.needs_labels)
    pods = {
        selector: matching_pods(selector, pod.namespace, view)
        for selector in dict.fromkeys(soft.selectors)
    }
    first, *others = pods.values()
    (taken,) = (sum(others, start=first) != 0).nonzero()
    numbers = domains.of_nodes.take(taken)
    # In the order of the constraints, as upstream, for these are sums of floats.
    by_number, of_taken = np.zeros(domains.are_all.size), np.zeros(taken.size)
    for constraint, weight, selector, counts, codes in zip(
        soft.constraints, weights, soft.selectors, counting, domains.codes, strict=True
    ):
        least, on_taken = constraint.max_skew - 1, pods[selector].take(taken)
        if constraint.key == _HOSTNAME:
            is_domain = codes != MISSING
            by_number += np.where(is_domain, least, 0)
            of_taken += np.where(is_domain.take(numbers), on_taken * weight + least, 0)
        else:
            counted = np.where(counts.take(taken), on_taken, 0)
            sums = np.bincount(codes.take(numbers), counted, minlength=int(codes.max()) + 1)
            of_domains = sums * weight + least
            of_domains[MISSING] = 0
            by_number += of_domains.take(codes)
            of_taken += of_domains.take(codes.take(numbers))
    costs = rounded(by_number).take(domains.of_nodes)
    costs[taken] = rounded(of_taken)
    if soft.needs_labels:
        costs[~domains.are_all.take(domains.of_nodes)] = _OUT
    return costs


def _points(costs: IntColumn, least: int, most: int) -> IntColumn:
    """Return MAX_SCORE for the least cost; anything for costs below it."""
    if not most:
        return np.full(costs.size, MAX_SCORE)
    if most > _LONGEST_TABLE:
        return MAX_SCORE * (most + least - costs) // most
    return _points_by_cost(least, most).take(costs, mode="clip")


@lru_cache(maxsize=_CACHED_TABLES)
def _points_by_cost(least: int, most: int) -> IntColumn:
    return MAX_SCORE * (most + least - np.arange(most + 1)) // most


def _fault(written: tuple[api.TopologySpreadConstraint, ...]) -> str:
    constraints = constraints_of(written)
    if constraints is None:
        return TOO_LARGE
    return "; ".join(str(mistake) for mistake in constraints.mistakes[:_MOST_TOLD])


def _inputs(
    constraint: SpreadConstraint, spread: _Spread, domain: str | None, row: int
) -> list[RuleInput]:
    if domain is None:
        return [RuleInput(f"label {constraint.key}", text="absent")]
    pods = int(spread.pods[row]) + spread.own
    return [
        RuleInput(
            f"pods in {constraint.key}={domain}",
            pods,
            Unit.COUNT,
            capacity=spread.most,
            pod=spread.own,
        ),
        RuleInput("fewest in a domain", spread.fewest, Unit.COUNT),
    ]


def _spreads(constraints: Sequence[SpreadConstraint], pod: Pod, view: ClusterView) -> list[_Spread]:
    """Return how each constraint finds the pods of a whole cluster spread."""
    included = counting_nodes(constraints, pod, view)
    return [
        _spread(constraint, which, pod, view)
        for constraint, which in zip(constraints, included, strict=True)
    ]


def _spread(
    constraint: SpreadConstraint, included: BoolColumn, pod: Pod, view: ClusterView
) -> _Spread:
    """Return how a constraint finds pods spread; included are the nodes that count, (n,)."""
    pods, domains, fewest = np.zeros(len(view), np.int64), 0, 0
    has_domain = has_label(constraint.key, view)
    selector = constraint.selector_for(pod)
    if included.any():
        label = label_column(view, constraint.key)
        pods = matching_pods(selector, pod.namespace, view)
        pods = sums_of_domains(label, np.where(included, pods, 0))
        domains = int(np.count_nonzero(np.bincount(label.codes[included])))
        if domains >= constraint.min_domains:
            fewest = int(pods[included].min())
    return _Spread(
        pods=pods,
        has_domain=has_domain,
        fewest=fewest,
        most=fewest + constraint.max_skew,
        own=int(selector is not None and selector.matches(pod.labels)),
    )


def _is_spread(cycle: Cycle) -> bool:
    """Return whether a pod has a constraint that rejects nodes."""
    return bool(cycle.pod.topology_spread)


def _is_ranked(cycle: Cycle) -> bool:
    """Return whether a pod has a constraint that ranks nodes, be it a default one."""
    pod = cycle.pod
    if pod.topology_spread or pod.soft_topology_spread:
        return bool(pod.soft_topology_spread)
    return controller_selector(pod) is not None


PLUGIN = Plugin(
    args=PodTopologySpreadArgs,
    filter=lambda _: PodTopologySpreadFilter(),
    score=PodTopologySpreadScore,
    reads=_READS,
    reads_other_nodes=_is_spread,
    score_reads_other_nodes=_is_ranked,
    concerns=_is_spread,
    ranks=_is_ranked,
)
