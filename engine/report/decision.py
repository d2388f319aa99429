"""A decision with all its reasons, node by node: what `explain --json` and debug pages show."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from engine.model.decision import RejectionSummary, Verdict
from engine.model.rule_input import RuleInputs


class PodName(msgspec.Struct, frozen=True):
    """The pod a decision is for; a name that is still to be generated ends with `*`."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """Return `namespace/name`."""
        return f"{self.namespace}/{self.name}"


class RuleScore(msgspec.Struct, frozen=True, kw_only=True):
    """The score of one rule for one node.

    Attributes:
        raw: as the plugin or expression gave it.
        normalized: 0 to 100, over the candidates alone.
        weighted: `normalized * weight`.
    """

    policy: str
    rule: str
    raw: int | float
    normalized: int
    weight: int
    weighted: int


class RankedNode(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate, with the sum of its weighted scores."""

    node: str
    total: int
    scores: tuple[RuleScore, ...]


class RuleReason(msgspec.Struct, frozen=True):
    """The reason that a rule gives for a rejection, or for having no effect."""

    policy: str
    rule: str
    reason: str


class RuleKind(StrEnum):
    """What a rule does."""

    FILTER = "filter"
    SCORE = "score"


class RuleEvaluation(msgspec.Struct, frozen=True):
    """The values that a rule evaluated for a node; `kind` is that of the rule."""

    policy: str
    rule: str
    inputs: RuleInputs
    kind: RuleKind


class NodeStanding(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a decision says of one node, whatever its rank.

    Attributes:
        rank: 1 for the best, 0 if it is no candidate.
        behind: by how many points its total is below that of the best.
        rejected: every rule that rejected it.
    """

    node: str
    rank: int = 0
    behind: int = 0
    rejected: tuple[RuleReason, ...] = ()


class BindingReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What became of a binding.

    Attributes:
        action: Keep, Move or Deny.
        reason: why, for programs.
        scheduler_node: the node that the scheduler took.
        node: the node that the pod got; where it was denied, the scheduler's.
        message: why, for people.
    """

    action: str
    reason: str
    scheduler_node: str
    node: str
    message: str


class DecisionReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A whole decision.

    Attributes:
        estimate: expected usage of the pod, as quantities.
        nodes: how many there are.
        candidates: how many of them fit.
        ranking: the candidates, best first.
        rejected: the other nodes, in order of their names, each with every rule that rejected it.
        rejected_by: number of nodes by the first rule that rejected them, and its reason.
        abstained: the rules that had no effect.
        errors: the rules that could not be evaluated.
        decided_at: ISO 8601.
        age_seconds: age of each source of the view.
        inputs: by node; None if not asked for.
        audit: the decision of policies in Audit mode, None if there are none.
        held: whether policies have the pod held before the scheduler sees it.
        standing: of the node that was asked about; None if none was, or there is no such node.
        binding: what became of the binding that it was made for; None if it was made for none.
    """

    pod: PodName
    verdict: Verdict
    message: str
    policies: tuple[str, ...]
    estimate: Mapping[str, str]
    nodes: int
    candidates: int
    ranking: tuple[RankedNode, ...]
    rejected: Mapping[str, tuple[RuleReason, ...]]
    rejected_by: tuple[RejectionSummary, ...]
    abstained: tuple[RuleReason, ...]
    errors: tuple[str, ...]
    decided_at: str
    view_version: int
    age_seconds: Mapping[str, int]
    inputs: Mapping[str, tuple[RuleEvaluation, ...]] | None = None
    audit: DecisionReport | None = None
    held: bool = False
    standing: NodeStanding | None = None
    binding: BindingReport | None = None
