"""What a scheduling algorithm is: a filter, a score, or both; and their values.

A plugin is row-wise: its result for a node depends on that node's row, the pod and `now` alone, so
any selection of rows, in any order, gives the same results. Where upstream reads the whole
cluster, such as in ImageLocality, it is the one of which the rows are a selection. A plugin is
built once per rule from its args (a pydantic model with the upstream names) and holds no state;
`view.node_column` and `view.pod_column` cache what is worth it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, ClassVar, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, model_validator
from pydantic.alias_generators import to_camel

from engine.model.pod import Pod
from engine.model.resources import Amounts
from engine.model.rule_outcomes import Codes, FilterResult, NodeThreshold, RuleInputs
from engine.model.time import Micros
from engine.view import BoolColumn, ClusterView, Domain, IntColumn, PodSumProfile

MAX_SCORE = 100
"""Normalised scores lie in 0..MAX_SCORE, as in the scheduler framework."""

PASS = 0
"""The code of a node that passes a filter."""

FAULT = -1
"""The code of a node a filter could not be evaluated for."""


_TYPE_META = ("apiVersion", "kind")


class Args(BaseModel):
    """The `args` of a rule: upstream's camelCase names, nothing else accepted."""

    misplaced_keys: ClassVar[Mapping[str, str]] = {
        key: f"write `{key}` beside `args`"
        for key in ("expression", "message", "name", "onError", "plugin", "weight")
    }
    """Hints for keys of the rule."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        extra="forbid",
        frozen=True,
        populate_by_name=True,
        defer_build=True,  # most commands use a few plugins
    )

    @model_validator(mode="before")
    @classmethod
    def _as_pasted(cls, data: object) -> object:
        """Accept args copied from a scheduler's configuration.

        There a null is a field that is not set, and `apiVersion` and `kind` come first.
        """
        if not isinstance(data, Mapping):
            return data
        return {
            name: value
            for name, value in data.items()
            if value is not None and name not in _TYPE_META
        }


class NoArgs(Args):
    """The args of a plugin that takes none."""


class Named(Enum):
    """What of the cluster an arg names."""

    LABEL = "label"
    NODE = "node"
    RESOURCE = "resource"


class ReadBy(Enum):
    """The only part of a plugin that reads an arg, which both parts accept."""

    FILTER = "filter"
    SCORE = "score"


LabelKey: TypeAlias = Annotated[str, Named.LABEL]
"""The key of a label of nodes, in args."""

NodeName: TypeAlias = Annotated[str, Named.NODE]
"""The name of a node, in args."""

ResourceName: TypeAlias = Annotated[str, Named.RESOURCE]
"""The name of a resource that nodes offer, in args."""


class Scores(msgspec.Struct, frozen=True, gc=False):
    """Raw scores of one scorer.

    Attributes:
        values: (n,) int64, higher is better, any scale; 0 where `faults` is True.
        faults: (n,), where the scorer could not be evaluated; None when nowhere.
    """

    values: IntColumn
    faults: BoolColumn | None = None


class Cycle:
    """One scheduling cycle: a pod, the nodes it may go to, and the moment.

    Attributes:
        pod: the incoming pod, with what policies promise, see `Pod.promised`.
        view: the nodes.
        now: the moment at which ages are judged.
    """

    def __init__(self, pod: Pod, view: ClusterView, now: Micros) -> None:
        """Create the cycle of a pod."""
        self.pod = pod
        self.view = view
        self.now = now


class Filter(ABC):
    """Rejects nodes that cannot, or should not, take a pod."""

    @abstractmethod
    def filter(self, cycle: Cycle) -> FilterResult:
        """Return the rejected nodes, and codes: PASS, FAULT, or a reason > 0."""

    @abstractmethod
    def reasons(self, code: int, cycle: Cycle) -> tuple[str, ...]:
        """Return the texts of a code > 0, in upstream's words and order."""

    def fault(self, cycle: Cycle, row: int) -> str:
        """Return why a row whose code is FAULT could not be evaluated."""
        return ""

    @abstractmethod
    def inputs(self, cycle: Cycle, row: int) -> RuleInputs:
        """Return the values that the formula uses for a node, in reading order.

        They are computed for the few nodes that `explain` lists. Empty where the formula does not
        apply, such as to a pod without limits.
        """


def result_of(codes: Codes) -> FilterResult:
    """Return the result of a filter that gives a code for each node, shape (n,)."""
    return FilterResult(codes != PASS, codes, has_faults=bool(codes.min(initial=PASS) == FAULT))


class Score(ABC):
    """Ranks nodes."""

    @abstractmethod
    def score(self, cycle: Cycle) -> Scores:
        """Return raw scores, shape (n,)."""

    def normalize(self, scores: IntColumn) -> IntColumn:
        """Return the scores as they are.

        Where these are not on 0..MAX_SCORE, it returns those of the candidate nodes on that scale;
        the input holds them alone.

        INVARIANT: where pods change scores that rest on a node alone, its points depend on nothing
        but its score, and the least and the greatest of all.
        """
        return scores

    def fault(self, cycle: Cycle, row: int) -> str:
        """Return why a row marked in `Scores.faults` could not be evaluated."""
        return ""

    @abstractmethod
    def inputs(self, cycle: Cycle, row: int) -> RuleInputs:
        """Return the values that the formula uses for a node; see `Filter.inputs`."""


class ScoreAmong(Score):
    """A score whose raw values depend on which nodes compete; its `score` is as if all did."""

    @abstractmethod
    def score_among(self, cycle: Cycle, rows: NDArray[np.intp]) -> Scores:
        """Return the raw scores of the nodes that compete, of ascending `rows`, in their order."""


class ReadsAllNodes(Score):
    """A score whose value for a node depends on all nodes, whatever the pod."""


def for_no_pod(cycle: Cycle) -> bool:  # noqa: ARG001 (one of two)
    """Return False; see `Plugin.reads_other_nodes`."""
    return False


def for_every_pod(cycle: Cycle) -> bool:  # noqa: ARG001 (one of two)
    """Return True; see `Plugin.reads_other_nodes`."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """An entry of the registry: how a rule of this name is built.

    Attributes:
        args: the pydantic model of its args; upstream's names, defaults and validation.
        reads: the parts of the cluster that its results depend on. INVARIANT: nothing else
            changes them, so a rule works while other parts are stale, and abstains when one of
            these is.
        filter: builds the filter, None if the plugin has none.
        score: builds the scorer, None if the plugin has none.
        sum_profiles: the sums over pods that the view must keep for these args.
        reads_other_nodes: whether in a cycle a result for a node depends on more than its row of
            the view: a pod that comes to another node may change it, or it reads counts that are
            kept by name.
        score_reads_other_nodes: the same of its score, None where that is the same for both.
        concerns: whether its filter may reject any node in a cycle; asked before.
        ranks: whether its score with default args may tell nodes apart in a cycle; asked before.
        estimator: gives the usage to expect of a pod by these args, None if the plugin estimates
            none.
        thresholds: what its filter allows by these args, on nodes that do not say otherwise.
    """

    args: type[Args]
    reads: tuple[Domain, ...]
    filter: Callable[[Any], Filter] | None = None
    score: Callable[[Any], Score] | None = None
    sum_profiles: Callable[[Any], Sequence[PodSumProfile]] = lambda _: ()
    reads_other_nodes: Callable[[Cycle], bool] = for_no_pod
    score_reads_other_nodes: Callable[[Cycle], bool] | None = None
    concerns: Callable[[Cycle], bool] = for_every_pod
    ranks: Callable[[Cycle], bool] = for_every_pod
    estimator: Callable[[Any], Callable[[Pod], Amounts]] | None = None
    thresholds: Callable[[Any], Sequence[NodeThreshold]] = lambda _: ()

    def default_filter(self) -> Filter:
        """Return its filter with default args; it must have one."""
        assert self.filter is not None  # noqa: S101 - INVARIANT
        return self.filter(self.args())

    def default_score(self) -> Score:
        """Return its score with default args; it must have one."""
        assert self.score is not None  # noqa: S101 - INVARIANT
        return self.score(self.args())
